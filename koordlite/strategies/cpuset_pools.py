"""Keep each pod on its CPUs: pinned pods on theirs, latency-sensitive ones in the shared pool, none on reserved ones.

Host applications of class LS share the pool too. Best-effort containers are steered by `cpu_suppress`; their pool is
published here. Rules: Koordinator `calcNodeTopo` and `cpusetRule.getContainerCPUSet` (docs/formulas.md, "Pools").
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from koordlite.changes.cgroup import CgroupChange
from koordlite.changes.published import TopologyChange
from koordlite.formulas.cpu import pools
from koordlite.formulas.topology import topology_diff
from koordlite.model import cpuset, keys, nrt
from koordlite.model.change import Change
from koordlite.model.decision import Decision
from koordlite.model.picture.groups import Cgroup, PodGroups
from koordlite.model.pod.qos import KubeQoS, QoSClass
from koordlite.model.pod.values import Pod, ResourceStatus
from koordlite.model.settings import StrategySettings, bounded
from koordlite.model.slo.settings import HostApplication
from koordlite.model.snapshot import Snapshot
from koordlite.numa.koordinator import assignments
from koordlite.strategies.shared import affinity, group_files

UNLIMITED = -1
NAME = "cpusetPools"
ALIASES = ("pools",)
OVERVIEW = ("CPUs shared", "pools")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config(StrategySettings):
    """Section `cpusetPools`."""

    unset_pinned_quota: bool = True
    """Lift the CPU quota of pods with pinned CPUs, so that they can use those CPUs whole."""
    pool_floor_percent: float = bounded(50.0, ge=0, le=100)
    """Percent of the CPUs that are not reserved which latency-sensitive pods keep to share, or as many as they request
    where that is more. CPUs that a pod's annotation names beyond that are refused. 0: there is no floor."""


def decide(snapshot: Snapshot, config: Config) -> Iterator[Decision]:
    """Decide about the pools, each active pod outside the besteffort group, and each host application."""
    ls_pools, be_pools = affinity.shared_pools(snapshot)
    elsewhere = affinity.placed(snapshot) if snapshot.affinity.enforced else {}
    texts = {keys.LS_SHARED_POOLS: _text(ls_pools), keys.BE_SHARED_POOLS: _text(be_pools)}
    published = snapshot.published.topology
    stale = {k: t for k, t in texts.items() if snapshot.node and not topology_diff.same_text(published.get(k), t)}
    changes = tuple(TopologyChange(key, text) for key, text in stale.items())
    evidence = {
        "ls_pool": str(pools.joined(ls_pools)),
        "be_pool": str(pools.joined(be_pools)),
        "reserved": str(snapshot.reserved.cpus),
    }
    yield Decision("pools", "set" if changes else "hold", "SharedPools", evidence, changes)
    for pod in snapshot.pods:
        place = snapshot.places.get(pod.uid)
        if not (place or pod.resource_status.why) or not pod.active:
            continue
        if place and snapshot.crane.explains(pod.uid, NAME) and pod.kube_qos is not KubeQoS.BEST_EFFORT:
            decision = _quotas_only(snapshot, config, pod, place, "PlacedByCrane")
            if decision.changes or pod.resource_status.why or pod.uid not in snapshot.crane.promises:
                yield decision
        elif place and pod.uid in elsewhere:
            yield _quotas_only(snapshot, config, pod, place, "PlacedByAffinity")
        elif place and pod.kube_qos is not KubeQoS.BEST_EFFORT:
            yield _pod(snapshot, config, pod, place, ls_pools)
        elif pod.resource_status.why:
            evidence = {"qos": str(pod.qos_class), **_disputed(pod.resource_status)}
            yield Decision(f"pod/{pod.key}", "refuse", "AssignmentRefused", evidence)
    yield from (_host(snapshot, app, ls_pools) for app in snapshot.slo.host_applications)
    # Groups of applications that are not in the pool any more get back what was found.
    ours = {place.part("cgroup") for place, original in snapshot.found.items() if original.strategy == NAME}
    of_hosts = {snapshot.host_groups.get(app.name) for app in snapshot.slo.host_applications if app.qos is QoSClass.LS}
    of_pods = {group for place in snapshot.places.values() for group in place.all}
    for change in group_files.releases(snapshot, NAME, ("cpuset.cpus",), groups=sorted(ours - of_hosts - of_pods)):
        yield Decision(f"host/{change.group}", "release", "HostLeftPool", {"cpuset": str(change.value)}, (change,))


def _text(entries: Iterable[pools.Pool]) -> str:
    return nrt.encode([nrt.pool(entry.socket, entry.node, entry.cpuset) for entry in entries])


def _pod(snapshot: Snapshot, config: Config, pod: Pod, place: PodGroups, ls_pools: pools.Pools) -> Decision:
    subject, status = f"pod/{pod.key}", pod.resource_status
    # CPUs that no annotation of Koordinator can give the pod: those of the system, and those that other pods have from
    # kubelet, maybe since its set was found, or by Crane's annotations.
    exclusive = cpuset.union(each.cpus for each in snapshot.kubelet.pod_cpus if each.uid != pod.uid)
    withheld = snapshot.reserved.cpus | snapshot.system_qos.exclusive_cpus | snapshot.crane.owned | exclusive
    on_reserved = status.cpuset & withheld if status.cpuset else cpuset.EMPTY
    status = assignments.without(status, on_reserved)
    target = pools.container_cpuset(
        qos=pod.raw_qos,
        status=status,
        best_effort_cgroup=False,
        ls_pools=ls_pools,
        be_pools=(),
        system_qos=snapshot.system_qos,
        kubelet_policy=snapshot.kubelet.cpu_manager_policy,
    )
    quotas = tuple(_quotas(snapshot, config, pod, place, status))
    if target is None:
        return _without_set(snapshot, pod, place, quotas, _disputed(status))
    usable = target & group_files.pod_cpuset(snapshot)
    evidence = {"qos": str(pod.qos_class), "cpuset": str(usable), **_disputed(status)}
    if status.cpuset:
        missing = {"absent": target - group_files.pod_cpuset(snapshot), "on_reserved": on_reserved}
        evidence |= {name: str(cpus) for name, cpus in missing.items() if cpus}
    if not usable:
        return Decision(subject, "refuse", "PinnedCPUsNotOnline", {**evidence, "promised": str(target)}, quotas)
    # CPUs of the pod's containers that a DRA driver places.
    claims = (each.containers for each in snapshot.kubelet.pod_cpus if each.claimed and each.uid == pod.uid)
    claimed = next(claims, {})
    if claimed:
        evidence["resource_claims"] = ", ".join(f"{name}: {cpus or 'unknown'}" for name, cpus in claimed.items())
    groups = [group for group in place.inside if group not in {place.containers.get(name) for name in claimed}]
    changes = (*group_files.set_changes(snapshot, dict.fromkeys(groups, usable)), *quotas)
    reason = "PinnedCPUs" if status.cpuset else "SharedPool"
    return Decision(subject, "set" if changes else "hold", reason, evidence, changes)


def _quotas_only(snapshot: Snapshot, config: Config, pod: Pod, place: PodGroups, reason: str) -> Decision:
    """Another strategy writes the sets of this pod; a quota that was lifted comes back."""
    quotas = tuple(_quotas(snapshot, config, pod, place, ResourceStatus()))
    evidence = {"qos": str(pod.qos_class), **_disputed(pod.resource_status)}
    return Decision(f"pod/{pod.key}", "release" if quotas else "hold", reason, evidence, quotas)


def _disputed(status: ResourceStatus) -> dict[str, str]:
    """Explain an assignment that does not hold, on its own pod and on the one that has the CPUs."""
    texts = {"refused": str(status.refused)[:200], "why": status.why, "also_named_by": ", ".join(status.rivals)}
    return {name: text for name, text in texts.items() if text}


def _without_set(
    snapshot: Snapshot, pod: Pod, place: PodGroups, quotas: tuple[Change, ...], disputed: dict[str, str]
) -> Decision:
    """Kubelet's static policy owns the set, or the rule leaves no CPU at all."""
    if snapshot.kubelet.cpu_manager_policy == "static":
        sets = group_files.releases(snapshot, NAME, ("cpuset.cpus",), uid=pod.uid, groups=place.inside)
        changes = (*sets, *quotas)
        evidence = {"qos": str(pod.qos_class), **disputed}
        return Decision(f"pod/{pod.key}", "release" if changes else "hold", "KubeletStaticPolicy", evidence, changes)
    evidence = {"qos": str(pod.qos_class), "reserved": str(snapshot.reserved.cpus), **disputed}
    return Decision(f"pod/{pod.key}", "release" if quotas else "hold", "EmptyPool", evidence, quotas)


def _quotas(snapshot: Snapshot, config: Config, pod: Pod, place: PodGroups, status: ResourceStatus) -> Iterator[Change]:
    """Lifted while the pod has CPUs of its own. When it has them no more, what stood there before our first write comes
    back; a quota that others have set since then stays."""
    limit_milli = assignments.cpu_limit_milli(pod) if status.cpuset else None
    lifted = pools.lifts_quota(status, limit_milli=limit_milli, enabled=config.unset_pinned_quota)
    for group in (place.group, *place.containers.values()):
        present_us = snapshot.cgroups.get(group, Cgroup()).quota_us
        original = group_files.original(snapshot, NAME, group, "cpu.quota")
        if lifted and present_us not in (None, UNLIMITED):
            yield CgroupChange(group, "cpu.quota", UNLIMITED)
        elif not lifted and original is not None and group in snapshot.cgroups:
            value = original if present_us is None or present_us == UNLIMITED else present_us
            yield CgroupChange(group, "cpu.quota", value, gives_back=True)


def _host(snapshot: Snapshot, app: HostApplication, ls_pools: pools.Pools) -> Decision:
    subject, group = f"host/{app.name}", snapshot.host_groups.get(app.name, "")
    if app.qos is not QoSClass.LS:
        return Decision(subject, "hold", "HostClassHasNoPool", {"qos": str(app.qos)})
    target = pools.host_cpuset(app.qos, ls_pools)
    cgroup = snapshot.cgroups.get(group)
    if cgroup is None or cgroup.cpuset is None:
        return Decision(subject, "skip", "NoHostGroup", {"group": group})
    evidence = {"qos": str(app.qos), "cpuset": str(target)}
    if not target:
        return Decision(subject, "hold", "EmptyPool", {"qos": str(app.qos), "reserved": str(snapshot.reserved.cpus)})
    changes = tuple(group_files.set_changes(snapshot, {group: target}))
    return Decision(subject, "set" if changes else "hold", "SharedPool", evidence, changes)
