"""Other writers of our fields of the Node, by name: the API server keeps for each field who wrote it last.

Koordinator's manager reconciles every node, also those without koordlet. Two controllers that publish one resource undo
each other's work for ever, and each sees only that its value did not stay.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

import msgspec

from koordlite.formulas.topology.other_writer import OURS
from koordlite.kube.client.access import Api, ApiError, ApiUnreachable
from koordlite.kube.publish.background_report import BackgroundWriter
from koordlite.model import keys
from koordlite.model.errors import UNREADABLE, Problem
from koordlite.model.wire import objects

LOG = logging.getLogger(__name__)
FIRST_SECONDS, AGAIN_SECONDS = 60.0, 600.0
"""After the start it is looked again soon: by then our own first write stands, or was overwritten."""
MANAGER = "koord-manager"
PLUGINS = {
    "kubernetes.io/batch-": "BatchResource",
    "kubernetes.io/mid-": "MidResource",
    keys.CPU_NORMALIZATION_RATIO: "CPUNormalization",
    keys.AMPLIFICATION_RATIO: "ResourceAmplification",
}
"""By how a field begins, the plugin of the manager that writes it; source: Koordinator noderesource controller."""


class _Item(msgspec.Struct):
    metadata: objects.MetaWithWriters = objects.MetaWithWriters()


class _Nodes(msgspec.Struct):
    items: list[_Item] = []


class Writer(msgspec.Struct, frozen=True):
    """Another program that wrote fields of ours last."""

    name: str
    fields: tuple[str, ...]
    since: str
    """When it last wrote anything else than before, as the API server says; empty when it does not say."""


def writers(raw: bytes, mine: Iterable[str]) -> tuple[Writer, ...]:
    """Other programs that wrote these fields last, by the list of the one Node.

    msgspec.DecodeError for what is no such list.
    """
    nodes, names = msgspec.json.decode(raw, type=_Nodes), sorted(set(mine))
    others: list[Writer] = []
    for entry in (entry for node in nodes.items for entry in node.metadata.managed_fields or ()):
        written = entry.written("status", "allocatable") | entry.written("status", "capacity")
        written |= entry.written("metadata", "annotations")
        fields = tuple(name for name in names if name in written)
        if fields and entry.manager != OURS:
            others.append(Writer(entry.manager, fields, entry.time))
    return tuple(others)


def problem(node: str, writer: Writer) -> Problem:
    """A problem that says how to end the conflict with another writer."""
    when = f" at {writer.since}" if writer.since else ""
    why = f"{writer.name} wrote it last{when}; two controllers that write one field undo each other's work"
    return Problem(f"node/{node}", ", ".join(writer.fields), "", why, _cure(writer))


def _cure(writer: Writer) -> str:
    leave = "or leave these fields to it with publish.nodeResources: manager"
    if writer.name != MANAGER:
        return f"switch it off for these fields, {leave}"
    plugins = {plugin for start, plugin in PLUGINS.items() for field in writer.fields if field.startswith(start)}
    without = ",".join(f"-{plugin}" for plugin in PLUGINS.values() if plugin in plugins)
    return f"start {MANAGER} with --noderesource-plugins=*,{without} where no node runs koordlet any more, {leave}"


class NodeWriters(BackgroundWriter):
    """Looks for other writers, in the background: at the start, soon after, and then every ten minutes."""

    def __init__(self, api: Api, node_name: str, mine: Iterable[str]) -> None:
        """`mine`: the fields that this run writes; without any, nothing is asked."""
        super().__init__(api, node_name, thread="node-writers", named="", no_kind="")
        self._mine, self._due = tuple(mine), float("-inf")
        self.problems: tuple[Problem, ...] = ()
        """One for each other writer found in the last look."""

    def observe(self, monotonic: float, *, patience_seconds: float = 0.0) -> None:
        """Look again when it is time."""
        if not self._mine or monotonic < self._due:
            return
        self._due = monotonic + (AGAIN_SECONDS if self._due >= 0 else FIRST_SECONDS)
        self._send(self._look, patience_seconds)

    def _look(self) -> None:
        query = (("fieldSelector", f"metadata.name={self._name}"), ("resourceVersion", "0"))
        try:
            found = writers(self._api.request("GET", "/api/v1/nodes", query=query).body, self._mine)
        except (ApiError, ApiUnreachable, *UNREADABLE) as error:
            LOG.debug("who else writes the Node is not known: %s", error)
            return  # The watch of the same object says what is wrong; what was found last stays.
        self.problems = tuple(problem(self._name, writer) for writer in found)
