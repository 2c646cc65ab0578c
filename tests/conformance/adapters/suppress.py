"""CPU suppression: budget, CPU choice, quota, recovery."""

from __future__ import annotations

from typing import Any

from koordlite.formulas.cpu import be_limit, suppress
from koordlite.model import cpuset
from koordlite.model.cpuset import CPUSet
from koordlite.model.errors import InputError
from koordlite.model.pod.qos import KubeQoS, QoSClass
from tests.conformance.adapters import adapter, shapes, suppress_rounds


@adapter("cpu_suppress.calculate")
def budget(given: Any, expect: Any) -> tuple[Any, Any]:
    """Cores are added up as they are, and each sum becomes millicores once."""
    seen, apps = shapes.node_of(given["node"]), given.get("hostApplications") or []
    used = suppress_rounds.use_by_part(
        node=given["nodeCPUUsageCores"],
        reserved=suppress_rounds.reserved_milli(seen) / 1000,
        pods=given.get("podCPUUsageCoresByUID") or {},
        protected=_protected(given.get("pods") or []),
        hosts=suppress_rounds.known_hosts(apps, given.get("hostAppCPUUsageCores")),
        protected_hosts={app["name"] for app in apps if not suppress_rounds.application(app).is_best_effort},
    )
    pods, hosts, system = (int(cores * 1000) for cores in used)
    found = suppress.be_cpu_budget(
        capacity_milli=seen.capacity_milli,
        threshold_percent=given["cpuSuppressThresholdPercent"],
        prod_milli=pods,
        host_milli=hosts,
        system_milli=system,
        min_percent=given.get("cpuSuppressMinPercent"),
    )
    return {"suppressMilliCPU": found}, expect


@adapter("cpu_suppress.cpuset_policy")
def choice(given: Any, expect: Any) -> tuple[Any, Any]:
    found = be_limit.spread(given["cpus"], shapes.cpus(given["processors"]))
    return list(found), expect["cpuset"] or []


@adapter("cpu_suppress.adjust_by_cpuset")
def by_cpuset(given: Any, expect: Any) -> tuple[Any, Any]:
    wanted = shapes.cpuset(expect["beRootCPUSetFileAfter"])
    try:
        return _by_cpuset(given), wanted
    except InputError:
        return "refused", wanted


def _by_cpuset(given: Any) -> CPUSet:
    if given.get("kubeletCPUManagerPolicy") == "static":
        return suppress_rounds.by_static_policy(given)
    cpus, present = shapes.cpus(given["processors"] or []), shapes.cpuset(given["beRootCPUSetFileBefore"])
    count = be_limit.cpu_target(budget_milli=given["suppressMilliCPU"], present=len(present), cpus=len(cpus))
    forbidden = cpuset.union([_pinned(given, QoSClass.LSE), *_reserved_and_system(given)])
    found = be_limit.be_cpuset(
        count=count, cpus=cpus, lsr=_pinned(given, QoSClass.LSR), forbidden=forbidden, current=present
    )
    return found or present


@adapter("cpu_suppress.adjust_by_cfs_quota")
def by_quota(given: Any, expect: Any) -> tuple[Any, Any]:
    found = be_limit.quota_target(
        budget_milli=given["suppressMilliCPU"],
        current_us=given["beRootQuotaBefore"],
        capacity_milli=int(given["nodeCapacityCores"] * 1000),
    )
    return given["beRootQuotaBefore"] if found is None else found, expect["beRootQuotaAfter"]


@adapter("cpu_suppress.recover_cpuset")
def full_set(given: Any, expect: Any) -> tuple[Any, Any]:
    wanted = shapes.cpuset(expect["beRootCPUSetFileAfter"])
    try:
        return _full_set(given), wanted
    except InputError:
        return "refused", wanted


def _full_set(given: Any) -> CPUSet:
    reserved, system = _reserved_and_system(given)
    found = be_limit.be_full_set(
        cpus=shapes.cpus(given["processors"] or []),
        reserved=reserved,
        system_exclusive=system,
        lse=_pinned(given, QoSClass.LSE),
    )
    return found or shapes.cpuset(given["beRootCPUSetFileBefore"])


def _protected(pods: Any) -> dict[str, bool]:
    """Whether each pod is outside the besteffort group, by uid."""
    read = map(shapes.pod_of, pods)
    return {pod.uid: pod.kube_qos is not KubeQoS.BEST_EFFORT for pod in read}


def _pinned(given: Any, qos: QoSClass) -> CPUSet:
    pods = map(shapes.pod_of, given.get("pods") or [])
    return cpuset.union(read.resource_status.cpuset for read in pods if read.raw_qos is qos)


def _reserved_and_system(given: Any) -> tuple[CPUSet, CPUSet]:
    notes = suppress_rounds.notes(given)
    return notes["reserved"].cpus, notes["system_qos"].exclusive_cpus
