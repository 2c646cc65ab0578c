"""CPU suppression by whole rounds: the strategy on a picture made from a case, and what then stands in the files."""

from __future__ import annotations

import dataclasses
from typing import Any

from koordlite.formulas import suppress
from koordlite.model import keys, node
from koordlite.model.cpuset import CPUSet
from koordlite.model.decision import CgroupChange
from koordlite.model.node import ResolvedReservation, SystemQoS
from koordlite.model.qos import PriorityClass
from koordlite.model.slo import SLO, Threshold
from koordlite.model.snapshot import Cgroup, Kubelet, Layout, Place, Published, Resctrl, Snapshot, Usage, Use
from koordlite.model.topology import Topology
from koordlite.strategies import cpu_suppress
from tests.conformance.adapters import adapter, shapes

BE = "kubepods/besteffort"
UNLIMITED = -1
LAYOUT = Layout(1, "cgroupfs", "kubepods", "kubepods/burstable", BE)


@adapter("cpu_suppress.reconcile")
def reconcile(given: Any, expect: Any) -> tuple[Any, Any]:
    gates = given["featureGates"]
    seen = _picture(given)
    config = cpu_suppress.Config(follow_promises=gates["BECPUManager"])
    after = _after(seen, config)
    root = after[BE]
    full = shapes.cpuset(given["nodeRootCPUSet"])
    found: dict[str, Any] = {
        "beRootQuotaAfter": root.quota_us,
        "beRootCPUSetAfter": root.cpuset,
        "cfsQuotaPolicyStatus": "recovered" if root.quota_us == UNLIMITED else "using",
        "cpusetPolicyStatus": "recovered" if root.cpuset == full else "using",
    }
    if "containerCPUSetAfter" in expect:
        groups = {name: group for place in seen.places.values() for name, group in place.containers.items()}
        found["containerCPUSetAfter"] = {name: after[groups[name]].cpuset for name in expect["containerCPUSetAfter"]}
    wanted = {name: _read(name, value) for name, value in expect.items() if name in found}
    return found, wanted


@adapter("cpu_suppress.recover_cfs_quota")
def quota(given: Any, expect: Any) -> tuple[Any, Any]:
    """A quota that was recovered already is nobody's any more; any other counts as set by the one agent there is."""
    before, status = given["beRootQuotaBefore"], given["policyStatusBefore"]
    groups = {BE: Cgroup(CPUSet([0]), CPUSet([0]), before)}
    ours = frozenset() if status == "recovered" else frozenset({f"{BE}/cpu.quota"})
    seen = _snapshot(cgroups=groups, ours=ours, slo=SLO(threshold=Threshold(enable=False)))
    found = _after(seen, cpu_suppress.Config())[BE].quota_us
    return found, expect["beRootQuotaAfter"]


@adapter("helpers.calculate_filter_pods_used")
def parts(given: Any, expect: Any) -> tuple[Any, Any]:
    """Whole CPUs as they are: the sums know no unit."""
    pods = {item["metadata"]["uid"]: shapes.pod_of(item) for item in given["pods"]}
    used, hosts = given["podUsedByUID"], given["hostAppUsed"]
    apps = [app for app in given["hostApplications"] if app["name"] in hosts]
    keeps = FILTERS[given["podFilter"]]
    keeps_app = HOST_FILTERS[given["hostAppFilter"]]
    found = {
        "podFilteredUsed": sum(use for uid, use in used.items() if uid not in pods or keeps(pods[uid])),
        "hostAppFilteredUsed": sum(hosts[app["name"]] for app in apps if keeps_app(app)),
        "systemUsed": suppress.system_use(
            node_milli=given["nodeUsed"],
            pods_milli=sum(used.values()),
            host_apps_milli=sum(hosts[app["name"]] for app in apps),
            reserved_milli=given["nodeReserved"],
        ),
    }
    return found, expect


def by_static_policy(given: Any) -> CPUSet:
    """What the besteffort group holds after a round under kubelet's static policy."""
    seen = _snapshot(
        topology=Topology(tuple(shapes.cpus(given["processors"])), ()),
        pods=tuple(map(shapes.pod_of, given["pods"])),
        cgroups={BE: _group(given["beRootCPUSetFileBefore"], UNLIMITED)},
        kubelet=Kubelet(cpu_manager_policy="static"),
        **_notes(given),
    )
    found = _after(seen, cpu_suppress.Config())[BE].cpuset
    assert found is not None
    return found


def _picture(given: Any) -> Snapshot:
    """The picture of a round: every group of best effort holds the same set before it."""
    pods = tuple(map(shapes.pod_of, given["pods"]))
    before, quota_before = given["beRootPodContainerCPUSetBefore"], given["beRootQuotaBefore"]
    places = {
        pod.uid: Place(f"{BE}/{pod.uid}", {c.id: f"{BE}/{pod.uid}/{n}" for n, c in enumerate(pod.containers)})
        for pod in pods
        if pod.kube_qos.value == "BestEffort"
    }
    below = [group for place in places.values() for group in (place.group, *place.containers.values())]
    groups = {BE: _group(before, quota_before)} | {group: _group(before, UNLIMITED) for group in below}
    used = {uid: Use(int(cores * 1000), 0) for uid, cores in given["podCPUUsageCores"].items()}
    strategy = given["thresholdStrategy"]
    threshold = Threshold(
        enable=strategy["enable"],
        cpu_suppress_threshold_percent=strategy["cpuSuppressThresholdPercent"],
        cpu_suppress_policy=strategy["cpuSuppressPolicy"],
        cpu_suppress_min_percent=strategy.get("cpuSuppressMinPercent"),
    )
    return _snapshot(
        node=shapes.node_of(given["node"]),
        slo=SLO(threshold=threshold),
        topology=Topology(tuple(shapes.cpus(given["processors"])), ()),
        pods=pods,
        places=places,
        cgroups=groups,
        usage=Usage(Use(int(given["nodeCPUUsageCores"] * 1000), 0), used, {}),
        ours=frozenset({f"{BE}/cpu.quota"}),
        **_notes(given),
    )


def _notes(given: Any) -> dict[str, Any]:
    notes = given["nodeResourceTopologyAnnotations"] or {}
    written = shapes.reservation(notes)
    listed = written.reserved_cpus if written and written.reserved_cpus else CPUSet()
    return {
        "reserved": ResolvedReservation(listed),
        "system_qos": node.parse_system_qos(notes.get(keys.SYSTEM_QOS), "node"),
    }


def _group(text: str, quota_us: int) -> Cgroup:
    cpus = shapes.cpuset(text)
    return Cgroup(cpus, cpus, quota_us)


def _snapshot(**given: Any) -> Snapshot:
    empty: dict[str, Any] = {
        "time": 0.0,
        "taken_at": "",
        "node": None,
        "slo": SLO(),
        "topology": Topology((), ()),
        "reserved": ResolvedReservation(),
        "system_qos": SystemQoS(),
        "kubelet": Kubelet(),
        "layout": LAYOUT,
        "pods": (),
        "places": {},
        "usage": Usage(None, {}, {}),
        "average": Usage(None, {}, {}),
        "resctrl": Resctrl(absent="not asked for"),
        "published": Published({}, {}),
    }
    return Snapshot(**{**empty, **given})


def _after(seen: Snapshot, config: cpu_suppress.Config) -> dict[str, Cgroup]:
    """The groups with every change in force."""
    groups = dict(seen.cgroups)
    for decision in cpu_suppress.decide(seen, config):
        for change in decision.changes:
            assert isinstance(change, CgroupChange)
            field = "cpuset" if isinstance(change.value, CPUSet) else "quota_us"
            groups[change.group] = dataclasses.replace(groups[change.group], **{field: change.value})
    return groups


def _read(name: str, value: Any) -> Any:
    if name == "containerCPUSetAfter":
        return {container: shapes.cpuset(text) for container, text in value.items()}
    return shapes.cpuset(value) if name == "beRootCPUSetAfter" else value


FILTERS: dict[str, Any] = {
    "NonePodHighPriority": lambda pod: False,
    "NotBatchOrFreePodFilter": lambda pod: pod.priority_class not in (PriorityClass.BATCH, PriorityClass.FREE),
    "NonBEPodFilter": lambda pod: not pod.is_best_effort,
}
HOST_FILTERS: dict[str, Any] = {
    "NoneHostAppHighPriority": lambda app: False,
    "NonBEHostAppFilter": lambda app: (
        app.get("qos") != "BE" or (app.get("cgroupPath") or {}).get("base") != "KubepodsBesteffort"
    ),
}
