"""The picture out of the objects: every annotation read once, everything indexed, every time read.

What cannot be read becomes a problem of the view and the part it stood for is unknown; it never becomes a default that
looks like a fact.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import operator
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from descheduler.framework import DisruptionBudget, PodView, Usage, View
from descheduler.metrics_sources import gather
from descheduler.picture import templates
from descheduler.picture.templates import Groups, SpecGroup, by_name, grouped
from descheduler.snapshot import files, node_state
from descheduler.snapshot.files import Objects
from descheduler.snapshot.node_state import Moves, NodeState, Report, active, ended
from descheduler.snapshot.pack import PackedPod, Packer
from koordlite.fault_guard import SubjectFaults
from koordlite.model import label_selectors, nrt, times
from koordlite.model.errors import InputError, Problem
from koordlite.model.wire import numatopology, objects
from koordlite.model.wire import objects as wire
from koordlite.model.wire import volumes as wire_volumes
from koordlite.model.wire.crane import TopologyObject


class CoveredPods(msgspec.Struct, frozen=True):
    """A budget, and what it was made of."""

    object: wire.PodDisruptionBudgetObject
    budget: DisruptionBudget


def cover(
    objects: Iterable[wire.PodDisruptionBudgetObject],
    everything: Iterable[SpecGroup],
    before: Mapping[str, CoveredPods],
    leavers: Iterable[PodView],
    came: Iterable[PodView],
) -> dict[str, CoveredPods]:
    """The budgets by `namespace/name`. `before`: those of the last picture, since when pods `leavers` and `came`;
    `everything`: all pods that there are now."""
    moves: dict[str, Moves] = defaultdict(lambda: ([], []))
    # A pod that is there again with the labels that it had is covered as before.
    old, new = ({(one.uid, one.template): one for one in pods} for pods in (leavers, came))
    for side, (pods, others) in enumerate(((old, new), (new, old))):
        for one in [pods[identity] for identity in pods.keys() - others.keys()]:
            moves[one.pod.namespace][side].append(one)
    indices = functools.cache(lambda: templates.indices(everything))
    by_key: dict[str, CoveredPods] = {}
    for obj in objects:
        meta, selector = obj.metadata, obj.spec.selector
        key = f"{meta.namespace}/{meta.name}"
        previous = before.get(key)
        if previous is None or previous.object.spec != obj.spec:
            index = indices().get(meta.namespace)
            uids = frozenset([one.uid for one in index.select(selector)] if index else ())
        else:
            uids = previous.budget.pods
            removed, added = (
                [one.uid for one in some if selector and label_selectors.labels_match(selector, one.pod.labels)]
                for some in moves[meta.namespace]
            )
            uids = uids.difference(removed).union(added) if removed or added else uids
        budget = DisruptionBudget(key, obj.status.disruptions_allowed, uids)
        by_key[key] = CoveredPods(obj, previous.budget if previous and previous.budget == budget else budget)
    return by_key


_ZONES = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)
_SEPARATOR = "__"
"""Separator of the zones in one label of a volume."""


def _volume_nodes(
    claims: Iterable[wire_volumes.PersistentVolumeClaimObject],
    volumes: Iterable[wire_volumes.PersistentVolumeObject],
    classes: Iterable[wire_volumes.StorageClassObject],
) -> dict[str, tuple[objects.NodeSelector, ...]]:
    """Selectors by claim, `namespace/name`, that a node must all match. A claim without an entry is no obstacle."""
    by_volume = {volume.metadata.name: tuple(_of_volume(volume)) for volume in volumes}
    # A volume that is made where the pod starts is made only where its class allows.
    by_class = {
        one.metadata.name: (objects.NodeSelector(node_selector_terms=tuple(map(_term, one.allowed_topologies))),)
        for one in classes
        if one.volume_binding_mode == "WaitForFirstConsumer" and one.allowed_topologies
    }
    by_claim: dict[str, tuple[objects.NodeSelector, ...]] = {}
    for claim in claims:
        bound = claim.spec.volume_name
        where = by_volume.get(bound, ()) if bound else by_class.get(claim.spec.storage_class_name or "", ())
        if where:
            by_claim[f"{claim.metadata.namespace}/{claim.metadata.name}"] = where
    return by_claim


def _volume_notes(
    groups: Iterable[SpecGroup],
    claims: Mapping[tuple[str, str], wire_volumes.PersistentVolumeClaimObject],
    volumes: Mapping[tuple[str, str], wire_volumes.PersistentVolumeObject],
) -> Iterator[str]:
    """Claims of pods of which nobody can say where their volumes are, by (namespace, name) what there is: pods that
    have them are taken for fitting wherever the rest of them fits."""
    using = [one for group in groups if group.first.object.spec.volumes for one in group.pods if not one.pod.finished]
    named = {
        (pod.pod.namespace, name)
        for pod in using
        for volume in pod.object.spec.volumes or ()
        if (name := (volume.persistent_volume_claim or {}).get("claimName"))
    }
    unknown = sorted(named - claims.keys())
    if unknown:
        words = f"{len(unknown)} volume claims of pods are not there, such as {'/'.join(unknown[0])}"
        yield f"{words}: which nodes reach their volumes is not asked; `kubectl get pvc,pv,storageclasses` has them"
    names = {volume for _, volume in volumes}
    lost = sorted({name for one in claims.values() if (name := one.spec.volume_name) and name not in names})
    if lost:
        yield f"{len(lost)} volumes of claims are not there, such as {lost[0]}: which nodes reach them is not asked"


def _of_volume(volume: wire_volumes.PersistentVolumeObject) -> Iterator[objects.NodeSelector]:
    affinity = volume.spec.node_affinity
    if affinity and affinity.required:
        yield affinity.required
    labels = volume.metadata.labels or {}
    lines = [
        objects.LabelRequirement(key=key, operator="In", values=tuple(labels[key].split(_SEPARATOR)))
        for key in _ZONES
        if key in labels
    ]
    if lines:
        yield objects.NodeSelector(node_selector_terms=(objects.NodeSelectorTerm(match_expressions=tuple(lines)),))


def _term(topology: wire_volumes.TopologyTerm) -> objects.NodeSelectorTerm:
    requirements = topology.match_label_expressions or ()
    lines = (objects.LabelRequirement(key=line.key, operator="In", values=line.values) for line in requirements)
    return objects.NodeSelectorTerm(match_expressions=tuple(lines))


_Place = tuple[str, str]
"""Namespace and name."""

POD_FAULTS = SubjectFaults("pods of the cluster")


class PlacedPods:
    """The pods of a cluster."""

    def __init__(self) -> None:
        self.by_node: dict[str, list[PodView]] = {}
        """Pods by node, sorted by namespace and name; a node without pods is missing. Pods without a node are under the
        empty name."""
        self.moves: Mapping[str, Moves] = {}
        """Pods that left and came with the last reading, by node; a node that keeps its pods is missing."""
        self._classes: Mapping[str, int] = {}
        self._pods: dict[_Place, PodView] = {}
        self._objects: list[PackedPod] = []
        """Objects of the last reading, in their order."""
        self._left_out: dict[_Place, Problem] = {}
        """Reason why there is no value of an object: a fault of ours."""
        self._troubled: dict[_Place, PodView] = {}
        """Pods that could be read only in part."""

    @property
    def problems(self) -> Iterator[Problem]:
        """Problems of pods that cannot be read, or only in part."""
        yield from self._left_out.values()
        for where in sorted(self._troubled):
            yield from self._troubled[where].pod.problems

    def read(self, objects: Objects, classes: Mapping[str, int]) -> None:
        """Bring it up to date. `classes`: priorities by the names of their classes."""
        current: dict[_Place, PackedPod] = objects.by_kind["Pod"]
        moves: dict[str, Moves] = defaultdict(lambda: ([], []))
        previous, renewed = self._pods, classes != self._classes
        # Mostly an object is where it was in the order; beyond one that is gone all have to be looked up.
        elsewhere = itertools.starmap(operator.is_not, itertools.zip_longest(current.values(), self._objects))
        touched = [
            where
            for where in (current if renewed else itertools.compress(current, elsewhere))
            if renewed or (one := previous.get(where)) is None or one.object is not current[where]
        ]
        touched = list(dict.fromkeys((*touched, *self._left_out)))
        self._objects = list(current.values())
        if len(previous) + sum(where not in previous for where in touched) > len(current):
            touched += previous.keys() - current.keys()
        for where in touched:
            before, obj = previous.get(where), current.get(where)
            self._left_out.pop(where, None)
            if before is not None:
                del self._pods[where]
                self._troubled.pop(where, None)
                moves[before.node][0].append(before)
            if obj is not None:
                try:
                    one = self._pods[where] = _pod(obj, objects.packer, classes)
                except Exception as error:  # noqa: BLE001 - one pod's fault costs that pod
                    self._left_out[where] = POD_FAULTS.problem(f"pod/{'/'.join(where)}", error)
                    continue
                if one.pod.problems:
                    self._troubled[where] = one
                moves[one.node][1].append(one)
        self._classes, self.moves = classes, moves
        for name, (leavers, came) in moves.items():
            self._move(name, leavers, came)

    def _move(self, node: str, leavers: list[PodView], came: list[PodView]) -> None:
        pods = self.by_node.setdefault(node, [])
        for one in leavers:
            del pods[bisect.bisect_left(pods, by_name(one), key=by_name)]
        if len(came) > len(pods):
            pods += came
            pods.sort(key=by_name)
        else:
            for one in came:
                bisect.insort(pods, one, key=by_name)
        if not pods:
            del self.by_node[node]


def _pod(obj: PackedPod, packer: Packer, classes: Mapping[str, int]) -> PodView:
    """A pod; what cannot be read in it is among the problems of its value."""
    priority = obj.spec.priority
    if priority is None:
        priority = classes.get(obj.spec.priority_class_name or "")
    value = packer.model(obj, priority)
    if not value.uid:
        value = msgspec.structs.replace(value, uid=value.key)
    started = times.parse_or_none(obj.status.start_time or obj.metadata.creation_timestamp)
    return PodView(value, obj, obj.spec.node_name, started, template=obj.template)


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
        self._node_states: dict[str, NodeState] = {}
        self._by_uid: dict[str, PodView] = {}
        self._unbound: tuple[PodView, ...] = ()
        self._groups: tuple[Groups, Groups] = {}, {}
        """Groups of pods that have not ended and are bound to a node, and of all others."""
        self._budgets: Mapping[str, CoveredPods] = {}
        self._caches: dict[object, Any] = {}

    def view(self, objects: Objects, now: str = "", source: str = "given") -> View:
        """Make a picture as the function `view` does. Where that fails, the next picture is made of nothing but its
        objects."""
        try:
            return self._view(objects, now, source)
        except BaseException:
            self._begin()
            raise

    def _view(self, objects: Objects, now: str, source: str) -> View:
        seconds, source = (times.parse(now), source) if now else _newest_time(objects)
        problems = list(objects.problems)
        classes = {c.metadata.name: c.value for c in objects.of("PriorityClass")}
        reports = self._read_reports(objects, problems)
        self._pods.read(objects, classes)
        problems.extend(self._pods.problems)
        leavers, came = self._nodes(objects.of("Node"), reports, problems)
        nodes = {name: state.view for name, state in self._node_states.items()}
        everything = (*self._groups[0].values(), *self._groups[1].values())
        self._budgets = cover(objects.of("PodDisruptionBudget"), everything, self._budgets, leavers, came)
        replicas: dict[str, int] = defaultdict(int)
        for group in everything:
            for owner in group.first.object.metadata.owner_references or ():
                replicas[owner.uid] += group.size
        usage: dict[str, Usage] = {}
        if objects.by_kind["NodeMetric"]:
            metrics = objects.of("NodeMetric")
            usage[gather.NODE_METRIC] = gather.of_node_metrics(metrics, seconds, problems)
        if objects.by_kind["NodeMetrics"]:
            of_nodes, of_pods = objects.of("NodeMetrics"), objects.of("PodMetrics")
            usage[gather.METRICS_API] = gather.of_metrics_api(of_nodes, of_pods, problems)
        return View(
            time=times.show(seconds),
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
            volume_nodes=_volume_nodes(*map(objects.of, ("PersistentVolumeClaim", "PersistentVolume", "StorageClass"))),
            usage=usage,
            replicas=dict(replicas),
            problems=tuple(problems),
            notes=tuple(_notes(objects, self._unbound, everything)),
            cache=self._caches if objects.packer.lasting else None,
        )

    def _read_reports(self, objects: Objects, problems: list[Problem]) -> Mapping[str, _Reported]:
        """The reports by node."""
        of_crane = {obj.metadata.name: obj for obj in objects.of(files.CRANE_KIND)}
        by_volcano = {obj.metadata.name: obj for obj in objects.of(numatopology.KIND)}
        by_name = {**by_volcano, **{obj.metadata.name: obj for obj in objects.of("NodeResourceTopology")}}
        before, self._reports = self._reports, {}
        for name in {**by_name, **of_crane}:
            inputs = by_name.get(name), of_crane.get(name)
            report = before.get(name)
            if report is None or report.inputs[0] is not inputs[0] or report.inputs[1] is not inputs[1]:
                report = _Reported.of(*inputs, report.report if report else None)
            self._reports[name] = report
            problems.extend(report.problems)
        return self._reports

    def _nodes(
        self, objects: Iterable[wire.NodeObject], reports: Mapping[str, _Reported], problems: list[Problem]
    ) -> Moves:
        """Bring nodes up to date, and what is worked out from their pods; returns all pods that left, and that came."""
        leavers, came = list[PodView](), list[PodView]()
        before, self._node_states = self._node_states, {}
        for obj in objects:
            name = obj.metadata.name
            state, removed, new = self._node_state(obj, reports.get(name, _NOT_REPORTED), before.pop(name, None))
            self._node_states[name] = state
            problems.extend(state.problems)
            leavers += removed
            came += new
        leavers += [one for state in before.values() for one in state.pods]
        self._by_uid = dict(self._by_uid)  # Pictures that were made earlier keep theirs.
        for one in leavers:
            self._by_uid.pop(one.uid, None)
        self._by_uid.update({one.uid: one for one in came})
        elsewhere, unbound = self._pods.by_node.keys() - self._node_states.keys(), self._unbound
        self._unbound = tuple(sorted((one for name in elsewhere for one in self._pods.by_node[name]), key=by_name))
        removed, new = _moves(unbound, self._unbound)  # Pods on none of the nodes.
        self._groups = (
            grouped(active(came), active(leavers), self._groups[0]),
            grouped([*new, *ended(came)], [*removed, *ended(leavers)], self._groups[1]),
        )
        return leavers + removed, came + new

    def _node_state(
        self, obj: wire.NodeObject, reported: _Reported, previous: NodeState | None
    ) -> tuple[NodeState, *Moves]:
        """The node as it is now, the pods that left it, and those that came."""
        name = obj.metadata.name
        if previous and previous.is_of(obj, reported.report):
            if name in self._pods.moves:
                return previous, *previous.change(*self._pods.moves[name], reported.seen_at)
            previous.note_report(reported.seen_at)
            return previous, [], []
        state = NodeState(obj, reported.report)
        state.change((), self._pods.by_node.get(name, ()), reported.seen_at)
        return state, *_moves(previous.pods if previous else (), state.pods)


def _moves(before: Iterable[PodView], after: Sequence[PodView]) -> Moves:
    """The pods that left, and those that came."""
    by_uid = {one.uid: one for one in before}
    came = [one for one in after if by_uid.get(one.uid) is not one]
    stayed = {one.uid for one in after if by_uid.get(one.uid) is one}
    return [one for uid, one in by_uid.items() if uid not in stayed], came


class _Reported(msgspec.Struct, frozen=True):
    """A node's report, and the objects it was read from."""

    inputs: tuple[_Topology | None, TopologyObject | None]
    report: Report
    seen_at: float | None
    """Time at which the agent saw where containers are."""
    problems: tuple[Problem, ...]

    @classmethod
    def of(cls, obj: _Topology | None, by_crane: TopologyObject | None, before: Report | None) -> _Reported:
        """Read them. A report that says what the one `before` said is that one: mostly only its time is another."""
        problems: list[Problem] = []
        try:
            report, seen_at = _report(obj, problems)
            if by_crane:
                report = msgspec.structs.replace(report, by_crane=node_state.crane_reserved(by_crane, problems))
        except Exception as error:  # noqa: BLE001 - one node's fault costs that node
            report, seen_at = Report(), None
            name = (obj or by_crane or wire.NRTObject()).metadata.name
            problems.append(FAULTS.problem(f"noderesourcetopology/{name}", error))
        return cls((obj, by_crane), before if before == report else report, seen_at, tuple(problems))


_NOT_REPORTED = _Reported((None, None), Report(), None, ())


def _report(obj: _Topology | None, problems: list[Problem]) -> tuple[Report, float | None]:
    """Read a NodeResourceTopology, or Volcano's Numatopology in its words."""
    if isinstance(obj, numatopology.NumatopologyObject):
        try:
            obj = nrt.to_nrt(obj)
        except InputError as error:
            problems.extend(error.problems)
            return Report(), None
    return node_state.read(obj, problems) if obj else (Report(), None)


def _newest_time(objects: Objects) -> tuple[float, str]:
    timestamps = [seconds for text in set(_times(objects)) if (seconds := times.parse_or_none(text)) is not None]
    return (max(timestamps), "the newest time in the files") if timestamps else (0.0, "unknown: no object has a time")


def _times(objects: Objects) -> Iterator[str | None]:
    for obj in objects.by_kind["Pod"].values():
        yield from (obj.metadata.creation_timestamp, obj.status.start_time)
    for obj in objects.of("Node"):
        yield obj.metadata.creation_timestamp
        yield from (c.last_heartbeat_time for c in obj.status.conditions or ())
    for obj in objects.of("NodeResourceTopology"):
        yield node_state.observed_at(obj)


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
    yield from _volume_notes(groups, objects.by_kind["PersistentVolumeClaim"], objects.by_kind["PersistentVolume"])
