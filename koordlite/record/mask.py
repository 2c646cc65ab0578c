"""Names and labels as pseudonyms, the same everywhere in a record, so that it can be shown to others.

Masked are the names of the node, namespaces, pods, containers and host applications, labels and annotations that are
not Koordinator's or ours, the ConfigMap's own text, and all of these wherever they stand inside other text. Uids,
cgroup paths, CPU models and numbers stay: rules need them, and they name nobody. Pseudonyms sort as the names do, so
rules that go by name decide alike.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from msgspec import structs

from koordlite.model.cpuset import CPUSet
from koordlite.model.node import Node
from koordlite.model.picture.affinity import AffinityState
from koordlite.model.picture.crane import CranePromise
from koordlite.model.picture.groups import PodGroups
from koordlite.model.picture.kubelet import PodCPUs
from koordlite.model.place import Place
from koordlite.model.pod.values import ContainerInfo, Pod
from koordlite.model.slo.settings import SLO, HostApplication
from koordlite.model.snapshot import Snapshot
from koordlite.model.wire import affinity, objects
from koordlite.record import codec
from koordlite.record.round_record import RoundRecord

_OURS = re.compile(r"(^|\.)(koordinator\.sh|koordlite\.io|crane\.io)\Z")
"""Domains of labels and annotations that rules read."""
_PUBLIC = re.compile(r"(^|\.)(kubernetes\.io|k8s\.io)\Z")
"""Domains whose keys everybody knows; the values are names."""
_SHORTEST = 3
"""Shorter names are masked where they stand as names, but not looked for inside other text."""


class Names(msgspec.Struct):
    """Every name of a record, by kind."""

    nodes: set[str] = msgspec.field(default_factory=set)
    namespaces: set[str] = msgspec.field(default_factory=set)
    pods: set[str] = msgspec.field(default_factory=set)
    containers: set[str] = msgspec.field(default_factory=set)
    applications: set[str] = msgspec.field(default_factory=set)
    keys: set[str] = msgspec.field(default_factory=set)
    values: set[str] = msgspec.field(default_factory=set)

    def take_in(self, snapshot: Snapshot) -> None:
        """Add the names of a picture."""
        for pod in snapshot.pods:
            self.namespaces.add(pod.namespace)
            self.pods.add(pod.name)
            self.containers.update(container.name for container in pod.containers)
            self._take_metadata(pod.labels, pod.annotations)
        if snapshot.node:
            self.nodes.add(snapshot.node.name)
            self._take_metadata(snapshot.node.labels, snapshot.node.annotations)
        self.applications.update(application.name for application in snapshot.slo.host_applications)

    def _take_metadata(self, *texts: Mapping[str, str]) -> None:
        for key, value in (pair for each in texts for pair in each.items()):
            domain = key.rpartition("/")[0]
            if not _OURS.search(domain):
                self.values.add(value)
                if not _PUBLIC.search(domain):
                    self.keys.add(key)


class Mask:
    """Gives moments with pseudonyms. Objects that did not change from one moment to the next stay the same ones."""

    def __init__(self, names: Names) -> None:
        kinds = (
            ("value", names.values),
            ("key", names.keys),
            ("app", names.applications),
            ("container", names.containers),
            ("pod", names.pods),
            ("namespace", names.namespaces),
            ("node", names.nodes),
        )
        self._maps = {kind: _pseudonyms(kind, found) for kind, found in kinds}
        everywhere = {name: new for each in self._maps.values() for name, new in each.items()}
        sought = sorted((n for n in everywhere if len(n) >= _SHORTEST and n not in _VOCABULARY), key=len, reverse=True)
        self._everywhere = everywhere
        self._sought = re.compile(rf"(?<![\w.-])({'|'.join(map(re.escape, sought))})(?![\w-])") if sought else None
        self._kept: dict[int, tuple[Any, Any]] = {}
        self._fresh: dict[int, tuple[Any, Any]] = {}
        self._special: Mapping[type, Callable[[Any], Any]] = {
            Place: lambda each: Place(each.kind, tuple(map(self.text, each.parts))),
            **dict.fromkeys((PodGroups, PodCPUs, CranePromise), self._with_containers),
            AffinityState: self._affinity,
            affinity.PodOnNUMANode: self._named_pod,
            affinity.TargetPods: self._target_pods,
            affinity.NUMAOfNode: lambda each: structs.replace(
                each, name=self._known("node", each.name), pod_affinity=self._masked(each.pod_affinity)
            ),
            # Its own text goes: it names selectors, and no rule reads it.
            SLO: lambda slo: self._object(structs.replace(slo, good={}, kept={})),
            objects.ObjectMeta: self._object_meta,
        }

    def moment(self, moment: RoundRecord) -> RoundRecord:
        """`moment` with pseudonyms."""
        self._kept, self._fresh = self._fresh, {}
        masked: RoundRecord = self._masked(moment)
        snapshot = masked.snapshot
        usage = structs.replace(snapshot.usage, host_apps=self._keyed("app", snapshot.usage.host_apps))
        groups = self._keyed("app", snapshot.host_groups)
        return structs.replace(masked, snapshot=dataclasses.replace(snapshot, usage=usage, host_groups=groups))

    def value(self, value: Any) -> Any:
        """Anything a record or capture holds, with pseudonyms."""
        return self._masked(value)

    def text(self, text: str) -> str:
        """Names inside other text."""
        return self._sought.sub(lambda found: self._everywhere[found[1]], text) if self._sought else text

    def _masked(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if value is None or isinstance(value, (int, float, CPUSet)):
            return value
        kept = self._kept.get(id(value)) or self._fresh.get(id(value))
        if kept is None or kept[0] is not value:
            special = self._special.get(type(value), self._parts)
            kept = value, special(value)
        self._fresh[id(value)] = kept
        return kept[1]

    def _parts(self, value: Any) -> Any:
        """Part by part; what has nothing to mask stays the same object."""
        if isinstance(value, tuple):
            parts = tuple(map(self._masked, value))
            return parts if any(a is not b for a, b in zip(parts, value, strict=True)) else value
        if isinstance(value, (frozenset, list)):
            return type(value)(map(self._masked, value))
        if isinstance(value, Mapping):
            # A place may name a pod; other keys are words of ours.
            changed = {self._masked(k) if isinstance(k, Place) else k: self._masked(v) for k, v in value.items()}
            same = all(a is b for a, b in zip((*changed, *changed.values()), (*value, *value.values()), strict=True))
            return value if same else changed
        return self._object(value)

    def _object(self, value: Any) -> Any:
        made: type = type(value)
        before = {name: getattr(value, name) for name in codec.field_types(made)}
        kinds = _MASKED.get(made) or dict.fromkeys(before, "")
        after = {name: self._part(kind, before[name]) for name, kind in kinds.items()}
        return made(**{**before, **after}) if any(after[name] is not before[name] for name in after) else value

    def _part(self, kind: str, part: Any) -> Any:
        if kind == "metadata":
            return self._metadata(part)
        return self._of(kind, part) if kind else self._masked(part)

    def _object_meta(self, meta: objects.ObjectMeta) -> objects.ObjectMeta:
        """The kind of object is not known here: a name is one of a pod or of the node."""
        kind = "node" if meta.name in self._maps["node"] and not meta.namespace else "pod"
        return structs.replace(
            meta,
            name=self._of(kind, meta.name),
            namespace=self._of("namespace", meta.namespace),
            labels=self._metadata(meta.labels or {}),
            annotations=self._metadata(meta.annotations or {}),
            owner_references=None,
        )

    def _with_containers(self, value: Any) -> Any:
        """Something by the names of a pod's containers."""
        return structs.replace(value, containers=self._keyed("container", value.containers))

    def _affinity(self, state: AffinityState) -> AffinityState:
        named = {self._pod_key(key): node for key, node in state.numa_nodes.items()}
        allowed = None if state.whitelist is None else frozenset(map(self._pod_key, state.whitelist))
        masked = self._parts(state.connections) if state.connections else None
        return structs.replace(state, connections=masked, numa_nodes=named, whitelist=allowed)

    def _pod_key(self, key: str) -> str:
        namespace, _, name = key.partition("/")
        return f"{self._known('namespace', namespace)}/{self._known('pod', name)}"

    def _known(self, kind: str, name: str) -> str:
        """Resources for the whole cluster name what this record has never seen."""
        return self._maps[kind].get(name, f"{kind}-elsewhere")

    def _named_pod(self, entry: affinity.PodOnNUMANode) -> affinity.PodOnNUMANode:
        namespace, _, name = self._pod_key(f"{entry.namespace}/{entry.pod_name}").partition("/")
        return structs.replace(entry, namespace=namespace, pod_name=name)

    def _target_pods(self, target: affinity.TargetPods) -> affinity.TargetPods:
        names = tuple(" ".join(self._known("pod", each) for each in text.split()) for text in target.names or ())
        return structs.replace(target, namespace=self._known("namespace", target.namespace), names=names)

    def _metadata(self, given: Mapping[str, str]) -> dict[str, str]:
        found = {}
        for key, value in given.items():
            ours = _OURS.search(key.rpartition("/")[0])
            name = self._maps["key"].get(key, key)
            found[name] = self.text(value) if ours else self._of("value", value)
        return found

    def _keyed(self, kind: str, given: Mapping[str, Any]) -> dict[str, Any]:
        return {self._of(kind, name): each for name, each in given.items()}

    def _of(self, kind: str, name: str) -> str:
        return self._maps[kind].get(name, name)


_METADATA = {"labels": "metadata", "annotations": "metadata"}
_MASKED: Mapping[type, Mapping[str, str]] = {
    Pod: {"namespace": "namespace", "name": "pod", **_METADATA, "containers": "", "problems": ""},
    Node: {"name": "node", **_METADATA, "problems": ""},
    HostApplication: {"name": "app"},
    ContainerInfo: {"name": "container"},
    SLO: {"host_applications": "", "problems": ""},
    **{
        each: {**dict.fromkeys(each.__struct_fields__, ""), "name": "container"}
        for each in (objects.Container, objects.ContainerStatus)
    },
}
"""By class, the only fields with something to mask: a name of this kind, labels or annotations (`metadata`), or
anything (empty). Of other classes every field is anything."""


def _pseudonyms(kind: str, names: Iterable[str]) -> dict[str, str]:
    """They sort as the names do."""
    found = sorted(name for name in names if name)
    width = len(str(len(found)))
    return {name: f"{kind}-{number:0{width}d}" for number, name in enumerate(found, 1)}


def _vocabulary() -> frozenset[str]:
    """Words that stand in records whatever pods are called."""
    fields = (name for cls in codec.vocabulary() for name in codec.field_types(cls))
    return frozenset((*fields, *_COMMON))


_COMMON = ("true", "false", "none", "cpu", "memory", "pod", "node", "kubepods", "besteffort", "burstable")
_VOCABULARY = _vocabulary()
