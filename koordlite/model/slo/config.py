"""From ConfigMap `slo-controller-config` and a node's own metadata to what holds on that node.

Each key is one JSON document: a strategy for the cluster, and strategies for groups of nodes, of which the first that
matches counts. A document that cannot be used leaves the last good one of its key in force; every mistake is reported.
Source: Koordinator `slo-controller/config`, `slo-controller/nodeslo` and `util/sloconfig`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

from koordlite.model import keys
from koordlite.model.errors import Problem
from koordlite.model.pod.qos import PriorityClass, QoSClass
from koordlite.model.quantity import Quantity
from koordlite.model.reading import declared
from koordlite.model.reading.declared import Values, settings
from koordlite.model.reading.go_words import boolean
from koordlite.model.reading.lenient_json import UNKNOWN, JSONDocument, closest, printable
from koordlite.model.slo import qos, without_effect
from koordlite.model.slo.layers import Layer, Reading, Section
from koordlite.model.slo.settings import (
    CPU_SUPPRESS_POLICIES,
    SLO,
    Colocation,
    CPUBurst,
    CPUNormalization,
    GoodDocument,
    HostApplication,
    NUMAPolicy,
    ResourceAmplification,
    System,
    Threshold,
)

_RATIO = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?\Z", re.ASCII)
_HEX_RATIO = re.compile(r"[+-]?0[xX]([0-9a-fA-F]+(\.[0-9a-fA-F]*)?|\.[0-9a-fA-F]+)[pP][+-]?[0-9]{1,4}\Z", re.ASCII)
_RATIOS = {
    keys.CPU_RECLAIM_RATIO: "cpuReclaimThresholdPercent",
    keys.MEMORY_RECLAIM_RATIO: "memoryReclaimThresholdPercent",
    keys.MID_STATIC_CPU_RATIO: "midStaticCPUReservedPercent",
    keys.MID_STATIC_MEMORY_RATIO: "midStaticMemoryReservedPercent",
}
_LARGEST_RATIO = 1e6
_IGNORED = "the annotation is ignored"


class NodeLayers:
    """Settings that a node itself carries, by section: annotations and labels that lie over the ConfigMap's strategies.

    A bad one counts for nothing and is reported in `problems`, so that no value escapes its range. Source: Koordinator
    `UpdateColocationStrategyForNode`, `GetCPUNormalizationEnabled` and `getSystemConfigSpec`; the annotation of the
    suppression policy is ours.
    """

    def __init__(self, owner: str, labels: Mapping[str, str], annotations: Mapping[str, str]) -> None:
        self._owner, self._labels, self._annotations = owner, labels, annotations
        self.problems: list[Problem] = []

    def of(self, key: str) -> list[Layer]:
        """Layer of the node over the settings of ConfigMap key `key`, the last layer on top."""
        if key == "colocation-config":
            return [*self._strategy(), *self._ratios()]
        if key == "cpu-normalization-config":
            return self._normalization()
        if key == "resource-threshold-config":
            return self._suppression()
        return self._bandwidth() if key == "system-config" else []

    def _strategy(self) -> list[Layer]:
        text = self._annotations.get(keys.COLOCATION_STRATEGY)
        if not text:
            return []
        document = JSONDocument(self._owner, keys.COLOCATION_STRATEGY, _IGNORED)
        document.problems = self.problems
        members = document.object(document.decode(text), "", settings(Colocation))
        values, in_range = declared.read(document, Colocation, members, "", _IGNORED)
        return [] if document.broken or not in_range else [Layer(f"annotation {keys.COLOCATION_STRATEGY}", values)]

    def _ratios(self) -> list[Layer]:
        layers = []
        for label, name in _RATIOS.items():
            text = self._labels.get(label, "")
            percent = _percent(text)
            if percent is not None:
                layers.append(Layer(f"label {label}", {(name,): percent}))
            elif text:
                self._refuse(label, text, "not a ratio of 0 or more", "write a ratio like 0.65; the label is ignored")
        return layers

    def _bandwidth(self) -> list[Layer]:
        text = self._annotations.get(keys.NETWORK_BANDWIDTH, "")
        try:
            amount = Quantity.parse(text) if text else None
        except ValueError as error:
            self._refuse(
                keys.NETWORK_BANDWIDTH, text, str(error), "write a quantity like 10G; the annotation is ignored"
            )
            return []
        origin = f"annotation {keys.NETWORK_BANDWIDTH}"
        return [] if amount is None else [Layer(origin, {("totalNetworkBandwidth",): amount})]

    def _suppression(self) -> list[Layer]:
        text = self._annotations.get(keys.CPU_SUPPRESS_POLICY)
        if text is None:
            return []
        if text not in CPU_SUPPRESS_POLICIES:
            do = f"write {', '.join(CPU_SUPPRESS_POLICIES)}; the ConfigMap's policy holds"
            self._refuse(keys.CPU_SUPPRESS_POLICY, text, "no such policy", do)
            return []
        return [Layer(f"annotation {keys.CPU_SUPPRESS_POLICY}", {("cpuSuppressPolicy",): text})]

    def _normalization(self) -> list[Layer]:
        text = self._labels.get(keys.CPU_NORMALIZATION_ENABLED)
        if text is None:
            return []
        enable = boolean(text)
        if enable is None:
            do = "write true or false; the node's ratio stays as it is"
            self._refuse(keys.CPU_NORMALIZATION_ENABLED, text, "neither true nor false", do)
            return []
        return [Layer(f"label {keys.CPU_NORMALIZATION_ENABLED}", {("enable",): enable})]

    def _refuse(self, field: str, text: str, why: str, do: str) -> None:
        self.problems.append(Problem(self._owner, field, text, why, do))


def _percent(text: str) -> int | None:
    """trunc(ratio × 100) in doubles, as Koordinator computes it: 0.29 is 28 %."""
    ratio = _double(text)
    return int(ratio * 100) if 0 <= ratio <= _LARGEST_RATIO else None


def _double(text: str) -> float:
    """The finite number `text` writes, as Go's `ParseFloat` takes it; not a number for any other text."""
    if _HEX_RATIO.match(text):
        try:
            return float.fromhex(text)
        except OverflowError:
            return math.nan
    return float(text) if _RATIO.match(text) else math.nan


_PRIORITIES = {each.value: each for each in PriorityClass}
_CLASSES = {each.value: each for each in QoSClass}
_NAMES = ("name", "priority", "qos", "cgroupPath", "strategy")
_PATH = ("base", "parentDir", "relativePath")
_BASES = ("CgroupRoot", "Kubepods", "KubepodsBurstable", "KubepodsBesteffort")
_LEFT_OUT = "fix it; the application is left out"


class HostApplications(msgspec.Struct, frozen=True, kw_only=True):
    """The whole key `host-application-config` (Koordinator `HostApplicationSpec`).

    Nothing is merged: a group's list, also an empty one, takes the place of the cluster's. An application that cannot
    be placed is left out and reported; the others stand.
    """

    applications: tuple[HostApplication, ...] = ()


def read(document: JSONDocument, members: Mapping[str, Any], path: str, meanwhile: str) -> tuple[Values, bool]:
    """`applications` as values; a strategy without the list has no applications."""
    del meanwhile  # a mistake costs one application, never the strategy
    where = f"{path}.applications" if path else "applications"
    listed = document.items(members.get("applications"), where)
    found = [_application(document, item, f"{where}[{index}]") for index, item in enumerate(listed)]
    return {("applications",): tuple(each for each in found if each)}, True


def _application(document: JSONDocument, item: Any, path: str) -> HostApplication | None:
    members = document.object(item, path, _NAMES)
    name = document.text(members, "name", path)
    place = _place(document, members.get("cgroupPath"), f"{path}.cgroupPath")
    if not name:
        document.note(f"{path}.name", name, "an application without a name", _LEFT_OUT)
        return None
    if place is None:
        return None
    return HostApplication(
        name=name,
        priority=_known(document, members, path, "priority", _PRIORITIES) or PriorityClass.NONE,
        qos=_known(document, members, path, "qos", _CLASSES) or QoSClass.NONE,
        **place,
    )


def _place(document: JSONDocument, value: Any, path: str) -> dict[str, str] | None:
    """Path of its cgroup; nothing when not given, None when it leads out of its base."""
    if value is None:
        return {}
    members = document.object(value, path, _PATH)
    base, parent, relative = (document.text(members, name, path) for name in _PATH)
    for name, text in (("parentDir", parent), ("relativePath", relative)):
        if ".." in text.split("/") or "\0" in text:
            document.note(f"{path}.{name}", text, "leads out of its base", _LEFT_OUT)
            return None
    if not any(part not in ("", ".") for part in (*parent.split("/"), *relative.split("/"))):
        why = "names the root of all cgroups, or kubelet's own group, and not one of the application"
        document.note(f"{path}.relativePath", relative, why, _LEFT_OUT)
        return None
    if base and base not in _BASES:
        document.note(
            f"{path}.base", base, "not a known base", f"write one of {', '.join(_BASES)}; it means CgroupRoot"
        )
    return {"base": base if base in _BASES else "CgroupRoot", "parent_dir": parent, "relative_path": relative}


def _known(document: JSONDocument, members: Mapping[str, Any], path: str, name: str, words: Mapping[str, Any]) -> Any:
    text = document.text(members, name, path)
    if text not in words:
        known = ", ".join(word for word in words if word)
        document.note(f"{path}.{name}", text, "unknown word", f"write one of {known}; it counts as not given")
    return words.get(text)


OWNER = "configmap/koordinator-system/slo-controller-config"
_CLUSTER, _GROUPS = "clusterStrategy", "nodeStrategies"

SECTIONS: tuple[Section, ...] = (
    Section(key="colocation-config", attribute="colocation", base=Colocation(), blank_is_unset=True),
    Section(
        key="resource-threshold-config", attribute="threshold", base=Threshold(), cluster=_CLUSTER, entries=_GROUPS
    ),
    Section(
        key="resource-qos-config",
        attribute="resource_qos",
        base=qos.DEFAULTS,
        cluster=_CLUSTER,
        entries=_GROUPS,
        settle=qos.settled,
    ),
    Section(key="cpu-burst-config", attribute="cpu_burst", base=CPUBurst(), cluster=_CLUSTER, entries=_GROUPS),
    Section(key="system-config", attribute="system", base=System(), cluster=_CLUSTER, entries=_GROUPS),
    Section(
        key="host-application-config",
        attribute="host_applications",
        base=HostApplications(),
        read=read,
    ),
    Section(key="cpu-normalization-config", attribute="cpu_normalization", base=CPUNormalization()),
    Section(key="resource-amplification-config", attribute="resource_amplification", base=ResourceAmplification()),
    Section(key="numa-policy-config", attribute="numa_policy", base=NUMAPolicy()),
)


def effective(
    data: Mapping[str, str] | None,
    *,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    previous: SLO | None = None,
    taken_at: str = "",
    resource_version: str = "",
    owner: str = OWNER,
    node_owner: str = "node",
) -> SLO:
    """Settings of a node with these labels and annotations: defaults, cluster, first matching group, the node itself.

    `data` is the ConfigMap's, None when there is none: then the defaults hold. `previous` is the answer of last time;
    its good documents stand for a key whose document cannot be used, and messages say since when they hold (`taken_at`
    and `resource_version` of the `data` they came with). Nothing is raised: mistakes are in `problems`,
    each with what holds meanwhile; `origins` says where each value that is not a default came from.
    """
    reading = Reading(data or {}, labels, previous, owner, GoodDocument("", taken_at, resource_version))
    node = NodeLayers(node_owner, labels, annotations)
    held = {s.attribute: reading.overlay(s, [*reading.layers(s), *node.of(s.key)]) for s in SECTIONS}
    return SLO(
        **{**held, "host_applications": held["host_applications"].applications},
        origins=reading.origins,
        # Without a ConfigMap nothing is known about any key: what was good of one that comes later is still good.
        good=reading.last_good if data is None else reading.good,
        kept=reading.kept,
        problems=(*_unknown_keys(reading), *reading.problems, *node.problems),
    )


def unused_problems(
    slo: SLO, *, owner: str = OWNER, node_owner: str = "node", off: Collection[str] = without_effect.OFF
) -> tuple[Problem, ...]:
    """Reports for the authors of settings that nothing acts on, while the strategies `off` are off."""
    return tuple(without_effect.problem(each, owner, node_owner) for each in in_vain(slo, off))


def in_vain(slo: SLO, off: Collection[str] = without_effect.OFF) -> tuple[without_effect.Unused, ...]:
    """Settings that were given and that nothing acts on, while the strategies `off` are off."""
    return tuple(without_effect.found(slo, {section.key: section.attribute for section in SECTIONS}, off))


def _unknown_keys(reading: Reading) -> Iterator[Problem]:
    known = [section.key for section in SECTIONS]
    for key in reading.data:
        if key not in known:
            meant = closest(key, known)
            do = f"did you mean {meant}? It is ignored" if meant else "it is ignored; remove it"
            yield Problem(reading.owner, f"data.{printable(key)}", "", UNKNOWN, do)
