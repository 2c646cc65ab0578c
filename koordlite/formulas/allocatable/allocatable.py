"""CPU and memory that a node may promise to best-effort pods (batch-cpu, batch-memory).

CPU is in millicores, memory in bytes. The terms carry the names of Koordinator's own explanation of the result, so that
the two can be compared. Source: Koordinator batchresource plugin, `calculate`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from koordlite.formulas.allocatable import reservation
from koordlite.model.node import Node
from koordlite.model.picture.node_notes import NodeNotes
from koordlite.model.picture.usage import NO_USE, Use
from koordlite.model.pod.qos import PriorityClass, QoSClass
from koordlite.model.pod.values import Pod
from koordlite.model.quantity import ZERO, Quantity
from koordlite.model.slo.settings import Colocation, HostApplication

BATCH_AND_BELOW = (PriorityClass.BATCH, PriorityClass.FREE)
"""The bands batch resources are offered to; all else is high-priority work."""


class Sums(msgspec.Struct, frozen=True):
    """Requests and use of high-priority work (every band but batch and free), or one pod's share in it."""

    hp_request: Use = NO_USE
    hp_used: Use = NO_USE
    """A pod without a sample counts with its request; an LSE pod's CPUs count in full, used or not."""
    hp_max_used_request: Use = NO_USE
    """The larger of use and request, pod by pod."""

    def __add__(self, other: Sums) -> Sums:
        return Sums(
            self.hp_request + other.hp_request,
            self.hp_used + other.hp_used,
            self.hp_max_used_request + other.hp_max_used_request,
        )


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """Every number that went into one resource's allocatable, and the `result`."""

    policy: str
    """The policy that was followed: usage | request | maxUsageRequest."""
    capacity: int
    margin: int
    system_used: int
    """The larger of what the system uses and what is reserved."""
    node_reserved: int
    hp_used: int
    hp_request: int
    hp_max_used_request: int
    cap: int | None
    """Upper bound from the batch threshold; None without one."""

    @property
    def system(self) -> int:
        """The system's part under this policy: `request` trusts reservations, the others measure."""
        return self.node_reserved if self.policy == "request" else self.system_used

    @property
    def hp(self) -> int:
        """High-priority work's part under this policy."""
        parts = {"request": self.hp_request, "maxUsageRequest": self.hp_max_used_request}
        return parts.get(self.policy, self.hp_used)

    @property
    def result(self) -> int:
        """min(max(capacity − margin − system − hp, 0), cap)."""
        free = max(self.capacity - self.margin - self.system - self.hp, 0)
        return free if self.cap is None else min(free, self.cap)


def batch(
    *, capacity: Use, colocation: Colocation, sums: Sums, system: Use, host_apps: Use, reserved: Use
) -> tuple[Terms, Terms]:
    """min(max(capacity − margin − max(system + host applications, reserved) − hp, 0), cap): (CPU, memory).

    margin = capacity × (100 − reclaim threshold) %. `system` is what neither pods nor host applications use,
    `host_apps` the use of those that are not batch (`host_app_use`), `reserved` the larger of kubelet's reservation and
    the annotation's. Under the memory policy `request` the reservation stands in for the system and requests for use.
    """
    return terms(
        capacity=capacity,
        margin=safety_margin(capacity=capacity, colocation=colocation),
        cap=caps(capacity=capacity, colocation=colocation),
        colocation=colocation,
        sums=sums,
        measured=system + host_apps,
        reserved=reserved,
    )


def terms(
    *,
    capacity: Use,
    margin: Use,
    cap: tuple[int | None, int | None],
    colocation: Colocation,
    sums: Sums,
    measured: Use,
    reserved: Use,
) -> tuple[Terms, Terms]:
    """The terms of (CPU, memory) once margin and cap are known; memory in whatever unit all arguments share."""
    cpu = Terms(
        policy=_policy(colocation.cpu_calculate_policy, "maxUsageRequest"),
        capacity=capacity.cpu,
        margin=margin.cpu,
        system_used=max(measured.cpu, reserved.cpu),
        node_reserved=reserved.cpu,
        hp_used=sums.hp_used.cpu,
        hp_request=sums.hp_request.cpu,
        hp_max_used_request=sums.hp_max_used_request.cpu,
        cap=cap[0],
    )
    memory = Terms(
        policy=_policy(colocation.memory_calculate_policy, "request", "maxUsageRequest"),
        capacity=capacity.memory,
        margin=margin.memory,
        system_used=max(measured.memory, reserved.memory),
        node_reserved=reserved.memory,
        hp_used=sums.hp_used.memory,
        hp_request=sums.hp_request.memory,
        hp_max_used_request=sums.hp_max_used_request.memory,
        cap=cap[1],
    )
    return cpu, memory


def safety_margin(*, capacity: Use, colocation: Colocation) -> Use:
    """capacity × (100 − threshold) / 100: what is never promised. Negative for thresholds above 100.

    Source: Koordinator `GetNodeSafetyMargin`.
    """
    return Use(
        share(capacity.cpu, 100 - colocation.cpu_reclaim_threshold_percent),
        share(capacity.memory, 100 - colocation.memory_reclaim_threshold_percent),
    )


def caps(*, capacity: Use, colocation: Colocation) -> tuple[int | None, int | None]:
    """capacity × batch threshold %: upper bounds of (CPU, memory), None where no threshold is given."""
    return (
        _share_or_none(capacity.cpu, colocation.batch_cpu_threshold_percent),
        _share_or_none(capacity.memory, colocation.batch_memory_threshold_percent),
    )


def pod_sums(*, pods: Iterable[Pod], usage: Mapping[str, Use]) -> Sums:
    """Σ over high-priority pods of request, use, and max(use, request): what the formula takes off for them.

    Running and Pending pods count. `usage` is by uid; use of a uid that no pod in `pods` has counts too, since the
    CPU was used. Source: Koordinator `calculateOnNode`.
    """
    total, uids = Sums(), set()
    for pod in pods:
        uids.add(pod.uid)
        total += pod_terms(pod=pod, used=usage.get(pod.uid))
    for uid, used in usage.items():
        if uid not in uids:
            total += Sums(hp_used=used, hp_max_used_request=used)
    return total


def pod_terms(*, pod: Pod, used: Use | None) -> Sums:
    """request, use and max(use, request) of one pod; nothing for batch and free pods. `used` None: no sample yet.

    A pod without a sample counts with its request in all three; Koordinator leaves it out of the last one, which
    makes new pods invisible under `maxUsageRequest` (docs/compatibility.md). A finished pod counts with what was
    still measured.
    """
    if pod.priority_class in BATCH_AND_BELOW:
        return Sums()
    if not pod.active:
        return Sums(hp_used=used or NO_USE, hp_max_used_request=used or NO_USE)
    return charge(request=Use(pod.request_milli(), pod.request_value("memory")), used=used, qos=pod.qos_class)


def charge(*, request: Use, used: Use | None, qos: QoSClass) -> Sums:
    """request, use and max(use, request) of active high-priority work; the request stands in for `used` None."""
    if used is None:
        return Sums(request, request, request)
    # Nobody else can run on the CPUs of an LSE pod, so idle ones are not free.
    charged = Use(request.cpu, used.memory) if qos is QoSClass.LSE else used
    return Sums(request, charged, Use(max(used.cpu, request.cpu), max(used.memory, request.memory)))


def host_app_use(
    *,
    applications: Iterable[HostApplication],
    usage: Mapping[str, Use],
    offered_to: Collection[PriorityClass] = BATCH_AND_BELOW,
) -> Use:
    """Σ use of host applications outside the bands the resource is offered to.

    One without a priority counts: it was taken out of the system's use, so it must come back here (Koordinator
    loses it, docs/compatibility.md).
    """
    counted = (each.name for each in applications if each.priority not in offered_to)
    return sum((usage.get(name, NO_USE) for name in counted), NO_USE)


def system_use(*, node: Use, pods: Iterable[Use], host_apps: Iterable[Use]) -> Use:
    """max(node − Σ pods − Σ host applications, 0): what neither pods nor host applications use."""
    return node.less(sum((*pods, *host_apps), NO_USE))


def reserved_use(*, node: Node, notes: NodeNotes, reserved: Mapping[str, Quantity]) -> Use:
    """max(what kubelet keeps back, the node reservation), resource by resource.

    Kubelet's part is counted from allocatable as kubelet wrote it: multiplied by an amplification it would come to
    nothing, as it does in Koordinator (docs/compatibility.md).
    """
    kubelet = reservation.from_kubelet(capacity=node.capacity, allocatable=notes.kubelet_allocatable(node))
    return amounts(reservation.larger(kubelet, reserved))


def amounts(resources: Mapping[str, Quantity]) -> Use:
    """The cpu and memory of a resource list, 0 where absent."""
    return Use(resources.get("cpu", ZERO).milli, resources.get("memory", ZERO).value)


def _policy(policy: str, *policies: str) -> str:
    return policy if policy in policies else "usage"


def share(amount: int, percent: int) -> int:
    """amount × percent / 100 in doubles, truncated."""
    # The quotient first, in doubles, then truncated: 29 % of 3000 is 869, as in Koordinator.
    return int(float(amount) * (float(percent) / 100.0))


def _share_or_none(amount: int, percent: int | None) -> int | None:
    return None if percent is None else share(amount, percent)
