"""Which CPU assignments hold: an annotation that contradicts its pod, or takes what another pod has, gives no CPUs.

Koordinator's scheduler assigns CPUs to LSE and LSR pods, and to every pod of a node with a bind policy, and never more
than they request (`AllowUseCPUSet`, `requestCPUBind`); its agent follows whatever the annotation says. Anybody may
write that annotation on his own pod, so the rule is asked again here. What holds already goes before what comes later.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from koordlite.model import keys
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.pod import pod_reader
from koordlite.model.pod.qos import KubeQoS, QoSClass
from koordlite.model.pod.values import Pod, ResourceStatus
from koordlite.model.quantity import Quantity
from koordlite.model.reading import given
from koordlite.numa.koordinator.amounts import added
from koordlite.numa.koordinator.values import Allocation, Amounts, Zones

NOT_ITS_CLASS = "only pods of class LSE or LSR, and Guaranteed pods without a class, have CPUs of their own"
KEPT = "they are reserved for the system, or given to other pods by kubelet"
_MOST_RIVALS = 5


def judged(
    pods: Sequence[Pod],
    *,
    before: Mapping[str, CPUSet],
    created: Mapping[str, str],
    binds_every_pod: bool = False,
) -> tuple[Pod, ...]:
    """The pods, each with the assignment that holds: one of its own class and size, without CPUs of an older one.

    `before` are the assignments that held at the last look, by pod uid: they go first, then the pods in the order they
    were `created` (RFC 3339), and last placeholders of reservations that make room for an owner. On a node that
    `binds_every_pod` (`node_report.bind_policy`) the class does not matter.
    A pod that nothing is said against stays the same object.
    """
    fresh = {pod.uid: _alone(pod, binds_every_pod) for pod in pods if pod.resource_status.cpuset}
    holders: dict[int, str] = {}
    rivals: dict[str, list[str]] = {}
    for pod in sorted(fresh.values(), key=lambda pod: (_makes_room(pod), _age(pod, before, created))):
        mine = pod.resource_status.cpuset
        if not mine or pod.finished:
            continue
        others = {holders[cpu] for cpu in mine if cpu in holders}
        if others and _makes_room(pod):
            fresh[pod.uid] = msgspec.structs.replace(
                pod, resource_status=msgspec.structs.replace(pod.resource_status, cpuset=EMPTY)
            )
        elif others:
            names = ", ".join(sorted(fresh[uid].key for uid in others)[:_MOST_RIVALS])
            fresh[pod.uid] = _refused(pod, f"some of them belong to {names}, which had them before")
            for uid in others:
                rivals.setdefault(uid, []).append(pod.key)
        else:
            holders |= dict.fromkeys(mine.ids, pod.uid)
    for uid, claimants in rivals.items():
        status = msgspec.structs.replace(fresh[uid].resource_status, rivals=tuple(sorted(claimants)[:_MOST_RIVALS]))
        fresh[uid] = msgspec.structs.replace(fresh[uid], resource_status=status)
    return tuple(fresh.get(pod.uid, pod) for pod in pods)


def without(status: ResourceStatus, kept: CPUSet) -> ResourceStatus:
    """The assignment without the CPUs `kept` for others; one that has nothing else is refused."""
    left = status.cpuset - kept
    if left == status.cpuset:
        return status
    if left:
        return msgspec.structs.replace(status, cpuset=left)
    return msgspec.structs.replace(status, cpuset=EMPTY, refused=status.cpuset, why=KEPT)


def allocations(pods: Iterable[Pod]) -> Iterator[Allocation]:
    """What each of the pods holds, by its annotation: CPUs that were not refused, and amounts by NUMA node.

    Pods that have ended, and pods that hold nothing, are left out. An annotation that cannot be read holds nothing; the
    pod's problems say so.
    """
    for pod in pods:
        status = pod.resource_status
        zones = _zones(pod.annotations.get(keys.RESOURCE_STATUS, "")) if status.numa_nodes else {}
        if (status.cpuset or zones) and not pod.finished:
            exclusive = pod.resource_spec.preferred_cpu_exclusive_policy
            yield Allocation(uid=pod.uid, cpus=status.cpuset, exclusive=exclusive, zones=zones)


def written(text: str, uid: str) -> Allocation:
    """What a resource-status of someone who may be believed hands out; ValueError when it cannot be read."""
    status = pod_reader.parse_resource_status(text)
    return Allocation(uid=uid, cpus=status.cpuset, zones=_zones(text) if status.numa_nodes else {})


@functools.lru_cache(maxsize=16384)
def _zones(text: str) -> Zones:
    """Kept, because the same few amounts are handed out on every node of a cluster."""
    found: dict[int, Amounts] = {}
    for entry in given.decode(_StatusText, text).numa_node_resources:
        found[entry.node] = added(found.get(entry.node, {}), entry.resources)
    return found


class _ZoneText(msgspec.Struct, frozen=True):
    node: int = 0
    resources: Mapping[str, Quantity] = msgspec.field(default_factory=dict)


class _StatusText(msgspec.Struct, frozen=True):
    numa_node_resources: tuple[_ZoneText, ...] = ()


def cpu_limit_milli(pod: Pod) -> int | None:
    """Sum of the CPU limits of the containers that stay, in millicores; None where one has none."""
    limits = [container.limits.get("cpu") for container in pod.containers if not container.one_shot]
    return sum(limit.milli for limit in limits if limit is not None) if limits and None not in limits else None


def _alone(pod: Pod, binds_every_pod: bool) -> Pod:
    """The pod by itself: its class and its request."""
    own = binds_every_pod or pod.raw_qos in (QoSClass.LSE, QoSClass.LSR)
    if not own and not (pod.raw_qos is QoSClass.NONE and pod.kube_qos is KubeQoS.GUARANTEED):
        return _refused(pod, NOT_ITS_CLASS)
    size, request = len(pod.resource_status.cpuset), pod.request_milli("cpu")
    if size > -(-request // 1000):
        return _refused(pod, f"they are {size}, and the pod requests {request / 1000:g}")
    return pod


def _makes_room(pod: Pod) -> bool:
    """A placeholder on its way out: whoever else is assigned its CPUs has them. To say so of oneself gains nothing."""
    return pod.deleting and keys.RESERVATION_UID in pod.labels


def _refused(pod: Pod, why: str) -> Pod:
    status = pod.resource_status
    status = msgspec.structs.replace(status, cpuset=EMPTY, refused=status.cpuset, why=why)
    return msgspec.structs.replace(pod, resource_status=status)


def _age(pod: Pod, before: Mapping[str, CPUSet], created: Mapping[str, str]) -> tuple[bool, str, str]:
    return before.get(pod.uid) != pod.resource_status.cpuset, created.get(pod.uid, ""), pod.uid
