"""What was promised on the Node is noted before the first time, and taken back."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import Any

import applierbench
from emulated import Emulated

from koordlite import apply, plan
from koordlite.apply import Applier
from koordlite.changes.eviction import EvictPod
from koordlite.changes.published import (
    NodeAnnotation,
    NodeAnnotationChange,
    NodeResource,
    NodeResourceChange,
    ZoneAmount,
    ZoneResourceChange,
    ZonesChange,
)
from koordlite.model.change import Change, ClusterChange, NodeChange
from koordlite.model.errors import InputError, Problem
from koordlite.model.picture.groups import RunState
from koordlite.model.wire.objects import Zone, ZoneResource
from koordlite.plan import Plan

Make = Callable[..., Emulated]
CPU = "kubernetes.io/batch-cpu"
ZONE = Zone(name="node-0", type="Node", resources=(ZoneResource(name="cpu", capacity="4", allocatable="4"),))
PART = ZoneResource(name=CPU, capacity="9", allocatable="9", available="9")
PROMISES = (
    NodeResourceChange(CPU, 5),
    NodeAnnotationChange("example.com/worth", "1.20"),
    ZoneResourceChange("node-0", CPU, PART),
)


class Bench(applierbench.Bench):
    """A node that has a topology."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.done(ZonesChange((ZONE,), ("None",)))

    def done(self, *changes: Change, strategy: str = "") -> None:
        """Apply the changes, of which none is refused."""
        assert all(step.ok for step in self.take(*changes, owner=strategy))

    def promised(self) -> tuple[Any, Any, Any]:
        """Resource of the Node, annotation of the Node, resource of the zone."""
        view = self.node.cluster.view()
        assert view.node
        assert view.topology
        assert view.topology.zones
        held = {resource.name: resource for resource in view.topology.zones[0].resources or ()}
        notes = view.node.metadata.annotations or {}
        return (view.node.status.allocatable or {}).get(CPU), notes.get("example.com/worth"), held.get(CPU)


def test_each_promise_is_noted_with_what_stood_there(emulate: Make) -> None:
    with Bench.at(emulate("small")) as bench:
        bench.done(*PROMISES, strategy="beAllocatable")
        assert bench.journal.entries == (
            NodeResource(resource=CPU, previous=None, strategy="beAllocatable"),
            NodeAnnotation(key="example.com/worth", previous=None, strategy="beAllocatable"),
            ZoneAmount(zone="node-0", resource=CPU, previous=None, strategy="beAllocatable"),
        )
        assert bench.promised() == ("5", "1.20", PART)


def test_the_first_note_stays(emulate: Make) -> None:
    with Bench.at(emulate("small")) as bench:
        bench.done(*PROMISES)
        noted = bench.journal.entries
        bench.done(NodeResourceChange(CPU, 7), NodeAnnotationChange("example.com/worth", None))
        assert bench.journal.entries == noted


def test_all_of_it_is_taken_back(emulate: Make) -> None:
    with Bench.at(emulate("small")) as bench:
        bench.done(*PROMISES)
        steps = apply.restore(bench.host, bench.journal, bench.node.cluster)
        assert [(step.place, step.value, step.ok) for step in steps] == [
            (change.place, "(removed)", True) for change in PROMISES
        ]
        assert bench.promised() == (None, None, None)
        assert not bench.journal.entries


def test_what_a_strategy_promises_anew_stays_until_then(emulate: Make) -> None:
    with Bench.at(emulate("small")) as bench:
        bench.done(PROMISES[0], strategy="beAllocatable")
        bench.done(PROMISES[1], strategy="cpuNormalization")
        steps = apply.restore(bench.host, bench.journal, bench.node.cluster, staying=["beAllocatable"])
        assert [step.place for step in steps] == [PROMISES[1].place]
        assert bench.promised()[:2] == ("5", None)
        assert bench.journal.places == {PROMISES[0].place}


def test_when_each_amount_was_written_is_known(emulate: Make) -> None:
    with Bench.at(emulate("small")) as bench:
        bench.done(PROMISES[0])
        bench.node.sandbox.advance(5.0)
        bench.done(PROMISES[2])
        first, second = (bench.applier.last_sync[change.place] for change in (PROMISES[0], PROMISES[2]))
        assert second - first == 5.0
        assert (
            bench.observer.observe(lambda *_: RunState(last_sync=bench.applier.last_sync)).published.last_sync
            == bench.applier.last_sync
        )


class WithoutTopology:
    """The emulated node's cluster, which takes nothing for the topology object, as without its CRD."""

    def __init__(self, node: Emulated) -> None:
        self.view, self._publish = node.cluster.view, node.cluster.publish
        self.lost = False
        """Whether the answers do not arrive."""

    def publish(self, changes: Sequence[ClusterChange]) -> None:
        if any(not isinstance(change, NodeChange) for change in changes):
            raise InputError(Problem("noderesourcetopology/n1", "published fields", "", "404 Not Found", "install it"))
        self._publish(changes)
        if self.lost:
            raise TimeoutError(errno.ETIMEDOUT, "timed out")

    def evict(self, pod: EvictPod) -> None:
        raise AssertionError(pod)


def test_what_is_refused_of_the_topology_is_not_told_of_the_node(emulate: Make) -> None:
    with Bench.at(emulate("small")) as bench:
        bench.applier = Applier(bench.host, WithoutTopology(bench.node), bench.journal)
        seen = bench.observer.observe()
        steps = bench.applier.apply(Plan(plan.order(PROMISES, seen.cgroups)), seen)
        assert {step.place: step.ok for step in steps} == {change.place: change in PROMISES[:2] for change in PROMISES}
        assert bench.applier.last_sync.keys() == {PROMISES[0].place}, "else it would be due again at every tick"
        assert bench.promised()[:2] == ("5", "1.20")


def test_the_node_is_given_back_and_forgotten_also_when_the_topology_cannot_be(emulate: Make) -> None:
    node = emulate("small")
    with node.journal() as journal:
        Bench(node, journal).done(*PROMISES)
        steps = apply.restore(node.host(), journal, WithoutTopology(node))
        assert {step.place for step in steps if not step.ok} == {PROMISES[2].place}
        assert journal.places == {PROMISES[2].place}


def _rewritten(bench: Bench, *theirs: ClusterChange) -> list[tuple[str, str, str]]:
    """What our applier says when somebody else has published."""
    bench.node.cluster.publish(theirs)
    found = bench.applier.foreign_writes(bench.observer.observe())
    return [(str(write.place), write.ours, write.found) for write in found]


def test_what_another_controller_makes_of_a_promise_is_told_once(emulate: Make) -> None:
    with Bench.at(emulate("small")) as bench:
        bench.done(*PROMISES)
        assert _rewritten(bench) == []
        assert _rewritten(bench, NodeResourceChange(CPU, 9), NodeAnnotationChange("example.com/worth", None)) == [
            (str(PROMISES[0].place), "5", "9"),
            (str(PROMISES[1].place), "1.20", "(absent)"),
        ]
        assert _rewritten(bench) == []


def test_a_fight_over_a_promise_slows_down(emulate: Make) -> None:
    """As over a file: each further foreign write doubles the time before the next correction, up to a minute."""
    node, waits = emulate("small"), []
    with Bench.at(node) as bench:
        bench.done(PROMISES[0])
        for _ in range(7):
            assert _rewritten(bench, NodeResourceChange(CPU, 9))
            waited = 0
            while bench.promised()[0] == "9":
                bench.done(PROMISES[0])
                node.sandbox.advance(1.0)
                waited += 1
            waits.append(waited - 1)
    assert waits == [0, 2, 4, 8, 16, 32, 60]


def test_what_goes_with_a_fought_promise_waits_with_it(emulate: Make) -> None:
    with Bench.at(emulate("small")) as bench:
        for _ in range(2):
            bench.done(*PROMISES[:2], strategy="beAllocatable")
            assert _rewritten(bench, NodeResourceChange(CPU, 9))
        bench.done(PROMISES[0], NodeAnnotationChange("example.com/worth", "1.30"), strategy="beAllocatable")
        assert bench.promised()[:2] == ("9", "1.20")
        bench.done(NodeAnnotationChange("example.com/worth", "1.30"), strategy="cpuNormalization")
        assert bench.promised()[:2] == ("9", "1.30"), "another strategy's goes on"


def test_a_write_of_unknown_fate_is_nobody_elses(emulate: Make) -> None:
    """The cluster took it and its answer was lost: what stands there is ours."""
    with Bench.at(emulate("small")) as bench:
        bench.done(PROMISES[0])
        cluster = WithoutTopology(bench.node)
        cluster.lost = True
        bench.applier._cluster = cluster
        seen = bench.observer.observe()
        (step,) = bench.applier.apply(Plan((NodeResourceChange(CPU, 7),)), seen)
        assert not step.ok
        assert bench.promised()[0] == "7"
        assert _rewritten(bench) == []
