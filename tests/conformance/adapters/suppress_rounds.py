"""CPU suppression by whole rounds: the strategy on a picture made from a case, and what then stands in the files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from koordlite import changes
from koordlite.changes.cgroup import CgroupChange
from koordlite.formulas.allocatable import reservation
from koordlite.formulas.cpu import suppress
from koordlite.model import keys, node
from koordlite.model.cpuset import CPUSet
from koordlite.model.decision import Decision
from koordlite.model.node import ResolvedReservation
from koordlite.model.picture.groups import Cgroup, PodGroups
from koordlite.model.picture.kubelet import Kubelet
from koordlite.model.picture.usage import Usage, Use
from koordlite.model.pod.qos import PriorityClass, QoSClass, raw_priority_class
from koordlite.model.slo.settings import SLO, HostApplication, Threshold
from koordlite.model.snapshot import Snapshot
from koordlite.model.topology import Topology
from koordlite.strategies import cpu_suppress, discover
from tests.conformance.adapters import NotCovered, adapter, shapes

BE = "kubepods/besteffort"
UNLIMITED = -1
RULE = next(rule for rule in discover() if rule.module == "cpu_suppress")
UNJUDGED = ("NoMetrics", "NoNode")


@adapter("cpu_suppress.reconcile")
def reconcile(given: Any, expect: Any) -> tuple[Any, Any]:
    seen = _picture(given)
    config = cpu_suppress.Config(follow_promises=bool((given.get("featureGates") or {}).get("BECPUManager")))
    decisions = list(RULE.answer(seen, config))
    after = _after(seen, decisions)
    limits = {name for decision in decisions for name in ("quota_us", "target_cpus") if _limits(decision, name)}
    found: dict[str, Any] = {
        "beRootQuotaAfter": after[BE].quota_us,
        "beRootCPUSetAfter": after[BE].cpuset,
        "cfsQuotaPolicyStatus": "using" if "quota_us" in limits else "recovered",
        "cpusetPolicyStatus": "using" if "target_cpus" in limits else "recovered",
    }
    if "containerCPUSetAfter" in expect:
        groups = {name: group for place in seen.places.values() for name, group in place.containers.items()}
        listed = [name for name in expect["containerCPUSetAfter"] if name in groups]
        found["containerCPUSetAfter"] = {name: after[groups[name]].cpuset for name in listed}
    if any(decision.reason in UNJUDGED for decision in decisions):  # Then no policy is in force, nor was one given up.
        found = {name: value for name, value in found.items() if not name.endswith("PolicyStatus")}
    wanted = {name: _read(name, value) for name, value in expect.items() if name in found}
    return found, wanted


def _limits(decision: Decision, evidence: str) -> bool:
    return decision.reason == "BECPUBudget" and evidence in decision.evidence


@adapter("cpu_suppress.recover_cfs_quota")
def quota(given: Any, expect: Any) -> tuple[Any, Any]:
    """A quota that was recovered already is nobody's any more; any other counts as set by the one agent there is."""
    before, status = given["beRootQuotaBefore"], given.get("policyStatusBefore")
    groups = {BE: Cgroup(CPUSet([0]), CPUSet([0]), before)}
    ours = frozenset() if status == "recovered" else frozenset({changes.parse(f"{BE}/cpu.quota")})
    seen = shapes.snapshot(cgroups=groups, ours=ours, slo=SLO(threshold=Threshold(enable=False)))
    found = _after(seen, RULE.answer(seen, cpu_suppress.Config()))[BE].quota_us
    return found, expect["beRootQuotaAfter"]


@adapter("helpers.calculate_filter_pods_used")
def parts(given: Any, expect: Any) -> tuple[Any, Any]:
    """Whole CPUs as they are: the sums know no unit."""
    if given["podFilter"] not in FILTERS or given["hostAppFilter"] not in HOST_FILTERS:
        raise NotCovered
    keeps, keeps_app = FILTERS[given["podFilter"]], HOST_FILTERS[given["hostAppFilter"]]
    read, apps = map(shapes.pod_of, given.get("pods") or []), given.get("hostApplications") or []
    found = use_by_part(
        node=given["nodeUsed"],
        reserved=given["nodeReserved"],
        pods=given.get("podUsedByUID") or {},
        protected={pod.uid: keeps(pod) for pod in read},
        hosts=known_hosts(apps, given.get("hostAppUsed")),
        protected_hosts={app["name"] for app in apps if keeps_app(application(app))},
    )
    return dict(zip(("podFilteredUsed", "hostAppFilteredUsed", "systemUsed"), found, strict=True)), expect


def use_by_part(
    *,
    node: Any,
    reserved: Any,
    pods: dict[str, Any],
    protected: dict[str, bool],
    hosts: dict[str, Any],
    protected_hosts: set[str],
) -> tuple[Any, Any, Any]:
    """Use of protected pods (unknown ones are), of protected applications, and of everything that is neither."""
    return (
        sum(use for uid, use in pods.items() if protected.get(uid, True)),
        sum(use for name, use in hosts.items() if name in protected_hosts),
        suppress.system_use(
            node_milli=node,
            pods_milli=sum(pods.values()),
            host_apps_milli=sum(hosts.values()),
            reserved_milli=reserved,
        ),
    )


def known_hosts(apps: Any, used: Any) -> dict[str, Any]:
    """Use of the applications that are configured."""
    return {app["name"]: used[app["name"]] for app in apps if app["name"] in (used or {})}


def application(given: Any) -> HostApplication:
    """A host application as the ConfigMap writes it."""
    return HostApplication(
        name=given["name"],
        priority=raw_priority_class(given.get("priority"), None),
        qos=QoSClass.of_label(given.get("qos")),
        base=(given.get("cgroupPath") or {}).get("base", ""),
    )


def reserved_milli(seen: node.Node) -> int:
    """CPU that kubelet or the annotation keeps back."""
    by_kubelet = reservation.from_kubelet(capacity=seen.capacity, allocatable=seen.allocatable)
    kept = reservation.larger(by_kubelet, shapes.written_reservation(seen))
    return kept["cpu"].milli if "cpu" in kept else 0


def by_static_policy(given: Any) -> CPUSet:
    """What the besteffort group holds after a round under kubelet's static policy."""
    seen = shapes.snapshot(
        topology=Topology(tuple(shapes.cpus(given["processors"])), ()),
        pods=tuple(map(shapes.pod_of, given.get("pods") or [])),
        cgroups={BE: _group(given["beRootCPUSetFileBefore"], UNLIMITED)},
        kubelet=Kubelet(cpu_manager_policy="static"),
        **notes(given),
    )
    found = _after(seen, RULE.answer(seen, cpu_suppress.Config()))[BE].cpuset
    assert found is not None
    return found


@adapter("cpu_suppress.apply_static", "cpu_suppress.apply_none")
def applied(given: Any, expect: Any) -> tuple[Any, Any]:
    """The sets of the QoS group, a pod and a container once a target is in force; the order is the plan's business."""
    target, before = CPUSet(given["targetBECPUs"]), given["oldFileContentAllLevels"]
    groups = {"beRootCPUSet": BE, "podCPUSet": f"{BE}/pod1", "containerCPUSet": f"{BE}/pod1/main"}
    seen = shapes.snapshot(
        topology=Topology(tuple(shapes.cpus(given.get("processors") or [])), ()),
        cgroups={group: _group(before, UNLIMITED) for group in groups.values()},
        kubelet=Kubelet(cpu_manager_policy=given["kubeletCPUManagerPolicy"]),
    )
    written = {c.group: c.value for c in cpu_suppress._set_changes(seen, cpu_suppress.Config(), target)}
    found = {name: str(written.get(group, shapes.cpuset(before))) for name, group in groups.items() if name in expect}
    return found, {name: expect[name] for name in found}


def _picture(given: Any) -> Snapshot:
    """The picture of a round: every group of best effort holds the same set before it."""
    pods = tuple(map(shapes.pod_of, given.get("pods") or []))
    before, quota_before = given["beRootPodContainerCPUSetBefore"], given["beRootQuotaBefore"]
    places = {
        pod.uid: PodGroups(f"{BE}/{pod.uid}", {c.id: f"{BE}/{pod.uid}/{n}" for n, c in enumerate(pod.containers)})
        for pod in pods
        if pod.kube_qos.value == "BestEffort"
    }
    below = [group for place in places.values() for group in (place.group, *place.containers.values())]
    groups = {BE: _group(before, quota_before)} | {group: _group(before, UNLIMITED) for group in below}
    apps = given.get("hostApplications") or []
    return shapes.snapshot(
        node=shapes.node_of(given["node"]),
        slo=SLO(threshold=_threshold(given), host_applications=tuple(map(application, apps))),
        topology=Topology(tuple(shapes.cpus(given["processors"])), ()),
        pods=pods,
        places=places,
        cgroups=groups,
        usage=Usage(
            _uses({"node": given.get("nodeCPUUsageCores")}).get("node"),
            _uses(given.get("podCPUUsageCores") or {}),
            _uses(known_hosts(apps, given.get("hostAppCPUUsageCores"))),
        ),
        ours=frozenset({changes.parse(f"{BE}/cpu.quota")}),
        **notes(given),
    )


def _threshold(given: Any) -> Threshold:
    """The settings, with our defaults for what is not written."""
    written = given.get("thresholdStrategy") or {}
    names = {
        "enable": "enable",
        "cpu_suppress_threshold_percent": "cpuSuppressThresholdPercent",
        "cpu_suppress_policy": "cpuSuppressPolicy",
        "cpu_suppress_min_percent": "cpuSuppressMinPercent",
    }
    return Threshold(**{ours: written[name] for ours, name in names.items() if written.get(name) is not None})


def _uses(cores: dict[str, float]) -> dict[str, Use]:
    return {name: Use(int(used * 1000), 0) for name, used in cores.items() if used is not None}


def notes(given: Any) -> dict[str, Any]:
    """What is kept back by the annotations of the topology and of the node; InputError when one cannot be read."""
    written = given.get("nodeResourceTopologyAnnotations") or {}
    kept = shapes.reservation(written)
    listed = kept.reserved_cpus if kept and kept.reserved_cpus else CPUSet()
    return {
        "reserved": ResolvedReservation(listed, shapes.written_reservation(shapes.node_of(given.get("node")))),
        "system_qos": node.parse_system_qos(written.get(keys.SYSTEM_QOS), "node"),
    }


def _group(text: str, quota_us: int) -> Cgroup:
    cpus = shapes.cpuset(text)
    return Cgroup(cpus, cpus, quota_us)


def _after(seen: Snapshot, decisions: Iterable[Decision]) -> dict[str, Cgroup]:
    """The groups with every change in force."""
    groups = dict(seen.cgroups)
    for decision in decisions:
        for change in decision.changes:
            assert isinstance(change, CgroupChange)
            field = "cpuset" if isinstance(change.value, CPUSet) else "quota_us"
            groups[change.group] = msgspec.structs.replace(groups[change.group], **{field: change.value})
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
    "NotBatchOrFreeHostAppFilter": lambda app: app.priority not in (PriorityClass.BATCH, PriorityClass.FREE),
    "NonBEHostAppFilter": lambda app: not app.is_best_effort,
}
