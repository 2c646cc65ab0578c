"""Hold best-effort pods inside the CPU that everything else leaves free: by cpuset, by quota, or as services wait.

The formula is `formulas.cpu.suppress.be_cpu_budget`. From it follows which CPUs or how much quota, when to wait, and
when to give everything back. Source: Koordinator `suppressBECPU`; what differs is in docs/compatibility.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from koordlite.changes import cgroup
from koordlite.changes.cgroup import CgroupChange
from koordlite.formulas import measured
from koordlite.formulas.allocatable import allocatable
from koordlite.formulas.cpu import be_limit, contention, objective, pools, reaction, suppress
from koordlite.formulas.cpu.contention import Guidance, Guided, Service
from koordlite.formulas.cpu.objective import Level
from koordlite.model import cpuset
from koordlite.model.cpuset import CPUSet
from koordlite.model.decision import CPULimit, Decision, Verdict
from koordlite.model.picture.groups import Cgroup
from koordlite.model.picture.usage import CPUWait, Objective, Use
from koordlite.model.pod.qos import KubeQoS, QoSClass
from koordlite.model.pod.values import Pod
from koordlite.model.settings import Memory, StrategySettings, bounded
from koordlite.model.slo import pod_overrides
from koordlite.model.snapshot import NodeSnapshot, Snapshot, gives_way, recalled
from koordlite.strategies.shared import group_files
from koordlite.unchanged import derived

UNLIMITED = -1
MOST_OWED_SECONDS = 0.5
"""Once the limit owes what the whole node does in this time, nothing more is taken between two ticks: all of it can
still be given back."""
STALE_SECONDS = 10.0
"""A wait that was measured longer ago says nothing about now."""
PATIENCE_SECONDS = 5.0
"""Time for which the limit stays under `guided` while the waits of services are unknown."""
MIN_WINDOW_SECONDS = 3.0
"""Least window of a wait that decides anything: a process that starts, or one burst, waits much."""
MIN_ACTIVITY = 0.002
"""Part of a CPU that a service has to want before its waits count: of less, single waits decide."""
NAME = "cpuSuppress"
ALIASES = ("suppress",)
SUBJECTS = ("besteffort",)
OVERVIEW = ("best effort may use", "besteffort")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config(StrategySettings):
    """Section `cpuSuppress`. Thresholds and policy come from the ConfigMap key `resource-threshold-config`."""

    steady_percent: float = bounded(2.0, ge=0, le=20)
    """The limit stays while the budget has moved by no more than so many percent of the node's CPU since it was chosen.
    2 keeps still under a load that varies by 1 % of the node to either side; 0 follows every sample, as Koordinator."""
    grow_hold_seconds: float = bounded(0.0, ge=0, le=3600)
    """Best effort gets nothing back for so long after a spike has taken CPU away from it, and what it loses so is not
    made good. Spikes that come more often than this hold it down for good."""
    hold_seconds: float = bounded(60.0, ge=0)
    """Time for which the last limit stays when usage is unknown or the Node is gone; then best effort is released."""
    wait_percent: float = bounded(10.0, ge=0, le=1000)
    """Percent by which waiting for a CPU because of best effort may lengthen the work of a service's threads before
    best effort has to give way. It counts where the limit follows the waits of services."""
    least_wait_percent: float = bounded(5.0, ge=0, le=1000)
    """A pod that has a percentage of its own (`suppress.koordlite.io/wait-percent`) gets no less than this: a low one
    costs best effort nearly all."""
    follow_promises: bool = False
    """Keep best-effort containers on the CPUs or NUMA nodes that the scheduler promised to their pods, as far as these
    are among the CPUs of best effort. Koordinator's gate BECPUManager, which gives up the limit for it."""


Evidence = dict[str, int | float | str]


class Budget(msgspec.Struct, frozen=True):
    """CPU that best effort may use, in millicores."""

    milli: int
    """Current result of the formula."""
    followed_milli: int
    """Steadier than the formula."""
    owed_milli_seconds: int
    """CPU time that the limit owes to best effort (`suppress.owed_milli_seconds`)."""

    repaid_milli: int
    """Part of it that is paid back now, or taken when below zero: of a set in whole CPUs."""

    @property
    def limit_milli(self) -> int:
        """Budget that the limit follows."""
        return self.followed_milli + self.repaid_milli


class SuppressMemory(Memory, frozen=True, kw_only=True):
    """State that one round leaves for the next."""

    followed_milli: int | None = None
    """The budget that is followed."""
    shrunk_at: float | None = None
    """Time at which a falling budget last took CPU away, by `Snapshot.time`."""
    node_gone_at: float | None = None
    """Time since which the Node has been missing."""
    ticked_at: float | None = None
    """Time of the last tick that judged, by `Snapshot.time`."""
    limited_at: float | None = None
    """Time since which the limit of the last round has been in force."""
    limit_milli: int | None = None
    """The limit of the last round."""
    allowed_milli_seconds: int = 0
    """CPU time that rounds between two ticks have left to best effort, from the last tick to `limited_at`."""
    owed_milli_seconds: int = 0
    """CPU time that the limit owes to best effort (`suppress.owed_milli_seconds`), as of the last tick."""
    guidance: Guidance = Guidance()
    """State of the policy `guided`."""

    def age_since_shrink(self, now: float) -> float:
        """Seconds since CPU was taken away; infinite if it never was, or if the clock has started again."""
        return now - self.shrunk_at if self.shrunk_at is not None and now >= self.shrunk_at else float("inf")

    def allowed_since_tick(self, now: float, limit_milli: int) -> int | None:
        """CPU time in millicore seconds that the limit has left to best effort since the last tick; None when the
        limit in force is not the one that the last round decided, or the clock has started again."""
        if self.limited_at is None or now < self.limited_at or self.limit_milli != limit_milli:
            return None
        return self.allowed_milli_seconds + round(limit_milli * (now - self.limited_at))


def without_node(snapshot: Snapshot, config: Config) -> Iterator[Decision]:
    """The last limit stays for a while: the Node may come back. Where nothing is limited, nothing is released."""
    off = _off(snapshot, config)
    if off:
        yield off
        return
    memory = recalled(snapshot, NAME, SuppressMemory)
    gone_at = memory.node_gone_at if memory.node_gone_at is not None else snapshot.time
    keep = msgspec.structs.replace(memory, node_gone_at=gone_at)
    age, root = snapshot.time - gone_at, snapshot.layout.besteffort
    limited = any(f"{place.part('cgroup')}/".startswith(f"{root}/") for place in snapshot.ours)
    if age <= config.hold_seconds or not limited:
        yield Decision("besteffort", "skip", "NoNode", remember=keep)
        return
    evidence: Evidence = {"ageSeconds": round(age), "holdSeconds": config.hold_seconds}
    yield msgspec.structs.replace(_release(snapshot, config, "NoNodeReleased", evidence), remember=keep)


def decide(snapshot: NodeSnapshot, config: Config) -> Iterator[Decision]:
    """Decide by the policy in force, and about what another policy has left behind."""
    if not snapshot.node.capacity_milli:
        yield from without_node(snapshot, config)
        return
    off, used = _off(snapshot, config), snapshot.usage.node
    if off or used is None:
        yield off or _without_usage(snapshot, config)
        return
    memory = recalled(snapshot, NAME, SuppressMemory)
    budget_milli, evidence = _budget(snapshot, used)
    # The budget that the limit follows: the last one while nothing much has changed, or a spike is not long past.
    followed_milli = suppress.followed_budget(
        budget_milli=budget_milli,
        before_milli=memory.followed_milli,
        band_milli=int(snapshot.node.capacity_milli * config.steady_percent / 100),
        held_down=memory.age_since_shrink(snapshot.time) < config.grow_hold_seconds,
    )
    owed = _owed(snapshot, config, memory, followed_milli)
    unit_milli = 1 if _follows_by_quota(snapshot) else 1000
    guidance, services = None, dict[str, Pod]()
    repaid_milli = suppress.repayment_milli(owed_milli_seconds=owed, unit_milli=unit_milli)
    budget = Budget(budget_milli, followed_milli, owed, repaid_milli)
    if budget.followed_milli != budget.milli:
        evidence["followed_milli"] = max(0, budget.followed_milli)
    if repaid_milli:
        evidence["repaid_milli" if repaid_milli > 0 else "withheld_milli"] = abs(repaid_milli)
    if not _be_cpus(snapshot):
        decisions = [_least(snapshot, evidence, budget)]
    elif _follows_waits(snapshot):
        services = _services(snapshot)
        quota, guidance = _guided(snapshot, config, evidence, budget, services)
        if snapshot.slo.threshold.cpu_suppress_policy == "guided":
            decisions = [quota, _full_set(snapshot, config, "PolicyIsQuota", {})]
        else:
            decisions = [_by_cpuset(snapshot, config, evidence, budget), _quota_beside_set(snapshot, quota)]
        if quota.reason != "NoWaitSignal":
            budget = msgspec.structs.replace(budget, owed_milli_seconds=0, repaid_milli=0)
    elif _follows_by_quota(snapshot):
        decisions = [_by_quota(snapshot, evidence, budget), _full_set(snapshot, config, "PolicyIsQuota", {})]
    else:
        by_set = _by_cpuset(snapshot, config, evidence, budget)
        decisions = [by_set, *_quota_release(snapshot, "PolicyIsCPUSet")]
    yield from _remembering(snapshot, memory, budget, decisions, guidance)
    if guidance is not None:
        yield from _objectives(snapshot, guidance, services)


def surge_edge_milli(snapshot: NodeSnapshot, limit: CPULimit, *, band_percent: float) -> int | None:
    """Use of everything but best effort above which `limit`, in force since `snapshot`, is too high; None when it
    cannot shrink. Source: `formulas.cpu.reaction.upper_edge_milli`."""
    others_milli, capacity = snapshot.usage.others_milli, snapshot.node.capacity_milli
    services = _services(snapshot) if _follows_waits(snapshot) else {}
    if _current_waits(snapshot, services) or _levels(snapshot, services):
        # The kernel's weights preempt at once, and what they cannot do shows in the next window of waits. So too at the
        # formula's limit: what is taken between two ticks is not given back there, and best effort would have less.
        return None
    if limit.owed_milli_seconds > capacity * MOST_OWED_SECONDS:
        return None
    least = be_limit.MIN_QUOTA_US * 1000 // be_limit.PERIOD_US if limit.by_quota else be_limit.MIN_CPUS * 1000
    if others_milli is None or limit.limit_milli <= least:
        return None
    if not any(pod.is_best_effort for pod in snapshot.pods):
        return None
    return reaction.upper_edge_milli(
        others_milli=others_milli,
        budget_milli=limit.budget_milli,
        limit_milli=limit.limit_milli,
        shrink_step_milli=reaction.shrink_step_milli(by_quota=limit.by_quota, capacity_milli=capacity),
        band_milli=round(capacity * band_percent / 100),
    )


def cpu_waits(snapshot: Snapshot) -> Iterable[str]:
    """Pods that best effort is to leave alone, where the limit goes by what services wait."""
    if not snapshot.slo.threshold.enable or not _follows_waits(snapshot):
        return ()
    return (pod.uid for pod in snapshot.pods if pod.kube_qos is not KubeQoS.BEST_EFFORT)


def _off(snapshot: Snapshot, config: Config) -> Decision | None:
    """Reason why nothing is judged on this node, Node or no Node, if there is a reason."""
    if snapshot.layout.besteffort not in snapshot.cgroups:
        return Decision("besteffort", "skip", "NoBestEffortGroup", {"group": snapshot.layout.besteffort})
    if not snapshot.slo.threshold.enable:
        return msgspec.structs.replace(_release(snapshot, config, "Disabled", {}), remember=SuppressMemory())
    return None


def _without_usage(snapshot: Snapshot, config: Config) -> Decision:
    """The last limit stays for a while, and then best effort is released."""
    age = snapshot.ages.get("usage", 0.0)
    if age <= config.hold_seconds:
        return Decision("besteffort", "hold", "NoMetrics", {"ageSeconds": round(age)})
    evidence: Evidence = {"ageSeconds": round(age), "holdSeconds": config.hold_seconds}
    return msgspec.structs.replace(_release(snapshot, config, "NoMetricsReleased", evidence), remember=SuppressMemory())


def _budget(snapshot: NodeSnapshot, used: Use) -> tuple[int, Evidence]:
    """The result of `suppress.be_cpu_budget` in millicores, and its terms under the formula's names.

    The Node must have capacity; `used` is its last sample. Source: Koordinator `calculateBESuppressCPU`;
    who gives way is decided by the cgroup, not by the label (docs/compatibility.md, suppress-by-cgroup).
    """
    threshold, usage = snapshot.slo.threshold, snapshot.usage
    best_effort = _best_effort(snapshot)
    reserved = allocatable.reserved_use(node=snapshot.node, notes=snapshot.notes, reserved=snapshot.reserved.resources)
    hosts = [app.name for app in snapshot.slo.host_applications if not app.is_best_effort]
    terms = {
        "capacity_milli": snapshot.node.capacity_milli,
        "threshold_percent": threshold.cpu_suppress_threshold_percent,
        "prod_milli": sum(use.cpu for uid, use in usage.pods.items() if uid not in best_effort),
        "host_milli": sum(usage.host_apps[name].cpu for name in hosts if name in usage.host_apps),
        "system_milli": suppress.system_use(
            node_milli=used.cpu,
            pods_milli=sum(use.cpu for use in usage.pods.values()),
            host_apps_milli=sum(use.cpu for use in usage.host_apps.values()),
            reserved_milli=reserved.cpu,
        ),
    }
    minimum = threshold.cpu_suppress_min_percent
    budget_milli = suppress.be_cpu_budget(min_percent=minimum, **terms)
    raised = budget_milli > suppress.be_cpu_budget(**terms)
    return budget_milli, {
        **terms,
        **({} if minimum is None else {"min_percent": minimum}),
        **({"raised_to_milli": budget_milli} if raised else {}),
    }


def _owed(snapshot: NodeSnapshot, config: Config, memory: SuppressMemory, followed_milli: int) -> int:
    """CPU time that the limit owes to best effort. Between two ticks it stays: use over some hundredths of a second
    says nothing about the time since the last tick."""
    if snapshot.woken or memory.ticked_at is None:
        return memory.owed_milli_seconds
    present_milli, entitled_milli = _present_and_entitled(snapshot, config, followed_milli)
    allowed, seconds = memory.allowed_since_tick(snapshot.time, present_milli), snapshot.time - memory.ticked_at
    if allowed is None or seconds <= 0:
        return 0
    return suppress.owed_milli_seconds(
        before=memory.owed_milli_seconds,
        entitled_milli=entitled_milli,
        allowed_milli=round(allowed / seconds),
        seconds=seconds,
        capacity_milli=snapshot.node.capacity_milli,
    )


def _present_and_entitled(snapshot: NodeSnapshot, config: Config, followed_milli: int) -> tuple[int, int]:
    """Limit that holds best effort at present, and what would if the limit were where the budget is: in millicores."""
    root = snapshot.cgroups[snapshot.layout.besteffort]
    quota_us = UNLIMITED if root.quota_us is None else root.quota_us
    if not _be_cpus(snapshot):
        return 0, 0
    if _follows_by_quota(snapshot):
        cpus = target = len(_usable(root))
        wanted_us = be_limit.quota_target(budget_milli=followed_milli, current_us=UNLIMITED, capacity_milli=0)
    else:
        cpus, target = len(_present_cpus(snapshot, config)), max(-(-followed_milli // 1000), be_limit.MIN_CPUS)
        target, wanted_us = min(target, len(_be_cpus(snapshot))), None
    present = measured.be_limit_milli(cpus=cpus, quota_us=quota_us, period_us=root.period_us)
    entitled_us = quota_us if wanted_us is None else wanted_us
    return present, measured.be_limit_milli(cpus=target, quota_us=entitled_us, period_us=root.period_us)


def _follows_by_quota(snapshot: Snapshot) -> bool:
    """Tell whether the limit is a quota: by the policy, or beside a set that cannot be any narrower."""
    return snapshot.slo.threshold.cpu_suppress_policy == "cfsQuota" or _follows_waits(snapshot)


def _follows_waits(snapshot: Snapshot) -> bool:
    """Tell whether the limit goes by what services wait: by the policy, or beside a set that cannot be any narrower. A
    quota there for the budget's sake would make services slower than no agent does."""
    policy = snapshot.slo.threshold.cpu_suppress_policy
    return policy == "guided" or (policy != "cfsQuota" and 0 < len(_be_cpus(snapshot)) <= be_limit.MIN_CPUS)


def _remembering(
    snapshot: Snapshot,
    memory: SuppressMemory,
    budget: Budget,
    decisions: Sequence[Decision],
    guidance: Guidance | None = None,
) -> Iterator[Decision]:
    """The decisions with what the next round has to know of all of them: between two ticks only those that shrink are
    carried out, and under the policy cpuset that may be the quota beside the set."""
    limit = next((d.outcome for d in reversed(decisions) if isinstance(d.outcome, CPULimit)), None)
    fell = memory.followed_milli is not None and budget.followed_milli < memory.followed_milli
    spike = fell and any(decision.verdict == "shrink" for decision in decisions)
    ended = memory.allowed_since_tick(snapshot.time, limit.present_milli) if snapshot.woken and limit else None
    remember = SuppressMemory(
        followed_milli=memory.followed_milli if snapshot.woken else budget.followed_milli,
        shrunk_at=snapshot.time if spike else memory.shrunk_at,
        ticked_at=memory.ticked_at if snapshot.woken else snapshot.time,
        limited_at=None if snapshot.woken and ended is None else snapshot.time,
        limit_milli=limit.limit_milli if limit else None,
        allowed_milli_seconds=ended or 0,
        owed_milli_seconds=budget.owed_milli_seconds,
        guidance=guidance or Guidance(),
    )
    for number, decision in enumerate(decisions):
        limits = number == 0 or isinstance(decision.outcome, CPULimit)
        yield msgspec.structs.replace(decision, remember=remember) if limits else decision


def _limit(
    snapshot: Snapshot, budget: Budget, *, cpus: tuple[int, int], quotas_us: tuple[int, int], by_quota: bool
) -> CPULimit:
    """The result for so many CPUs and such a quota, each at present and as decided; -1 is no quota."""
    period = snapshot.cgroups[snapshot.layout.besteffort].period_us
    present, decided = (
        measured.be_limit_milli(cpus=count, quota_us=quota, period_us=period)
        for count, quota in zip(cpus, quotas_us, strict=True)
    )
    return CPULimit(
        budget_milli=budget.milli,
        present_milli=present,
        limit_milli=decided,
        by_quota=by_quota,
        owed_milli_seconds=budget.owed_milli_seconds,
    )


def _by_cpuset(snapshot: Snapshot, config: Config, evidence: Evidence, budget: Budget) -> Decision:
    present = _present_cpus(snapshot, config)
    cpus = group_files.pod_cpus(snapshot)
    target = be_limit.be_cpuset(
        count=be_limit.cpu_target(
            budget_milli=budget.limit_milli,
            present=len(present),
            cpus=len(cpus),
            owed_milli_seconds=budget.owed_milli_seconds,
        ),
        cpus=cpus,
        lsr=cpuset.union(pod.resource_status.cpuset for pod in snapshot.pods if pod.raw_qos is QoSClass.LSR),
        forbidden=_forbidden(snapshot),
        current=present,
    )
    evidence = {**evidence, "present_cpus": len(present), "target_cpus": len(target), "cpuset": str(target)}
    if budget.limit_milli <= (be_limit.MIN_CPUS - 1) * 1000:
        evidence["least_cpus"] = be_limit.MIN_CPUS
    quota = snapshot.cgroups[snapshot.layout.besteffort].quota_us
    quota = UNLIMITED if quota is None else quota
    counts = (len(present), len(target))
    limit = _limit(snapshot, budget, cpus=counts, quotas_us=(quota, quota), by_quota=False)
    verdict: Verdict = "shrink" if len(target) < len(present) else "grow" if len(target) > len(present) else "set"
    changes = _set_changes(snapshot, config, target)
    return Decision("besteffort", verdict if changes else "hold", "BECPUBudget", evidence, changes, outcome=limit)


def _least(snapshot: NodeSnapshot, evidence: Evidence, budget: Budget) -> Decision:
    """No CPU may be given to best effort, and an empty set is no set: it keeps its set, and almost no time on it."""
    root = snapshot.cgroups[snapshot.layout.besteffort]
    evidence = {**evidence, "forbidden": str(_forbidden(snapshot)), "cpuset": str(_usable(root))}
    if root.quota_us is None:
        return Decision("besteffort", "skip", "NoQuotaFile", evidence)
    least, count = be_limit.MIN_QUOTA_US, len(_usable(root))
    limit = _limit(snapshot, budget, cpus=(count, count), quotas_us=(root.quota_us, least), by_quota=True)
    evidence["quota_us"] = least
    if root.quota_us == least:
        return Decision("besteffort", "hold", "NoCPULeftForBestEffort", evidence, outcome=limit)
    changes = (CgroupChange(snapshot.layout.besteffort, "cpu.quota", least), *_quotas_below(snapshot, least))
    return Decision("besteffort", "shrink", "NoCPULeftForBestEffort", evidence, changes, outcome=limit)


def _forbidden(snapshot: Snapshot) -> CPUSet:
    """Reserved CPUs, CPUs of SYSTEM pods alone, of LSE pods, and those a pod has alone from kubelet or by Crane's
    annotations."""
    return cpuset.union([_owned(snapshot), snapshot.system_qos.exclusive_cpus, snapshot.reserved.cpus])


@derived
def _owned(snapshot: Snapshot) -> CPUSet:
    lse = [pod.resource_status.cpuset for pod in snapshot.pods if pod.raw_qos is QoSClass.LSE]
    return cpuset.union([*lse, snapshot.crane.owned, *(each.cpus for each in snapshot.kubelet.pod_cpus)])


@derived
def _be_cpus(snapshot: Snapshot) -> CPUSet:
    """CPUs of best effort when nothing limits it."""
    return be_limit.be_full_set(
        cpus=group_files.pod_cpus(snapshot),
        reserved=snapshot.reserved.cpus,
        system_exclusive=snapshot.system_qos.exclusive_cpus,
        lse=_owned(snapshot),
    )


@derived
def _set_changes(snapshot: Snapshot, config: Config, target: CPUSet) -> tuple[CgroupChange, ...]:
    """The groups that differ. Under kubelet's static policy only containers are narrowed."""
    targets = dict.fromkeys(_tree(snapshot), target)
    if snapshot.kubelet.cpu_manager_policy == "static":
        # Kubelet writes its default set into each new container, reserved CPUs and all. On v1 the kernel refuses that
        # where a group above has fewer CPUs, and the container does not start: these keep what kubelet's top group has.
        above = group_files.pod_cpuset(snapshot) if snapshot.layout.version == 1 else _be_cpus(snapshot)
        targets = {group: target if _is_container(snapshot, group) else above for group in targets}
    targets |= {group: promise & target or target for group, promise in _promises(snapshot, config).items()}
    changes = []
    for group, value in targets.items():
        present, parent = snapshot.cgroups[group], group.rpartition("/")[0]
        # On v2 a group whose set is empty follows its parent: nothing to write, and nothing to put back later.
        inherits = snapshot.layout.version == 2 and present.cpuset == cpuset.EMPTY
        if present.cpuset not in (value, None) and not (inherits and targets.get(parent, present.effective) == value):
            changes.append(CgroupChange(group, "cpuset.cpus", value))
    return tuple(changes)


def _promises(snapshot: Snapshot, config: Config) -> dict[str, CPUSet]:
    """CPUs that the scheduler promised to best-effort containers, by group, unless promises are not followed; and what
    is left of the machine to those that ask to be kept off reserved CPUs."""
    crane = snapshot.crane
    unreserved = snapshot.topology.cpuset - crane.reserved
    excluding = crane.excluding if crane.enforced else frozenset()
    groups = {
        group: unreserved
        for uid in excluding & snapshot.places.keys()
        for group in snapshot.places[uid].containers.values()
        if group.startswith(f"{snapshot.layout.besteffort}/") and group in snapshot.cgroups
    }
    groups |= {
        group: pools.promised(pod.resource_status, snapshot.topology.cpus)
        for pod in snapshot.pods
        if config.follow_promises and pod.uid in snapshot.places
        for group in snapshot.places[pod.uid].containers.values()
        if group.startswith(f"{snapshot.layout.besteffort}/") and group in snapshot.cgroups
    }
    return {group: promise for group, promise in groups.items() if promise}


@derived
def _present_cpus(snapshot: Snapshot, config: Config) -> CPUSet:
    """CPUs that best-effort work is held to at present: the set of its group, under the static policy of its
    containers."""
    static = snapshot.kubelet.cpu_manager_policy == "static"
    narrow = _promises(snapshot, config)
    groups = [g for g in _tree(snapshot) if _is_container(snapshot, g) and g not in narrow] if static else []
    # A container that just began may still have every CPU: the narrowest says how far the others have come.
    sets = [_usable(snapshot.cgroups[group]) for group in groups or [snapshot.layout.besteffort]]
    return min(sets, key=len)


def _usable(cgroup: Cgroup) -> CPUSet:
    return cgroup.effective or cgroup.cpuset or cpuset.EMPTY


def _by_quota(snapshot: NodeSnapshot, evidence: Evidence, budget: Budget, reason: str = "BECPUBudget") -> Decision:
    root = snapshot.layout.besteffort
    present = snapshot.cgroups[root].quota_us
    if present is None:
        return Decision("besteffort", "skip", "NoQuotaFile", evidence)
    target = be_limit.quota_target(
        budget_milli=budget.limit_milli,
        current_us=present,
        capacity_milli=snapshot.node.capacity_milli,
        owed_milli_seconds=budget.owed_milli_seconds,
    )
    target = present if target is None else target
    cpus = len(_usable(snapshot.cgroups[root]))
    limit = _limit(snapshot, budget, cpus=(cpus, cpus), quotas_us=(present, target), by_quota=True)
    if target == be_limit.MIN_QUOTA_US:
        evidence = {**evidence, "least_quota_us": target}
    if target == present:
        return Decision("besteffort", "hold", reason, {**evidence, "quota_us": present}, outcome=limit)
    verdict: Verdict = "grow" if present != UNLIMITED and target > present else "shrink"
    evidence = {**evidence, "present_quota_us": present, "quota_us": target}
    changes = (CgroupChange(root, "cpu.quota", target), *_quotas_below(snapshot, target))
    return Decision("besteffort", verdict, reason, evidence, changes, outcome=limit)


_GUIDED = {"calm": "ServicesDoNotWait", "learning": "WaitCauseUnknown", "caused": "ServicesWait"}


def _guided(
    snapshot: NodeSnapshot, config: Config, evidence: Evidence, budget: Budget, services: Mapping[str, Pod]
) -> tuple[Decision, Guidance]:
    """A quota as high as services allow; the formula's when it is not known what they wait."""
    root = snapshot.layout.besteffort
    guidance = recalled(snapshot, NAME, SuppressMemory).guidance
    waits, levels = _current_waits(snapshot, services), _levels(snapshot, services)
    by_objective = {level.uid for level in objective.active(levels, guidance.steering, snapshot.time)}
    if services.keys() - by_objective and not waits:
        # Between two samples of a pod lies a tick or more: at first there is none.
        known_at = snapshot.time if guidance.known_at is None else guidance.known_at
        age = max(0.0, snapshot.time - known_at)
        evidence = {**evidence, "ageSeconds": round(age)}
        guidance = msgspec.structs.replace(guidance, known_at=known_at, kept_since=None)
        if age <= PATIENCE_SECONDS:
            return Decision("besteffort", "hold", "WaitsNotKnownYet", evidence), guidance
        return _by_quota(snapshot, evidence, budget, "NoWaitSignal"), guidance
    group = snapshot.cgroups[root]
    quota_us = UNLIMITED if group.quota_us is None else group.quota_us
    present = measured.be_limit_milli(cpus=len(_usable(group)), quota_us=quota_us, period_us=group.period_us)
    least_milli = be_limit.MIN_QUOTA_US * 1000 // be_limit.PERIOD_US
    # Best effort's part of the CPU time of everybody but each pod; 1 where that is not known.
    usage, parts = snapshot.usage, dict[str, float]()
    if usage.best_effort_cpu is not None and usage.others_milli is not None:
        busy = usage.best_effort_cpu + usage.others_milli
        parts = {
            uid: usage.best_effort_cpu / max(usage.best_effort_cpu, busy - use.cpu, 1)
            for uid, use in usage.pods.items()
        }
    guided = contention.guided(
        [
            Service(uid, wait.share, wait.since, _tolerated_percent(services[uid], config) / 100, parts.get(uid, 1.0))
            for uid, wait in waits.items()
            if wait.until - wait.since >= MIN_WINDOW_SECONDS
            and wait.ran_us + wait.waited_us >= MIN_ACTIVITY * 1e6 * (wait.until - wait.since)
        ],
        guidance,
        time=snapshot.time,
        present_milli=present,
        used_milli=snapshot.usage.best_effort_cpu or 0,
        floor_milli=max(budget.followed_milli, least_milli),
        capacity_milli=snapshot.node.capacity_milli,
        levels=levels,
    )
    steered = guided.objective
    if steered is not None and steered.worst is not None:
        uid = steered.worst.uid
        evidence = {**evidence, "service": services[uid].key, **_objective_evidence(snapshot.objectives[uid])}
    else:
        evidence = {**evidence, "wait_percent": config.wait_percent, **_blame(guided, services, config)}
    # Nothing is owed by a limit that follows services: the formula's is its least.
    target = Budget(budget.milli, guided.limit_milli, 0, 0)
    decision = _by_quota(snapshot, evidence, target, "ServiceObjective" if steered else _GUIDED[guided.verdict])
    if isinstance(decision.outcome, CPULimit):
        evidence = {**decision.evidence, "limit_milli": decision.outcome.limit_milli}
        decision = msgspec.structs.replace(decision, evidence=evidence)
    return decision, guided.guidance


@derived
def _best_effort(snapshot: Snapshot) -> frozenset[str]:
    """Uids of the pods that give way."""
    return frozenset(pod.uid for pod in snapshot.pods if gives_way(snapshot, pod))


@derived
def _services(snapshot: Snapshot) -> dict[str, Pod]:
    """Pods with a cgroup that best effort is to leave alone, by uid."""
    best_effort = _best_effort(snapshot)
    return {pod.uid: pod for pod in snapshot.pods if pod.uid in snapshot.places and pod.uid not in best_effort}


def _current_waits(snapshot: Snapshot, services: Mapping[str, Pod]) -> dict[str, CPUWait]:
    """Waits of services that were measured lately enough to say something about now, by uid."""
    return {
        uid: wait
        for uid, wait in snapshot.cpu_waits.items()
        if uid in services and snapshot.time - wait.until <= STALE_SECONDS
    }


def _tolerated_percent(pod: Pod, config: Config) -> float:
    """Percent by which best effort may lengthen the pod's work."""
    own, _ = pod_overrides.wait_percent(pod)
    return config.wait_percent if own is None else max(own, config.least_wait_percent)


def _levels(snapshot: Snapshot, services: Mapping[str, Pod]) -> list[Level]:
    """Services with an objective that was measured lately enough to say something about now."""
    return [
        Level(uid, goal.value / goal.most, goal.since)
        for uid, goal in snapshot.objectives.items()
        if uid in services and goal.is_current(snapshot.time) and goal.value is not None and goal.most > 0
    ]


def _objective_evidence(goal: Objective) -> Evidence:
    """The objective in words, with the unit of the operator's query; `asked` where bounds have moved it."""
    unit = f" {goal.unit}" if goal.unit else ""
    claim: Evidence = {} if goal.asked == goal.most else {"asked": f"{goal.asked:g}{unit}"}
    value: Evidence = {} if goal.value is None else {"value": f"{goal.value:.4g}{unit}"}
    return {"query": goal.query, "objective": f"{goal.most:g}{unit}", **value, **claim}


def _objectives(snapshot: Snapshot, guidance: Guidance, services: Mapping[str, Pod]) -> Iterator[Decision]:
    """Decisions about what pods ask that cannot be used, and about where each objective stands."""
    yield from _refused_annotations(snapshot)
    ratios = {level.uid: level.ratio for level in _levels(snapshot, services)}
    for uid, goal in snapshot.objectives.items():
        if uid not in services:
            continue
        subject, evidence = f"pod/{services[uid].key}", _objective_evidence(goal)
        if uid not in ratios:
            age: Evidence = {} if goal.value is None else {"ageSeconds": round(snapshot.time - goal.until)}
            yield Decision(subject, "skip", "ObjectiveUnknown", {**evidence, **age, "why": goal.why})
        elif uid in guidance.steering.aside:
            evidence["forSeconds"] = round(snapshot.time - guidance.steering.aside[uid])
            yield Decision(subject, "hold", "NotCausedByBestEffort", evidence)
        else:
            yield Decision(subject, "hold", "ObjectiveMissed" if ratios[uid] > 1 else "ObjectiveMet", evidence)


@derived
def _refused_annotations(snapshot: Snapshot) -> tuple[Decision, ...]:
    best_effort = _best_effort(snapshot)
    wait_percent, objective = pod_overrides.wait_percent, pod_overrides.objective
    return tuple(
        Decision(
            f"pod/{pod.key}",
            "refuse",
            "BadWaitPercent" if read is wait_percent else "BadObjective",
            {"annotation": bad.key, "why": bad.why},
        )
        for pod in snapshot.pods
        if pod.uid not in best_effort
        for read in (wait_percent, objective)
        if (bad := read(pod)[1])
    )


def _blame(guided: Guided, services: Mapping[str, Pod], config: Config) -> Evidence:
    """The service that best effort delays most by what it tolerates, and how much."""
    if guided.worst is None:
        return {}
    worst, own, pod = guided.worst, guided.guidance.own.get(guided.worst.uid), services[guided.worst.uid]
    blame: Evidence = {"service": pod.key, "waited_percent": round(100 * worst.share, 1)}
    tolerated, (claim, _) = _tolerated_percent(pod, config), pod_overrides.wait_percent(pod)
    if claim is not None:
        blame |= {"wait_percent": tolerated} | ({"asked_percent": claim} if claim < tolerated else {})
    if own is not None:
        blame["own_percent"] = round(100 * own, 1)
    if worst.part < 1:
        blame["part_percent"] = round(100 * worst.part, 1)
    return blame | {"slower_percent": round(100 * guided.slower, 1)}


def _quota_beside_set(snapshot: NodeSnapshot, quota: Decision) -> Decision:
    """Set the quota that services ask for beside a set of the least size, under the cpuset policy. It is lifted when
    they leave best effort all of these."""
    allowed, limit = _be_cpus(snapshot), quota.outcome
    numbers = {**quota.evidence, "cpuset": str(allowed)}
    ceiling = contention.ceiling_milli(capacity_milli=snapshot.node.capacity_milli, floor_milli=0)
    is_whole = isinstance(limit, CPULimit) and limit.limit_milli >= min(ceiling, len(allowed) * 1000)
    if not is_whole or not isinstance(limit, CPULimit):
        return msgspec.structs.replace(quota, subject="besteffort/quota", evidence=numbers)
    changes = tuple(change for lifted in _quota_release(snapshot, "SetIsLeast") for change in lifted.changes)
    numbers = {
        name: value for name, value in numbers.items() if name not in ("present_quota_us", "quota_us", "limit_milli")
    }
    evidence = {"budget_milli": max(0, limit.budget_milli), **numbers}
    return Decision("besteffort/quota", "release" if changes else "hold", "SetIsLeast", evidence, changes)


def _quotas_below(snapshot: Snapshot, limit_us: int) -> Iterator[CgroupChange]:
    """v1 refuses a quota that is smaller than one below it: those follow the limit, and get back what they had."""
    if snapshot.layout.version != 1:
        return
    for group in _tree(snapshot)[1:]:
        present = snapshot.cgroups[group].quota_us
        place = cgroup.PLACE.place(group, "cpu.quota")
        mine = place in snapshot.found and snapshot.found[place].strategy == NAME
        # What another strategy wrote is lowered like what kubelet wrote; it raises it again itself.
        original_us = snapshot.found[place].value if mine else present
        if present is None or not isinstance(original_us, int) or original_us == UNLIMITED:
            continue
        target_us = original_us if limit_us == UNLIMITED else min(original_us, limit_us)
        if target_us != present:
            yield CgroupChange(group, "cpu.quota", target_us, gives_back=target_us == original_us)


def _release(snapshot: Snapshot, config: Config, reason: str, evidence: Evidence) -> Decision:
    """Both limits given back: best-effort may use all CPUs that are not exclusive."""
    sets = _full_set(snapshot, config, reason, evidence)
    changes = (*sets.changes, *(c for d in _quota_release(snapshot, reason) for c in d.changes))
    return msgspec.structs.replace(sets, verdict="release" if changes else "hold", changes=changes)


def _full_set(snapshot: Snapshot, config: Config, reason: str, evidence: Evidence) -> Decision:
    allowed = _be_cpus(snapshot)
    changes = _set_changes(snapshot, config, allowed) if allowed else ()
    numbers = {**evidence, "cpuset": str(allowed)}
    return Decision("besteffort/cpuset", "release" if changes else "hold", reason, numbers, changes)


def _quota_release(snapshot: Snapshot, reason: str) -> Iterator[Decision]:
    """Give back what stood there before us; a quota set by others is not ours to lift."""
    group = snapshot.layout.besteffort
    place = cgroup.PLACE.place(group, "cpu.quota")
    original_us = snapshot.found[place].value if place in snapshot.found else UNLIMITED
    present = snapshot.cgroups[group].quota_us
    if place in snapshot.ours and isinstance(original_us, int) and present not in (None, original_us):
        changes = (CgroupChange(group, "cpu.quota", original_us), *_quotas_below(snapshot, original_us))
        yield Decision("besteffort/quota", "release", reason, {"quota_us": original_us}, changes)


@derived
def _tree(snapshot: Snapshot) -> list[str]:
    root = snapshot.layout.besteffort
    below = f"{root}/"
    return [group for group in snapshot.cgroups if group == root or group.startswith(below)]


def _is_container(snapshot: Snapshot, group: str) -> bool:
    """A container's group, or one that a container made in its own."""
    return group.count("/") - snapshot.layout.besteffort.count("/") >= 2
