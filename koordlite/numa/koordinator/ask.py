"""Request of a pod to Koordinator's NUMA rules, before any node is looked at.

Source: Koordinator v1.9 `PreFilter` (plugin.go), `AllowUseCPUSet` (util.go).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from koordlite.model import keys, reservation_affinity
from koordlite.model.errors import UNREADABLE
from koordlite.model.once import Once
from koordlite.model.pod.qos import PriorityClass, QoSClass
from koordlite.model.pod.values import NO_PREFERENCE, Pod, ResourceSpec
from koordlite.model.reading import declared
from koordlite.numa.koordinator.values import (
    CPUS_NOT_WHOLE,
    DEFAULT_BIND,
    ERROR,
    FULL_PCPUS,
    LEAST_ALLOCATED,
    MOST_ALLOCATED,
    NEVER,
    SPREAD_BY_PCPUS,
    Amounts,
    Refusal,
    refuse,
)


class NUMAArgs(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of Koordinator's plugin NodeNUMAResource."""

    default_bind: str = FULL_PCPUS
    """Meaning of the bind policy `Default`."""
    scoring: str = LEAST_ALLOCATED
    """Scoring of nodes: LeastAllocated or MostAllocated."""
    numa_scoring: str = LEAST_ALLOCATED
    """Scoring of the NUMA nodes of a node."""
    weights: Mapping[str, int] = msgspec.field(default_factory=lambda: {"cpu": 1, "memory": 1})
    prefer_closest: bool = False
    """Prefer the nearest of sets of as many NUMA nodes. Ours; kubelet's option `prefer-closest-numa-nodes`."""

    @property
    def strategy(self) -> str:
        """The NUMA strategy of nodes without the label."""
        return MOST_ALLOCATED if self.numa_scoring == MOST_ALLOCATED else LEAST_ALLOCATED


DEFAULTS = NUMAArgs()


class PodRequest(Once, msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Request of a pod: equal asks get equal answers on equal nodes."""

    requests: Amounts
    bound: bool = False
    """Its class gives it CPUs of its own; on nodes with a bind policy other pods get them too."""
    required_bind: str = ""
    preferred_bind: str = ""
    exclusive: str = ""
    numa_policy: str = ""
    numa_exclusive: str = ""
    needs_reservation: bool = False
    """It has a reservation affinity."""
    spec: ResourceSpec = NO_PREFERENCE

    @property
    def cpu_milli(self) -> int:
        """Requested thousandths of a CPU."""
        return self.requests["cpu"].milli if "cpu" in self.requests else 0

    @property
    def count(self) -> int:
        """Whole CPUs in the request."""
        return self.cpu_milli // 1000


def of(pod: Pod, settings: NUMAArgs = DEFAULTS) -> PodRequest | Refusal | None:
    """Read the request of `pod`; None when it requests nothing; a refusal when its annotations or its request
    contradict it."""
    try:
        spec = declared.decode(ResourceSpec, pod.annotations.get(keys.RESOURCE_SPEC, "{}"))
        numa = declared.decode(_NUMASpec, pod.annotations.get(keys.NUMA_TOPOLOGY_SPEC, "{}"))
    except ValueError as error:
        return refuse(str(error), code=ERROR)
    if not any(amount.nano for amount in pod.requests.values()):
        return None
    affinity = pod.annotations.get(keys.RESERVATION_AFFINITY)
    try:
        reservation_affinity.read(affinity or "")
    except UNREADABLE as error:
        return refuse(f"{keys.RESERVATION_AFFINITY}: {error}", code=NEVER)
    plain = PodRequest(
        requests=pod.requests,
        numa_policy=numa.numa_topology_policy,
        numa_exclusive=numa.single_numa_node_exclusive,
        needs_reservation=affinity is not None,
        spec=spec,
    )
    return _bound(plain, settings) if may_have_cpus(pod) else plain


def may_have_cpus(pod: Pod) -> bool:
    """Its class is LSE or LSR by label, its priority `koord-prod`, also by default."""
    return pod.raw_qos in (QoSClass.LSE, QoSClass.LSR) and pod.priority_class is PriorityClass.PROD


def _bound(ask: PodRequest, settings: NUMAArgs) -> PodRequest | Refusal:
    required = ask.spec.required_cpu_bind_policy
    required = settings.default_bind if required == DEFAULT_BIND else required
    preferred = ask.spec.preferred_cpu_bind_policy
    bind = required or (settings.default_bind if preferred in ("", DEFAULT_BIND) else preferred)
    if bind not in (FULL_PCPUS, SPREAD_BY_PCPUS):
        return ask
    if ask.cpu_milli % 1000:
        return refuse(CPUS_NOT_WHOLE, code=NEVER)
    if ask.cpu_milli <= 0:
        return ask
    exclusive = ask.spec.preferred_cpu_exclusive_policy
    return msgspec.structs.replace(ask, bound=True, required_bind=required, preferred_bind=bind, exclusive=exclusive)


class _NUMASpec(msgspec.Struct, frozen=True):
    numa_topology_policy: str = ""
    single_numa_node_exclusive: str = ""
