"""CPU assignments that hold: an annotation that contradicts its pod, or takes what another pod has, gives no CPUs.

Koordinator's scheduler assigns CPUs to LSE and LSR pods, and to every pod of a node with a bind policy, and never more
than they request (`AllowUseCPUSet`, `requestCPUBind`); its agent follows whatever the annotation says. Anybody may
write that annotation on his own pod, so the rule is asked again here. What holds already goes before what comes later.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from koordlite.model import keys
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.pod import pod_reader
from koordlite.model.pod.qos import KubeQoS, QoSClass
from koordlite.model.pod.values import Pod, ResourceStatus
from koordlite.model.reading import declared
from koordlite.numa.koordinator.values import Allocation, Amounts, Zones, added
from koordlite.numa.machine import NO_MACHINE, Machine
from koordlite.numa.resize import shrinking

NOT_ITS_CLASS = "only pods of class LSE or LSR, and Guaranteed pods without a class, have CPUs of their own"
RESERVED_OR_ASSIGNED = "they are reserved for the system, or given to other pods by kubelet"
_MOST_RIVALS = 5


class SharedPool(msgspec.Struct, frozen=True, kw_only=True):
    """The CPUs that latency-sensitive pods share, and how few of them promises may leave."""

    cpus: CPUSet
    """All that no reservation lists and that are not set apart for SYSTEM pods."""
    reserved: int = 0
    """Number of them that a reservation by amount takes away."""
    exclusive: CPUSet = EMPTY
    """CPUs that pods have alone from kubelet or by Crane's annotations."""
    percent: float
    """The floor as a share of the CPUs that are not reserved."""
    shared_milli: int
    """Requests of the pods that run in it whatever the annotations say."""

    def shortage(self, remaining: CPUSet, request_milli: int) -> str:
        """Reason why promises may not leave it only `remaining`, when pods of `request_milli` share it; empty when they
        may."""
        unreserved = len(self.cpus) - self.reserved
        requested = -(-request_milli // 1000)
        floor = min(max(math.ceil(unreserved * self.percent / 100), requested if self.percent else 0), unreserved)
        shared = max(len(remaining) - self.reserved, 0)
        if shared >= floor:
            return ""
        return (
            f"latency-sensitive pods would share {shared} of {unreserved} CPUs, and keep at least {floor}: "
            f"{self.percent:g} % of them, or the {request_milli / 1000:g} that they request"
        )


def judged(
    pods: Sequence[Pod],
    *,
    before: Mapping[str, CPUSet],
    created: Mapping[str, str],
    binds_every_pod: bool = False,
    pool: SharedPool | None = None,
    machine: Machine = NO_MACHINE,
) -> tuple[Pod, ...]:
    """The pods, each with the assignment that holds: one of its own class and size, without the CPUs of another one.

    `before` are the assignments that held at the last look, by pod uid: what a pod has of its own it keeps. Then the
    pods take what is free in the order they were `created` (RFC 3339), and last placeholders of reservations that make
    room for an owner. With a `pool`, a promise that would leave it less than its floor is refused as a whole; one that
    held before stays. On a node that `binds_every_pod` (`node_report.bind_policy`) the class does not matter.
    Of a promise that is larger than its pod requests, because it was resized in place or says too much, as many CPUs
    hold as the pod requests: the same for everybody who knows the `machine` (`resize.shrinking`).
    A pod that nothing is said against stays the same object.
    """
    fresh = {pod.uid: _alone(pod, binds_every_pod, machine) for pod in pods if pod.resource_status.cpuset}
    claimants = [pod for pod in fresh.values() if pod.resource_status.cpuset and not pod.finished]
    claimants.sort(key=lambda pod: (created.get(pod.uid, ""), pod.uid))
    staying = [pod for pod in claimants if not _makes_room(pod)]
    holders: dict[int, str] = {}
    for pod in staying:
        retained = before.get(pod.uid, EMPTY) & pod.resource_status.cpuset
        holders = dict.fromkeys(retained, pod.uid) | holders
    sharing = (pod for pod in fresh.values() if pod.active and not pod.resource_status.cpuset)
    shared_milli = sum(pod.request_milli() for pod in sharing) + (pool.shared_milli if pool else 0)
    free = pool.cpus - pool.exclusive - CPUSet(holders) if pool else EMPTY
    rivals: dict[str, list[str]] = {}
    for pod in staying:
        claim = pod.resource_status.cpuset
        gained = CPUSet(cpu for cpu in claim if cpu not in holders)
        lost = CPUSet(cpu for cpu in claim if holders.get(cpu, pod.uid) != pod.uid)
        owners = {holders[cpu] for cpu in lost}
        names = ", ".join(sorted(fresh[uid].key for uid in owners)[:_MOST_RIVALS])
        why = [f"CPUs {lost} belong to {names}, which had them before"] if lost else []
        for uid in owners:
            rivals.setdefault(uid, []).append(pod.key)
        shortage = pool.shortage(free - gained, shared_milli) if pool and gained & free else ""
        if shortage:
            why.append(shortage)
            lost |= gained
        else:
            free -= gained
            holders |= dict.fromkeys(gained, pod.uid)
        if lost:
            fresh[pod.uid] = _refused(pod, lost, "; ".join(why))
            shared_milli += 0 if claim - lost else pod.request_milli()
    for pod in (each for each in claimants if _makes_room(each)):
        if any(cpu in holders for cpu in pod.resource_status.cpuset):
            status = msgspec.structs.replace(pod.resource_status, cpuset=EMPTY)
            fresh[pod.uid] = msgspec.structs.replace(pod, resource_status=status)
        else:
            holders |= dict.fromkeys(pod.resource_status.cpuset, pod.uid)
    for uid, keys_of_rivals in rivals.items():
        status = fresh[uid].resource_status
        status = msgspec.structs.replace(status, rivals=tuple(sorted(keys_of_rivals)[:_MOST_RIVALS]))
        fresh[uid] = msgspec.structs.replace(fresh[uid], resource_status=status)
    return tuple(fresh.get(pod.uid, pod) for pod in pods)


def without(status: ResourceStatus, reserved: CPUSet) -> ResourceStatus:
    """The assignment without the CPUs `reserved` for others; one that has nothing else is refused."""
    remaining = status.cpuset - reserved
    if remaining == status.cpuset:
        return status
    if remaining:
        return msgspec.structs.replace(status, cpuset=remaining)
    return msgspec.structs.replace(status, cpuset=EMPTY, refused=status.cpuset, why=RESERVED_OR_ASSIGNED)


def allocations(pods: Iterable[Pod]) -> Iterator[Allocation]:
    """Holdings of the pods, by annotation: CPUs that were not refused, and amounts by NUMA node.

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
    """Allocation in a resource-status of someone who may be believed; ValueError when it cannot be read."""
    status = pod_reader.parse_resource_status(text)
    return Allocation(uid=uid, cpus=status.cpuset, zones=_zones(text) if status.numa_nodes else {})


@functools.lru_cache(maxsize=16384)
def _zones(text: str) -> Zones:
    """Kept, because the same few amounts are handed out on every node of a cluster."""
    zones: dict[int, Amounts] = {}
    for entry in declared.decode(pod_reader.ResourceStatusText, text).numa_node_resources:
        zones[entry.node] = added(zones.get(entry.node, {}), entry.resources)
    return zones


def cpu_limit_milli(pod: Pod) -> int | None:
    """Sum of the CPU limits of the containers that stay, in millicores; None where one has none."""
    limits = [container.limits.get("cpu") for container in pod.containers if not container.one_shot]
    return sum(limit.milli for limit in limits if limit is not None) if limits and None not in limits else None


def _alone(pod: Pod, binds_every_pod: bool, machine: Machine) -> Pod:
    """The pod by itself: its class and the whole CPUs of its request."""
    claim = pod.resource_status.cpuset
    own = binds_every_pod or pod.raw_qos in (QoSClass.LSE, QoSClass.LSR)
    if not own and not (pod.raw_qos is QoSClass.NONE and pod.kube_qos is KubeQoS.GUARANTEED):
        return _refused(pod, claim, NOT_ITS_CLASS)
    request = max(pod.request_milli("cpu"), 0)
    whole = request // 1000
    if len(claim) > whole:
        retained = CPUSet(shrinking(claim, machine)[:whole])
        why = f"they are {len(claim)}, and the pod requests {request / 1000:g}: only whole CPUs count"
        return _refused(pod, claim - retained, f"{why}; it keeps {retained}" if retained else why)
    return pod


def _makes_room(pod: Pod) -> bool:
    """A placeholder on its way out: whoever else is assigned its CPUs has them. To say so of oneself gains nothing."""
    return pod.deleting and keys.RESERVATION_UID in pod.labels


def _refused(pod: Pod, cpus: CPUSet, why: str) -> Pod:
    status = pod.resource_status
    status = msgspec.structs.replace(status, cpuset=status.cpuset - cpus, refused=cpus, why=why)
    return msgspec.structs.replace(pod, resource_status=status)
