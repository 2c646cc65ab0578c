"""What was promised on the Node is noted before the first time, and taken back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from emulated import Emulated

from koordlite import apply, plan
from koordlite.apply import Applier
from koordlite.host.journal import NodeAnnotation, NodeResource, ZoneAmount
from koordlite.model.decision import (
    Change,
    NodeAnnotationChange,
    NodeResourceChange,
    ZoneResourceChange,
    ZonesChange,
)
from koordlite.model.wire import Zone, ZoneResource
from koordlite.observe import Observer
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


class Bench:
    """An applier on a node, and the pictures it works from."""

    def __init__(self, node: Emulated, journal: Any) -> None:
        self.cluster, self.host = node.cluster, node.host()
        self.observer = Observer(self.host, node.cluster, tasks_seconds=1.0)
        self.applier = Applier(self.host, node.cluster, journal)
        self.take(ZonesChange((ZONE,), ("None",)))

    def take(self, *changes: Change, strategy: str = "") -> None:
        seen = self.observer.observe(ours=self.applier.ours)
        owners = {change.place: strategy for change in changes}
        steps = self.applier.apply(Plan(plan.order(changes, seen.cgroups), owners=owners), seen)
        assert all(step.ok for step in steps)

    def promised(self) -> tuple[Any, Any, Any]:
        """Resource of the Node, annotation of the Node, resource of the zone."""
        view = self.cluster.view()
        assert view.node
        assert view.topology
        assert view.topology.zones
        held = {resource.name: resource for resource in view.topology.zones[0].resources or ()}
        notes = view.node.metadata.annotations or {}
        return (view.node.status.allocatable or {}).get(CPU), notes.get("example.com/worth"), held.get(CPU)


def test_each_promise_is_noted_with_what_stood_there(emulate: Make) -> None:
    node = emulate("small")
    with node.journal() as journal:
        bench = Bench(node, journal)
        bench.take(*PROMISES, strategy="beAllocatable")
        assert journal.entries == (
            NodeResource(resource=CPU, previous=None, strategy="beAllocatable"),
            NodeAnnotation(key="example.com/worth", previous=None, strategy="beAllocatable"),
            ZoneAmount(zone="node-0", resource=CPU, previous=None, strategy="beAllocatable"),
        )
        assert bench.promised() == ("5", "1.20", PART)


def test_the_first_note_stays(emulate: Make) -> None:
    node = emulate("small")
    with node.journal() as journal:
        bench = Bench(node, journal)
        bench.take(*PROMISES)
        noted = journal.entries
        bench.take(NodeResourceChange(CPU, 7), NodeAnnotationChange("example.com/worth", None))
        assert journal.entries == noted


def test_all_of_it_is_taken_back(emulate: Make) -> None:
    node = emulate("small")
    with node.journal() as journal:
        bench = Bench(node, journal)
        bench.take(*PROMISES)
        steps = apply.restore(bench.host, journal, node.cluster)
        assert [(step.place, step.value, step.ok) for step in steps] == [
            (change.place, "(removed)", True) for change in PROMISES
        ]
        assert bench.promised() == (None, None, None)
        assert not journal.entries


def test_what_a_strategy_promises_anew_stays_until_then(emulate: Make) -> None:
    node = emulate("small")
    with node.journal() as journal:
        bench = Bench(node, journal)
        bench.take(PROMISES[0], strategy="beAllocatable")
        bench.take(PROMISES[1], strategy="cpuNormalization")
        steps = apply.restore(bench.host, journal, node.cluster, staying=["beAllocatable"])
        assert [step.place for step in steps] == [PROMISES[1].place]
        assert bench.promised()[:2] == ("5", None)
        assert journal.places == {PROMISES[0].place}


def test_when_each_amount_was_written_is_known(emulate: Make) -> None:
    node = emulate("small")
    with node.journal() as journal:
        bench = Bench(node, journal)
        bench.take(PROMISES[0])
        node.sandbox.advance(5.0)
        bench.take(PROMISES[2])
        first, second = (bench.applier.last_sync[change.place] for change in (PROMISES[0], PROMISES[2]))
        assert second - first == 5.0
        assert bench.observer.observe(last_sync=bench.applier.last_sync).published.last_sync == bench.applier.last_sync
