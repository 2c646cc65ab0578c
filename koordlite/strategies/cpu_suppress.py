"""Hold best-effort pods inside the CPU that everything else leaves free: by cpuset or by quota.

The formula is `formulas.suppress.be_cpu_budget`. This file decides what follows from it: which CPUs or how much quota,
when to wait, and when to give everything back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from koordlite.formulas import cpu_select, pools, reservation, suppress
from koordlite.model import cpuset
from koordlite.model.cpuset import CPUSet
from koordlite.model.decision import CgroupChange, Decision, Verdict
from koordlite.model.qos import QoSClass
from koordlite.model.settings import StrategySettings, bounded
from koordlite.model.snapshot import Cgroup, Snapshot

UNLIMITED = -1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config(StrategySettings):
    """Section `cpuSuppress`. Thresholds and policy come from the ConfigMap key `resource-threshold-config`."""

    grow_dead_band_milli: int = bounded(250, ge=0, le=1000)
    """Millicores by which the budget must exceed the CPUs best-effort holds before it gets one more (cpuset policy)."""
    hold_seconds: float = bounded(60.0, ge=0)
    """How long the last limit stays when usage is unknown; after that best-effort is released."""
    follow_promises: bool = False
    """Keep best-effort containers on the CPUs or NUMA nodes that the scheduler promised to their pods, as far as these
    are among the CPUs of best effort. Koordinator's gate BECPUManager, which gives up the limit for it."""


def decide(seen: Snapshot, config: Config) -> Iterator[Decision]:
    """One decision by the policy in force, and one for the other policy if it left something behind."""
    if seen.layout.besteffort not in seen.cgroups:
        yield Decision("besteffort", "skip", "NoBestEffortGroup", {"group": seen.layout.besteffort})
        return
    stop = _why_not(seen, config)
    if stop:
        yield stop
        return
    evidence = _budget(seen)
    if seen.slo.threshold.cpu_suppress_policy == "cfsQuota":
        yield _by_quota(seen, evidence)
        yield _full_set(seen, config, "PolicyIsQuota", {})
    else:
        yield _by_cpuset(seen, config, evidence)
        yield from _quota_release(seen, "PolicyIsCPUSet")


def _why_not(seen: Snapshot, config: Config) -> Decision | None:
    """The reason to release or hold instead of judging, if there is one."""
    if not seen.slo.threshold.enable:
        return _release(seen, config, "Disabled", {})
    if seen.node is None or not seen.node.capacity_milli:
        return Decision("besteffort", "skip", "NoNode")
    if seen.usage.node is None:
        age = seen.ages.get("usage", 0.0)
        if age > config.hold_seconds:
            return _release(
                seen, config, "NoMetricsReleased", {"ageSeconds": round(age), "holdSeconds": config.hold_seconds}
            )
        return Decision("besteffort", "hold", "NoMetrics", {"ageSeconds": round(age)})
    return None


def _budget(seen: Snapshot) -> dict[str, int | float | str]:
    """The terms of the formula and its result, in millicores, under the formula's names."""
    assert seen.node is not None and seen.usage.node is not None
    best_effort = {pod.uid for pod in seen.pods if pod.is_best_effort}
    hosts = seen.slo.host_applications
    prod = sum(use.cpu for uid, use in seen.usage.pods.items() if uid not in best_effort)
    host = sum(
        seen.usage.host_apps[a.name].cpu for a in hosts if a.name in seen.usage.host_apps and not a.is_best_effort
    )
    capacity, threshold = seen.node.capacity_milli, seen.slo.threshold
    system = suppress.system_use(
        node_milli=seen.usage.node.cpu,
        pods_milli=sum(use.cpu for use in seen.usage.pods.values()),
        host_apps_milli=sum(use.cpu for use in seen.usage.host_apps.values()),
        reserved_milli=_reserved_milli(seen),
    )
    budget = suppress.be_cpu_budget(
        capacity_milli=capacity,
        threshold_percent=threshold.cpu_suppress_threshold_percent,
        prod_milli=prod,
        host_milli=host,
        system_milli=system,
        min_percent=threshold.cpu_suppress_min_percent,
    )
    return {
        "capacity_milli": capacity,
        "threshold_percent": threshold.cpu_suppress_threshold_percent,
        "prod_milli": prod,
        "host_milli": host,
        "system_milli": system,
        **({} if threshold.cpu_suppress_min_percent is None else {"min_percent": threshold.cpu_suppress_min_percent}),
        "budget_milli": budget,
    }


def _reserved_milli(seen: Snapshot) -> int:
    """CPU kept back by kubelet or by the annotation, whichever is more."""
    assert seen.node is not None
    by_kubelet = reservation.from_kubelet(
        capacity=seen.node.capacity, allocatable=seen.notes.kubelet_allocatable(seen.node)
    )
    kept = reservation.larger(by_kubelet, seen.reserved.resources)
    return kept["cpu"].milli if "cpu" in kept else 0


def _by_cpuset(seen: Snapshot, config: Config, evidence: dict[str, int | float | str]) -> Decision:
    present = _held(seen, config)
    forbidden = _forbidden(seen)
    budget = int(evidence["budget_milli"])
    wanted = suppress.cpu_target(budget_milli=budget, present=len(present), cpus=len(seen.topology.cpus))
    legal = not present & forbidden and present <= seen.topology.cpuset
    # The band calms growth by budget; the floor under which nobody is held is not the budget's.
    calm = wanted > len(present) >= suppress.MIN_CPUS and budget <= len(present) * 1000 + config.grow_dead_band_milli
    if legal and present and (wanted == len(present) or calm):
        target = present
    else:
        lsr = cpuset.union(pod.resource_status.cpuset for pod in seen.pods if pod.raw_qos is QoSClass.LSR)
        target = cpu_select.be_cpuset(count=wanted, cpus=seen.topology.cpus, lsr=lsr, forbidden=forbidden)
    evidence = {**evidence, "present_cpus": len(present), "target_cpus": len(target), "cpuset": str(target)}
    if not target:
        return Decision("besteffort", "hold", "NoCPULeftForBestEffort", {**evidence, "forbidden": str(forbidden)})
    verdict: Verdict = "shrink" if len(target) < len(present) else "grow" if len(target) > len(present) else "set"
    changes = _set_changes(seen, config, target)
    return Decision("besteffort", verdict if changes else "hold", "BECPUBudget", evidence, changes)


def _set_changes(seen: Snapshot, config: Config, target: CPUSet) -> tuple[CgroupChange, ...]:
    """The groups that differ. Under kubelet's static policy pods keep the full set and only containers are narrowed."""
    full = _allowed(seen) if seen.kubelet.cpu_manager_policy == "static" else target
    wanted = {group: target if _is_container(seen, group) else full for group in _tree(seen)}
    wanted |= {group: promise & target or target for group, promise in _promises(seen, config).items()}
    return tuple(
        CgroupChange(group, "cpuset.cpus", value)
        for group, value in wanted.items()
        if seen.cgroups[group].cpuset not in (value, None) and not _inherits(seen, group, wanted)
    )


def _inherits(seen: Snapshot, group: str, wanted: Mapping[str, CPUSet]) -> bool:
    """On v2 a group whose set is empty follows its parent: nothing to write, and nothing to put back later."""
    if seen.layout.version != 2 or seen.cgroups[group].cpuset != cpuset.EMPTY:
        return False
    parent = group.rpartition("/")[0]
    return wanted.get(parent, seen.cgroups[group].effective) == wanted[group]


def _promises(seen: Snapshot, config: Config) -> dict[str, CPUSet]:
    """What the scheduler promised to best-effort containers, by group; nothing unless promises are followed."""
    groups = {
        group: pools.promised(pod.resource_status, seen.topology.cpus)
        for pod in seen.pods
        if config.follow_promises and pod.uid in seen.places
        for group in seen.places[pod.uid].containers.values()
        if group.startswith(f"{seen.layout.besteffort}/") and group in seen.cgroups
    }
    return {group: promise for group, promise in groups.items() if promise}


def _held(seen: Snapshot, config: Config) -> CPUSet:
    """What best-effort work is held to at present: the set of its group, under the static policy of its containers."""
    static = seen.kubelet.cpu_manager_policy == "static"
    narrow = _promises(seen, config)
    groups = [g for g in _tree(seen) if _is_container(seen, g) and g not in narrow] if static else []
    # A container that just began may still have every CPU: the narrowest says how far the others have come.
    sets = [_usable(seen.cgroups[group]) for group in groups or [seen.layout.besteffort]]
    return min(sets, key=len)


def _usable(cgroup: Cgroup) -> CPUSet:
    return cgroup.effective or cgroup.cpuset or cpuset.EMPTY


def _by_quota(seen: Snapshot, evidence: dict[str, int | float | str]) -> Decision:
    assert seen.node is not None
    root = seen.layout.besteffort
    present = seen.cgroups[root].quota_us
    if present is None:
        return Decision("besteffort", "skip", "NoQuotaFile", evidence)
    target = suppress.quota_target(
        budget_milli=int(evidence["budget_milli"]), current_us=present, capacity_milli=seen.node.capacity_milli
    )
    if target is None or target == present:
        return Decision("besteffort", "hold", "BECPUBudget", {**evidence, "quota_us": present})
    verdict: Verdict = "grow" if present != UNLIMITED and target > present else "shrink"
    evidence = {**evidence, "present_quota_us": present, "quota_us": target}
    changes = (CgroupChange(root, "cpu.quota", target), *_quotas_below(seen, target))
    return Decision("besteffort", verdict, "BECPUBudget", evidence, changes)


def _quotas_below(seen: Snapshot, limit_us: int) -> Iterator[CgroupChange]:
    """v1 refuses a quota that is smaller than one below it: those follow the limit, and get back what they had."""
    if seen.layout.version != 1:
        return
    for group in _tree(seen)[1:]:
        present = seen.cgroups[group].quota_us
        place = CgroupChange(group, "cpu.quota", UNLIMITED).place
        found = seen.found[place].value if place in seen.found else present
        if present is None or not isinstance(found, int) or found == UNLIMITED:
            continue
        wanted = found if limit_us == UNLIMITED else min(found, limit_us)
        if wanted != present:
            yield CgroupChange(group, "cpu.quota", wanted, gives_back=wanted == found)


def _release(seen: Snapshot, config: Config, reason: str, evidence: dict[str, int | float | str]) -> Decision:
    """Both limits given back: best-effort may use all CPUs that nobody has for himself."""
    sets = _full_set(seen, config, reason, evidence)
    changes = (*sets.changes, *(c for d in _quota_release(seen, reason) for c in d.changes))
    return dataclasses.replace(sets, verdict="release" if changes else "hold", changes=changes)


def _full_set(seen: Snapshot, config: Config, reason: str, evidence: dict[str, int | float | str]) -> Decision:
    allowed = _allowed(seen)
    changes = _set_changes(seen, config, allowed) if allowed else ()
    numbers = {**evidence, "cpuset": str(allowed)}
    return Decision("besteffort/cpuset", "release" if changes else "hold", reason, numbers, changes)


def _quota_release(seen: Snapshot, reason: str) -> Iterator[Decision]:
    """Give back what stood there before us; a quota somebody else set is not ours to lift."""
    group = seen.layout.besteffort
    place = f"{group}/cpu.quota"
    found = seen.found[place].value if place in seen.found else UNLIMITED
    present = seen.cgroups[group].quota_us
    if place in seen.ours and isinstance(found, int) and present not in (None, found):
        changes = (CgroupChange(group, "cpu.quota", found), *_quotas_below(seen, found))
        yield Decision("besteffort/quota", "release", reason, {"quota_us": found}, changes)


def _forbidden(seen: Snapshot) -> CPUSet:
    """Reserved CPUs, CPUs of SYSTEM pods alone, CPUs of LSE pods, CPUs kubelet gave to a pod exclusively."""
    return cpuset.union([_owned(seen), seen.system_qos.exclusive_cpus, seen.reserved.cpus])


def _owned(seen: Snapshot) -> CPUSet:
    lse = [pod.resource_status.cpuset for pod in seen.pods if pod.raw_qos is QoSClass.LSE]
    return cpuset.union([*lse, *(held.cpus for held in seen.kubelet.pod_cpus)])


def _allowed(seen: Snapshot) -> CPUSet:
    return cpu_select.be_full_set(
        cpus=seen.topology.cpus,
        reserved=seen.reserved.cpus,
        system_exclusive=seen.system_qos.exclusive_cpus,
        lse=_owned(seen),
    )


def _tree(seen: Snapshot) -> list[str]:
    root = seen.layout.besteffort
    return [group for group in seen.cgroups if group == root or group.startswith(f"{root}/")]


def _is_container(seen: Snapshot, group: str) -> bool:
    """A container's group, or one that a container made in its own."""
    return group.count("/") - seen.layout.besteffort.count("/") >= 2
