"""Settings of the judgement."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from koordlite.model import defaults
from koordlite.scheduler.judgement.coverage import CacheMode, ForeignPods


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Names as scheduler-plugins has them where it has them."""

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
    """How long the node that was rated best is kept for a pod that was prioritized and not bound yet."""
    assumed_seconds: float = 60.0
    """How long a binding counts that was sent and of which the API server has said nothing."""
    settle_seconds: float = 2.0
    """A report without fingerprint counts a pod when it changes so long after the pod was started."""
    report_seconds: float = 65.0
    """A report without fingerprint that did not change for so long after a pod was started counts it: reporters look
    at least once a minute, and write nothing when nothing changed."""
    gone_seconds: float = 60.0
    """How long a pod that is gone may still be in a report."""
    max_age_seconds: float = 300.0
    """How old what is known of the cluster may be; beyond, every verb answers with an error."""
    max_numa_nodes: int = defaults.NUMA_NODES
    """NUMA nodes of a machine beyond which its report is not used: the time to judge it doubles with each."""
    numa_distance: bool = False
    """Policy `numadistance`: nodes on which a pod gets NUMA nodes near together are rated higher, and the allocator
    takes those nearest together."""
    hold_seconds: float = 60.0
    """How long a pod is kept from other nodes while its reservation is made free for it."""
    check_volcano: bool = True
    """Whether pods' `volcano.sh/numa-topology-policy` is honoured."""
