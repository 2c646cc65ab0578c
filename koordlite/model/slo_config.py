"""From ConfigMap `slo-controller-config` and a node's own labels to what holds on that node.

Each key is one JSON document: a strategy for the cluster, and strategies for groups of nodes, of which the first that
matches counts. A document that cannot be used leaves the last good values of its key in force; every mistake is told.
Source: Koordinator `slo-controller/config`, `slo-controller/nodeslo` and `util/sloconfig`.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from koordlite.model import keys, slo_hosts, slo_tables
from koordlite.model.errors import Problem
from koordlite.model.lenient_json import Document
from koordlite.model.qos import QoSClass
from koordlite.model.slo import (
    RESCTRL_CLASSES,
    RESCTRL_DEFAULT,
    SLO,
    Colocation,
    HostApplication,
    ResctrlQOS,
    Threshold,
)
from koordlite.model.slo_layers import Layer, Reading, Shape, Values, layers_of

OWNER = "configmap/koordinator-system/slo-controller-config"

_OTHER_KEYS = ("cpu-burst-config", "system-config", "cpu-normalization-config", "resource-amplification-config")
_RATIO = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\Z", re.ASCII)
_RATIO_LABELS = {
    keys.CPU_RECLAIM_RATIO: "cpuReclaimThresholdPercent",
    keys.MEMORY_RECLAIM_RATIO: "memoryReclaimThresholdPercent",
}
_LARGEST_RATIO = 1e6
_CROSSED = "catRangeStartPercent is not below catRangeEndPercent"

Strategy = TypeVar("Strategy", Colocation, Threshold, ResctrlQOS)


def effective(
    data: Mapping[str, str] | None,
    *,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    previous: SLO | None = None,
    owner: str = OWNER,
    node_owner: str = "node",
) -> SLO:
    """What holds on a node with these labels and annotations: defaults, cluster, first matching group, the node itself.

    `data` is the ConfigMap's, None when there is none: then the defaults hold. `previous` is the answer of last time;
    its values stand for a key whose document cannot be used. Nothing is raised: mistakes are in `problems`, each with
    what holds meanwhile, `origins` says where each value that is not a default came from.
    """
    reading = Reading(data or {}, labels, previous, owner)
    colocation = _colocation(reading, annotations, node_owner)
    threshold = _threshold(reading)
    resctrl = _resctrl(reading)
    applications = _host_applications(reading)
    return SLO(
        colocation=colocation,
        threshold=threshold,
        resctrl=resctrl,
        host_applications=applications,
        origins=reading.origins,
        problems=(*_unknown_keys(reading), *reading.problems),
    )


def _colocation(reading: Reading, annotations: Mapping[str, str], node: str) -> Colocation:
    layers = layers_of(reading, _COLOCATION)
    base = Colocation() if layers is not None else reading.previous.colocation
    if layers is None:
        reading.keep(_COLOCATION)
    own = _of_annotation(reading, annotations.get(keys.COLOCATION_STRATEGY), node) + _of_labels(reading, node)
    return _filled(base, reading.overlay(_COLOCATION, (layers or []) + own), slo_tables.COLOCATION)


def _of_annotation(reading: Reading, text: str | None, node: str) -> list[Layer]:
    """The strategy a node carries itself; a bad one counts for nothing, so that no value escapes its range."""
    if not text:
        return []
    document = Document(node, keys.COLOCATION_STRATEGY, "the annotation is ignored")
    document.problems = reading.problems
    members = document.object(document.decode(text), "", _COLOCATION.names)
    values = document.values(members, slo_tables.COLOCATION, "", "the annotation is ignored")
    return [] if document.broken or not values else [(f"annotation {keys.COLOCATION_STRATEGY}", values)]


def _of_labels(reading: Reading, node: str) -> list[Layer]:
    layers: list[Layer] = []
    for label, name in _RATIO_LABELS.items():
        text = reading.labels.get(label, "")
        percent = _percent(text)
        if percent is not None:
            layers.append((f"label {label}", {name: percent}))
        elif text:
            do = "write a ratio like 0.65; the label is ignored"
            reading.problems.append(Problem(node, label, text, "not a ratio of 0 or more", do))
    return layers


def _percent(text: str) -> int | None:
    """trunc(ratio × 100) in doubles, as Koordinator computes it: 0.29 is 28 %."""
    ratio = float(text) if _RATIO.match(text) else math.nan
    return int(ratio * 100) if 0 <= ratio <= _LARGEST_RATIO else None


def _threshold(reading: Reading) -> Threshold:
    layers = layers_of(reading, _THRESHOLD)
    if layers is None:
        reading.keep(_THRESHOLD)
        return reading.previous.threshold
    return _filled(Threshold(), reading.overlay(_THRESHOLD, layers), slo_tables.THRESHOLD)


def _resctrl(reading: Reading) -> dict[QoSClass, ResctrlQOS]:
    layers = layers_of(reading, _QOS)
    if layers:
        document = reading.document(_QOS)
        mistake = _crossed(_classes(layers[:1]))
        if mistake:
            document.spoil(f"clusterStrategy.{mistake}", "", _CROSSED)
            layers = None
        elif mistake := _crossed(_classes(layers)):
            document.note(f"{_QOS.entries}.{mistake}", layers[1][0], _CROSSED, "mend it; the cluster's strategy holds")
            layers = layers[:1]
    if layers is None:
        reading.keep(_QOS)
        return dict(reading.previous.resctrl)
    reading.overlay(_QOS, layers)
    return _classes(layers)


def _classes(layers: list[Layer]) -> dict[QoSClass, ResctrlQOS]:
    merged = {name: value for _, values in layers for name, value in values.items()}
    classes: dict[QoSClass, ResctrlQOS] = {}
    for each in RESCTRL_CLASSES:
        own = {name.removeprefix(f"{each}."): value for name, value in merged.items() if name.startswith(f"{each}.")}
        filled = _filled(RESCTRL_DEFAULT[each], own, slo_tables.RESCTRL)
        # A class that is switched off has everything, whatever else is written: that is how switching off resets.
        classes[each] = filled if filled.enable else ResctrlQOS()
    return classes


def _crossed(classes: Mapping[QoSClass, ResctrlQOS]) -> str:
    """The first class whose range is empty, as its path; empty when all are fine."""
    for each, wanted in classes.items():
        if wanted.cat_range_start_percent >= wanted.cat_range_end_percent:
            return f"{_CLASS_NAMES[each]}.resctrlQOS"
    return ""


def _host_applications(reading: Reading) -> tuple[HostApplication, ...]:
    layers = layers_of(reading, _HOST)
    if layers is None:
        reading.keep(_HOST)
        return reading.previous.host_applications
    applications: tuple[HostApplication, ...] = reading.overlay(_HOST, layers).get("applications", ())
    return applications


def _filled(base: Strategy, values: Values, table: slo_tables.Table) -> Strategy:
    return dataclasses.replace(base, **{table[name].attribute: value for name, value in values.items()})


def _read_colocation(document: Document, members: Mapping[str, Any], path: str, meanwhile: str) -> Values | None:
    return document.values(members, slo_tables.COLOCATION, path, meanwhile)


def _read_threshold(document: Document, members: Mapping[str, Any], path: str, meanwhile: str) -> Values | None:
    return document.values(members, slo_tables.THRESHOLD, path, meanwhile)


def _read_qos(document: Document, members: Mapping[str, Any], path: str, meanwhile: str) -> Values | None:
    found: Values = {}
    usable = True
    for each, name in _CLASS_NAMES.items():
        where = f"{path}.{name}"
        members_of_class = document.object(members.get(name), where, ("resctrlQOS", *slo_tables.QOS_CLASS_OTHER))
        given = document.object(members_of_class.get("resctrlQOS"), f"{where}.resctrlQOS", tuple(slo_tables.RESCTRL))
        values = document.values(given, slo_tables.RESCTRL, f"{where}.resctrlQOS", meanwhile)
        usable = usable and values is not None
        found |= {f"{each}.{setting}": value for setting, value in (values or {}).items()}
    return found if usable else None


def _unknown_keys(reading: Reading) -> list[Problem]:
    known = (*(shape.key for shape in (_COLOCATION, _THRESHOLD, _QOS, _HOST)), *_OTHER_KEYS)
    problems = []
    for key in reading.data:
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1)
            do = f"did you mean {close[0]}? It is ignored" if close else "it is ignored; remove it"
            problems.append(Problem(reading.owner, f"data.{key}", "", "unknown key", do))
    return problems


_CLASS_NAMES = {QoSClass.LSR: "lsrClass", QoSClass.LS: "lsClass", QoSClass.BE: "beClass"}
_COLOCATION = Shape(
    key="colocation-config",
    section="colocation",
    cluster="",
    entries="nodeConfigs",
    names=(*slo_tables.COLOCATION, *slo_tables.COLOCATION_OTHER),
    read=_read_colocation,
    blank_is_unset=True,
)
_THRESHOLD = Shape(
    key="resource-threshold-config",
    section="threshold",
    cluster="clusterStrategy",
    entries="nodeStrategies",
    names=(*slo_tables.THRESHOLD, *slo_tables.THRESHOLD_OTHER),
    read=_read_threshold,
)
_QOS = Shape(
    key="resource-qos-config",
    section="resctrl",
    cluster="clusterStrategy",
    entries="nodeStrategies",
    names=(*_CLASS_NAMES.values(), *slo_tables.QOS_OTHER),
    read=_read_qos,
)
_HOST = Shape(
    key="host-application-config",
    section="host",
    cluster="",
    entries="nodeConfigs",
    names=("applications",),
    read=slo_hosts.read,
)
