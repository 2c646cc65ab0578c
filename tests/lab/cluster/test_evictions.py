"""An evicted pod goes after its grace period, unless a budget keeps it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec import structs

from koordlite.changes.eviction import EvictPod
from koordlite.lab import Sandbox
from koordlite.lab.cluster.cluster import SandboxCluster
from koordlite.model.change import ClusterChange
from koordlite.model.errors import EvictionRefused
from koordlite.model.picture.kubelet import Kubelet
from koordlite.model.wire import objects
from koordlite.ports import ClusterView

MakePod = Callable[..., objects.PodObject]


@dataclasses.dataclass
class Fixed:
    """A cluster of these pods."""

    pods: tuple[objects.PodObject, ...]

    def view(self) -> ClusterView:
        return ClusterView(node=None, pods=self.pods, config=None, topology=None, kubelet=Kubelet())

    def publish(self, changes: Sequence[ClusterChange]) -> None:
        raise AssertionError(changes)

    def evict(self, pod: EvictPod) -> None:
        """Another program carries it out."""


@pytest.fixture
def noted(make_pod: MakePod) -> MakePod:
    """A pod with annotations of the sandbox besides."""

    def make(name: str, **notes: str) -> objects.PodObject:
        pod: Any = make_pod(name, cpu="1")
        pod.metadata.annotations.update({f"sandbox.koordlite.io/{key}": text for key, text in notes.items()})
        return pod  # type: ignore[no-any-return]

    return make


def eviction(name: str) -> EvictPod:
    return EvictPod("d", name, f"uid-{name}", "memory is short")


def names(cluster: SandboxCluster) -> list[str]:
    return [pod.metadata.name for pod in cluster.view().pods]


def test_an_evicted_pod_runs_until_its_grace_period_is_over(v2: Sandbox, noted: MakePod) -> None:
    cluster = SandboxCluster(Fixed((noted("a"), noted("b"))), v2)
    cluster.view()
    cluster.evict(eviction("a"))
    leaving, staying = cluster.view().pods
    assert leaving.metadata.deletion_timestamp == "2026-01-01T00:00:00Z"
    assert staying.metadata.deletion_timestamp is None
    assert cluster.view().pods[0] is leaving
    v2.advance(29)
    assert names(cluster) == ["a", "b"]
    v2.advance(1)
    assert names(cluster) == ["b"]
    assert list(v2.kubelet.running) == ["uid-b"]


def test_asking_twice_changes_nothing_and_what_is_gone_is_accepted(v2: Sandbox, noted: MakePod) -> None:
    cluster = SandboxCluster(Fixed((noted("a"),)), v2)
    cluster.evict(eviction("a"))
    v2.advance(20)
    cluster.evict(eviction("a"))
    v2.advance(10)
    assert names(cluster) == []
    cluster.evict(eviction("a"))


def test_a_pod_may_refuse(v2: Sandbox, noted: MakePod) -> None:
    cluster = SandboxCluster(Fixed((noted("a", **{"refuse-evictions": "true"}),)), v2)
    with pytest.raises(EvictionRefused, match=r"pod/d/a.*disruption budget"):
        cluster.evict(eviction("a"))
    v2.advance(40)
    assert names(cluster) == ["a"]


@pytest.mark.parametrize(("budget", "accepted"), [("db/1", 1), ("db/2", 2), ("db/all", 0)])
def test_a_budget_is_shared(v2: Sandbox, noted: MakePod, budget: str, accepted: int) -> None:
    pods = tuple(noted(name, **{"disruption-budget": budget}) for name in "abc")
    cluster = SandboxCluster(Fixed((*pods, noted("d"))), v2)
    went = 0
    for name in "abc":
        try:
            cluster.evict(eviction(name))
            went += 1
        except EvictionRefused:
            continue
    assert went == accepted
    cluster.evict(eviction("d"))


def test_a_pod_s_own_grace_period_counts(v2: Sandbox, noted: MakePod) -> None:
    quick: Any = noted("quick")
    quick = structs.replace(quick, spec=structs.replace(quick.spec, termination_grace_period_seconds=3))
    cluster = SandboxCluster(Fixed((quick, noted("slow"))), v2)
    cluster.view()
    for name in ("quick", "slow"):
        cluster.evict(eviction(name))
    v2.advance(4)
    assert names(cluster) == ["slow"]
    v2.advance(27)
    assert names(cluster) == []


def test_a_cluster_that_evicts_itself_is_asked_and_says_when_the_pod_is_gone(v2: Sandbox, noted: MakePod) -> None:
    class Server(Fixed):
        """Evicts at once, all but one."""

        def evict(self, pod: EvictPod) -> None:
            if pod.name == "kept":
                raise EvictionRefused(f"pod/d/{pod.name}", "its budget is used up")
            self.pods = tuple(each for each in self.pods if each.metadata.uid != pod.uid)

    cluster = SandboxCluster(Server((noted("a"), noted("kept"))), v2, evicts=True)
    cluster.view()
    cluster.evict(eviction("a"))
    with pytest.raises(EvictionRefused, match="used up"):
        cluster.evict(eviction("kept"))
    assert names(cluster) == ["kept"]
    assert list(v2.kubelet.running) == ["uid-kept"]
