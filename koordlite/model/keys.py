"""Every label and annotation key we read or write, in one table."""

QOS_CLASS = "koordinator.sh/qosClass"
PRIORITY_CLASS = "koordinator.sh/priority-class"

RESERVATION = "node.koordinator.sh/reservation"
SYSTEM_QOS = "node.koordinator.sh/system-qos-resource"
COLOCATION_STRATEGY = "node.koordinator.sh/colocation-strategy"
CPU_RECLAIM_RATIO = "node.koordinator.sh/cpu-reclaim-ratio"
MEMORY_RECLAIM_RATIO = "node.koordinator.sh/memory-reclaim-ratio"

CPU_BASIC_INFO = "node.koordinator.sh/cpu-basic-info"
CPU_TOPOLOGY = "node.koordinator.sh/cpu-topology"
LS_SHARED_POOLS = "node.koordinator.sh/cpu-shared-pools"
BE_SHARED_POOLS = "node.koordinator.sh/be-cpu-shared-pools"
POD_CPU_ALLOCS = "node.koordinator.sh/pod-cpu-allocs"
CPU_MANAGER_POLICY = "kubelet.koordinator.sh/cpu-manager-policy"

RESOURCE_SPEC = "scheduling.koordinator.sh/resource-spec"
RESOURCE_STATUS = "scheduling.koordinator.sh/resource-status"
NUMA_TOPOLOGY_SPEC = "scheduling.koordinator.sh/numa-topology-spec"
POD_RESCTRL = "node.koordinator.sh/resctrl"

PLACEMENT = "placement.koordlite.io/containers"
"""On the NodeResourceTopology: where containers with a promise really run. JSON, see `model.nrt.Placement`."""

BATCH_CPU = "kubernetes.io/batch-cpu"
BATCH_MEMORY = "kubernetes.io/batch-memory"
