"""Names and labels as pseudonyms, the same everywhere in a record, so that it can be shown to others.

Masked are the names of the node, namespaces, pods, containers and host applications, labels and annotations that are
not Koordinator's or ours, the ConfigMap's own text, and all of these wherever they stand inside other text. Uids,
cgroup paths, CPU models and numbers stay: rules need them, and they name nobody. Pseudonyms sort as the names do, so
rules that go by name decide alike.
"""

from __future__ import annotations

import dataclasses
import functools
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
    """Every name of a record, by kind; a name of several kinds is, inside other text, taken for one of the last."""

    value: set[str] = msgspec.field(default_factory=set)
    """Values of labels and annotations, and their keys."""
    key: set[str] = msgspec.field(default_factory=set)
    app: set[str] = msgspec.field(default_factory=set)
    container: set[str] = msgspec.field(default_factory=set)
    pod: set[str] = msgspec.field(default_factory=set)
    namespace: set[str] = msgspec.field(default_factory=set)
    node: set[str] = msgspec.field(default_factory=set)

    def take_in(self, snapshot: Snapshot) -> None:
        """Add the names of a picture."""
        for pod in snapshot.pods:
            self.namespace.add(pod.namespace)
            self.pod.add(pod.name)
            self.container.update(container.name for container in pod.containers)
            self._take_metadata(pod.labels, pod.annotations)
        if snapshot.node:
            self.node.add(snapshot.node.name)
            self._take_metadata(snapshot.node.labels, snapshot.node.annotations)
        self.app.update(application.name for application in snapshot.slo.host_applications)

    def _take_metadata(self, *texts: Mapping[str, str]) -> None:
        for key, value in (pair for each in texts for pair in each.items()):
            domain = key.rpartition("/")[0]
            if not _OURS.search(domain):
                self.value.add(value)
                if not _PUBLIC.search(domain):
                    self.key.add(key)


class Mask:
    """Gives rounds with pseudonyms. Objects that did not change from one round to the next stay the same ones."""

    def __init__(self, names: Names) -> None:
        self._maps = {kind: _pseudonyms(kind, listed) for kind, listed in structs.asdict(names).items()}
        self._by_name = {name: new for each in self._maps.values() for name, new in each.items()}
        longest = (name for name in self._by_name if len(name) >= _SHORTEST and name not in _vocabulary())
        words = "|".join(map(re.escape, sorted(longest, key=len, reverse=True)))
        self._pattern = re.compile(rf"(?<![\w.-])({words})(?![\w-])") if words else None
        self._last: dict[int, tuple[Any, Any]] = {}
        """Values of the round before and what they became, by id; the value itself, so that no id is used again."""
        self._current: dict[int, tuple[Any, Any]] = {}
        self._special: Mapping[type, Callable[[Any], Any]] = {
            Place: lambda each: Place(each.kind, tuple(map(self.text, each.parts))),
            # By the names of a pod's containers.
            **dict.fromkeys(
                (PodGroups, PodCPUs, CranePromise),
                lambda each: structs.replace(each, containers=self._keyed("container", each.containers)),
            ),
            AffinityState: self._affinity,
            affinity.PodOnNUMANode: self._named_pod,
            affinity.TargetPods: self._target_pods,
            affinity.NUMAOfNode: lambda each: structs.replace(
                each, name=self._known("node", each.name), pod_affinity=self.value(each.pod_affinity)
            ),
            # Its own text goes: it names selectors, and no rule reads it.
            SLO: lambda slo: self._object(structs.replace(slo, good={}, kept={})),
            objects.ObjectMeta: self._object_meta,
        }

    def apply(self, record: RoundRecord) -> RoundRecord:
        """`record` with pseudonyms."""
        self._last, self._current = self._current, {}
        masked: RoundRecord = self.value(record)
        snapshot = masked.snapshot
        usage = structs.replace(snapshot.usage, host_apps=self._keyed("app", snapshot.usage.host_apps))
        groups = self._keyed("app", snapshot.host_groups)
        return structs.replace(masked, snapshot=dataclasses.replace(snapshot, usage=usage, host_groups=groups))

    def text(self, text: str) -> str:
        """Names inside other text."""
        return self._pattern.sub(lambda match: self._by_name[match[1]], text) if self._pattern else text

    def value(self, value: Any) -> Any:
        """Anything a record or capture holds, with pseudonyms."""
        if isinstance(value, str):
            return self.text(value)
        if value is None or isinstance(value, (int, float, CPUSet)):
            return value
        pair = self._last.get(id(value)) or self._current.get(id(value))
        if pair is None or pair[0] is not value:
            special = self._special.get(type(value), self._parts)
            pair = value, special(value)
        self._current[id(value)] = pair
        return pair[1]

    def _parts(self, value: Any) -> Any:
        """Part by part; what has nothing to mask stays the same object."""
        if isinstance(value, tuple):
            parts = tuple(map(self.value, value))
            return parts if any(a is not b for a, b in zip(parts, value, strict=True)) else value
        if isinstance(value, (frozenset, list)):
            return type(value)(map(self.value, value))
        if isinstance(value, Mapping):
            # A place may name a pod; other keys are words of ours.
            changed = {self.value(k) if isinstance(k, Place) else k: self.value(v) for k, v in value.items()}
            same = all(a is b for a, b in zip((*changed, *changed.values()), (*value, *value.values()), strict=True))
            return value if same else changed
        return self._object(value)

    def _object(self, value: Any) -> Any:
        cls: type = type(value)
        before = {name: getattr(value, name) for name in codec.field_types(cls)}
        after: dict[str, Any] = {}
        for name, kind in (_MASKED.get(cls) or dict.fromkeys(before, "")).items():
            if kind == "metadata":
                after[name] = self._metadata(before[name])
            else:
                after[name] = self._of(kind, before[name]) if kind else self.value(before[name])
        return cls(**{**before, **after}) if any(after[name] is not before[name] for name in after) else value

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

    def _metadata(self, pairs: Mapping[str, str]) -> dict[str, str]:
        return {
            self._of("key", key): self.text(value) if _OURS.search(key.rpartition("/")[0]) else self._of("value", value)
            for key, value in pairs.items()
        }

    def _keyed(self, kind: str, by_name: Mapping[str, Any]) -> dict[str, Any]:
        return {self._of(kind, name): each for name, each in by_name.items()}

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
"""Fields to mask by class: a name of this kind, labels or annotations (`metadata`), or anything (empty). Of other
classes every field is anything."""


def _pseudonyms(kind: str, names: Iterable[str]) -> dict[str, str]:
    """They sort as the names do."""
    ordered = sorted(name for name in names if name)
    width = len(str(len(ordered)))
    return {name: f"{kind}-{number:0{width}d}" for number, name in enumerate(ordered, 1)}


_COMMON = ("true", "false", "none", "cpu", "memory", "pod", "node", "kubepods", "besteffort", "burstable")


@functools.cache
def _vocabulary() -> frozenset[str]:
    """Words that stand in records whatever pods are called."""
    return frozenset(_COMMON).union(*(codec.field_types(cls) for cls in codec.vocabulary()))
