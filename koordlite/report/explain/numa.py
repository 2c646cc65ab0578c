"""`koordlite numa explain NAMESPACE/POD`: is the pod aligned to NUMA nodes, and if not, which cause it has, in numbers.

The usual causes come first: nothing on the node aligns, the scheduler had to choose this node, no NUMA node has what
the pod asks for. Then what the pod asks, where it runs, and which promises do not hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from koordlite.formulas.topology.zones import Amounts
from koordlite.model import keys
from koordlite.model.nrt import ContainerPlacement
from koordlite.model.pod.qos import KubeQoS, QoSClass
from koordlite.model.pod.values import Pod
from koordlite.model.quantity import Quantity
from koordlite.model.slo.settings import NUMAPolicy
from koordlite.model.snapshot import Snapshot
from koordlite.numa.nrt import score
from koordlite.report import units
from koordlite.report.explain import file
from koordlite.report.history import NOTHING, Remembered
from koordlite.report.sentence import sentence
from koordlite.report.tick import UNSEEN, Tick
from koordlite.strategies.shared import affinity, placements, zone_report

SUBJECT = "numa "
"""Prefix of such a question."""
_ALIGNS = ("single-numa-node", "restricted", "best-effort")
_NODES_WANTED = ("SingleNUMANode", "single-numa-node")
Weight = Literal["ok", "cause", "note"]


class AlignmentCheck(msgspec.Struct, frozen=True):
    """One thing that was looked at. `cause`: it keeps the pod from being aligned."""

    verdict: Weight
    about: str
    sentence: str


def text(name: str, tick: Tick, _past: Remembered = NOTHING) -> str:
    """All checks, the causes counted; ValueError when the name is no pod's, or nothing was seen yet."""
    pod, found = _checks(name, tick)
    causes = [check for check in found if check.verdict == "cause"]
    count = "1 cause, marked" if len(causes) == 1 else f"{len(causes)} causes, marked"
    end = f"{count} with !" if causes else "nothing here keeps it from being aligned"
    marks = {"ok": " ", "cause": "!", "note": "-"}
    rows = [f"  {marks[check.verdict]} {check.about:<11} {check.sentence}" for check in found]
    return "\n".join([f"pod {pod.key} on {tick.node or 'this node'}", *rows, f"  {end}", ""])


def document(name: str, tick: Tick, _past: Remembered = NOTHING) -> dict[str, Any]:
    """The same for programs."""
    pod, found = _checks(name, tick)
    return {"pod": pod.key, "checks": [msgspec.structs.asdict(check) for check in found]}


def _checks(name: str, tick: Tick) -> tuple[Pod, list[AlignmentCheck]]:
    snapshot = tick.snapshot
    if snapshot is UNSEEN:
        raise ValueError("there is no picture of the node yet")
    found = [pod for pod in snapshot.pods if name in (pod.key, pod.name)]
    if len(found) != 1:
        raise ValueError(_which(name, snapshot, found))
    (pod,) = found
    placed = [each for each in placements.containers(snapshot) if each.uid == pod.uid]
    policy = [*_plugin(pod), *_policy(snapshot, pod, tick.modes)]
    checks = [*_asks(pod), *policy, *_constraints(pod), *_space(snapshot, pod)]
    checks += _together(pod, tick)
    return pod, [*checks, *_stands(snapshot, pod, placed), *_broken(snapshot, pod, placed)]


def _which(name: str, snapshot: Snapshot, found: Sequence[Pod]) -> str:
    if len(found) > 1:
        return f"{len(found)} pods here are called {name!r}: {', '.join(pod.key for pod in found)}"
    return f"there is no pod {name!r} on this node; its pods: {file.pod_names(snapshot)}"


def _asks(pod: Pod) -> Iterator[AlignmentCheck]:
    """Requests of the pod, and whether kubelet would give it CPUs of its own."""
    words = {
        "Koordinator's numa-topology-spec": pod.numa_policy,
        "Volcano's annotation": pod.annotations.get(keys.VOLCANO_NUMA_POLICY, ""),
        keys.EXCLUSIVE_CONTAINERS: pod.crane.containers and f"CPUs for {', '.join(pod.crane.containers)} alone",
        "Crane's topology-awareness": "" if pod.crane.aware is None else str(pod.crane.aware).lower(),
    }
    asked = [f"{who} asks for {word}" for who, word in words.items() if word]
    yield AlignmentCheck("note", "asks", "; ".join(asked) or "no annotation asks for NUMA alignment")
    if pod.kube_qos is not KubeQoS.GUARANTEED:
        if pod.crane.containers:
            why = f"it is {pod.kube_qos}, and asks for exclusive CPUs by container: the agent gives them, not kubelet"
            yield AlignmentCheck("ok", "class", why)
            return
        why = f"it is {pod.kube_qos}: kubelet aligns CPUs and memory of Guaranteed pods only, requests equal to limits"
        yield AlignmentCheck("note" if _by_scheduler(pod) else "cause", "class", why)
        return
    broken = [f"{each.name} {each.requests['cpu']}" for each in pod.containers if not _is_whole(each.requests)]
    if broken:
        yield AlignmentCheck("cause", "class", f"Guaranteed, but not whole CPUs: {', '.join(broken)}; they share CPUs")
    else:
        yield AlignmentCheck("ok", "class", "Guaranteed, with whole CPUs in every container")


def _is_whole(requests: Mapping[str, Quantity]) -> bool:
    return "cpu" not in requests or requests["cpu"].milli % 1000 == 0


def _by_scheduler(pod: Pod) -> bool:
    """CPUs or NUMA nodes assigned by a scheduler's annotation, which the agent applies."""
    return bool(pod.resource_status.cpuset or pod.resource_status.numa_nodes or pod.crane.nodes)


def _plugin(pod: Pod) -> Iterator[AlignmentCheck]:
    """First cause, where a scheduler goes by the annotation: its plugin is off. The agent does not see that."""
    if pod.annotations.get(keys.VOLCANO_NUMA_POLICY, "none") != "none":
        ask = "GET /rest/scheduling/v1/numaaware of koordlite numa-api says whether it is open"
        yield AlignmentCheck(
            "note", "plugin", f"Volcano's scheduler reads this annotation only with its plugin numa-aware: {ask}"
        )


def _policy(snapshot: Snapshot, pod: Pod, modes: Mapping[str, str]) -> Iterator[AlignmentCheck]:
    """First cause: nothing on this node aligns."""
    kubelet = snapshot.kubelet
    manager, topology = kubelet.cpu_manager_policy or "unknown", kubelet.topology_manager_policy or "unknown"
    said = f"kubelet's CPU manager is {manager}, its topology manager {topology} ({kubelet.topology_manager_scope})"
    if _by_scheduler(pod):
        strategy = "craneCPUManager" if pod.crane.nodes and not pod.resource_status.cpuset else "cpusetPools"
        mode = modes.get(strategy, "off")
        verdict: Weight = "ok" if mode == "enforce" else "cause"
        yield AlignmentCheck(
            verdict,
            "policy",
            f"a scheduler assigned it CPUs; the strategy {strategy}, which applies them, is in mode {mode}",
        )
        yield AlignmentCheck("note", "kubelet", said)
    elif manager == "static" and topology in _ALIGNS:
        loose = "; a pod that does not fit one node is admitted all the same" if topology == "best-effort" else ""
        yield AlignmentCheck("ok", "policy", said + loose)
    else:
        do = "set cpuManagerPolicy: static and topologyManagerPolicy: single-numa-node in kubelet's configuration"
        yield AlignmentCheck("cause", "policy", f"{said}: kubelet aligns nothing; {do}, or let a scheduler assign CPUs")
    if pod.resource_status.refused:
        yield AlignmentCheck(
            "cause", "assignment", f"the CPUs {pod.resource_status.refused} are not given: {pod.resource_status.why}"
        )


def _constraints(pod: Pod) -> Iterator[AlignmentCheck]:
    """Second cause: the pod's own rules left the scheduler this node."""
    if pod.constraints:
        why = f"its spec narrows the choice of nodes by {', '.join(pod.constraints)}"
        yield AlignmentCheck("note", "placement", f"{why}: `koordlite scheduler explain {pod.key}` shows every node")
    else:
        yield AlignmentCheck(
            "ok", "placement", "no required affinity, node selector or spread constraint narrows the choice of nodes"
        )


def _space(snapshot: Snapshot, pod: Pod) -> Iterator[AlignmentCheck]:
    """Third cause: no NUMA node has what it asks for."""
    wanted = {name: amount for name, amount in pod.requests.items() if amount.nano and name in ("cpu", "memory")}
    if not wanted:
        return
    zones = zone_report.without_pod(snapshot, pod)
    fits = [at for at, zone in zones.items() if all(_left(zone, name) >= amount for name, amount in wanted.items())]
    asked = ", ".join(_amount(name, amount) for name, amount in wanted.items())
    have = "; ".join(
        f"NUMA {at}: {', '.join(_amount(name, _left(zone, name)) for name in wanted)}" for at, zone in zones.items()
    )
    if fits:
        nodes = ", ".join(map(str, fits))
        yield AlignmentCheck("ok", "space", f"it asks for {asked}; without it NUMA {nodes} would have that ({have})")
    else:
        yield AlignmentCheck("cause", "space", f"it asks for {asked}; without it no single NUMA node has that ({have})")
        yield _several(snapshot.slo.numa_policy)


def _several(policies: NUMAPolicy) -> AlignmentCheck:
    """The fate of a pod that needs more than one NUMA node."""
    if policies.distance:
        return AlignmentCheck(
            "note", "distance", "policy numadistance is open: the extender gives it the NUMA nodes nearest together"
        )
    return AlignmentCheck("note", "distance", "policy numadistance is closed: it may get NUMA nodes that are far apart")


def _left(zone: Mapping[str, Amounts], name: str) -> Quantity:
    return zone[name].available if name in zone else Quantity(0)


def _amount(name: str, amount: Quantity) -> str:
    return f"{units.cores(amount.milli)} CPU" if name == "cpu" else units.size(amount.value)


def _stands(snapshot: Snapshot, pod: Pod, placed: Sequence[ContainerPlacement]) -> Iterator[AlignmentCheck]:
    """CPUs and NUMA nodes it runs on."""
    if not pod.active:
        why = f"it is {pod.phase}; a pod that kubelet could not align is Failed with reason TopologyAffinityError"
        yield AlignmentCheck("note", "runs", why)
        return
    groups = snapshot.places.get(pod.uid)
    for name, group in groups.containers.items() if groups else ():
        cgroup = snapshot.cgroups.get(group)
        cpus = cgroup.effective if cgroup else None
        if cpus is None:
            continue
        used_nodes = sorted(snapshot.topology.numa_of(cpus))
        nodes = ", ".join(map(str, used_nodes)) + _apart(snapshot, used_nodes)
        used = snapshot.memory_places.get(group)
        memory = "; memory " + ", ".join(f"NUMA {at} {units.size(n)}" for at, n in used.used.items()) if used else ""
        promised = next((each for each in placed if each.container == name and each.source != "none"), None)
        by = f", promised by {promised.source}: {promised.promised_cpus or 'no CPUs'}" if promised else ", no promise"
        yield AlignmentCheck("note", "runs", f"{name} may run on CPUs {cpus} (NUMA {nodes}{by}){memory}")


def _together(pod: Pod, tick: Tick) -> Iterator[AlignmentCheck]:
    """The move onto the NUMA node of another pod, or why there was none."""
    for decision in tick.decisions:
        if decision.strategy == affinity.NAME and decision.subject == f"pod/{pod.key}":
            yield AlignmentCheck("note", "together", sentence(decision))


def _apart(snapshot: Snapshot, nodes: Sequence[int]) -> str:
    costs = {each.id: dict(each.distances) for each in snapshot.topology.nodes if each.distances}
    if len(nodes) < 2 or not costs:
        return ""
    return f", mean distance {score.distance(nodes, costs) / len(nodes) ** 2:.1f}"


def _broken(snapshot: Snapshot, pod: Pod, placed: Sequence[ContainerPlacement]) -> Iterator[AlignmentCheck]:
    """Promises that do not hold."""
    wrong = list(placements.of_pod(snapshot, pod, placed)) if pod.active and not pod.deleting else []
    for each in wrong:
        facts = ", ".join(f"{name} {value}" for name, value in each.evidence.items())
        yield AlignmentCheck("cause", "violation", f"{each.container}: {each.reason} ({each.severity}): {facts}")
    asked = pod.numa_policy in _NODES_WANTED or pod.annotations.get(keys.VOLCANO_NUMA_POLICY, "") in _NODES_WANTED
    if not wrong and pod.active and (placed or asked or pod.raw_qos in (QoSClass.LSE, QoSClass.LSR)):
        yield AlignmentCheck("ok", "promises", "every promise about its placement holds")
