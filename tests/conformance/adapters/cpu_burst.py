"""CPU burst: node state, quotas, kernel burst, tokens, annotations, and whole rounds."""

from __future__ import annotations

from typing import Any

import msgspec

from koordlite import changes
from koordlite.formulas.cpu import burst
from koordlite.model.cpuset import EMPTY
from koordlite.model.picture.groups import Cgroup, Original, PodGroups
from koordlite.model.picture.usage import Usage, Use
from koordlite.model.pod.qos import QoSClass
from koordlite.model.pod.values import ContainerInfo, Pod
from koordlite.model.reading.declared import settings
from koordlite.model.slo import pod_overrides
from koordlite.model.slo.settings import SLO, CPUBurst
from koordlite.model.snapshot import Snapshot
from koordlite.model.topology import CPU, Topology
from koordlite.strategies import cpu_burst
from tests.conformance.adapters import adapter, shapes

_STATES = {"idle": 0, "cooling": 950, "overload": 1000}


@adapter("cpu_burst.quota_burst")
def quotas(given: Any, expect: Any) -> tuple[Any, Any]:
    pod = _pod("p", QoSClass.LS, given["containers"])
    seen = _snapshot(
        [pod],
        settings=_settings(given["burstConfig"], share_pool_threshold_percent=100),
        quotas={"p": given["podQuotaBefore"], **given["containerQuotaBefore"]},
        throttled=given["containerThrottledRatioLast"],
        used={name: int(cores * 1000) for name, cores in _told(given["containerCPUUsageCores"]).items()},
        node_milli=_STATES.get(given["nodeState"]),
    )
    after = _after(seen, "cpu.quota")
    names = given["containerQuotaBefore"]
    return {"podQuota": after["p"], "containerQuota": {name: after.get(f"p/{name}") for name in names}}, expect


@adapter("MilliCPUToQuota")
def quota_of(given: Any, expect: Any) -> tuple[Any, Any]:
    return {"cfsQuota": burst.base_quota(limit_milli=given["milliCPU"])}, expect


@adapter("cpu_burst.cfs_burst")
def kernel_burst(given: Any, expect: Any) -> tuple[Any, Any]:
    """On Anolis, which takes a burst above the quota: the kernel Koordinator is made for."""
    pod = _pod("p", QoSClass.LS, given["containers"])
    # A percentage that is not set is none, as long as no defaults were filled in.
    values = _settings({"cpuBurstPercent": 0} | {n: v for n, v in given["burstConfig"].items() if v is not None})
    quotas = {c.name: burst.base_quota(limit_milli=_limit(c)) for c in pod.containers}
    seen = _snapshot([pod], settings=values, quotas={"p": burst.pod_quota(quotas.values()), **quotas})
    after = _after(seen, "cpu.burst")
    return {
        "podBurstUs": after["p"],
        "containerBurstUs": {c.name: after[f"p/{c.name}"] for c in pod.containers},
    }, expect


@adapter("cpu_burst.node_state")
def state(given: Any, expect: Any) -> tuple[Any, Any]:
    # The state is asked for only where a pod could burst.
    pods = [_pod("any", QoSClass.LS, {}), *(shapes.pod_of(item) for item in given["pods"] or ())]
    threshold = given.get("sharePoolThresholdPercent")
    seen = _snapshot(
        pods,
        settings=CPUBurst(policy="auto", **({} if threshold is None else {"share_pool_threshold_percent": threshold})),
        quotas={},
        cpus=given["numCPUs"] or 0,
        node_milli=_milli(given.get("nodeCPUUsageCoresAvg")),
        pods_milli=given["podCPUUsageCoresAvg"],
    )
    (decision,) = [d for d in cpu_burst.decide(seen, cpu_burst.Config()) if d.reason == "SharedCPUState"]
    return {"state": decision.evidence["state"]}, expect


@adapter("cpu_burst.limiter_allow")
def tokens(given: Any, expect: Any) -> tuple[Any, Any]:
    most = burst.capacity(period_seconds=given["burstPeriodSeconds"], percent=given["maxScalePercent"])
    held = burst.Tokens(int(most * given["initTokenRatioOfCapacity"]), most, given["burstPeriodSeconds"], 0.0)
    left = burst.spend(held, usage_percent=given["usagePercentOfLimit"], now=float(given["elapsedSeconds"]))
    return {"allowed": left.allowed, "token": left.left}, expect


@adapter("cpu_burst.limiter_capacity")
def capacity(given: Any, expect: Any) -> tuple[Any, Any]:
    most = burst.capacity(period_seconds=given["burstPeriodSeconds"], percent=given["maxScalePercent"])
    return {"capacity": most}, expect


@adapter("cpu_burst.limiter_expire")
def expiry(given: Any, expect: Any) -> tuple[Any, Any]:
    period = given["burstPeriodSeconds"]
    idle = given["idleSecondsByLimiter"]
    kept = [name for name, seconds in idle.items() if not burst.expired(burst.Tokens(0, 0, period, 0.0), seconds)]
    return {"remaining": sorted(kept)}, {"remaining": sorted(expect["remaining"])}


@adapter("cpu_burst.merge_config")
def merged(given: Any, expect: Any) -> tuple[Any, Any]:
    pod = Pod(namespace="n", name="p", uid="p", annotations=given["podAnnotation"] or {})
    found, _ = pod_overrides.cpu_burst(pod, _settings(given["nodeConfig"]))
    # What nobody set is nothing there, and the default here.
    wanted = {name: value for name, value in (expect["config"] or {}).items() if value is not None}
    return {"config": {name: _shown(found, name) for name in wanted}}, {"config": wanted}


@adapter("cpu_burst.reconcile")
def rounds(given: Any, expect: Any) -> tuple[Any, Any]:
    pods = [shapes.pod_of(item) for item in given["pods"] or ()]
    seen = _snapshot(
        [msgspec.structs.replace(pod, containers=tuple(map(_running, pod.containers))) for pod in pods],
        settings=_settings(given["cpuBurstStrategy"]),
        quotas={**(given["podQuotaBefore"] or {}), **(given["containerQuotaBefore"] or {})},
        throttled=given["containerThrottledRatioLast"],
        cpus=given["numCPUs"] or 0,
        node_milli=_milli(given["nodeCPUUsageCoresAvg"]),
        pods_milli=given["podCPUUsageCoresAvg"],
        burst_us=given["burstUsBefore"],
    )
    quota, bursts = _after(seen, "cpu.quota"), _after(seen, "cpu.burst")
    groups = {c.name: f"{pod.uid}/{c.name}" for pod in pods for c in pod.containers}
    uids = [pod.uid for pod in pods]
    return {
        "podBurstUs": {uid: bursts.get(uid) for uid in uids},
        "podQuota": {uid: quota.get(uid) for uid in uids},
        "containerBurstUs": {name: bursts.get(group) for name, group in groups.items()},
        "containerQuota": {name: quota.get(group) for name, group in groups.items()},
    }, expect


def _snapshot(
    pods: list[Pod],
    *,
    settings: CPUBurst,
    quotas: dict[str, int],
    throttled: dict[str, float] | None = None,
    used: dict[str, int] | None = None,
    node_milli: int | None = 0,
    pods_milli: dict[str, float] | None = None,
    cpus: int = 1,
    burst_us: int = 0,
) -> Snapshot:
    """A node on which this strategy has written before: every quota is ours, found as the limit says."""
    groups = {f"{pod.uid}/{c.name}": c for pod in pods for c in pod.containers}
    by_container = {c.name: group for group, c in groups.items()}
    values = {"cpu.burst": burst_us, "cpu.bvt_warp_ns": 0}
    present = {by_container.get(name, name): quota for name, quota in quotas.items()}
    cgroups = {group: Cgroup(quota_us=quota, values=values) for group, quota in present.items()}
    bases = {group: burst.base_quota(limit_milli=_limit(c)) for group, c in groups.items()}
    bases |= {p.uid: burst.pod_quota([bases[f"{p.uid}/{c.name}"] for c in p.containers]) for p in pods}
    found = {
        changes.parse(f"{group}/cpu.quota"): Original(bases.get(group, quota), cpu_burst.NAME)
        for group, quota in present.items()
    }
    window = Usage(
        None if node_milli is None else Use(node_milli, 0),
        {uid: Use(_milli(cores), 0) for uid, cores in _told(pods_milli).items()},
        {},
    )
    last = Usage(
        window.node,
        {},
        {},
        containers={by_container[name]: milli for name, milli in (used or {}).items() if name in by_container},
        throttled={by_container[name]: ratio for name, ratio in _told(throttled).items() if name in by_container},
    )
    return shapes.snapshot(
        slo=SLO(cpu_burst=settings),
        topology=Topology(tuple(CPU(i, i, 0, 0) for i in range(cpus)), ()),
        pods=tuple(pods),
        places={p.uid: PodGroups(p.uid, {c.name: f"{p.uid}/{c.name}" for c in p.containers}) for p in pods},
        cgroups={"kubepods": Cgroup(cpuset=EMPTY, values=values), **cgroups},
        usage=last,
        average=window,
        ours=frozenset(found),
        found=found,
        windows={cpu_burst.WINDOW_SECONDS: window},
    )


def _after(seen: Snapshot, field: str) -> dict[str, Any]:
    """What every group holds after the round."""
    held = {g: c.quota_us if field == "cpu.quota" else c.values[field] for g, c in seen.cgroups.items()}
    changes = [c for d in cpu_burst.decide(seen, cpu_burst.Config()) for c in d.changes]
    return {**held, **{c.group: c.value for c in changes if c.field == field}}  # type: ignore[union-attr]


def _settings(written: Any, **more: Any) -> CPUBurst:
    known = settings(CPUBurst)
    given = {known[name].attribute: value for name, value in (written or {}).items() if value is not None}
    return CPUBurst(**{**given, **more})


def _shown(found: CPUBurst, name: str) -> Any:
    return getattr(found, settings(CPUBurst)[name].attribute)


def _pod(uid: str, qos: QoSClass, containers: Any) -> Pod:
    made = [
        ContainerInfo(name, name, True, shapes.quantities(c.get("requests")), shapes.quantities(c.get("limits")))
        for name, c in containers.items()
    ]
    return Pod(namespace="n", name=uid, uid=uid, raw_qos=qos, containers=tuple(made))


def _running(container: ContainerInfo) -> ContainerInfo:
    return msgspec.structs.replace(container, running=True)


def _told(amounts: Any) -> dict[str, Any]:
    """What has no sample is not told of."""
    return {name: amount for name, amount in (amounts or {}).items() if amount is not None}


def _limit(container: ContainerInfo) -> int:
    return container.limits["cpu"].milli if "cpu" in container.limits else 0


def _milli(cores: float | None) -> int | None:
    return None if cores is None else int(cores * 1000)
