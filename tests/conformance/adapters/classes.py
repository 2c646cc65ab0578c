"""QoS classes, priority bands, and what a class means for a container's cpuset."""

from __future__ import annotations

from typing import Any

from koordlite.formulas import pools, reservation
from koordlite.model import keys, node, pod, qos
from koordlite.model.cpuset import EMPTY, CPUSet, union
from koordlite.model.errors import InputError
from tests.conformance.adapters import NotCovered, adapter, shapes


@adapter("GetPodQoSClassRaw")
def raw_qos(given: Any, expect: Any) -> tuple[Any, Any]:
    return shapes.pod_of(given.get("pod")).raw_qos.value, expect


@adapter("GetPodPriorityClassRaw")
def raw_priority(given: Any, expect: Any) -> tuple[Any, Any]:
    read = shapes.pod_of(given.get("pod"))
    return qos.raw_priority_class(read.labels.get(keys.PRIORITY_CLASS), read.priority).value, expect


@adapter("GetPodPriorityClassWithDefault")
def priority(given: Any, expect: Any) -> tuple[Any, Any]:
    if given.get("pod") is None:
        raise NotCovered
    return shapes.pod_of(given["pod"]).priority_class.value, expect


@adapter("GetKubeQosClass")
def kube_qos(given: Any, expect: Any) -> tuple[Any, Any]:
    return shapes.pod_of(given["pod"]).kube_qos.value, expect


@adapter("getContainerCPUSet")
def container_cpuset(given: Any, expect: Any) -> tuple[Any, Any]:
    # No rule yet and no pools have the same answer: nothing to join.
    rule, request = given.get("rule") or {}, given["request"]
    try:
        status = pod.parse_resource_status(request.get("PodAnnotations", {}).get(keys.RESOURCE_STATUS, "{}"))
    except ValueError:
        return {"error": True}, expect
    found = pools.container_cpuset(
        qos=qos.QoSClass.of_label(request.get("PodLabels", {}).get(keys.QOS_CLASS)),
        status=status,
        best_effort_cgroup="besteffort" in request.get("CgroupParent", ""),
        ls_pools=_pools(rule.get("sharePools")),
        be_pools=_pools(rule.get("beSharePools")),
        system_qos=node.SystemQoS(shapes.cpuset(rule.get("systemQOSCPUSet"))),
        kubelet_policy=_policy(rule.get("kubeletPolicy")),
        be_cpu_manager=bool(request.get("beCPUManager")),
    )
    wanted = expect.get("cpuset") if isinstance(expect, dict) else expect
    # "" is written by nobody, so it is our "leave alone"; an unordered join is the same set.
    return found, _joined(wanted) if wanted else None


@adapter("reportNodeTopology")
def shared_pools(given: Any, expect: Any) -> tuple[Any, Any]:
    notes, cpus = given.get("nodeAnnotations") or {}, shapes.cpus(given["cpus"])
    try:
        written = shapes.reservation(notes)
        system = node.parse_system_qos(notes.get(keys.SYSTEM_QOS), "node")
    except InputError:
        raise NotCovered from None
    if "cpu-shared-pools" not in expect:
        raise NotCovered
    ls, be = pools.shared_pools(
        cpus=cpus,
        exclusive=_given_by_kubelet(expect),
        pinned=[(read.raw_qos, read.resource_status.cpuset) for read in map(shapes.pod_of, given.get("pods", []))],
        reserved=reservation.resolve(written=written, cpus=cpus).cpus,
        system_exclusive=system.cpuset if system.exclusive else EMPTY,
    )
    keyed = {"cpu-shared-pools": ls, "be-cpu-shared-pools": be}
    named = [name for name in keyed if name in expect]
    found = [[(p.socket, p.node, p.cpuset) for p in keyed[name]] for name in named]
    return found, [_tuples(expect[name]) for name in named]


def _given_by_kubelet(expect: Any) -> CPUSet:
    """CPUs of pods under kubelet's static policy: an input of the formula, which the report states as a result."""
    return union(CPUSet.parse(alloc["cpuset"]) for alloc in expect.get("pod-cpu-allocs") or [])


def _policy(given: Any) -> str:
    policy = given.get("policy", "") if isinstance(given, dict) else given
    return policy or ""


def _tuples(entries: Any) -> list[Any]:
    """Pools without the emptied ones, which we do not list."""
    return [(e["socket"], e["node"], shapes.cpuset(e["cpuset"])) for e in entries or [] if e.get("cpuset")]


def _pools(entries: Any) -> pools.Pools:
    return tuple(pools.Pool(*entry) for entry in _tuples(entries))


def _joined(text: str) -> CPUSet:
    return union(CPUSet.parse(part) for part in text.split(",") if part)
