"""`koordlite explain cpus`: the ledger of CPUs that are not shared: each owner, by whose word, and what contradicts.
`koordlite explain cpu 7`: whose a CPU is, who may run on it, why, and when best-effort pods last got or lost it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import msgspec

from koordlite.changes.cgroup import CgroupChange
from koordlite.formulas.cpu import pools
from koordlite.model import cpuset, keys
from koordlite.model.cpuset import CPUSet
from koordlite.model.decision import Decision
from koordlite.model.picture.kubelet import PodCPUs
from koordlite.model.snapshot import Snapshot
from koordlite.report import paragraph, units
from koordlite.report.explain import pieces
from koordlite.report.explain.pieces import Answer
from koordlite.report.history import DecisionEvent, Remembered
from koordlite.report.json import run_report
from koordlite.report.sentence import headline
from koordlite.report.tick import Tick
from koordlite.strategies.shared import affinity

Authority = Literal["reservation", "SYSTEM", "kubelet reservation", "kubelet", "ResourceClaim", "Koordinator", "Crane"]
_WORDS: Mapping[Authority, str] = {
    "reservation": f"annotation {keys.RESERVATION}",
    "SYSTEM": f"annotation {keys.SYSTEM_QOS}",
    "kubelet reservation": "reservedSystemCPUs of kubelet",
    "kubelet": "static policy of kubelet",
    "ResourceClaim": "ResourceClaim, by a DRA driver",
    "Koordinator": f"annotation {keys.RESOURCE_STATUS}",
    "Crane": f"annotation {keys.CRANE_TOPOLOGY_RESULT}",
}
OF_PODS: tuple[Authority, ...] = ("kubelet", "ResourceClaim", "Koordinator", "Crane")
_STATIC = "kubelet's static policy chooses CPUs without asking"
_CLAIM = "let this pod claim its CPUs as well, or"
_CURES: Mapping[tuple[Authority, Authority], str] = {
    ("kubelet", "ResourceClaim"): (
        "the driver and kubelet's static policy exclude each other: set cpuManagerPolicy: none (koordlite kubelet plan)"
    ),
    ("kubelet", "Koordinator"): (
        f"{_STATIC} the scheduler: set cpuManagerPolicy: none, or keep LSR and LSE pods off this node"
    ),
    ("kubelet", "Crane"): f"{_STATIC} Crane's scheduler: set cpuManagerPolicy: none",
    ("ResourceClaim", "Koordinator"): (
        f"the driver does not know the scheduler's annotations: {_CLAIM} keep LSR and LSE pods off this node"
    ),
    ("ResourceClaim", "Crane"): (
        f"the driver does not know Crane's annotations: {_CLAIM} take its topology result away"
    ),
    ("Koordinator", "Crane"): "two schedulers place pods here: leave this node to one of them",
}
"""Advice for two that gave the same CPUs away, in the order of `OF_PODS`."""
_OWNED_BY = {
    "reserved": "is reserved for the system",
    "system": "is set apart for SYSTEM pods",
    "LSE": "belongs to an LSE pod alone",
    "LSR": "belongs to an LSR pod, and best-effort pods may share it",
    "LS": "is in the pool that LS pods share",
}
_SETS = ("cpuset", "reservedCPUs", "ls_pool", "be_pool")
"""Evidence that names CPUs."""
_BEST_EFFORT = "besteffort"


class Entry(msgspec.Struct, frozen=True):
    """CPUs with one owner."""

    cpus: CPUSet
    by: Authority
    owner: str = ""
    """NAMESPACE/NAME of a pod; empty for the system."""
    containers: tuple[str, ...] = ()
    """Containers that have them, where not the whole pod has."""

    def __str__(self) -> str:
        containers = f" ({', '.join(self.containers)})" if self.containers else ""
        return f"pod {self.owner}{containers}" if self.owner else "reserved"

    @property
    def document(self) -> dict[str, object]:
        """The entry as plain values."""
        return {"cpus": str(self.cpus), "by": self.by, "pod": self.owner, "containers": list(self.containers)}


def ledger(_subject: str, tick: Tick, _past: Remembered) -> Answer:
    """The owners of CPUs, what the others share, and CPUs that two have alone. ValueError when nothing has been read
    yet."""
    snapshot = tick.snapshot
    if not snapshot.topology.cpus:
        raise ValueError("the CPUs of this machine have not been read yet")
    owners = entries(snapshot)
    ls_pools, be_pools = affinity.shared_pools(snapshot)
    shared = {"shared by LS pods": pools.joined(ls_pools), "best effort may use": pools.joined(be_pools)}
    rows = [(str(each.cpus) or "unknown", str(each), _WORDS[each.by]) for each in owners]
    rows += [(str(cpus) or "none", who, "the rest") for who, cpus in shared.items()]
    conflicts = [
        (str(first.cpus & second.cpus), first, second, cure(first, second))
        for first, second in itertools.combinations(owners, 2)
        if first.cpus & second.cpus
        and (first.by in OF_PODS or second.by in OF_PODS)
        and (not first.owner or first.owner != second.owner)
    ]
    lines = [
        f"CPUs of {tick.node or 'this node'}: {len(snapshot.topology.cpuset)}, by owner",
        *(f"  {row}" for row in paragraph.columns(rows, "<<")),
        "",
        f"contradictions: {len(conflicts)}" if conflicts else "nothing contradicts: no CPU has two owners",
    ]
    for cpus, first, second, do in conflicts:
        lines += [f"  CPUs {cpus}: {first} ({_WORDS[first.by]}) and {second} ({_WORDS[second.by]})", f"    {do}"]
    return Answer(
        lines,
        {
            "cpus": str(snapshot.topology.cpuset),
            "owners": [each.document for each in owners],
            "shared": {name: str(cpus) for name, cpus in shared.items()},
            "contradictions": [
                {"cpus": cpus, "first": first.document, "second": second.document, "do": do}
                for cpus, first, second, do in conflicts
            ],
        },
    )


def entries(snapshot: Snapshot) -> list[Entry]:
    """Owners in the order of their lowest CPU."""
    kubelet = snapshot.kubelet
    system = (
        Entry(snapshot.reserved.cpus, "reservation"),
        Entry(snapshot.system_qos.exclusive_cpus, "SYSTEM"),
        Entry(kubelet.reserved_cpus or kubelet.listed_reserved_cpus, "kubelet reservation"),
    )
    owners = [each for each in system if each.cpus]
    names = {pod.uid: pod.key for pod in snapshot.pods if pod.active}
    for pinned in (*kubelet.pod_cpus, *_of_our_pods(snapshot)):
        if pinned.uid in names:
            parts = tuple(name for name, cpus in pinned.containers.items() if cpus or pinned.claimed)
            by: Authority = "ResourceClaim" if pinned.claimed else "kubelet"
            owners.append(Entry(pinned.cpus, by, names[pinned.uid], parts))
    owners += [
        Entry(pod.resource_status.cpuset, "Koordinator", pod.key)
        for pod in snapshot.pods
        if pod.active and pod.resource_status.cpuset
    ]
    owners += [
        Entry(promise.cpus, "Crane", names[uid])
        for uid, promise in snapshot.crane.promises.items()
        if uid in names and promise.policy == "exclusive"
    ]
    return sorted(owners, key=lambda each: (min(each.cpus, default=-1), each.by, each.owner))


def _of_our_pods(snapshot: Snapshot) -> Iterator[PodCPUs]:
    """CPUs that kubelet says it gave to pods whose sets are ours to write: the picture leaves them to us."""
    resources = snapshot.kubelet.resources
    uids = {(pod.namespace, pod.name): pod.uid for pod in snapshot.pods if pod.active}
    static_uids = {pinned.uid for pinned in snapshot.kubelet.pod_cpus if not pinned.claimed}
    for pod in resources.pods if resources else ():
        uid = pod.uid or uids.get((pod.namespace, pod.name), "")
        containers = {name: assigned.cpus for name, assigned in pod.containers.items() if assigned.cpus}
        if containers and uid and uid not in static_uids:
            yield PodCPUs(uid, cpuset.union(containers.values()), containers)


def cure(first: Entry, second: Entry) -> str:
    """Advice for two that have the same CPUs, of which at least one is a pod."""
    if first.by == second.by:
        return f"both were promised by the {_WORDS[first.by]}: delete the younger pod, so that it is placed again"
    advice = _CURES.get((first.by, second.by)) or _CURES.get((second.by, first.by))
    if advice:
        return advice
    pod, reserved = (first, second) if first.by in OF_PODS else (second, first)
    if pod.by == "kubelet":
        return f"set reservedSystemCPUs: {reserved.cpus} in kubelet's configuration (koordlite kubelet plan)"
    if pod.by == "ResourceClaim":
        return f"start the driver with --reserved-cpus={reserved.cpus}, and delete the pod"
    return "the pod was placed before the CPUs were reserved: delete it, so that it is placed again"


def single(number: str, tick: Tick, past: Remembered) -> Answer:
    """The owner of a CPU, decisions that name it, and its last move to or from best effort. ValueError when there is no
    such CPU."""
    cell = next((cell for cell in tick.cpus if str(cell.cpu) == number.strip()), None)
    if cell is None:
        ids = str(CPUSet(cell.cpu for cell in tick.cpus))
        raise ValueError(f"there is no CPU {number!r}; this machine has {ids or 'not been read yet'}")
    best_effort = [decision for decision in tick.decisions if decision.subject == _BEST_EFFORT]
    naming = [
        decision
        for decision in tick.decisions
        if decision.subject != _BEST_EFFORT and any(cell.cpu in _listed(decision, name) for name in _SETS)
    ]
    lines = [
        f"CPU {cell.cpu}: NUMA node {cell.node}, {_OWNED_BY[cell.owner]}",
        f"  best-effort pods {'may' if cell.best_effort else 'may not'} run on it at present",
        *pieces.section("decisions that name it", naming, "none"),
        *pieces.section("best effort at present", best_effort, "nothing was decided"),
    ]
    move, document = _last_move(cell.cpu, past.events), None
    if move:
        event, has = move
        when = units.when(event.time, event.wall)
        did = "got" if has else "lost"
        lines.append(f"\nlast change: best-effort pods {did} it at {when}: {headline(event.decision)}")
        document = {"time": event.time, "given": has, **run_report.decided(event.decision)}
    decisions = pieces.documents(naming)
    return Answer(lines, {**run_report.fields(cell), "decisions": decisions, "lastMove": document})


def _last_move(cpu: int, events: Iterable[DecisionEvent]) -> tuple[DecisionEvent, bool] | None:
    """The last time best-effort pods got (True) or lost (False) the CPU, among the events; None without one."""
    had, last = None, None
    for event in events:
        changes = event.decision.changes if event.decision.subject == _BEST_EFFORT else ()
        sets = [c.value for c in changes if isinstance(c, CgroupChange) and isinstance(c.value, CPUSet)]
        if sets:
            has = cpu in sets[-1]
            last = (event, has) if had is not None and has != had else last
            had = has
    return last


def _listed(decision: Decision, name: str) -> CPUSet:
    try:
        return CPUSet.parse(str(decision.evidence.get(name, "")))
    except ValueError:
        return CPUSet()
