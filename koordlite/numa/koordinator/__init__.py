"""Koordinator's NodeNUMAResource as arithmetic: which CPUs and NUMA nodes a pod gets on a node, or why none.

`node_report` reads the node, `ask` the pod, `schedule` answers for both: filter, score, allocation, annotations.
"""
