"""Publish on the Node by how much its resources may be promised over what it has.

Ratios come from the ConfigMap key `resource-amplification-config`, that of cpu times what the Node's CPUs are worth.
Koordinator's webhook multiplies status.allocatable by them whenever kubelet writes it; the agent only says the ratios,
and whether they have come to anything: what another program writes there, kubelet undoes within seconds. Source:
Koordinator resourceamplification plugin and node webhook.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from koordlite.changes.published import NodeAnnotationChange
from koordlite.formulas.allocatable import node_sync, normalization
from koordlite.model import keys
from koordlite.model.decision import Decision
from koordlite.model.settings import StrategySettings
from koordlite.model.snapshot import NodeSnapshot

NEW_CONTAINERS = "none"
NEEDS_NODE = "node"
_AMPLIFIED = ("cpu", "memory")
"""Resources that the webhook multiplies."""
PUBLISHES = (keys.AMPLIFICATION_RATIO,)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config(StrategySettings):
    """Section `resourceAmplification`."""


def decide(snapshot: NodeSnapshot, config: Config) -> Iterator[Decision]:
    """Decide about all ratios, written or removed where they differ from what the Node says."""
    try:
        ratios = normalization.amplification(
            snapshot.slo.resource_amplification, cpu_normalization=snapshot.notes.cpu_normalization
        )
    except ValueError as error:
        yield Decision("node", "refuse", "BadAmplification", {"why": str(error)})
        return
    text = normalization.encode_ratios(ratios) if ratios else None
    annotations = node_sync.metadata_changes(current=snapshot.node.annotations, target={keys.AMPLIFICATION_RATIO: text})
    changes = tuple(NodeAnnotationChange(key, ratios_text) for key, ratios_text in annotations.items())
    # Ratios that the Node's allocatable does not show: with `raw-allocatable` beside it, the webhook has been at work.
    # It multiplies when kubelet next writes the Node.
    raw, allocatable = snapshot.notes.raw_allocatable, snapshot.node.allocatable
    missing = sorted(name for name in ratios if name in _AMPLIFIED and name in allocatable and name not in raw)
    if text is None:
        yield Decision("node", "release" if changes else "hold", "NothingAmplified", {}, changes)
    elif not changes and missing:
        amounts = ", ".join(f"{name} {allocatable[name]}" for name in missing)
        yield Decision("node", "hold", "AmplificationNeedsWebhook", {"ratios": text, "allocatable": amounts})
    else:
        yield Decision("node", "set" if changes else "hold", "ResourcesAmplified", {"ratios": text}, changes)
