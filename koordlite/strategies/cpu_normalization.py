"""Publish on the Node what its CPUs are worth, so that a batch-cpu means the same on every machine.

The ratio of a CPU model comes from the ConfigMap key `cpu-normalization-config`; `beAllocatable` multiplies by what the
Node says. Source: Koordinator cpunormalization plugin.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from koordlite.changes.published import NodeAnnotationChange
from koordlite.formulas.allocatable import normalization
from koordlite.model import keys
from koordlite.model.decision import Decision
from koordlite.model.settings import StrategySettings
from koordlite.model.snapshot import NodeSnapshot

NEW_CONTAINERS = "none"
NEEDS_NODE = "node"
PUBLISHES = (keys.CPU_NORMALIZATION_RATIO,)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config(StrategySettings):
    """Section `cpuNormalization`."""


def decide(snapshot: NodeSnapshot, config: Config) -> Iterator[Decision]:
    """Decide about the ratio, written where it differs from what the Node says."""
    settings, info = snapshot.slo.cpu_normalization, snapshot.cpu_info
    label = snapshot.node.labels.get(keys.CPU_NORMALIZATION_ENABLED)
    hyper_threads, turbo = ("on" if each else "off" for each in (info.hyper_threads, info.turbo))
    words = {"model": info.model, "hyperThreads": hyper_threads, "turbo": turbo}
    try:
        enabled = normalization.is_enabled(settings, label)
        ratio = normalization.node_ratio(settings, label=label, machine=info if info.model else None)
    except ValueError as error:
        yield Decision("node", "refuse", "NoCPURatio", {"why": str(error), **words})
        return
    published = snapshot.notes.cpu_normalization
    reason = "CPURatio" if enabled else "NormalizationDisabled"
    if published is None and not enabled:
        # Koordinator writes 1.00 onto every node; where nobody ever asked for a ratio that is noise.
        yield Decision("node", "hold", reason, words)
        return
    text = normalization.encode_ratio(ratio)
    write = normalization.differs(published, ratio)
    changes = (NodeAnnotationChange(keys.CPU_NORMALIZATION_RATIO, text),) if write else ()
    yield Decision("node", "set" if changes else "hold", reason, {"ratio": text, **words}, changes)
