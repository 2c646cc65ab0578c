"""The allocators of CPUs, memory and NUMA nodes: kubelet's, Koordinator's, Crane's and Volcano's rules as arithmetic.

One package or module for each: numbers and sets in and out, no I/O, no clock, no state between calls. The agent, the
descheduler's fit and the scheduler's side ask the same functions, so "would it pass admission there" has one answer.
"""
