"""One document of `slo-controller-config` as layers: the cluster's strategy and that of the first matching group."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from koordlite.model import selector
from koordlite.model.errors import Problem
from koordlite.model.lenient_json import Document, printable
from koordlite.model.slo import RESCTRL_CLASSES, SLO, ResctrlQOS

Values = dict[str, Any]
"""Settings by their name in the document; those of a QoS class as `BE.mbaPercent`."""
Layer = tuple[str, Values]
"""Where settings come from, and the settings."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How one key's document is built."""

    key: str
    section: str
    """How `SLO.origins` calls it."""
    cluster: str
    """Member that holds the cluster's strategy; empty when it is the document itself."""
    entries: str
    """Member that lists the strategies for groups of nodes."""
    names: tuple[str, ...]
    """Members of a strategy."""
    read: Callable[[Document, Mapping[str, Any], str, str], Values | None]
    """Settings among the members of a strategy at a path, None when one is out of range; told is what holds then."""
    blank_is_unset: bool = False
    """Empty text counts as no text; else it is broken JSON, as Koordinator has it."""


class Reading:
    """One pass over the ConfigMap: what it is read for, and what comes up on the way."""

    def __init__(self, data: Mapping[str, str], labels: Mapping[str, str], previous: SLO | None, owner: str) -> None:
        self.data, self.labels, self.owner = data, labels, owner
        self.previous = previous or SLO(resctrl=dict.fromkeys(RESCTRL_CLASSES, ResctrlQOS()))
        self.meanwhile = "the last good values stay in force" if previous else "the defaults hold"
        self.problems: list[Problem] = []
        self.origins: dict[str, str] = {}

    def document(self, shape: Shape) -> Document:
        """An empty document whose problems are ours."""
        document = Document(self.owner, shape.key, self.meanwhile)
        document.problems = self.problems
        return document

    def keep(self, shape: Shape) -> None:
        """Note that a section's values, and where they came from, are those of last time."""
        kept = self.previous.origins.items()
        self.origins |= {name: origin for name, origin in kept if name.startswith(f"{shape.section}.")}

    def overlay(self, shape: Shape, layers: list[Layer]) -> Values:
        """The settings of all layers, the later ones on top."""
        merged: Values = {}
        for origin, values in layers:
            merged |= values
            self.origins |= {f"{shape.section}.{name}": origin for name in values}
        return merged


def layers_of(reading: Reading, shape: Shape) -> list[Layer] | None:
    """Cluster and matching group of one key; None when the document cannot be used."""
    text = reading.data.get(shape.key)
    if text is None or (text == "" and shape.blank_is_unset):
        return []
    document = reading.document(shape)
    names = () if shape.cluster else shape.names
    root = document.object(document.decode(text), "", (*names, *filter(None, [shape.cluster]), shape.entries))
    own = root if not shape.cluster else document.object(root.get(shape.cluster), shape.cluster, shape.names)
    cluster = shape.read(document, own, shape.cluster, reading.meanwhile)
    listed = document.items(root.get(shape.entries), shape.entries)
    groups = [_group(reading, document, shape, item, f"{shape.entries}[{i}]") for i, item in enumerate(listed)]
    if document.broken or cluster is None:
        return None
    return [("cluster", cluster), *[group for group in groups if group][:1]]


def _group(reading: Reading, document: Document, shape: Shape, item: Any, path: str) -> Layer | None:
    """The settings of a group of nodes; None when this node is not in it."""
    members = document.object(item, path, (*shape.names, "name", "nodeSelector"))
    values = shape.read(document, members, path, "the cluster's strategy holds for these nodes")
    name = printable(document.text(members, "name", path)) or path
    chosen = members.get("nodeSelector")
    if chosen is None:
        document.note(f"{path}.nodeSelector", "", "no selector", "write one, or {}; it matches no node")
    try:
        matched = selector.matches(chosen, reading.labels)
    except ValueError as error:
        document.note(f"{path}.nodeSelector", chosen, str(error), "mend it; the strategy is skipped")
        return None
    return (f"node strategy {name}", values or {}) if matched else None
