"""CPU suppression: budget, CPU choice, quota, recovery."""

from __future__ import annotations

from typing import Any

from koordlite.formulas import cpu_select, suppress
from koordlite.model import cpuset, keys, node
from koordlite.model.cpuset import CPUSet
from koordlite.model.qos import KubeQoS, QoSClass
from koordlite.model.slo import HostApplication
from tests.conformance.adapters import adapter, shapes, suppress_rounds


@adapter("cpu_suppress.calculate")
def budget(given: Any, expect: Any) -> tuple[Any, Any]:
    pods = {item["metadata"]["uid"]: shapes.pod_of(item) for item in given["pods"]}
    apps = {a["name"]: a for a in given["hostApplications"]}
    pod_use = {uid: _milli(cores) for uid, cores in given["podCPUUsageCoresByUID"].items()}
    app_use = {name: _milli(cores) for name, cores in given["hostAppCPUUsageCores"].items() if name in apps}
    found = suppress.be_cpu_budget(
        capacity_milli=shapes.node_of(given["node"]).capacity_milli,
        threshold_percent=given["cpuSuppressThresholdPercent"],
        prod_milli=sum(
            u for uid, u in pod_use.items() if uid not in pods or pods[uid].kube_qos is not KubeQoS.BEST_EFFORT
        ),
        host_milli=sum(u for name, u in app_use.items() if not _is_best_effort(apps[name])),
        system_milli=suppress.system_use(
            node_milli=_milli(given["nodeCPUUsageCores"]),
            pods_milli=sum(pod_use.values()),
            host_apps_milli=sum(app_use.values()),
            reserved_milli=0,
        ),
        min_percent=given["cpuSuppressMinPercent"],
    )
    return {"suppressMilliCPU": found}, expect


@adapter("cpu_suppress.cpuset_policy")
def choice(given: Any, expect: Any) -> tuple[Any, Any]:
    found = cpu_select.spread(given["cpus"], shapes.cpus(given["processors"]))
    return list(found), expect["cpuset"] or []


@adapter("cpu_suppress.adjust_by_cpuset")
def by_cpuset(given: Any, expect: Any) -> tuple[Any, Any]:
    if given["kubeletCPUManagerPolicy"] == "static":
        return suppress_rounds.by_static_policy(given), shapes.cpuset(expect["beRootCPUSetFileAfter"])
    cpus, present = shapes.cpus(given["processors"]), shapes.cpuset(given["beRootCPUSetFileBefore"])
    count = suppress.cpu_target(budget_milli=given["suppressMilliCPU"], present=len(present), cpus=len(cpus))
    forbidden = cpuset.union([_pinned(given, QoSClass.LSE), *_reserved_and_system(given)])
    found = cpu_select.be_cpuset(
        count=count, cpus=cpus, lsr=_pinned(given, QoSClass.LSR), forbidden=forbidden, held=present
    )
    return found or present, shapes.cpuset(expect["beRootCPUSetFileAfter"])


@adapter("cpu_suppress.adjust_by_cfs_quota")
def by_quota(given: Any, expect: Any) -> tuple[Any, Any]:
    found = suppress.quota_target(
        budget_milli=given["suppressMilliCPU"],
        current_us=given["beRootQuotaBefore"],
        capacity_milli=given["nodeCapacityCores"] * 1000,
    )
    return given["beRootQuotaBefore"] if found is None else found, expect["beRootQuotaAfter"]


@adapter("cpu_suppress.recover_cpuset")
def full_set(given: Any, expect: Any) -> tuple[Any, Any]:
    reserved, system = _reserved_and_system(given)
    found = cpu_select.be_full_set(
        cpus=shapes.cpus(given["processors"]),
        reserved=reserved,
        system_exclusive=system,
        lse=_pinned(given, QoSClass.LSE),
    )
    return found, shapes.cpuset(expect["beRootCPUSetFileAfter"])


def _pinned(given: Any, qos: QoSClass) -> CPUSet:
    pods = map(shapes.pod_of, given["pods"])
    return cpuset.union(read.resource_status.cpuset for read in pods if read.raw_qos is qos)


def _reserved_and_system(given: Any) -> tuple[CPUSet, CPUSet]:
    notes = given["nodeResourceTopologyAnnotations"] or {}
    written = shapes.reservation(notes)
    system = node.parse_system_qos(notes.get(keys.SYSTEM_QOS), "node")
    reserved = written.reserved_cpus if written and written.reserved_cpus else CPUSet()
    return reserved, system.cpuset if system.exclusive else CPUSet()


def _is_best_effort(app: Any) -> bool:
    base = (app.get("cgroupPath") or {}).get("base", "")
    return HostApplication(name=app["name"], qos=QoSClass.of_label(app.get("qos")), base=base).is_best_effort


def _milli(cores: float) -> int:
    return int(cores * 1000)
