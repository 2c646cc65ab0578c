"""The picture out of the objects: every annotation read once, everything indexed, every time read.

What cannot be read becomes a problem of the view and the part it stood for is unknown; it never becomes a default that
looks like a fact.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from descheduler.framework import PodView, Usage, View
from descheduler.metrics_sources import metric_objects
from descheduler.picture.templates import Groups, SpecGroup, by_name, grouped
from descheduler.snapshot import budgets, files, report, volumes
from descheduler.snapshot.budgets import CoveredPods
from descheduler.snapshot.files import Objects
from descheduler.snapshot.homes import Home, Moves, active, ended
from descheduler.snapshot.placed_pods import PlacedPods
from descheduler.snapshot.report import Report
from koordlite.fault_guard import SubjectFaults
from koordlite.model import nrt, times
from koordlite.model.errors import InputError, Problem
from koordlite.model.wire import numatopology
from koordlite.model.wire import objects as wire
from koordlite.model.wire.crane import TopologyObject

FAULTS = SubjectFaults("picture of the cluster")
_Topology = wire.NRTObject | numatopology.NumatopologyObject


def view(objects: Objects, now: str = "", source: str = "given") -> View:
    """The picture at `now` (RFC 3339), a time that comes from `source`; or at the newest time found in the objects."""
    return Pictures().view(objects, now, source)


class Pictures:
    """Makes one picture after the other. What was made of objects that are still the same objects is taken over, so
    that a picture is the same whatever was made before it, and costs by what has changed. No value holds an age: ages
    are asked of the view, which knows the time."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._pods = PlacedPods()
        self._reports: dict[str, _Reported] = {}
        self._homes: dict[str, Home] = {}
        self._by_uid: dict[str, PodView] = {}
        self._unbound: tuple[PodView, ...] = ()
        self._groups: tuple[Groups, Groups] = {}, {}
        """Of pods that have not ended and are bound to a node, and of all others."""
        self._budgets: Mapping[str, CoveredPods] = {}

    def view(self, objects: Objects, now: str = "", source: str = "given") -> View:
        """Make a picture as the function `view` does. Where that fails, the next picture is made of nothing but its
        objects."""
        try:
            return self._view(objects, now, source)
        except BaseException:
            self._begin()
            raise

    def _view(self, objects: Objects, now: str, source: str) -> View:
        moment, source = (times.parse(now), source) if now else _moment(objects)
        problems = list(objects.problems)
        classes = {c.metadata.name: c.value for c in objects.of("PriorityClass")}
        reports = self._read_reports(objects, problems)
        self._pods.read(objects, classes)
        problems.extend(self._pods.problems)
        left, came = self._nodes(objects.of("Node"), reports, problems)
        nodes = {name: home.view for name, home in self._homes.items()}
        everything = (*self._groups[0].values(), *self._groups[1].values())
        self._budgets = budgets.covered(objects.of("PodDisruptionBudget"), everything, self._budgets, left, came)
        replicas: dict[str, int] = defaultdict(int)
        for group in everything:
            for owner in group.first.object.metadata.owner_references or ():
                replicas[owner.uid] += group.size
        usage: dict[str, Usage] = {}
        if objects.by_kind["NodeMetric"]:
            metrics = objects.of("NodeMetric")
            usage[metric_objects.NODE_METRIC] = metric_objects.of_node_metrics(metrics, moment, problems)
        if objects.by_kind["NodeMetrics"]:
            of_nodes, of_pods = objects.of("NodeMetrics"), objects.of("PodMetrics")
            usage[metric_objects.METRICS_API] = metric_objects.of_metrics_api(of_nodes, of_pods, problems)
        return View(
            time=times.show(moment),
            time_source=source,
            nodes=nodes,
            groups=tuple(self._groups[0].values()),
            by_uid=self._by_uid,
            unbound=self._unbound,
            budgets=tuple([one.budget for one in self._budgets.values()]),
            namespaces={n.metadata.name: n.metadata.labels or {} for n in objects.of("Namespace")},
            priority_classes=classes,
            storage_classes={
                f"{c.metadata.namespace}/{c.metadata.name}": c.spec.storage_class_name or ""
                for c in objects.of("PersistentVolumeClaim")
            },
            volume_nodes=volumes.nodes(*map(objects.of, ("PersistentVolumeClaim", "PersistentVolume", "StorageClass"))),
            usage=usage,
            replicas=dict(replicas),
            problems=tuple(problems),
            notes=tuple(_notes(objects, self._unbound, everything)),
        )

    def _read_reports(self, objects: Objects, problems: list[Problem]) -> Mapping[str, _Reported]:
        """The reports by node."""
        of_crane = {obj.metadata.name: obj for obj in objects.of(files.CRANE_KIND)}
        by_volcano = {obj.metadata.name: obj for obj in objects.of(numatopology.KIND)}
        by_name = {**by_volcano, **{obj.metadata.name: obj for obj in objects.of("NodeResourceTopology")}}
        before, self._reports = self._reports, {}
        for name in {**by_name, **of_crane}:
            inputs = by_name.get(name), of_crane.get(name)
            known = before.get(name)
            if known is None or known.inputs[0] is not inputs[0] or known.inputs[1] is not inputs[1]:
                known = _Reported.of(*inputs, known.report if known else None)
            self._reports[name] = known
            problems.extend(known.problems)
        return self._reports

    def _nodes(
        self, objects: Iterable[wire.NodeObject], reports: Mapping[str, _Reported], problems: list[Problem]
    ) -> Moves:
        """Bring nodes up to date, and what is worked out from their pods; returns all pods that left, and that came."""
        left, came = list[PodView](), list[PodView]()
        before, self._homes = self._homes, {}
        for obj in objects:
            name = obj.metadata.name
            home, gone, new = self._home(obj, reports.get(name, _NOT_REPORTED), before.pop(name, None))
            self._homes[name] = home
            problems.extend(home.problems)
            left += gone
            came += new
        left += [one for home in before.values() for one in home.pods]
        self._by_uid = dict(self._by_uid)  # Pictures that were made earlier keep theirs.
        for one in left:
            self._by_uid.pop(one.uid, None)
        self._by_uid.update({one.uid: one for one in came})
        gone, new = self._stray()
        self._groups = (
            grouped(active(came), active(left), self._groups[0]),
            grouped([*new, *ended(came)], [*gone, *ended(left)], self._groups[1]),
        )
        return left + gone, came + new

    def _home(self, obj: wire.NodeObject, reported: _Reported, known: Home | None) -> tuple[Home, *Moves]:
        """The node as it is now, the pods that left it, and those that came."""
        name = obj.metadata.name
        if known and known.is_of(obj, reported.report):
            if name in self._pods.moves:
                return known, *known.change(*self._pods.moves[name], reported.seen_at)
            known.seen(reported.seen_at)
            return known, [], []
        home = Home(obj, reported.report)
        home.change((), self._pods.by_node.get(name, ()), reported.seen_at)
        return home, *_moves(known.pods if known else (), home.pods)

    def _stray(self) -> Moves:
        """Note which pods are on none of the nodes, by namespace and name."""
        before, elsewhere = self._unbound, self._pods.by_node.keys() - self._homes.keys()
        self._unbound = tuple(sorted((one for name in elsewhere for one in self._pods.by_node[name]), key=by_name))
        return _moves(before, self._unbound)


def _moves(before: Iterable[PodView], after: Sequence[PodView]) -> Moves:
    """The pods that left, and those that came."""
    known = {one.uid: one for one in before}
    came = [one for one in after if known.get(one.uid) is not one]
    stayed = {one.uid for one in after if known.get(one.uid) is one}
    return [one for uid, one in known.items() if uid not in stayed], came


class _Reported(msgspec.Struct, frozen=True):
    """A node's report, and the objects it was read from."""

    inputs: tuple[_Topology | None, TopologyObject | None]
    report: Report
    seen_at: float | None
    """When the agent saw where containers are."""
    problems: tuple[Problem, ...]

    @classmethod
    def of(cls, obj: _Topology | None, by_crane: TopologyObject | None, before: Report | None) -> _Reported:
        """Read them. A report that says what the one `before` said is that one: mostly only its time is another."""
        problems: list[Problem] = []
        try:
            found, seen_at = _report(obj, problems)
            if by_crane:
                found = msgspec.structs.replace(found, by_crane=report.crane_reserved(by_crane, problems))
        except Exception as error:  # noqa: BLE001 - one node's fault costs that node
            found, seen_at = Report(), None
            name = (obj or by_crane or wire.NRTObject()).metadata.name
            problems.append(FAULTS.problem(f"noderesourcetopology/{name}", error))
        return cls((obj, by_crane), before if before == found else found, seen_at, tuple(problems))


_NOT_REPORTED = _Reported((None, None), Report(), None, ())


def _report(obj: _Topology | None, problems: list[Problem]) -> tuple[Report, float | None]:
    """Read a NodeResourceTopology, or Volcano's Numatopology in its words."""
    if isinstance(obj, numatopology.NumatopologyObject):
        try:
            obj = nrt.to_nrt(obj)
        except InputError as error:
            problems.extend(error.problems)
            return Report(), None
    return report.read(obj, problems) if obj else (Report(), None)


def _moment(objects: Objects) -> tuple[float, str]:
    found = [seconds for text in set(_times(objects)) if (seconds := times.parse_or_none(text)) is not None]
    return (max(found), "the newest time in the files") if found else (0.0, "unknown: no object has a time")


def _times(objects: Objects) -> Iterator[str | None]:
    for obj in objects.by_kind["Pod"].values():
        yield from (obj.metadata.creation_timestamp, obj.status.start_time)
    for obj in objects.of("Node"):
        yield obj.metadata.creation_timestamp
        yield from (c.last_heartbeat_time for c in obj.status.conditions or ())
    for obj in objects.of("NodeResourceTopology"):
        yield report.observed_at(obj)


def _notes(objects: Objects, unbound: Iterable[PodView], groups: Iterable[SpecGroup]) -> Iterator[str]:
    for kind, count in sorted(objects.ignored.items()):
        yield f"{count} × {kind}: not read, nothing here decides on it"
    for kind, count in sorted(objects.repeated.items()):
        yield f"{count} × {kind} came more than once; the last one read counts"
    stray = [p for p in unbound if p.node]
    if stray:
        yield f"{len(stray)} pods run on nodes that are not in the files, such as {stray[0].node}; they are not judged"
    if not objects.by_kind["NodeResourceTopology"]:
        yield "no NodeResourceTopology in the files: NUMA promises and resolved reservations cannot be judged"
    yield from volumes.notes(groups, objects.by_kind["PersistentVolumeClaim"], objects.by_kind["PersistentVolume"])
