"""The picture out of the objects: every annotation read once, everything indexed, every age worked out.

What cannot be read becomes a problem of the view and the part it stood for is unknown; it never becomes a default that
looks like a fact.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from descheduler.framework import DisruptionBudget, NodeView, PodView, Usage, View
from descheduler.metrics_sources import node_metric, resource_metrics
from descheduler.picture import label_index, templates
from descheduler.picture.templates import Template
from descheduler.snapshot import crane, promised_placement, report, volumes
from descheduler.snapshot.files import Objects
from descheduler.snapshot.pack import PackedPod, Packer
from koordlite.model import cpuset, keys, node, times, volcano_nrt
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.errors import InputError, Problem
from koordlite.model.wire import numatopology
from koordlite.model.wire import objects as wire
from koordlite.model.wire import volumes as wire_volumes

T = TypeVar("T")
_ENDED = ("Succeeded", "Failed")


def view(objects: Objects, now: str = "", source: str = "given") -> View:
    """The picture at `now` (RFC 3339), a time that comes from `source`; or at the newest time found in the objects."""
    moment, source = (times.parse(now), source) if now else _moment(objects)
    problems = list(objects.problems)
    classes = {c.metadata.name: c.value for c in objects.of("PriorityClass")}
    reports = report.read_all(_topologies(objects, problems), moment, problems)
    for obj in objects.of(crane.KIND):
        reported = reports.get(obj.metadata.name, report.Report())
        reports[obj.metadata.name] = dataclasses.replace(reported, by_crane=crane.reserved(obj, problems))
    reader = _Pods(objects.packer, moment, classes, problems)
    objects.packer.next_picture()
    pods = [reader.read(obj) for obj in objects.of("Pod")]
    nodes = _nodes(objects.of("Node"), reports, pods, problems)
    unbound = tuple(p for p in pods if p.node not in nodes)
    alike = templates.gather(p for each in nodes.values() for p in each.pods)
    others = templates.gather((*unbound, *(p for each in nodes.values() for p in each.ended)))
    return View(
        time=times.show(moment),
        time_source=source,
        nodes=nodes,
        templates=alike,
        by_uid={p.uid: p for each in nodes.values() for p in each.all_pods},
        unbound=unbound,
        budgets=tuple(_budgets(objects.of("PodDisruptionBudget"), (*alike, *others))),
        namespaces={n.metadata.name: n.metadata.labels or {} for n in objects.of("Namespace")},
        priority_classes=classes,
        storage_classes=_storage_classes(objects.of("PersistentVolumeClaim")),
        volume_nodes=volumes.nodes(*map(objects.of, ("PersistentVolumeClaim", "PersistentVolume", "StorageClass"))),
        usage=_usage(objects, moment, problems),
        replicas=_replicas(pods),
        problems=tuple(problems),
        notes=tuple(_notes(objects, pods, nodes)),
    )


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


@dataclasses.dataclass(frozen=True)
class _Pods:
    """Makes the views of pods."""

    packer: Packer
    now: float
    classes: Mapping[str, int]
    problems: list[Problem]

    def read(self, obj: PackedPod) -> PodView:
        """One pod; what cannot be read in it is noted."""
        priority = obj.spec.priority
        if priority is None:
            priority = self.classes.get(obj.spec.priority_class_name or "")
        value = self.packer.value(obj, priority)
        self.problems.extend(value.problems)
        if not value.uid:
            value = dataclasses.replace(value, uid=value.key)
        started = times.parse_or_none(obj.status.start_time or obj.metadata.creation_timestamp)
        age = None if started is None else self.now - started
        return PodView(value, obj, obj.spec.node_name, age, template=obj.template)


def _nodes(
    objects: Iterable[wire.NodeObject],
    reports: Mapping[str, report.Report],
    pods: Iterable[PodView],
    problems: list[Problem],
) -> dict[str, NodeView]:
    placed: dict[str, list[PodView]] = defaultdict(list)
    for one in pods:
        placed[one.node].append(one)
    return {
        obj.metadata.name: _node(obj, reports.get(obj.metadata.name), placed[obj.metadata.name], problems)
        for obj in objects
    }


def _node(
    obj: wire.NodeObject, reported: report.Report | None, pods: Iterable[PodView], problems: list[Problem]
) -> NodeView:
    value = node.from_wire(obj)
    problems.extend(value.problems)
    reported = reported or report.Report()
    owner = f"node/{value.name}"
    notes = value.annotations
    written = read(lambda: node.parse_reservation(notes.get(keys.RESERVATION, ""), owner), problems)
    system = reported.system_qos or read(lambda: node.parse_system_qos(notes.get(keys.SYSTEM_QOS), owner), problems)
    pods = tuple(pods)
    bare = NodeView(
        node=value,
        object=obj,
        topology=reported.topology,
        zones=reported.zones,
        zone_totals=reported.zone_totals,
        distances=reported.distances,
        be_pool=reported.be_pool,
        topology_policy=reported.topology_policy,
        topology_scope=reported.topology_scope,
        cpu_manager=reported.cpu_manager,
        reserved=promised_placement.reserved_cpus(
            reported,
            written,
            system,
            unreadable=_unreadable(notes, written),
            pinned=_pinned(pods, reported) if written and written.reserved_cpus is None else EMPTY,
        ),
        reservation=written,
        koordinator=reported.koordinator,
        placement_age_seconds=reported.placement_age_seconds,
    )
    present, ended = [], []
    for one in pods:
        if one.pod.phase in _ENDED:
            ended.append(one)
        else:
            present.append(_with_promises(one, bare, reported))
    return dataclasses.replace(bare, pods=tuple(present), ended=tuple(ended))


def _unreadable(notes: Mapping[str, str], written: node.Reservation | None) -> bool:
    return written is None and notes.get(keys.RESERVATION, "") not in ("", "null")


def _pinned(pods: Iterable[PodView], reported: report.Report) -> CPUSet:
    """CPUs that scheduler and kubelet gave to pods."""
    by_scheduler = [one.pod.resource_status.cpuset for one in pods if one.pod.active]
    return cpuset.union([*by_scheduler, *(alloc.cpuset for alloc in reported.allocs.values())])


def _with_promises(one: PodView, home: NodeView, reported: report.Report) -> PodView:
    containers, seen = promised_placement.of_pod(one, home, reported, crane.promise(one.pod))
    return dataclasses.replace(one, containers=containers, observed=seen) if containers else one


def _budgets(objects: Iterable[wire.PodDisruptionBudgetObject], pods: Iterable[Template]) -> Iterator[DisruptionBudget]:
    indices = label_index.by_namespace(pods)
    for obj in objects:
        meta = obj.metadata
        index = indices.get(meta.namespace)
        covered = frozenset([one.uid for one in index.select(obj.spec.selector)] if index else ())
        yield DisruptionBudget(f"{meta.namespace}/{meta.name}", obj.status.disruptions_allowed, covered)


def _topologies(objects: Objects, problems: list[Problem]) -> list[wire.NRTObject]:
    """NodeResourceTopologies, and for nodes without one what Volcano's Numatopology says in their words."""
    found: list[wire.NRTObject] = objects.of("NodeResourceTopology")
    known = {each.metadata.name for each in found}
    for other in objects.of(numatopology.KIND):
        try:
            found += [] if other.metadata.name in known else [volcano_nrt.to_nrt(other)]
        except InputError as error:
            problems.extend(error.problems)
    return found


def _storage_classes(claims: Iterable[wire_volumes.PersistentVolumeClaimObject]) -> dict[str, str]:
    return {f"{c.metadata.namespace}/{c.metadata.name}": c.spec.storage_class_name or "" for c in claims}


def _replicas(pods: Iterable[PodView]) -> dict[str, int]:
    return Counter(owner.uid for one in pods for owner in one.object.metadata.owner_references or ())


def _notes(objects: Objects, pods: list[PodView], nodes: Mapping[str, NodeView]) -> Iterator[str]:
    for kind, count in sorted(objects.ignored.items()):
        yield f"{count} × {kind}: not read, nothing here decides on it"
    for kind, count in sorted(objects.repeated.items()):
        yield f"{count} × {kind} came more than once; the last one read counts"
    stray = [p for p in pods if p.node and p.node not in nodes]
    if stray:
        yield f"{len(stray)} pods run on nodes that are not in the files, such as {stray[0].node}; they are not judged"
    if not objects.by_kind["NodeResourceTopology"]:
        yield "no NodeResourceTopology in the files: NUMA promises and resolved reservations cannot be judged"
    yield from volumes.notes(pods, objects.by_kind["PersistentVolumeClaim"], objects.by_kind["PersistentVolume"])


def read(parse: Callable[[], T], problems: list[Problem]) -> T | None:
    """What `parse` returns; None, with its problems noted, when it is refused."""
    try:
        return parse()
    except InputError as error:
        problems.extend(error.problems)
        return None
