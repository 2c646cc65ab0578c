"""The settings of a node from ConfigMap `slo-controller-config` and the node's own metadata.

Each key is one JSON document: a strategy for the cluster, and strategies for groups of nodes, of which the first that
matches counts. A document that cannot be used leaves the last good one of its key in force; every mistake is reported.
Source: Koordinator `slo-controller/config`, `slo-controller/nodeslo` and `util/sloconfig`.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Annotated, Any

import msgspec

from koordlite.model import keys, label_selectors, printable
from koordlite.model.errors import Problem
from koordlite.model.pod.qos import PriorityClass, QoSClass
from koordlite.model.quantity import Quantity
from koordlite.model.reading import declared
from koordlite.model.reading.declared import (
    UNKNOWN,
    JSONDocument,
    OneOf,
    Path,
    Values,
    closest,
    join,
    settings,
)
from koordlite.model.reading.go_words import boolean
from koordlite.model.slo import qos, without_effect
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


class Layer(msgspec.Struct, frozen=True):
    """Settings and where they come from."""

    origin: str
    values: Values


Read = Callable[[JSONDocument, Mapping[str, Any], str, str], tuple[Values, bool]]
"""Settings among the members of a strategy at a path, given what holds in place of bad ones; and whether all
are usable."""


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """Structure of one key's document, and its meaning."""

    key: str
    attribute: str
    """Field of `SLO`."""
    base: Any
    """Base that the settings are laid over."""
    cluster: str = ""
    """Member that holds the cluster's strategy; empty when it is the document itself."""
    entries: str = "nodeConfigs"
    """Member that lists the strategies for groups of nodes."""
    blank_is_unset: bool = False
    """Empty text counts as no text; else it is broken JSON, as Koordinator has it."""
    settle: Callable[[Any], tuple[Any, tuple[Path, ...]]] = lambda value: (value, ())
    """The value as it takes effect, and the paths of settings that do not count."""
    read: Read | None = None
    """Reader in place of the declared settings of `base`."""

    @property
    def name(self) -> str:
        """Name in `SLO.origins`."""
        return declared.camel(self.attribute)

    def settings(
        self, document: JSONDocument, members: Mapping[str, Any], path: str, meanwhile: str
    ) -> tuple[Values, bool]:
        """Settings among the members of a strategy, and whether all are usable."""
        if self.read:
            return self.read(document, members, path, meanwhile)
        return declared.read(document, type(self.base), members, path, meanwhile)

    @property
    def names(self) -> tuple[str, ...]:
        """Members of a strategy."""
        return tuple(declared.settings(type(self.base)))

    def value(self, layers: list[Layer]) -> Any:
        """Merge the layers, the later ones on top."""
        merged = {path: value for layer in layers for path, value in layer.values.items()}
        return self.settle(declared.build(self.base, merged))[0]


class Reading:
    """One pass over the ConfigMap: what it is read for, and what comes up on the way."""

    def __init__(
        self,
        data: Mapping[str, str],
        labels: Mapping[str, str],
        previous: SLO | None,
        owner: str,
        now: GoodDocument | None = None,
    ) -> None:
        """`now` says when and at which version `data` was taken."""
        self.data, self.labels, self.owner, self.now = data, labels, owner, now or GoodDocument("")
        self.last_good = previous.good if previous else {}
        self.problems: list[Problem] = []
        self.origins: dict[str, str] = {}
        self.good: dict[str, GoodDocument] = {}
        self.retained: dict[str, str] = {}

    def layers(self, section: Section) -> list[Layer]:
        """Cluster and matching group of one key, from its last good document if the present one cannot be used."""
        text = self.data.get(section.key)
        if text is None or (text == "" and section.blank_is_unset):
            return []
        good = self.last_good.get(section.key)
        since = f" ({good.origin})" if good and good.origin else ""
        meanwhile = "the defaults hold" if good is None else f"the last good values stay in force{since}"
        layers = _Strategies(self, section, meanwhile, self.problems).layers(text)
        if layers is not None:
            same = good is not None and good.text == text
            self.good[section.key] = good if good and same else msgspec.structs.replace(self.now, text=text)
            return layers
        self.retained[section.key] = meanwhile
        if good is None:
            return []
        self.good[section.key] = good
        # It was judged, and its mistakes were reported, when it came.
        return _Strategies(self, section, meanwhile, [], verified=True).layers(good.text) or []

    def overlay(self, section: Section, layers: list[Layer]) -> Any:
        """Merge the layers and remember the origin of each value."""
        merged: Values = {}
        origins: dict[Path, str] = {}
        for layer in layers:
            merged |= layer.values
            origins |= dict.fromkeys(layer.values, layer.origin)
        value, unused = section.settle(declared.build(section.base, merged))
        for path, origin in origins.items():
            counts = path[-1] == "enable" or not any(path[: len(off)] == off for off in unused)
            self.origins[".".join((section.name, *path))] = origin if counts else "off: enable is false"
        return value


class _Strategies:
    """The strategies of one document."""

    def __init__(
        self, reading: Reading, section: Section, meanwhile: str, problems: list[Problem], *, verified: bool = False
    ) -> None:
        self.labels, self.section, self.verified, self.meanwhile = reading.labels, section, verified, meanwhile
        self.document = JSONDocument(reading.owner, section.key, meanwhile)
        self.document.problems = problems

    def layers(self, text: str) -> list[Layer] | None:
        """None when the document cannot be used."""
        document, section = self.document, self.section
        own = () if section.cluster else section.names
        root = document.object(document.decode(text), "", (*own, *filter(None, [section.cluster]), section.entries))
        strategy = (
            document.object(root.get(section.cluster), section.cluster, section.names) if section.cluster else root
        )
        values, usable = section.settings(document, strategy, section.cluster, self.meanwhile)
        cluster = Layer("cluster", values)
        usable = usable and not self._crossed([cluster], section.cluster, self.meanwhile)
        groups = list(self._matching(root.get(section.entries), cluster))
        if document.broken or not (usable or self.verified):
            return None
        return [cluster, *groups[:1]]

    def _matching(self, listed: Any, cluster: Layer) -> Iterator[Layer]:
        """The groups this node is in. More than one is a mistake: the first counts."""
        document, names, first = self.document, self.section.names, ""
        meanwhile = "the cluster's strategy holds for these nodes"
        for index, item in enumerate(document.items(listed, self.section.entries)):
            path = f"{self.section.entries}[{index}]"
            members = document.object(item, path, (*names, "name", "nodeSelector"))
            values, usable = self.section.settings(document, members, path, meanwhile)
            name = printable.shortened(document.text(members, "name", path), 60) or path
            usable = usable and not self._crossed([cluster, Layer(name, values)], path, meanwhile)
            group = Layer(f"node strategy {name}", values if usable else {})
            if not self._selected(members, f"{path}.nodeSelector"):
                continue
            if first:
                do = f"make the selectors differ; {first} counts, it comes first"
                document.note(f"{path}.nodeSelector", group.origin, f"selects the nodes of {first} too", do)
                continue
            first = group.origin
            yield group

    def _selected(self, members: Mapping[str, Any], where: str) -> bool:
        if "nodeSelector" not in members:
            self.document.note(where, "", "no selector", "write one, or {}; it matches no node")
            return False
        selector = label_selectors.read(self.document, members["nodeSelector"], where)
        try:
            return label_selectors.matches(selector, self.labels)
        except ValueError as error:
            self.document.note(where, members["nodeSelector"], str(error), "fix it; the strategy is skipped")
            return False

    def _crossed(self, layers: list[Layer], path: str, meanwhile: str) -> bool:
        """Tell whether an upper end is not above its lower one; only of these layers, the values below them are
        fine."""
        pairs = list(declared.crossed(self.section.value(layers))) if layers[-1].values else []
        for where, why in pairs:
            self.document.note(".".join(filter(None, (path, where))), "", why, f"fix it; {meanwhile}")
        return bool(pairs)


def node_layers(
    owner: str, labels: Mapping[str, str], annotations: Mapping[str, str], problems: list[Problem]
) -> Mapping[str, list[Layer]]:
    """Settings that a node itself carries, by key of the ConfigMap: they lie over its strategies, the last one on top.
    A bad one counts for nothing and is added to `problems`, so that no value escapes its range. Source: Koordinator
    `UpdateColocationStrategyForNode`, `GetCPUNormalizationEnabled` and `getSystemConfigSpec`; the annotation of the
    suppression policy is ours."""
    layers: dict[str, list[Layer]] = {section.key: [] for section in SECTIONS}

    def refuse(field: str, text: str, why: str, do: str) -> None:
        problems.append(Problem(owner, field, text, why, do))

    if text := annotations.get(keys.COLOCATION_STRATEGY):
        document = JSONDocument(owner, keys.COLOCATION_STRATEGY, _IGNORED)
        document.problems = problems
        values, in_range = declared.read_text(document, Colocation, text, _IGNORED)
        if in_range and not document.broken:
            layers["colocation-config"].append(Layer(f"annotation {keys.COLOCATION_STRATEGY}", values))
    for label, name in _RATIOS.items():
        percent = _percent(labels.get(label, ""))
        if percent is not None:
            layers["colocation-config"].append(Layer(f"label {label}", {(name,): percent}))
        elif labels.get(label):
            do = "write a ratio like 0.65; the label is ignored"
            refuse(label, labels[label], "not a ratio of 0 or more", do)
    policy = annotations.get(keys.CPU_SUPPRESS_POLICY)
    if policy in CPU_SUPPRESS_POLICIES:
        origin = f"annotation {keys.CPU_SUPPRESS_POLICY}"
        layers["resource-threshold-config"].append(Layer(origin, {("cpuSuppressPolicy",): policy}))
    elif policy is not None:
        do = f"write {', '.join(CPU_SUPPRESS_POLICIES)}; the ConfigMap's policy holds"
        refuse(keys.CPU_SUPPRESS_POLICY, policy, "no such policy", do)
    if text := annotations.get(keys.NETWORK_BANDWIDTH):
        try:
            bandwidth = Layer(
                f"annotation {keys.NETWORK_BANDWIDTH}", {("totalNetworkBandwidth",): Quantity.parse(text)}
            )
            layers["system-config"].append(bandwidth)
        except ValueError as error:
            do = "write a quantity like 10G; the annotation is ignored"
            refuse(keys.NETWORK_BANDWIDTH, text, str(error), do)
    word = labels.get(keys.CPU_NORMALIZATION_ENABLED)
    enable = boolean(word)
    if enable is not None:
        origin = f"label {keys.CPU_NORMALIZATION_ENABLED}"
        layers["cpu-normalization-config"].append(Layer(origin, {("enable",): enable}))
    elif word is not None:
        do = "write true or false; the node's ratio stays as it is"
        refuse(keys.CPU_NORMALIZATION_ENABLED, word, "neither true nor false", do)
    return layers


def _percent(text: str) -> int | None:
    """trunc(ratio × 100) in doubles, as Koordinator computes it: 0.29 is 28 %; None for what Go's `ParseFloat` does not
    take, or is no ratio."""
    try:
        ratio = float.fromhex(text) if _HEX_RATIO.match(text) else float(text) if _RATIO.match(text) else math.nan
    except OverflowError:
        return None
    return int(ratio * 100) if 0 <= ratio <= _LARGEST_RATIO else None


_PRIORITIES = {each.value: each for each in PriorityClass}
_CLASSES = {each.value: each for each in QoSClass}
_BASES = ("CgroupRoot", "Kubepods", "KubepodsBurstable", "KubepodsBesteffort")
_LEFT_OUT = "fix it; the application is left out"


class _CgroupPath(msgspec.Struct, frozen=True):
    base: Annotated[str, OneOf(_BASES)] = "CgroupRoot"
    parent_dir: str = ""
    relative_path: str = ""


class _Application(msgspec.Struct, frozen=True):
    name: str = ""
    priority: Annotated[str, OneOf(tuple(filter(None, _PRIORITIES)), "that none was given")] = ""
    qos: Annotated[str, OneOf(tuple(filter(None, _CLASSES)), "that none was given")] = ""
    cgroup_path: _CgroupPath = _CgroupPath()
    strategy: Any = None


class HostApplications(msgspec.Struct, frozen=True, kw_only=True):
    """The whole key `host-application-config` (Koordinator `HostApplicationSpec`).
    Nothing is merged: a group's list, also an empty one, takes the place of the cluster's. An application that cannot
    be placed is left out and reported; the others stand."""

    applications: tuple[HostApplication, ...] = ()


def read(document: JSONDocument, members: Mapping[str, Any], path: str, meanwhile: str) -> tuple[Values, bool]:
    """`applications` as values; a strategy without the list has no applications."""
    del meanwhile  # a mistake costs one application, never the strategy
    where = join(path, "applications")
    listed = document.items(members.get("applications"), where)
    parsed = [_application(document, item, f"{where}[{index}]") for index, item in enumerate(listed)]
    return {("applications",): tuple(each for each in parsed if each)}, True


def _application(document: JSONDocument, item: Any, path: str) -> HostApplication | None:
    """None for one without a name, or whose cgroup is not its own."""
    members = document.object(item, path, settings(_Application))
    values, _ = declared.read(document, _Application, members, path, "")
    written = declared.build(_Application(), values)
    place, field, value, why = written.cgroup_path, "", "", ""
    steps = {"parentDir": place.parent_dir.split("/"), "relativePath": place.relative_path.split("/")}
    outside = [name for name, parts in steps.items() if ".." in parts or "\0" in "/".join(parts)]
    if not written.name:
        field, why = "name", "an application without a name"
    elif outside:
        field, value, why = f"cgroupPath.{outside[0]}", "/".join(steps[outside[0]]), "leads out of its base"
    elif "cgroupPath" in members and not any(part not in ("", ".") for parts in steps.values() for part in parts):
        why = "names the root of all cgroups, or kubelet's own group, and not one of the application"
        field, value = "cgroupPath.relativePath", place.relative_path
    if why:
        document.note(f"{path}.{field}", value, why, _LEFT_OUT)
        return None
    base = place.base if place.base in _BASES else "CgroupRoot"
    return HostApplication(
        name=written.name,
        priority=_PRIORITIES.get(written.priority, PriorityClass.NONE),
        qos=_CLASSES.get(written.qos, QoSClass.NONE),
        base=base if "cgroupPath" in members else "",
        parent_dir=place.parent_dir,
        relative_path=place.relative_path,
    )


OWNER = "configmap/koordinator-system/slo-controller-config"
_grouped = functools.partial(Section, cluster="clusterStrategy", entries="nodeStrategies")
SECTIONS: tuple[Section, ...] = (
    Section(key="colocation-config", attribute="colocation", base=Colocation(), blank_is_unset=True),
    _grouped(key="resource-threshold-config", attribute="threshold", base=Threshold()),
    _grouped(key="resource-qos-config", attribute="resource_qos", base=qos.DEFAULTS, settle=qos.settled),
    _grouped(key="cpu-burst-config", attribute="cpu_burst", base=CPUBurst()),
    _grouped(key="system-config", attribute="system", base=System()),
    Section(key="host-application-config", attribute="host_applications", base=HostApplications(), read=read),
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
    of_node: list[Problem] = []
    layers = node_layers(node_owner, labels, annotations, of_node)
    values = {s.attribute: reading.overlay(s, [*reading.layers(s), *layers[s.key]]) for s in SECTIONS}
    return SLO(
        **{**values, "host_applications": values["host_applications"].applications},
        origins=reading.origins,
        # Without a ConfigMap nothing is known about any key: what was good of one that comes later is still good.
        good=reading.last_good if data is None else reading.good,
        kept=reading.retained,
        problems=(*_unknown_keys(reading), *reading.problems, *of_node),
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
    names = [section.key for section in SECTIONS]
    for key in reading.data:
        if key not in names:
            meant = closest(key, names)
            do = f"did you mean {meant}? It is ignored" if meant else "it is ignored; remove it"
            yield Problem(reading.owner, f"data.{printable.shortened(key, 60)}", "", UNKNOWN, do)
