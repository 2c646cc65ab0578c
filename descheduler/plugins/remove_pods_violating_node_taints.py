"""Pods must tolerate the taints of the node they run on.

A taint that was put on a node later, or a toleration that was taken out of a template, leaves pods where none would be
started. Pods that do not tolerate NoExecute are the taint manager's business.
Source: upstream RemovePodsViolatingNodeTaints.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from descheduler.arguments.common import PodChoice
from descheduler.framework import Conversation, Finding, Handle, PodView, View
from descheduler.rules.pod_filter import select
from koordlite.model import node_selectors
from koordlite.model.wire import objects

NAME = "RemovePodsViolatingNodeTaints"
POINT = "deschedule"
READS = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(PodChoice):
    """Arguments of `RemovePodsViolatingNodeTaints`."""

    include_prefer_no_schedule: bool = False
    """Judge taints with the effect PreferNoSchedule too, not only those with NoSchedule."""
    excluded_taints: tuple[str, ...] = ()
    """Taints that do not count, as `key` (whatever the value) or `key=value`."""
    included_taints: tuple[str, ...] | None = None
    """The only taints that count, as `key` or `key=value`; null: all."""

    def __post_init__(self) -> None:
        if self.excluded_taints and self.included_taints:
            raise ValueError("takes excludedTaints or includedTaints, not both")


def judge(_view: View, config: Config, handle: Handle) -> Conversation:
    """A finding for each pod that does not tolerate a taint of its node."""
    for node in handle.nodes:
        taints = [taint for taint in node.object.spec.taints or () if _counts(taint, config)]
        if not taints:
            continue
        for pod in select(node.pods, config.namespaces, config.label_selector):
            taint = _not_tolerated(pod, taints)
            if taint:
                written = f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
                yield Finding(
                    pod=pod.uid,
                    reason="TaintNotTolerated",
                    promise=f"only pods that tolerate {written} belong on {node.name}",
                    fact="it has no toleration for it",
                    cure="moves to a node without the taint; or give its template the toleration",
                    evidence={"taint": written},
                )


def numbers(pod: PodView, view: View, config: Config, _handle: Handle) -> str:
    """Taints of its node that count, and whether it tolerates them."""
    taints = [taint for taint in view.nodes[pod.node].object.spec.taints or () if _counts(taint, config)]
    if not taints:
        return f"{pod.node} has no taint that counts"
    wrong = _not_tolerated(pod, taints)
    listed = ", ".join(taint.key for taint in taints)
    return f"it does not tolerate {wrong.key} of {pod.node}" if wrong else f"it tolerates {listed} of {pod.node}"


def _counts(taint: objects.Taint, config: Config) -> bool:
    effects = ("NoSchedule", "PreferNoSchedule") if config.include_prefer_no_schedule else ("NoSchedule",)
    if taint.effect not in effects or _listed(taint, config.excluded_taints):
        return False
    return config.included_taints is None or _listed(taint, config.included_taints)


def _listed(taint: objects.Taint, entries: Collection[str]) -> bool:
    return taint.key in entries or (taint.value != "" and f"{taint.key}={taint.value}" in entries)


def _not_tolerated(pod: PodView, taints: list[objects.Taint]) -> objects.Taint | None:
    accepted = pod.object.spec.tolerations or ()
    return next((taint for taint in taints if not any(node_selectors.tolerates(t, taint) for t in accepted)), None)
