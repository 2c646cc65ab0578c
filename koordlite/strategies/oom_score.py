"""Move processes of containers forward or back in the queue of the OOM killer, as annotations of their pod ask.

Annotation `koordinator.sh/oom-score-adj-spec` has a number for each container, `koordinator.sh/oom-score-adj` one for
the pod. The pause container is left alone: its runtime protects it. Source: Koordinator hook OOMScoreAdj.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from koordlite.changes.oom_score import OOMScoreChange
from koordlite.model import keys
from koordlite.model.decision import Decision
from koordlite.model.picture.groups import Process
from koordlite.model.pod.values import Pod
from koordlite.model.settings import StrategySettings
from koordlite.model.slo import pod_overrides
from koordlite.model.slo.settings import SLO
from koordlite.model.snapshot import Snapshot

NAME = "oomScore"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config(StrategySettings):
    """Section `oomScore`. The numbers come from annotations of pods."""


def reads(_slo: SLO, pods: Sequence[Pod]) -> tuple[str, ...]:
    """Processes of the containers whose pods have one of the annotations; those that hold a number of ours are seen
    anyhow."""
    asked = any(keys.OOM_SCORE_ADJ in pod.annotations or keys.OOM_SCORE_ADJ_SPEC in pod.annotations for pod in pods)
    return ("oom_score_adj",) if asked else ()


def decide(seen: Snapshot, config: Config) -> Iterator[Decision]:
    """One decision for each pod that asks for a number, or whose processes still have one of ours."""
    judged = 0
    for pod in seen.pods:
        if pod.active and pod.uid in seen.places:
            for decision in _pod(seen, pod):
                judged += 1
                yield decision
    if not judged:
        yield Decision("node", "hold", "NoOOMScores")


def _pod(seen: Snapshot, pod: Pod) -> Iterator[Decision]:
    changes: list[OOMScoreChange] = []
    scores: dict[str, int | float | str] = {}
    for name, group in seen.places[pod.uid].containers.items():
        try:
            wanted = pod_overrides.oom_score_adj(pod, name)
        except ValueError as error:
            yield Decision(f"pod/{pod.key}", "refuse", "BadOOMScore", {"container": name, "why": str(error)})
            continue
        processes = seen.oom_scores.get(group, ())
        if wanted is not None:
            scores[name] = wanted
        changes += _changes(seen, processes, wanted)
    asks = any(key in pod.annotations for key in (keys.OOM_SCORE_ADJ, keys.OOM_SCORE_ADJ_SPEC))
    if scores:
        yield Decision(f"pod/{pod.key}", "set" if changes else "hold", "OOMScore", scores, tuple(changes))
    elif changes:
        yield Decision(f"pod/{pod.key}", "release", "OOMScoreReleased", {"processes": len(changes)}, tuple(changes))
    elif asks:
        yield Decision(f"pod/{pod.key}", "hold", "OOMScore", scores)


def _changes(seen: Snapshot, processes: tuple[Process, ...], wanted: int | None) -> Iterator[OOMScoreChange]:
    """What differs; without a request, what was found comes back."""
    for process in processes:
        place = OOMScoreChange(process.pid, process.start_time, 0).place
        found = seen.found.get(place)
        value = wanted if wanted is not None else found.value if found else None
        if isinstance(value, int) and (value != process.oom_score_adj or (wanted is None and found)):
            yield OOMScoreChange(process.pid, process.start_time, value, gives_back=wanted is None)


SENTENCES = {
    "NoOOMScores": "no pod requests an oom_score_adj",
    "OOMScoreReleased": "no longer requested; {processes} processes get back their former oom_score_adj",
    "BadOOMScore": "the oom_score_adj of container {container} cannot be used: {why}",
}
