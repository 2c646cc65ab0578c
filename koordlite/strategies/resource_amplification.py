"""Publish on the Node by how much its resources may be promised over what it has.

Ratios come from the ConfigMap key `resource-amplification-config`, that of cpu times what the Node's CPUs are worth.
Koordinator's webhook multiplies status.allocatable by them; the agent only says the ratios. Source: Koordinator
resourceamplification plugin.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from koordlite.changes.node_annotation import NodeAnnotationChange
from koordlite.formulas.allocatable import node_sync, normalization
from koordlite.model import keys
from koordlite.model.decision import Decision
from koordlite.model.settings import StrategySettings
from koordlite.model.snapshot import NodeSnapshot, Snapshot

PUBLISHES = (keys.AMPLIFICATION_RATIO,)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config(StrategySettings):
    """Section `resourceAmplification`."""


def without_node(seen: Snapshot, config: Config) -> Iterator[Decision]:
    """Nothing is judged before the Node has been seen."""
    yield Decision("node", "skip", "NoNode")


def decide(seen: NodeSnapshot, config: Config) -> Iterator[Decision]:
    """One decision: all ratios, written or removed where they differ from what the Node says."""
    try:
        ratios = normalization.amplification(
            seen.slo.resource_amplification, cpu_normalization=seen.notes.cpu_normalization
        )
    except ValueError as error:
        yield Decision("node", "refuse", "BadAmplification", {"why": str(error)})
        return
    text = normalization.encode_ratios(ratios) if ratios else None
    wanted = {keys.AMPLIFICATION_RATIO: text}
    found = node_sync.metadata_changes(held=seen.node.annotations, wanted=wanted)
    changes = tuple(NodeAnnotationChange(key, ratios_text) for key, ratios_text in found.items())
    if text is None:
        yield Decision("node", "release" if changes else "hold", "NothingAmplified", {}, changes)
    else:
        yield Decision("node", "set" if changes else "hold", "ResourcesAmplified", {"ratios": text}, changes)


SENTENCES = {
    "ResourcesAmplified": "allocatable is amplified by {ratios}",
    "NothingAmplified": "no resource is amplified",
    "BadAmplification": "the amplification ratios cannot be used: {why}",
}
