"""A node at one moment, compiled for judging; verdicts about one pod and one node; and the settings of both.

A changed node is another object: a verdict holds for exactly one row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

import msgspec

from koordlite.model import defaults
from koordlite.model.node import Node
from koordlite.model.wire.crane import TopologyObject
from koordlite.numa.nrt.filter import Amounts, Zones
from koordlite.reservation.placed import NO_RESERVATIONS, OnNode
from koordlite.reservation.pods import ClusterPod
from koordlite.scheduler.judgement.reports import Report

T = TypeVar("T")


class Row(msgspec.Struct, frozen=True, eq=False):
    """One node with what is reserved on it."""

    name: str
    allocatable: Amounts
    """The node's, in nano-units."""
    limits: Amounts = msgspec.field(default_factory=dict)
    """Upper bound of what pods may request of the resources that the node's reservation takes from, in nano-units."""
    report: Report | None = None
    zones: Zones = msgspec.field(default_factory=dict)
    """What is available by NUMA node, with reservations taken off."""
    at_most: Zones = msgspec.field(default_factory=dict)
    """The same if everything that is reserved should be taken from other NUMA nodes; one object with `zones` where
    nothing is reserved."""
    owed: Zones = msgspec.field(default_factory=dict)
    """By how much more is reserved than is available: what pods that go give back is owed first."""
    unusable: str = ""
    """Why nothing may be concluded from its NUMA nodes: upstream's text for the pod's condition."""
    node: Node | None = None
    crane: TopologyObject | None = None
    """Crane's own topology of the node."""
    pods: tuple[ClusterPod, ...] = ()
    """Alive on the node, and on their way to it: what the allocators of schedulers count."""
    is_plain: bool = False
    """No agent of a scheduler reports its CPUs: only pods that name a scheduler concern its rules."""
    reservations: OnNode = NO_RESERVATIONS
    """Koordinator's reservations that are on the node, as the pod meets them that is judged."""
    extra: dict[str, Any] = msgspec.field(default_factory=dict)
    """What allocators worked out of this very row, by their name."""

    @property
    def without_placeholders(self) -> tuple[list[ClusterPod], list[ClusterPod]]:
        """(the pods that count, those in whose place their reservations count)."""
        uids = self.reservations.uids
        stand_ins = [pod for pod in self.pods if pod.stands_for in uids]
        return [pod for pod in self.pods if pod.stands_for not in uids] if stand_ins else list(self.pods), stand_ins

    def once(self, name: str, make: Callable[[], T]) -> T:
        """Result of `make()`, worked out once for this row."""
        if name not in self.extra:
            self.extra[name] = make()
        value: T = self.extra[name]
        return value


class Verdict(msgspec.Struct, frozen=True):
    """Answer of a filter: whether a pod may go to a node, and where there."""

    protocol: str
    """Allocator on the node: kubelet, koordinator, crane, or none; volcano for a refusal by its policy."""
    refusal: str = ""
    """Stable text for the pod's condition; empty: it may."""
    numa_nodes: tuple[int, ...] = ()
    """The NUMA nodes it would be on."""
    why: str = ""
    """What is shown beside the refusal, or in favour of the node."""
    placed: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """NUMA nodes by container; `*` is the whole pod."""

    @property
    def passes(self) -> bool:
        """Not refused."""
        return not self.refusal


class Score(msgspec.Struct, frozen=True):
    """Score of a node, 0 to 100, with its parts."""

    total: int
    terms: Mapping[str, int | str] = msgspec.field(default_factory=dict)


class Promise(msgspec.Struct, frozen=True):
    """Annotations of a Binding: the allocation that the agent of the node carries out."""

    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    refusal: str = ""
    """Why the pod cannot be bound there any more."""
    numa_nodes: tuple[int, ...] = ()
    """NUMA nodes on which the pod will be."""


CacheMode = Literal["overreserve", "discardReserved", "passthrough"]
ForeignPods = Literal["reserve", "refuse", "ignore"]


class JudgeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the judgement, with names as scheduler-plugins has them where it has them."""

    strategy: str = "LeastAllocated"
    """`scoringStrategy.type`: LeastAllocated, MostAllocated, BalancedAllocation or LeastNUMANodes."""
    weights: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Weight by resource; 1 where none is given."""
    check_restricted: bool = True
    """Whether nodes whose topology manager is `restricted` are judged; upstream lets every pod pass there."""
    cache: CacheMode = "overreserve"
    """What happens between a binding and the report that counts it."""
    foreign_pods: ForeignPods = "reserve"
    """Pods that another scheduler bound and the report has not counted: reserve them too, refuse the node until the
    report has counted them, as upstream does, or ignore them."""
    profiles: frozenset[str] = frozenset({"koordlite-scheduler", "default-scheduler"})
    """Schedulers that ask this extender: pods of any other are foreign."""
    tentative_seconds: float = 2.0
    """Time for which the node that was rated best is kept for a pod that is not bound yet."""
    assumed_seconds: float = 60.0
    """Time for which a binding counts of which the API server has said nothing."""
    settle_seconds: float = 2.0
    """A report without fingerprint counts a pod when it changes so long after the pod was started."""
    report_seconds: float = 65.0
    """A report without fingerprint that did not change for so long after a pod was started counts it: reporters look
    at least once a minute, and write nothing when nothing changed."""
    gone_seconds: float = 60.0
    """Time for which a pod that is gone may still be in a report."""
    max_age_seconds: float = 300.0
    """Greatest age of what is known of the cluster; beyond, every verb answers with an error."""
    max_numa_nodes: int = defaults.NUMA_NODES
    """NUMA nodes of a machine beyond which its report is not used: the time to judge it doubles with each."""
    numa_distance: bool = False
    """Policy `numadistance`: nodes on which a pod gets NUMA nodes near together are rated higher, and the allocator
    takes those nearest together."""
    hold_seconds: float = 60.0
    """Time for which a pod is kept from other nodes while its reservation is made free for it."""
    check_volcano: bool = True
    """Whether pods' `volcano.sh/numa-topology-policy` is honoured."""
