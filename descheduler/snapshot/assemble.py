"""The picture out of the objects: every annotation read once, everything indexed, every time read.

What cannot be read becomes a problem of the view and the part it stood for is unknown; it never becomes a default that
looks like a fact.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from descheduler.framework import DisruptionBudget, NodeView, PodView, Usage, View
from descheduler.metrics_sources import node_metric, resource_metrics
from descheduler.picture import label_index, templates
from descheduler.picture.templates import Template
from descheduler.snapshot import crane, report, volumes
from descheduler.snapshot.files import Objects
from descheduler.snapshot.homes import Home
from descheduler.snapshot.pack import PackedPod, Packer
from descheduler.snapshot.report import Report
from koordlite.model import times, volcano_nrt
from koordlite.model.errors import InputError, Problem
from koordlite.model.wire import numatopology
from koordlite.model.wire import objects as wire
from koordlite.model.wire import volumes as wire_volumes
from koordlite.model.wire.crane import TopologyObject

_Topology = wire.NRTObject | numatopology.NumatopologyObject


def view(objects: Objects, now: str = "", source: str = "given") -> View:
    """The picture at `now` (RFC 3339), a time that comes from `source`; or at the newest time found in the objects."""
    return Pictures().view(objects, now, source)


class Pictures:
    """Makes one picture after the other. What was made of objects that are still the same objects is taken over, so
    that a picture is the same whatever was made before it, and costs by what has changed. No value holds an age: ages
    are asked of the view, which knows the time."""

    def __init__(self) -> None:
        self._classes: Mapping[str, int] = {}
        self._pods: dict[str, PodView] = {}
        self._reports: dict[str, _Reported] = {}
        self._homes: dict[str, Home] = {}
        self._templates: tuple[tuple[Template, ...], tuple[Template, ...]] = (), ()

    def view(self, objects: Objects, now: str = "", source: str = "given") -> View:
        """As the function `view`."""
        moment, source = (times.parse(now), source) if now else _moment(objects)
        problems = list(objects.problems)
        classes = {c.metadata.name: c.value for c in objects.of("PriorityClass")}
        reports = self._read_reports(objects, problems)
        pods = self._read_pods(objects, classes, problems)
        nodes = self._nodes(objects.of("Node"), reports, pods, problems)
        unbound = tuple([p for p in pods if p.node not in nodes])
        bound = [p for each in nodes.values() for p in each.pods]
        others = [*unbound, *[p for each in nodes.values() for p in each.ended]]
        self._templates = templates.gather(bound, self._templates[0]), templates.gather(others, self._templates[1])
        everything = (*self._templates[0], *self._templates[1])
        return View(
            time=times.show(moment),
            time_source=source,
            nodes=nodes,
            templates=self._templates[0],
            by_uid={p.pod.uid: p for each in nodes.values() for p in each.all_pods},
            unbound=unbound,
            budgets=tuple(_budgets(objects.of("PodDisruptionBudget"), everything)),
            namespaces={n.metadata.name: n.metadata.labels or {} for n in objects.of("Namespace")},
            priority_classes=classes,
            storage_classes=_storage_classes(objects.of("PersistentVolumeClaim")),
            volume_nodes=volumes.nodes(*map(objects.of, ("PersistentVolumeClaim", "PersistentVolume", "StorageClass"))),
            usage=_usage(objects, moment, problems),
            replicas=_replicas(everything),
            problems=tuple(problems),
            notes=tuple(_notes(objects, pods, nodes, everything)),
        )

    def _read_reports(self, objects: Objects, problems: list[Problem]) -> Mapping[str, _Reported]:
        """What is reported of each node."""
        of_crane = {obj.metadata.name: obj for obj in objects.of(crane.KIND)}
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

    def _read_pods(self, objects: Objects, classes: Mapping[str, int], problems: list[Problem]) -> list[PodView]:
        known = self._pods if classes == self._classes else {}
        pods = []
        for obj in objects.of("Pod"):
            one = known.get(obj.metadata.uid)
            if one is None or one.object is not obj:
                one = _pod(obj, objects.packer, classes)
            if one.pod.problems:
                problems.extend(one.pod.problems)
            pods.append(one)
        self._classes, self._pods = classes, {one.pod.uid: one for one in pods}
        return pods

    def _nodes(
        self,
        objects: Iterable[wire.NodeObject],
        reports: Mapping[str, _Reported],
        pods: Iterable[PodView],
        problems: list[Problem],
    ) -> dict[str, NodeView]:
        placed: dict[str, list[PodView]] = defaultdict(list)
        for one in pods:
            placed[one.node].append(one)
        before, self._homes = self._homes, {}
        for obj in objects:
            name, known = obj.metadata.name, before.get(obj.metadata.name)
            reported = reports.get(name, _NOT_REPORTED)
            home = known if known and known.is_of(obj, reported.report) else Home(obj, reported.report)
            home.take(tuple(placed.get(name, ())), reported.seen_at)
            self._homes[name] = home
            problems.extend(home.problems)
        return {name: home.view for name, home in self._homes.items()}


@dataclasses.dataclass(frozen=True, slots=True)
class _Reported:
    """What was read of a node's report, and of which objects."""

    inputs: tuple[_Topology | None, TopologyObject | None]
    report: Report
    seen_at: float | None
    """When the agent saw where containers are."""
    problems: tuple[Problem, ...]

    @classmethod
    def of(cls, obj: _Topology | None, by_crane: TopologyObject | None, before: Report | None) -> _Reported:
        """Read them. A report that says what the one `before` said is that one: mostly only its time is another."""
        problems: list[Problem] = []
        found, seen_at = _report(obj, problems)
        if by_crane:
            found = dataclasses.replace(found, by_crane=crane.reserved(by_crane, problems))
        return cls((obj, by_crane), before if before == found else found, seen_at, tuple(problems))


_NOT_REPORTED = _Reported((None, None), Report(), None, ())


def _report(obj: _Topology | None, problems: list[Problem]) -> tuple[Report, float | None]:
    """What a NodeResourceTopology says, or Volcano's Numatopology in its words."""
    if isinstance(obj, numatopology.NumatopologyObject):
        try:
            obj = volcano_nrt.to_nrt(obj)
        except InputError as error:
            problems.extend(error.problems)
            return Report(), None
    return report.read(obj, problems) if obj else (Report(), None)


def _usage(objects: Objects, moment: float, problems: list[Problem]) -> dict[str, Usage]:
    """Measurements that lie among the objects."""
    found: dict[str, Usage] = {}
    if objects.by_kind["NodeMetric"]:
        found[node_metric.SOURCE] = node_metric.usage(objects.of("NodeMetric"), moment, problems)
    if objects.by_kind["NodeMetrics"]:
        of_nodes, of_pods = objects.of("NodeMetrics"), objects.of("PodMetrics")
        found[resource_metrics.SOURCE] = resource_metrics.usage(of_nodes, of_pods, problems)
    return found


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


def _pod(obj: PackedPod, packer: Packer, classes: Mapping[str, int]) -> PodView:
    """One pod; what cannot be read in it is among the problems of its value."""
    priority = obj.spec.priority
    if priority is None:
        priority = classes.get(obj.spec.priority_class_name or "")
    value = packer.made(obj, priority)
    if not value.uid:
        value = dataclasses.replace(value, uid=value.key)
    started = times.parse_or_none(obj.status.start_time or obj.metadata.creation_timestamp)
    return PodView(value, obj, obj.spec.node_name, started, template=obj.template)


def _budgets(objects: Iterable[wire.PodDisruptionBudgetObject], pods: Iterable[Template]) -> Iterator[DisruptionBudget]:
    indices = label_index.by_namespace(pods)
    for obj in objects:
        meta = obj.metadata
        index = indices.get(meta.namespace)
        covered = frozenset([one.uid for one in index.select(obj.spec.selector)] if index else ())
        yield DisruptionBudget(f"{meta.namespace}/{meta.name}", obj.status.disruptions_allowed, covered)


def _storage_classes(claims: Iterable[wire_volumes.PersistentVolumeClaimObject]) -> dict[str, str]:
    return {f"{c.metadata.namespace}/{c.metadata.name}": c.spec.storage_class_name or "" for c in claims}


def _replicas(alike: Iterable[Template]) -> dict[str, int]:
    found: dict[str, int] = defaultdict(int)
    for template in alike:
        for owner in template.first.object.metadata.owner_references or ():
            found[owner.uid] += len(template.pods)
    return dict(found)


def _notes(
    objects: Objects, pods: list[PodView], nodes: Mapping[str, NodeView], alike: Iterable[Template]
) -> Iterator[str]:
    for kind, count in sorted(objects.ignored.items()):
        yield f"{count} × {kind}: not read, nothing here decides on it"
    for kind, count in sorted(objects.repeated.items()):
        yield f"{count} × {kind} came more than once; the last one read counts"
    stray = [p for p in pods if p.node and p.node not in nodes]
    if stray:
        yield f"{len(stray)} pods run on nodes that are not in the files, such as {stray[0].node}; they are not judged"
    if not objects.by_kind["NodeResourceTopology"]:
        yield "no NodeResourceTopology in the files: NUMA promises and resolved reservations cannot be judged"
    yield from volumes.notes(alike, objects.by_kind["PersistentVolumeClaim"], objects.by_kind["PersistentVolume"])
