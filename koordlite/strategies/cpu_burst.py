"""Let latency-sensitive containers go beyond their CPU limit for a while, until the node's shared CPUs are full.

Two means, by policy: burst of the kernel (`cpu.cfs_burst_us`), and a quota that grows while the container is throttled.
Source: Koordinator strategy CPUBurst.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from koordlite.changes import cgroup
from koordlite.changes.cgroup import CgroupChange
from koordlite.formulas import ceilings
from koordlite.formulas.cpu import burst
from koordlite.formulas.cpu.burst import Ledger, Move, State, Tokens
from koordlite.model.cgroup_fields import CgroupField
from koordlite.model.decision import Decision, Verdict
from koordlite.model.keys import CPU_BURST
from koordlite.model.picture.groups import Cgroup
from koordlite.model.pod.qos import QoSClass
from koordlite.model.pod.values import ContainerInfo, Pod
from koordlite.model.reading.strict import camel
from koordlite.model.settings import Memory, StrategySettings
from koordlite.model.slo import pod_overrides
from koordlite.model.slo.settings import SLO, CPUBurst
from koordlite.model.snapshot import Snapshot, recalled
from koordlite.strategies.shared import group_files

NAME = "cpuBurst"
WINDOW_SECONDS = 5
"""Time over which the use of the shared CPUs is judged: five looks of Koordinator's, one a second."""
_OWNERS = (QoSClass.LSE, QoSClass.LSR)
_NOT_SHARED = (*_OWNERS, QoSClass.BE)
_BURST = ("auto", "cpuBurstOnly")
_SCALING = ("auto", "cfsQuotaBurstOnly")
_REASONS = {
    "up": "ThrottledBurst",
    "down": "BurstLowered",
    "reset": "BurstReset",
    "remain": "BurstSteady",
}
_MOVES: tuple[Move, ...] = ("up", "down", "reset")
_VERDICTS: dict[Move, Verdict] = {"up": "grow", "down": "shrink", "reset": "release", "remain": "set"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config(StrategySettings):
    """Section `cpuBurst`. Policy and percentages come from key `cpu-burst-config` and from annotations."""

    annotations_may_raise: bool = False
    """Let the annotation of a pod ask for more than the node's settings, as in Koordinator; otherwise it only lowers
    them."""


class BurstMemory(Memory, frozen=True):
    """Tokens left to each container."""

    tokens: Mapping[str, Tokens] = msgspec.field(default_factory=dict)
    """Tokens by group."""


def reads(slo: SLO, pods: Sequence[Pod]) -> tuple[str, ...]:
    """Burst of containers, while a pod may have it."""
    return ("cpu.burst", "cpu.bvt_warp_ns") if any(_bursts_at_all(slo, pod) for pod in pods) else ()


def throttling(slo: SLO, pods: Sequence[Pod]) -> Iterator[str]:
    """Pods with a limit that may go beyond it."""
    limited = (pod for pod in pods if any("cpu" in container.limits for container in pod.containers))
    yield from (pod.uid for pod in limited if _bursts_at_all(slo, pod))


def windows(slo: SLO, pods: Sequence[Pod]) -> tuple[int, ...]:
    """Windows for the state of the shared CPUs, while a pod may burst."""
    return (WINDOW_SECONDS,) if any(_bursts_at_all(slo, pod) for pod in pods) else ()


def _bursts_at_all(slo: SLO, pod: Pod) -> bool:
    if pod.raw_qos in _NOT_SHARED or not pod.active:
        return False
    return pod_overrides.cpu_burst(pod, slo.cpu_burst)[0].policy != "none"


class _Target(msgspec.Struct, frozen=True, kw_only=True):
    """A container with what it is to get."""

    name: str
    group: str
    present: Cgroup
    step: Move
    quota_us: int
    burst_us: int


class _Terms(msgspec.Struct, frozen=True, kw_only=True):
    """Terms that hold for all containers of a pod."""

    settings: CPUBurst
    state: State
    ratio: float
    beyond_quota: bool

    @property
    def scales(self) -> bool:
        """Tell whether quotas may grow."""
        return self.settings.policy in _SCALING

    @property
    def bursts(self) -> bool:
        """Tell whether the kernel's burst is used."""
        return self.settings.policy in _BURST


def decide(snapshot: Snapshot, config: Config) -> Iterator[Decision]:
    """Decide about the node, and about each pod that bursts, asks for it, or has to give it back."""
    present = (pod for pod in snapshot.pods if pod.uid in snapshot.places and pod.active)
    claims = [(pod, _claim(snapshot, pod, config)) for pod in present if pod.raw_qos not in _NOT_SHARED]
    if all(claim.settings.policy == "none" for _, claim in claims):
        # Without use and time, which are new in every picture: the answer holds while nobody bursts.
        for pod, claim in claims:
            yield from _not_bursting(snapshot, pod, claim)
        yield Decision("node", "hold", "BurstOff", remember=BurstMemory())
        return
    state, evidence = _node(snapshot)
    ledger = Ledger(recalled(snapshot, NAME, BurstMemory).tokens, snapshot.time)
    # Only kernels with group identity take a burst above the quota.
    anolis = group_files.has(snapshot, "cpu.bvt_warp_ns")
    for pod, claim in claims:
        if claim.settings.policy != "none":
            terms = _Terms(settings=claim.settings, state=state, ratio=_ratio(snapshot, pod), beyond_quota=anolis)
            yield _with_claim(_burst(snapshot, pod, terms, ledger), claim)
        else:
            yield from _not_bursting(snapshot, pod, claim)
    if not group_files.has(snapshot, "cpu.burst"):
        yield Decision("node", "skip", "UnsupportedByKernel", {"file": "cpu.burst"})
    memory = BurstMemory(tokens=ledger.tokens)
    yield Decision("node", "hold", "SharedCPUState", {"state": state, **evidence}, remember=memory)


class _Claim(msgspec.Struct, frozen=True):
    """The settings that hold for a pod, what of its annotation was clipped, and why the annotation cannot be used."""

    settings: CPUBurst
    clipped: str = ""
    bad: pod_overrides.UnusableAnnotation | None = None


def _claim(snapshot: Snapshot, pod: Pod, config: Config) -> _Claim:
    of_node = snapshot.slo.cpu_burst
    if CPU_BURST not in pod.annotations:
        return _Claim(of_node)
    settings, bad = pod_overrides.cpu_burst(pod, of_node)
    if config.annotations_may_raise:
        return _Claim(settings, bad=bad)
    allowed = ceilings.cpu_burst(settings, of_node)
    pairs = ((name, getattr(settings, name), getattr(allowed, name)) for name in CPUBurst.__struct_fields__)
    clipped = ", ".join(f"{camel(name)} {claim} → {limit}" for name, claim, limit in pairs if claim != limit)
    return _Claim(allowed, clipped, bad)


def _with_claim(decision: Decision, claim: _Claim) -> Decision:
    """The decision with what is to be said about the annotation."""
    if claim.bad:
        evidence = {"annotation": claim.bad.key, "why": claim.bad.why, **decision.evidence}
        return Decision(decision.subject, "refuse", "BadBurstAnnotation", evidence, decision.changes)
    if claim.clipped:
        return msgspec.structs.replace(decision, evidence={**decision.evidence, "clipped": claim.clipped})
    return decision


def _not_bursting(snapshot: Snapshot, pod: Pod, claim: _Claim) -> Iterator[Decision]:
    """Give back, or say what there is to say about an annotation that lets the pod burst nevertheless."""
    place = snapshot.places[pod.uid]
    groups = (*place.containers.values(), place.group)
    back = tuple(group_files.releases(snapshot, NAME, ("cpu.quota", "cpu.burst"), groups=groups))
    if back:
        yield _with_claim(_release(snapshot, pod, back), claim)
    elif claim.bad or claim.clipped:
        yield _with_claim(Decision(f"pod/{pod.key}", "hold", "BurstNotAllowed", {"policy": "none"}), claim)


def _node(snapshot: Snapshot) -> tuple[State, dict[str, int]]:
    """The state of the shared CPUs; unknown without samples, so that nothing grows then."""
    window = snapshot.windows.get(WINDOW_SECONDS)
    if window is None or window.node is None or not snapshot.topology.cpus:
        return "unknown", {}
    pods = [pod for pod in snapshot.pods if pod.active]
    owned = sum(pod.request_milli() for pod in pods if pod.raw_qos in _OWNERS)
    apart = sum(window.pods[p.uid].cpu for p in snapshot.pods if p.raw_qos in _NOT_SHARED and p.uid in window.pods)
    used, total = window.node.cpu - apart, len(snapshot.topology.cpus) * 1000 - owned
    threshold = snapshot.slo.cpu_burst.share_pool_threshold_percent
    state = burst.node_state(used_milli=used, total_milli=total, threshold_percent=threshold)
    return state, {"used_milli": used, "total_milli": total, "threshold_percent": threshold}


def _burst(snapshot: Snapshot, pod: Pod, terms: _Terms, ledger: Ledger) -> Decision:
    """Quota and burst of the pod's containers, and the pod as much as all of them."""
    present = (c for c in pod.containers if _present(snapshot, pod, c.name))
    containers = [_target(snapshot, pod, container, terms, ledger) for container in present]
    quotas = tuple(_quotas(snapshot, pod, containers))
    changes = (*quotas, *_bursts(snapshot, pod, containers, quotas, terms))
    step: Move = next((move for move in _MOVES if any(c.step == move for c in containers)), "remain")
    texts = "; ".join(f"{c.name} {c.present.quota_us} → {c.quota_us}, burst {c.burst_us}" for c in containers)
    evidence = {"policy": terms.settings.policy, "state": terms.state, "containers": texts}
    return Decision(f"pod/{pod.key}", _VERDICTS[step] if changes else "hold", _REASONS[step], evidence, changes)


def _present(snapshot: Snapshot, pod: Pod, container: str) -> Cgroup | None:
    return snapshot.cgroups.get(snapshot.places[pod.uid].containers.get(container, ""))


def _target(snapshot: Snapshot, pod: Pod, container: ContainerInfo, terms: _Terms, ledger: Ledger) -> _Target:
    group = snapshot.places[pod.uid].containers[container.name]
    cgroup = snapshot.cgroups[group]
    limit_milli = container.limits["cpu"].milli if "cpu" in container.limits else 0
    base_us = burst.base_quota(limit_milli=limit_milli, period_us=cgroup.period_us, ratio=terms.ratio)
    present = cgroup.quota_us
    step: Move = "remain"
    quota_us = burst.UNLIMITED if present is None else present
    limited = burst.UNLIMITED not in (base_us, quota_us)
    # A quota that may not grow is divided by `normalizedQuota`: two rules must not write it in turns.
    is_ours = group_files.original(snapshot, NAME, group, "cpu.quota") is not None
    owned = terms.scales or terms.ratio <= 1 or is_ours
    # Without a limit, or where kubelet sets no quotas, there is nothing to grow.
    if owned and container.running and limited:
        used_milli, percent = snapshot.usage.containers.get(group), terms.settings.cfs_quota_burst_percent
        allowed = ledger.allows(
            group,
            period_seconds=terms.settings.cfs_quota_burst_period_seconds,
            percent=percent,
            # Unknown use counts as all of the limit.
            usage_percent=100 if used_milli is None else used_milli * cgroup.period_us // (base_us * 10),
        )
        throttled = snapshot.usage.throttled.get(group)
        step = burst.move(scaling=terms.scales, allowed=allowed, throttled=throttled, state=terms.state)
        if step == "reset":
            quota_us = max(_original(snapshot, group, "cpu.quota", base_us), base_us)
        else:
            quota_us = burst.quota_target(step, current_us=quota_us, base_us=base_us, percent=percent)
    burst_us = burst.kernel_burst(
        limit_milli=limit_milli,
        percent=terms.settings.cpu_burst_percent,
        quota_us=min(quota_us, base_us) if limited and not owned else quota_us,
        beyond_quota=terms.beyond_quota,
        period_us=cgroup.period_us,
        ratio=terms.ratio,
    )
    return _Target(name=container.name, group=group, present=cgroup, step=step, quota_us=quota_us, burst_us=burst_us)


def _quotas(snapshot: Snapshot, pod: Pod, containers: Sequence[_Target]) -> Iterator[CgroupChange]:
    """The containers that change, and the pod if they need more, or if it holds more of ours than they need."""
    for container in containers:
        yield from _change(snapshot, container.group, "cpu.quota", container.quota_us, container.present.quota_us)
    group = snapshot.places[pod.uid].group
    present = snapshot.cgroups[group].quota_us if group in snapshot.cgroups else None
    if present in (None, burst.UNLIMITED) or not containers:
        return
    needed = burst.pod_quota(container.quota_us for container in containers)
    if cgroup.PLACE.place(group, "cpu.quota") in snapshot.ours:
        # At least what kubelet gave: a container that is just being restarted needs its part again.
        original_us = _original(snapshot, group, "cpu.quota", 0)
        yield from _change(
            snapshot,
            group,
            "cpu.quota",
            original_us if needed == burst.UNLIMITED else max(needed, original_us),
            present,
        )
    elif needed > present >= burst.pod_quota(c.present.quota_us or 0 for c in containers):
        # A pod that has less than its containers was given a limit of its own, which is not ours to lift.
        yield from _change(snapshot, group, "cpu.quota", needed, present)


def _bursts(
    snapshot: Snapshot, pod: Pod, containers: Sequence[_Target], quotas: Iterable[CgroupChange], terms: _Terms
) -> Iterator[CgroupChange]:
    group = snapshot.places[pod.uid].group
    quota_us = next((change.value for change in quotas if change.group == group), None)
    quota_us = quota_us if isinstance(quota_us, int) else snapshot.cgroups.get(group, Cgroup()).quota_us
    total = sum(container.burst_us for container in containers)
    if quota_us not in (None, burst.UNLIMITED) and not terms.beyond_quota:
        total = min(total, quota_us or 0)
    targets = {**{c.group: c.burst_us for c in containers}, group: total}
    for place, value in targets.items():
        present = snapshot.cgroups[place].values.get("cpu.burst") if place in snapshot.cgroups else None
        if terms.bursts:
            yield from _change(snapshot, place, "cpu.burst", value, present)
        elif cgroup.PLACE.place(place, "cpu.burst") in snapshot.ours:
            yield from _change(snapshot, place, "cpu.burst", _original(snapshot, place, "cpu.burst", 0), present)


def _change(
    snapshot: Snapshot, group: str, field: CgroupField, value: int, present: int | None
) -> Iterator[CgroupChange]:
    if present is not None and value != present:
        yield group_files.change(snapshot, group, field, value)


def _original(snapshot: Snapshot, group: str, field: CgroupField, otherwise: int) -> int:
    original = snapshot.found.get(cgroup.PLACE.place(group, field))
    return original.value if original and isinstance(original.value, int) else otherwise


def _release(snapshot: Snapshot, pod: Pod, back: Sequence[CgroupChange]) -> Decision:
    """Give back what was found, but no quota below the limit of its container: it may have grown meanwhile.

    Nor the pod's below that of its containers together. No limit stays none.
    """
    ratio, place, bases = _ratio(snapshot, pod), snapshot.places[pod.uid], dict[str, int]()
    for container in pod.containers:
        present, limit = _present(snapshot, pod, container.name), container.limits.get("cpu")
        if present and limit:
            base_us = burst.base_quota(limit_milli=limit.milli, period_us=present.period_us, ratio=ratio)
            bases[place.containers[container.name]] = base_us
    bases[place.group] = sum(bases.values())
    changes = tuple(
        msgspec.structs.replace(change, value=max(change.value, bases.get(change.group, change.value)))
        if change.field == "cpu.quota" and isinstance(change.value, int) and change.value != burst.UNLIMITED
        else change
        for change in back
    )
    return Decision(f"pod/{pod.key}", "release", "BurstReset", {"policy": "none"}, changes)


def _ratio(snapshot: Snapshot, pod: Pod) -> float:
    """Worth of a CPU of this node, for pods that share CPUs. Source: Koordinator `isPodCPUShare`."""
    shares = pod.raw_qos is QoSClass.LS or (pod.raw_qos is QoSClass.NONE and not pod.resource_status.cpuset)
    return (snapshot.notes.cpu_normalization or 1.0) if shares else 1.0
