"""`koordlite numa explain NAMESPACE/POD`: is the pod aligned to NUMA nodes, and if not, which cause it has, in numbers.

The usual causes come first: nothing on the node aligns, the scheduler had to choose this node, no NUMA node has what
the pod asks for. Then what the pod asks, where it runs, and which promises do not hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from koordlite.model import keys
from koordlite.model.nrt import ContainerPlacement
from koordlite.model.pod.qos import KubeQoS, QoSClass
from koordlite.model.pod.values import Pod
from koordlite.model.quantity import ZERO, Quantity
from koordlite.model.snapshot import Snapshot, pod_called
from koordlite.numa.nrt import score
from koordlite.report import units
from koordlite.report.explain.pieces import Answer
from koordlite.report.history import NOTHING, Remembered
from koordlite.report.sentence import sentence
from koordlite.report.tick import UNSEEN, Tick
from koordlite.strategies.shared import affinity, placements, zone_report

_ALIGNS = ("single-numa-node", "restricted", "best-effort")
_SINGLE_NODE = {"SingleNUMANode", "single-numa-node"}
_MARKS = {"ok": " ", "cause": "!", "note": "-"}


class Check(NamedTuple):
    """One thing that was looked at. `cause`: it keeps the pod from being aligned."""

    verdict: Literal["ok", "cause", "note"]
    about: str
    sentence: str


def answer(name: str, tick: Tick, _past: Remembered = NOTHING) -> Answer:
    """All checks, the causes counted; ValueError when the name is no pod's, or nothing was seen yet."""
    snapshot = tick.snapshot
    if snapshot is UNSEEN:
        raise ValueError("there is no picture of the node yet")
    pod = pod_called(snapshot, name)
    placed = [each for each in placements.containers(snapshot) if each.uid == pod.uid]
    checks = [
        *_requests(pod),
        *_policy(snapshot, pod, tick.modes),
        *_space(snapshot, pod),
        # The move onto the NUMA node of another pod, or why there was none.
        *(
            Check("note", "together", sentence(decision))
            for decision in tick.decisions
            if decision.strategy == affinity.NAME and decision.subject == f"pod/{pod.key}"
        ),
        *_containers(snapshot, pod, placed),
        *_promises(snapshot, pod, placed),
    ]
    causes = sum(check.verdict == "cause" for check in checks)
    lines = [
        f"pod {pod.key} on {tick.node or 'this node'}",
        *(f"  {_MARKS[check.verdict]} {check.about:<11} {check.sentence}" for check in checks),
        f"  {units.count(causes, 'cause')}, marked with !" if causes else "  nothing here keeps it from being aligned",
    ]
    return Answer(lines, {"pod": pod.key, "checks": [check._asdict() for check in checks]})


def _requests(pod: Pod) -> Iterator[Check]:
    """Requests of the pod, and whether kubelet would give it CPUs of its own."""
    words = {
        "Koordinator's numa-topology-spec": pod.numa_policy,
        "Volcano's annotation": pod.annotations.get(keys.VOLCANO_NUMA_POLICY, ""),
        keys.EXCLUSIVE_CONTAINERS: pod.crane.containers and f"CPUs for {', '.join(pod.crane.containers)} alone",
        "Crane's topology-awareness": "" if pod.crane.aware is None else str(pod.crane.aware).lower(),
    }
    asks = "; ".join(f"{who} asks for {word}" for who, word in words.items() if word)
    yield Check("note", "asks", asks or "no annotation asks for NUMA alignment")
    shares = [
        f"{each.name} {each.requests['cpu']}"
        for each in pod.containers
        if "cpu" in each.requests and each.requests["cpu"].milli % 1000
    ]
    if pod.kube_qos is not KubeQoS.GUARANTEED and pod.crane.containers:
        why = f"it is {pod.kube_qos}, and asks for exclusive CPUs by container: the agent gives them, not kubelet"
        yield Check("ok", "class", why)
    elif pod.kube_qos is not KubeQoS.GUARANTEED:
        why = f"it is {pod.kube_qos}: kubelet aligns CPUs and memory of Guaranteed pods only, requests equal to limits"
        yield Check("note" if _by_scheduler(pod) else "cause", "class", why)
    elif shares:
        yield Check("cause", "class", f"Guaranteed, but not whole CPUs: {', '.join(shares)}; they share CPUs")
    else:
        yield Check("ok", "class", "Guaranteed, with whole CPUs in every container")


def _by_scheduler(pod: Pod) -> bool:
    """CPUs or NUMA nodes assigned by a scheduler's annotation, which the agent applies."""
    return bool(pod.resource_status.cpuset or pod.resource_status.numa_nodes or pod.crane.nodes)


def _policy(snapshot: Snapshot, pod: Pod, modes: Mapping[str, str]) -> Iterator[Check]:
    """First cause: nothing on this node aligns. Second: the pod's own rules left the scheduler this node."""
    if pod.annotations.get(keys.VOLCANO_NUMA_POLICY, "none") != "none":
        # Its plugin may be off: the agent does not see that.
        ask = "GET /rest/scheduling/v1/numaaware of koordlite numa-api says whether it is open"
        why = f"Volcano's scheduler reads this annotation only with its plugin numa-aware: {ask}"
        yield Check("note", "plugin", why)
    kubelet = snapshot.kubelet
    manager, topology = kubelet.cpu_manager_policy or "unknown", kubelet.topology_manager_policy or "unknown"
    policies = f"kubelet's CPU manager is {manager}, its topology manager {topology} ({kubelet.topology_manager_scope})"
    if _by_scheduler(pod):
        strategy = "craneCPUManager" if pod.crane.nodes and not pod.resource_status.cpuset else "cpusetPools"
        mode = modes.get(strategy, "off")
        why = f"a scheduler assigned it CPUs; the strategy {strategy}, which applies them, is in mode {mode}"
        yield Check("ok" if mode == "enforce" else "cause", "policy", why)
        yield Check("note", "kubelet", policies)
    elif manager == "static" and topology in _ALIGNS:
        loose = "; a pod that does not fit one node is admitted all the same" if topology == "best-effort" else ""
        yield Check("ok", "policy", policies + loose)
    else:
        do = "set cpuManagerPolicy: static and topologyManagerPolicy: single-numa-node in kubelet's configuration"
        yield Check("cause", "policy", f"{policies}: kubelet aligns nothing; {do}, or let a scheduler assign CPUs")
    status = pod.resource_status
    if status.refused:
        yield Check("cause", "assignment", f"the CPUs {status.refused} are not given: {status.why}")
    if pod.constraints:
        why = f"its spec narrows the choice of nodes by {', '.join(pod.constraints)}"
        yield Check("note", "placement", f"{why}: `koordlite scheduler explain {pod.key}` shows every node")
    else:
        why = "no required affinity, node selector or spread constraint narrows the choice of nodes"
        yield Check("ok", "placement", why)


def _space(snapshot: Snapshot, pod: Pod) -> Iterator[Check]:
    """Third cause: no NUMA node has what it asks for; then what becomes of a pod that needs several."""
    requests = {name: amount for name, amount in pod.requests.items() if amount.nano and name in ("cpu", "memory")}
    if not requests:
        return
    free = {
        at: {name: zone[name].available if name in zone else ZERO for name in requests}
        for at, zone in zone_report.without_pod(snapshot, pod).items()
    }
    fits = [at for at, amounts in free.items() if all(amounts[name] >= requests[name] for name in requests)]
    asks, have = _amounts(requests), "; ".join(f"NUMA {at}: {_amounts(amounts)}" for at, amounts in free.items())
    if fits:
        nodes = ", ".join(map(str, fits))
        yield Check("ok", "space", f"it asks for {asks}; without it NUMA {nodes} would have that ({have})")
        return
    yield Check("cause", "space", f"it asks for {asks}; without it no single NUMA node has that ({have})")
    if snapshot.slo.numa_policy.distance:
        why = "policy numadistance is open: the extender gives it the NUMA nodes nearest together"
    else:
        why = "policy numadistance is closed: it may get NUMA nodes that are far apart"
    yield Check("note", "distance", why)


def _amounts(amounts: Mapping[str, Quantity]) -> str:
    return ", ".join(
        f"{units.cores(amount.milli)} CPU" if name == "cpu" else units.size(amount.value)
        for name, amount in amounts.items()
    )


def _containers(snapshot: Snapshot, pod: Pod, placed: Sequence[ContainerPlacement]) -> Iterator[Check]:
    """CPUs and NUMA nodes it runs on."""
    if not pod.active:
        why = f"it is {pod.phase}; a pod that kubelet could not align is Failed with reason TopologyAffinityError"
        yield Check("note", "runs", why)
        return
    distances = {each.id: dict(each.distances) for each in snapshot.topology.nodes if each.distances}
    groups = snapshot.places.get(pod.uid)
    for name, group in groups.containers.items() if groups else ():
        cgroup = snapshot.cgroups.get(group)
        if cgroup is None or cgroup.effective is None:
            continue
        at = sorted(snapshot.topology.numa_of(cgroup.effective))
        nodes = ", ".join(map(str, at))
        if len(at) > 1 and distances:
            nodes += f", mean distance {score.distance(at, distances) / len(at) ** 2:.1f}"
        used = snapshot.memory_places.get(group)
        memory = (
            "; memory " + ", ".join(f"NUMA {node} {units.size(n)}" for node, n in used.used.items()) if used else ""
        )
        promise = next((each for each in placed if each.container == name and each.source != "none"), None)
        by = f", promised by {promise.source}: {promise.promised_cpus or 'no CPUs'}" if promise else ", no promise"
        yield Check("note", "runs", f"{name} may run on CPUs {cgroup.effective} (NUMA {nodes}{by}){memory}")


def _promises(snapshot: Snapshot, pod: Pod, placed: Sequence[ContainerPlacement]) -> Iterator[Check]:
    """Promises that do not hold."""
    violations = list(placements.of_pod(snapshot, pod, placed)) if pod.active and not pod.deleting else []
    for each in violations:
        facts = ", ".join(f"{name} {value}" for name, value in each.evidence.items())
        yield Check("cause", "violation", f"{each.container}: {each.reason} ({each.severity}): {facts}")
    volcano = pod.annotations.get(keys.VOLCANO_NUMA_POLICY, "")
    has_promise = placed or {pod.numa_policy, volcano} & _SINGLE_NODE or pod.raw_qos in (QoSClass.LSE, QoSClass.LSR)
    if pod.active and has_promise and not violations:
        yield Check("ok", "promises", "every promise about its placement holds")
