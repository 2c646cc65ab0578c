"""Other writers of our fields of the Node, by name: the API server keeps for each field who wrote it last.

Koordinator's manager reconciles every node, also those without koordlet. Two controllers that publish one resource undo
each other's work for ever, and each sees only that its value did not stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from koordlite.formulas.topology.other_writer import OURS
from koordlite.model import keys
from koordlite.model.errors import Problem
from koordlite.model.wire import objects

FIRST_SECONDS, AGAIN_SECONDS = 60.0, 600.0
"""Times between looks, the first after the start: by then our own first write stands, or was overwritten."""
MANAGER = "koord-manager"
PLUGINS = {
    "kubernetes.io/batch-": "BatchResource",
    "kubernetes.io/mid-": "MidResource",
    keys.CPU_NORMALIZATION_RATIO: "CPUNormalization",
    keys.AMPLIFICATION_RATIO: "ResourceAmplification",
}
"""Plugin of the manager that writes a field, by the field's prefix; source: Koordinator noderesource controller."""


def conflicts(node: objects.WrittenNodeObject, mine: Iterable[str]) -> Iterator[Problem]:
    """One problem for each other program that wrote some of these fields of the Node last, with the way to end it."""
    for entry in node.metadata.managed_fields or ():
        written = entry.written("status", "allocatable") | entry.written("status", "capacity")
        written |= entry.written("metadata", "annotations")
        fields = sorted(written.intersection(mine))
        if fields and entry.manager != OURS:
            when = f" at {entry.time}" if entry.time else ""
            why = f"{entry.manager} wrote it last{when}; two controllers that write one field undo each other's work"
            yield Problem(f"node/{node.metadata.name}", ", ".join(fields), "", why, _cure(entry.manager, fields))


def _cure(writer: str, fields: Sequence[str]) -> str:
    leave = "or leave these fields to it with publish.nodeResources: manager"
    if writer != MANAGER:
        return f"switch it off for these fields, {leave}"
    plugins = {plugin for start, plugin in PLUGINS.items() for field in fields if field.startswith(start)}
    without = ",".join(f"-{plugin}" for plugin in PLUGINS.values() if plugin in plugins)
    return f"start {MANAGER} with --noderesource-plugins=*,{without} where no node runs koordlet any more, {leave}"


class NodeWriters:
    """Looks for other writers in the watched Node: at the start, soon after, and then every ten minutes. Two that undo
    each other's writes take turns as the last one: a look at each change would report and withdraw all the time."""

    def __init__(self, mine: Iterable[str]) -> None:
        """`mine`: the fields that this run writes."""
        self._mine, self._due = frozenset(mine), float("-inf")
        self.problems: tuple[Problem, ...] = ()
        """One for each other writer at the last look."""

    def observe(self, node: objects.NodeObject | None, monotonic: float) -> None:
        """Look again when it is time."""
        if isinstance(node, objects.WrittenNodeObject) and monotonic >= self._due:
            self._due = monotonic + (AGAIN_SECONDS if self._due >= 0 else FIRST_SECONDS)
            self.problems = tuple(conflicts(node, self._mine))
