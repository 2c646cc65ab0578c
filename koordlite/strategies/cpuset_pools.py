"""Keep everybody on his CPUs: pinned pods on theirs, latency-sensitive ones in the shared pool, none on reserved ones.

Best-effort containers are steered by `cpu_suppress`; their pool is published here. Rules: Koordinator `calcNodeTopo`
and `cpusetRule.getContainerCPUSet` (docs/formulas.md, "Pools").
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from koordlite.formulas import pools
from koordlite.model import cpuset, keys, nrt
from koordlite.model.cpuset import CPUSet
from koordlite.model.decision import CgroupChange, Change, Decision, TopologyChange
from koordlite.model.pod import Pod
from koordlite.model.qos import KubeQoS
from koordlite.model.settings import StrategySettings
from koordlite.model.snapshot import Place, Snapshot

UNLIMITED = -1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config(StrategySettings):
    """Section `cpusetPools`."""

    unset_pinned_quota: bool = True
    """Lift the CPU quota of pods with pinned CPUs, so that they can use those CPUs whole."""


def decide(seen: Snapshot, config: Config) -> Iterator[Decision]:
    """One decision for the pools, one for each active pod outside the besteffort group."""
    ls_pools, be_pools = _pools(seen)
    yield _publish(seen, ls_pools, be_pools)
    for pod in seen.pods:
        place = seen.places.get(pod.uid)
        if pod.active and place and pod.kube_qos is not KubeQoS.BEST_EFFORT:
            yield _pod(seen, config, pod, place, ls_pools)


def _pools(seen: Snapshot) -> tuple[pools.Pools, pools.Pools]:
    return pools.shared_pools(
        cpus=seen.topology.cpus,
        exclusive=cpuset.union(held.cpus for held in seen.kubelet.pod_cpus),
        pinned=[(pod.raw_qos, pod.resource_status.cpuset) for pod in seen.pods if pod.resource_status.cpuset],
        reserved=seen.reserved.cpus,
        system_exclusive=seen.system_qos.cpuset if seen.system_qos.exclusive else cpuset.EMPTY,
    )


def _publish(seen: Snapshot, ls_pools: pools.Pools, be_pools: pools.Pools) -> Decision:
    texts = {keys.LS_SHARED_POOLS: _text(ls_pools), keys.BE_SHARED_POOLS: _text(be_pools)}
    changes = tuple(TopologyChange(k, text) for k, text in texts.items() if seen.published.topology.get(k) != text)
    evidence = {
        "ls_pool": str(pools.joined(ls_pools)),
        "be_pool": str(pools.joined(be_pools)),
        "reserved": str(seen.reserved.cpus),
    }
    return Decision("pools", "set" if changes else "hold", "SharedPools", evidence, changes)


def _text(entries: Iterable[pools.Pool]) -> str:
    return nrt.encode_pools(nrt.pool(entry.socket, entry.node, entry.cpuset) for entry in entries)


def _pod(seen: Snapshot, config: Config, pod: Pod, place: Place, ls_pools: pools.Pools) -> Decision:
    subject = f"pod/{pod.key}"
    wanted = pools.container_cpuset(
        qos=pod.raw_qos,
        status=pod.resource_status,
        best_effort_cgroup=False,
        ls_pools=ls_pools,
        be_pools=(),
        system_qos=seen.system_qos,
        kubelet_policy=seen.kubelet.cpu_manager_policy,
    )
    if wanted is None:
        return _left_alone(seen, subject, pod)
    usable = wanted & seen.topology.cpuset
    evidence = {"qos": str(pod.qos_class), "cpuset": str(usable)}
    if not usable:
        return Decision(subject, "refuse", "PinnedCPUsNotOnline", {**evidence, "promised": str(wanted)})
    pinned = bool(pod.resource_status.cpuset)
    changes = [*_sets(seen, place, usable), *(_quotas(seen, place) if pinned and config.unset_pinned_quota else ())]
    reason = "PinnedCPUs" if pinned else "SharedPool"
    return Decision(subject, "set" if changes else "hold", reason, evidence, tuple(changes))


def _left_alone(seen: Snapshot, subject: str, pod: Pod) -> Decision:
    """Kubelet's static policy owns the set, or the rule leaves no CPU at all."""
    if seen.kubelet.cpu_manager_policy == "static":
        return Decision(subject, "hold", "KubeletStaticPolicy", {"qos": str(pod.qos_class)})
    return Decision(subject, "hold", "EmptyPool", {"qos": str(pod.qos_class), "reserved": str(seen.reserved.cpus)})


def _sets(seen: Snapshot, place: Place, wanted: CPUSet) -> Iterator[Change]:
    for group in (*place.containers.values(), *place.sandboxes):
        cgroup = seen.cgroups.get(group)
        if cgroup and cgroup.cpuset not in (None, wanted):
            yield CgroupChange(group, "cpuset.cpus", wanted)


def _quotas(seen: Snapshot, place: Place) -> Iterator[Change]:
    for group in (place.group, *place.containers.values()):
        cgroup = seen.cgroups.get(group)
        if cgroup and cgroup.quota_us not in (None, UNLIMITED):
            yield CgroupChange(group, "cpu.quota", UNLIMITED)
