"""Say which services wait for a CPU because of others, and because of whom. Waits by a pod's own limit do not count.

Pressure (PSI) of a pod rises as much when its own quota stops it as when others take its CPUs. Here the run delay of
its threads is taken, and intervals in which its quota stopped it are left out. What helps is another place, another
limit, or less best effort; enforced, it only tells others by a condition of the Node, `CPUContention`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from koordlite.changes.published import NodeConditionChange
from koordlite.model import keys
from koordlite.model.cpuset import CPUSet
from koordlite.model.decision import Decision
from koordlite.model.picture.usage import CPUWait
from koordlite.model.pod.qos import KubeQoS
from koordlite.model.pod.values import Pod
from koordlite.model.settings import Memory, Mode, StrategySettings, bounded
from koordlite.model.slo.settings import SLO
from koordlite.model.snapshot import Snapshot, container_cpus, recalled

NAME = "cpuContention"
NEW_CONTAINERS = "none"
MIN_WINDOW_SECONDS = 3.0
"""A shorter window says more of one burst than of the pod."""
MIN_WAIT_US = 10_000
"""Least wait in a second before a pod counts. A pod that nearly never runs waits for much of the time that it wants a
CPU even on an idle node: each time it wakes, for a moment."""
NAMES = 10
"""Pods that the message of the condition names: it is of the moment when the condition changed."""
CULPRITS = 3
"""Pods that are named."""
MIN_EXCESS_MILLI = 50
"""Use above the request from which a pod is named."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config(StrategySettings):
    """Section `cpuContention`."""

    mode: Mode = "off"
    wait_percent: float = bounded(10.0, ge=0.1, le=100)
    """Part of the time that a pod's threads want a CPU from which waiting for one is contention."""
    sustained_seconds: float = bounded(30.0, ge=0, le=3600)
    """Time that it has to last before the pod is named."""
    clear_seconds: float = bounded(60.0, ge=0, le=3600)
    """Time without a named pod before the condition of the Node becomes False."""


class ContentionMemory(Memory, frozen=True, kw_only=True):
    """Start of each pod's contention."""

    since: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Beginning of the contention by uid, by `Snapshot.time`."""
    contended_at: float | None = None
    """Time at which a pod was last named, by `Snapshot.time`."""


def cpu_waits(snapshot: Snapshot) -> Iterable[str]:
    """Every pod but best effort, which waits by design."""
    return (pod.uid for pod in snapshot.pods if _is_service(pod))


def throttling(_slo: SLO, pods: Sequence[Pod]) -> Iterable[str]:
    """Name the services that their own limit may stop."""
    return (pod.uid for pod in pods if _is_service(pod) and any(c.limits.get("cpu") for c in pod.containers))


def _is_service(pod: Pod) -> bool:
    return pod.active and pod.kube_qos is not KubeQoS.BEST_EFFORT


def decide(snapshot: Snapshot, config: Config) -> Iterator[Decision]:
    """Decide about each service that has a group, and about the node, which says how many wait."""
    memory = recalled(snapshot, NAME, ContentionMemory)
    pods = [pod for pod in snapshot.pods if _is_service(pod) and pod.uid in snapshot.places]
    since: dict[str, float] = {}
    contended: list[str] = []
    for pod in pods:
        wait = snapshot.cpu_waits.get(pod.uid)
        seconds = wait.until - wait.since if wait else 0.0
        is_long = wait is not None and seconds >= MIN_WINDOW_SECONDS and wait.waited_us >= seconds * MIN_WAIT_US
        if wait is not None and is_long and wait.share * 100 > config.wait_percent:
            since[pod.uid] = min(memory.since.get(pod.uid, wait.since), snapshot.time)
        decision = _decided(snapshot, config, pod, wait, since.get(pod.uid))
        contended += [pod.key] if decision.reason == "PodContended" else []
        yield decision
    yield _of_node(
        snapshot, config, contended, len(pods), ContentionMemory(since=since, contended_at=memory.contended_at)
    )


def _of_node(
    snapshot: Snapshot, config: Config, contended: Sequence[str], services: int, memory: ContentionMemory
) -> Decision:
    """The condition of the Node becomes True with the first pod that is named, and False `clear_seconds` after the
    last. It is not written before the first."""
    status = snapshot.node.conditions.get(keys.CPU_CONTENTION) if snapshot.node else None
    at = snapshot.time if contended or (status == "True" and memory.contended_at is None) else memory.contended_at
    reason = "PodsContended" if contended else "NoPodContended"
    evidence: dict[str, int | float | str] = {"contended": len(contended), "services": services}
    condition = status
    if contended:
        condition = "True"
    elif status == "True" and at is not None and snapshot.time - at >= config.clear_seconds:
        condition = "False"
    evidence |= {"condition": condition} if condition else {}
    changes: tuple[NodeConditionChange, ...] = ()
    if condition != status and snapshot.node:
        names = ", ".join(contended[:NAMES]) + (f" and {more} more" if (more := len(contended) - NAMES) > 0 else "")
        message = f"wait for CPUs that others use: {names}" if contended else "no service waits because of others"
        changes = (NodeConditionChange(keys.CPU_CONTENTION, condition, reason, message, snapshot.taken_at),)
    memory = msgspec.structs.replace(memory, contended_at=at)
    return Decision("node", "set" if changes else "hold", reason, evidence, changes, remember=memory)


def _decided(snapshot: Snapshot, config: Config, pod: Pod, wait: CPUWait | None, since: float | None) -> Decision:
    subject = f"pod/{pod.key}"
    if wait is None:
        return Decision(subject, "skip", "WaitsUnknown")
    use = snapshot.usage.pods.get(pod.uid)
    # Part of its periods in which the worst container of the pod was stopped by its own limit.
    throttled = max((snapshot.usage.throttled.get(group, 0.0) for group in snapshot.places[pod.uid].all), default=0.0)
    evidence: dict[str, int | float | str] = {
        "waited_percent": round(wait.share * 100, 1),
        "wait_percent": config.wait_percent,
        "throttled_percent": round(throttled * 100),
        "used_milli": use.cpu if use else 0,
        "request_milli": pod.request_milli(),
    }
    if since is None:
        reason = "ThrottledByOwnLimit" if evidence["throttled_percent"] else "PodNotContended"
        if wait.share * 100 > config.wait_percent:
            reason = "WaitsAreShort"
            evidence["each_second_us"] = round(wait.waited_us / max(wait.until - wait.since, 1e-3))
        return Decision(subject, "hold", reason, evidence)
    evidence["for_seconds"] = round(snapshot.time - since)
    if snapshot.time - since < config.sustained_seconds:
        return Decision(subject, "hold", "ContentionBegins", evidence)
    if use is not None and use.cpu > pod.request_milli():
        # The scheduler promised it no more than its request: the others are within their right.
        return Decision(subject, "hold", "WaitsAboveRequest", evidence)
    culprits = ", ".join(f"{name} +{milli / 1000:.1f}" for name, milli in culprits_of(snapshot, pod))
    return Decision(subject, "hold", "PodContended", {**evidence, "culprits": culprits or "none above its request"})


def culprits_of(snapshot: Snapshot, pod: Pod) -> list[tuple[str, int]]:
    """The pods that use most above what they requested on CPUs of `pod`, with that excess in millicores."""
    cpus = _cpus(snapshot, pod)
    excess = []
    for other in snapshot.pods:
        use = snapshot.usage.pods.get(other.uid)
        if other.uid == pod.uid or use is None or not _cpus(snapshot, other) & cpus:
            continue
        above = use.cpu - other.request_milli()
        if above >= MIN_EXCESS_MILLI:
            excess.append((other.key, above))
    return sorted(excess, key=lambda row: (-row[1], row[0]))[:CULPRITS]


def _cpus(snapshot: Snapshot, pod: Pod) -> CPUSet:
    """CPUs that containers of the pod may use; all of the machine's where their groups do not say."""
    return container_cpus(snapshot, pod.uid) or snapshot.topology.cpuset
