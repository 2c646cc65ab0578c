"""Where we read the cluster's settings and count what a node offers differently on purpose."""

from __future__ import annotations

import json
from typing import Any

from koordlite.model.quantity import Quantity
from tests.conformance import config_rules, resource_rules, topology_rules
from tests.conformance.deviation import Deviation


def _refused(given: Any, wanted: Any, found: Any) -> bool:
    return bool(found == "refused")


def _asks_for_what_is_not_there(given: Any, wanted: Any, found: Any) -> bool:
    written = json.loads(given["annotations"]["node.koordinator.sh/reservation"])
    count = Quantity.parse((written.get("resources") or {}).get("cpu", "0"))
    return "reservedCPUs" in written or -(-count.milli // 1000) > len(given["topology"])


def _negative(given: Any, wanted: Any, found: Any) -> bool:
    return any(amount.nano < 0 for amount in wanted[1].values())


DEVIATIONS = (
    Deviation(
        (
            "GetReservedCPUs",
            "GetNodeReservationFromAnnotation",
            "getNodeReserved",
            "reservedCPUs",
            "reservedResources",
            "cpu_suppress.adjust_by_cpuset",
            "cpu_suppress.recover_cpuset",
        ),
        _refused,
        "reservation-refused: an annotation that cannot be read is an error, never 'nothing reserved'",
    ),
    Deviation(
        ("getNodeReserved",),
        _negative,
        "reservation-negative: a negative amount counts as 0",
    ),
    Deviation(
        ("getNodeReserved",),
        _asks_for_what_is_not_there,
        "reservation-beyond-machine: what the machine lacks is dropped, and the rest is reserved",
    ),
    Deviation(
        ("UpdateColocationStrategyForNode", "GetNodeColocationStrategy"),
        config_rules.ratio_beyond_numbers,
        "config-ratio-labels: a label that is no finite ratio is ignored and told",
    ),
    Deviation(
        ("UpdateColocationStrategyForNode", "GetNodeColocationStrategy"),
        config_rules.annotation_beyond_ranges,
        "config-node-annotation: a strategy on the node with a value out of range is ignored and told",
    ),
    Deviation(
        ("mergeSLOCfg",),
        config_rules.bandwidth_inherited,
        "config-bandwidth-inherited: a group that does not name the bandwidth has the cluster's",
    ),
    Deviation(
        ("mergeSLOCfg",),
        config_rules.lists_replaced,
        "config-lists: a list takes the place of the cluster's, element by element nothing is inherited",
    ),
    Deviation(
        ("mergeSLOCfg",),
        config_rules.beyond_ranges,
        "config-ranges: a value out of range refuses the document of the cluster, or the entry of a group",
    ),
    Deviation(
        ("getContainerCPUSet", "SetContainerCPUSet", "SetHostAppCPUSet"),
        topology_rules.emptied_set,
        "pools-emptied: a pool without CPUs is no pool, and sets are joined as sets",
    ),
    Deviation(
        ("getContainerCPUSet", "SetContainerCPUSet"),
        topology_rules.no_cpu_list,
        "cpuset-unchecked: a promise that is no CPU list is refused, and nothing is written",
    ),
    Deviation(
        ("reportNodeTopology", "removeSystemQOSCPUs"),
        topology_rules.emptied_pools,
        "pools-emptied: a pool without CPUs is no pool, and sets are joined as sets",
    ),
    Deviation(
        ("reportNodeTopology",),
        topology_rules.unrequested,
        "assignment-checked: a pod is assigned no more CPUs than it requests",
    ),
    Deviation(
        ("reportNodeTopology",),
        topology_rules.finished_pod,
        "finished-pod-cpus: the CPUs of a pod that has finished are shared again",
    ),
    Deviation(
        ("reportNodeTopology",),
        topology_rules.pinned_reservation,
        "reservation-pinned: a reservation by quantity avoids CPUs that pods own",
    ),
    Deviation(
        ("reportNodeTopology",),
        topology_rules.reserved_beyond,
        "reservation-beyond-machine: what the machine lacks is dropped, and the rest is reserved",
    ),
    Deviation(
        ("reportNodeTopology",),
        topology_rules.system_qos_unread,
        "system-qos-refused: an annotation that cannot be read leaves the last good value, and the report goes on",
    ),
    Deviation(
        ("GetSystemQOSResource",),
        topology_rules.system_qos_list_unread,
        "system-qos-refused: an annotation that cannot be read leaves the last good value, and the report goes on",
    ),
    Deviation(
        ("nodeTopologyStatus.isChanged",),
        topology_rules.foreign_gpu,
        "zone-foreign-resource: what others put into a zone does not make us write",
    ),
    Deviation(
        ("nodeTopologyStatus.isChanged",),
        topology_rules.other_capacity,
        "zone-capacity: a zone's capacity counts, not only what may be handed out",
    ),
    Deviation(
        ("isColocationCfgDisabled",),
        config_rules.enabled_below_the_cluster,
        "colocation-enable: a group of nodes or a node may switch on what the cluster has off",
    ),
    Deviation(
        ("BatchResource.Calculate", "MidResource.Calculate", "calculateNodeResource"),
        resource_rules.application_without_priority,
        "host-application-priority: a host application without a priority is counted",
    ),
    Deviation(
        ("BatchResource.Calculate",),
        resource_rules.sample_missing,
        "pod-without-sample: a pod without a sample counts with its request under every policy",
    ),
    Deviation(
        ("BatchResource.Calculate",),
        resource_rules.zones_by_place,
        "zone-identity: a zone is known by its name, never by its place in the list",
    ),
    Deviation(
        ("GetPodNUMARequestAndUsage",),
        resource_rules.node_repeated,
        "zone-repeated: a NUMA node that a pod's promise names twice bears its part once",
    ),
    Deviation(
        ("UpdateNRTZoneListIfNeeded", "updateNRT zones"),
        resource_rules.zones_given_back,
        "zone-reset: a zone that is offered nothing gives back what it was offered",
    ),
)
