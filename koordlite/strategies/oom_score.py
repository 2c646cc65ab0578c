"""Move processes of containers forward or back in the queue of the OOM killer, as annotations of their pod ask.

An annotation moves a process back only as far as the floor of the pod's class allows, by default not at all.

Annotation `koordinator.sh/oom-score-adj-spec` has a number for each container, `koordinator.sh/oom-score-adj` one for
the pod. The pause container is left alone: its runtime protects it. Source: Koordinator hook OOMScoreAdj.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import msgspec

from koordlite.changes.system import OOM_SCORE_AT_CREATION, OOMScoreChange
from koordlite.formulas import ceilings
from koordlite.model import keys
from koordlite.model.decision import Decision
from koordlite.model.pod.qos import KubeQoS
from koordlite.model.pod.values import ContainerInfo, Pod
from koordlite.model.settings import StrategySettings, bounded
from koordlite.model.slo import pod_overrides
from koordlite.model.slo.settings import SLO
from koordlite.model.snapshot import Snapshot

NAME = "oomScore"
NEW_CONTAINERS = "theirs"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config(StrategySettings):
    """Section `oomScore`. The numbers come from annotations of pods. They go no lower than the floor of the pod's
    Kubernetes class or the value that kubelet gives, whichever is lower: at 1000 that is kubelet's."""

    guaranteed_floor: int = bounded(1000, ge=-1000, le=1000)
    """The lowest number for pods of class Guaranteed."""
    burstable_floor: int = bounded(1000, ge=-1000, le=1000)
    """The lowest number for pods of class Burstable."""
    best_effort_floor: int = bounded(1000, ge=-1000, le=1000)
    """The lowest number for pods of class BestEffort."""

    def floor(self, kube_qos: KubeQoS) -> int:
        """The setting for pods of a class."""
        floors = {KubeQoS.GUARANTEED: self.guaranteed_floor, KubeQoS.BURSTABLE: self.burstable_floor}
        return floors.get(kube_qos, self.best_effort_floor)


def reads(_slo: SLO, pods: Sequence[Pod]) -> tuple[str, ...]:
    """Processes of the containers whose pods have one of the annotations; those that hold a number of ours are seen
    anyhow."""
    is_needed = any(keys.OOM_SCORE_ADJ in pod.annotations or keys.OOM_SCORE_ADJ_SPEC in pod.annotations for pod in pods)
    return ("oom_score_adj",) if is_needed else ()


def decide(snapshot: Snapshot, config: Config) -> Iterator[Decision]:
    """Decide about each pod that asks for a number, or whose processes still have one of ours."""
    pods = (pod for pod in snapshot.pods if pod.active and pod.uid in snapshot.places)
    decisions = [decision for pod in pods if (decision := _pod(snapshot, pod, config))]
    yield from decisions or [Decision("node", "hold", "NoOOMScores")]


def _pod(snapshot: Snapshot, pod: Pod, config: Config) -> Decision | None:
    """The one decision about a pod; None when it asks for nothing and holds nothing of ours."""
    changes: list[OOMScoreChange] = []
    scores: dict[str, int | float | str] = {}
    clipped: list[str] = []
    broken: dict[str, int | float | str] = {}
    capacity = snapshot.node.capacity_memory if snapshot.node else 0
    for name, group in snapshot.places[pod.uid].containers.items():
        try:
            claim = pod_overrides.oom_score_adj(pod, name)
        except ValueError as error:
            broken = broken or {"container": name, "why": str(error)}
            continue
        value = claim
        if claim is not None:
            container = next((c for c in pod.containers if c.name == name), ContainerInfo(name, "", True, {}, {}))
            kubelet_score = ceilings.kubelet_oom_score(pod.kube_qos, container, capacity=capacity)
            scores[name] = value = max(claim, min(kubelet_score, config.floor(pod.kube_qos)))
            clipped += [f"{name} asks for {claim}, the floor is {value}"] if value != claim else []
        # Without a request, what was found comes back. Processes of a container that was created with our number are
        # named although they have it, so that what they would have had is noted of each.
        created = snapshot.found.get(OOM_SCORE_AT_CREATION.place(group))
        for process in snapshot.oom_scores.get(group, ()):
            change = OOMScoreChange(process.pid, process.start_time, 0, gives_back=claim is None)
            original = snapshot.found.get(change.place) or created
            number = value if value is not None else original.value if original else None
            if isinstance(number, int) and (number != process.oom_score_adj or created or (claim is None and original)):
                changes.append(msgspec.structs.replace(change, value=number))
    more = {"clipped": "; ".join(clipped)} if clipped else {}
    if broken:
        return Decision(f"pod/{pod.key}", "refuse", "BadOOMScore", {**scores, **broken, **more}, tuple(changes))
    if scores or any(key in pod.annotations for key in (keys.OOM_SCORE_ADJ, keys.OOM_SCORE_ADJ_SPEC)):
        reason = "OOMScoreClipped" if clipped else "OOMScore"
        return Decision(f"pod/{pod.key}", "set" if changes else "hold", reason, {**scores, **more}, tuple(changes))
    if changes:
        return Decision(f"pod/{pod.key}", "release", "OOMScoreReleased", {"processes": len(changes)}, tuple(changes))
    return None
