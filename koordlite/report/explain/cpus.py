"""`koordlite explain cpus`: the ledger of CPUs that are not shared: each owner, by whose word, and what contradicts.
`koordlite explain cpu 7`: whose a CPU is, who may run on it, why, and when best-effort pods last got or lost it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec

from koordlite.changes.cgroup import CgroupChange
from koordlite.formulas.cpu import pools
from koordlite.model import cpuset, keys
from koordlite.model.cpuset import CPUSet
from koordlite.model.decision import Decision
from koordlite.model.picture.kubelet import PodCPUs
from koordlite.model.snapshot import Snapshot
from koordlite.report import units
from koordlite.report.explain import pieces
from koordlite.report.history import DecisionEvent, Remembered
from koordlite.report.json import run_report
from koordlite.report.present import CPUCell
from koordlite.report.sentence import headline
from koordlite.report.tick import Tick
from koordlite.strategies.shared import affinity

SUBJECT = "cpus"
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
_CURES: Mapping[frozenset[Authority], str] = {
    frozenset[Authority](["kubelet", "ResourceClaim"]): (
        "the driver and kubelet's static policy exclude each other: set cpuManagerPolicy: none (koordlite kubelet plan)"
    ),
    frozenset[Authority](["kubelet", "Koordinator"]): (
        "kubelet's static policy chooses CPUs without asking the scheduler: set cpuManagerPolicy: none, or keep LSR "
        "and LSE pods off this node"
    ),
    frozenset[Authority](["kubelet", "Crane"]): (
        "kubelet's static policy chooses CPUs without asking Crane's scheduler: set cpuManagerPolicy: none"
    ),
    frozenset[Authority](["ResourceClaim", "Koordinator"]): (
        "the driver does not know the scheduler's annotations: let this pod claim its CPUs as well, or keep LSR and "
        "LSE pods off this node"
    ),
    frozenset[Authority](["ResourceClaim", "Crane"]): (
        "the driver does not know Crane's annotations: let this pod claim its CPUs as well, or take its topology "
        "result away"
    ),
    frozenset[Authority](["Koordinator", "Crane"]): "two schedulers place pods here: leave this node to one of them",
}


class Entry(msgspec.Struct, frozen=True):
    """CPUs with one owner."""

    cpus: CPUSet
    by: Authority
    owner: str = ""
    """NAMESPACE/NAME of a pod; empty for the system."""
    containers: tuple[str, ...] = ()
    """Those that have them, where not the whole pod has."""


class Contradiction(msgspec.Struct, frozen=True):
    """CPUs that two owners have alone."""

    cpus: CPUSet
    first: Entry
    second: Entry
    do: str


def text(_subject: str, tick: Tick, _past: Remembered) -> str:
    """The ledger as lines; ValueError when nothing has been read yet."""
    snapshot = _snapshot(tick)
    rows = [(str(each.cpus) or "unknown", _owner(each), _WORDS[each.by]) for each in entries(snapshot)]
    rows += [(str(cpus) or "none", who, "the rest") for who, cpus in _shared(snapshot).items()]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    lines = [f"  {cpus:<{widths[0]}}  {who:<{widths[1]}}  {word}" for cpus, who, word in rows]
    wrong = contradictions(snapshot)
    head = f"CPUs of {tick.node or 'this node'}: {len(snapshot.topology.cpuset)}, by owner"
    return "\n".join([head, *lines, "", *_said(wrong), ""])


def document(_subject: str, tick: Tick, _past: Remembered) -> dict[str, Any]:
    """The same for programs."""
    snapshot = _snapshot(tick)
    return {
        "cpus": str(snapshot.topology.cpuset),
        "owners": [_entry(each) for each in entries(snapshot)],
        "shared": {name: str(cpus) for name, cpus in _shared(snapshot).items()},
        "contradictions": [
            {"cpus": str(each.cpus), "first": _entry(each.first), "second": _entry(each.second), "do": each.do}
            for each in contradictions(snapshot)
        ],
    }


def entries(snapshot: Snapshot) -> list[Entry]:
    """Owners in the order of their lowest CPU."""
    kubelet = snapshot.kubelet
    system = [
        Entry(snapshot.reserved.cpus, "reservation"),
        Entry(snapshot.system_qos.exclusive_cpus, "SYSTEM"),
        Entry(kubelet.reserved_cpus or kubelet.listed_reserved_cpus, "kubelet reservation"),
    ]
    found = [*(each for each in system if each.cpus), *_of_pods(snapshot)]
    return sorted(found, key=lambda each: (min(each.cpus, default=-1), each.by, each.owner))


def _of_pods(snapshot: Snapshot) -> Iterator[Entry]:
    names = {pod.uid: pod.key for pod in snapshot.pods if pod.active}
    for held in (*snapshot.kubelet.pod_cpus, *_of_our_pods(snapshot)):
        if held.uid in names:
            parts = tuple(name for name, cpus in held.containers.items() if cpus or held.claimed)
            yield Entry(held.cpus, "ResourceClaim" if held.claimed else "kubelet", names[held.uid], parts)
    for pod in snapshot.pods:
        if pod.active and pod.resource_status.cpuset:
            yield Entry(pod.resource_status.cpuset, "Koordinator", pod.key)
    for uid, promise in snapshot.crane.promises.items():
        if uid in names and promise.policy == "exclusive":
            yield Entry(promise.cpus, "Crane", names[uid])


def _of_our_pods(snapshot: Snapshot) -> Iterator[PodCPUs]:
    """CPUs that kubelet says it gave to pods whose sets are ours to write: the picture leaves them to us."""
    resources = snapshot.kubelet.resources
    uids = {(pod.namespace, pod.name): pod.uid for pod in snapshot.pods if pod.active}
    counted = {held.uid for held in snapshot.kubelet.pod_cpus if not held.claimed}
    for pod in resources.pods if resources else ():
        uid = pod.uid or uids.get((pod.namespace, pod.name), "")
        containers = {name: given.cpus for name, given in pod.containers.items() if given.cpus}
        if containers and uid and uid not in counted:
            yield PodCPUs(uid, cpuset.union(containers.values()), containers)


def contradictions(snapshot: Snapshot) -> list[Contradiction]:
    """Pairs of owners that have the same CPUs alone, and CPUs that the machine does not have."""
    found = []
    for first, second in itertools.combinations(entries(snapshot), 2):
        both = first.cpus & second.cpus
        of_system = first.by not in OF_PODS and second.by not in OF_PODS
        if both and not of_system and (not first.owner or first.owner != second.owner):
            found.append(Contradiction(both, first, second, cure(first, second)))
    return found


def cure(first: Entry, second: Entry) -> str:
    """Advice for two that have the same CPUs, of which at least one is a pod."""
    if first.by == second.by:
        return f"both were promised by the {_WORDS[first.by]}: delete the younger pod, so that it is placed again"
    cure = _CURES.get(frozenset[Authority]([first.by, second.by]))
    if cure:
        return cure
    pod, reserved = (first, second) if first.by in OF_PODS else (second, first)
    return {
        "kubelet": f"set reservedSystemCPUs: {reserved.cpus} in kubelet's configuration (koordlite kubelet plan)",
        "ResourceClaim": f"start the driver with --reserved-cpus={reserved.cpus}, and delete the pod",
        "Koordinator": "the pod was placed before the CPUs were reserved: delete it, so that it is placed again",
        "Crane": "the pod was placed before the CPUs were reserved: delete it, so that it is placed again",
    }[pod.by]


def _shared(snapshot: Snapshot) -> dict[str, CPUSet]:
    """The pools that pods without CPUs of their own share."""
    ls_pools, be_pools = affinity.shared_pools(snapshot)
    return {"shared by LS pods": pools.joined(ls_pools), "best effort may use": pools.joined(be_pools)}


def _said(found: list[Contradiction]) -> Iterator[str]:
    if not found:
        yield "nothing contradicts: no CPU has two owners"
        return
    yield f"contradictions: {len(found)}"
    for each in found:
        pair = " and ".join(f"{_owner(side)} ({_WORDS[side.by]})" for side in (each.first, each.second))
        yield f"  CPUs {each.cpus}: {pair}"
        yield f"    {each.do}"


def _owner(entry: Entry) -> str:
    if not entry.owner:
        return "reserved"
    return f"pod {entry.owner}" + (f" ({', '.join(entry.containers)})" if entry.containers else "")


def _entry(entry: Entry) -> dict[str, Any]:
    return {"cpus": str(entry.cpus), "by": entry.by, "pod": entry.owner, "containers": list(entry.containers)}


def _snapshot(tick: Tick) -> Snapshot:
    if not tick.snapshot.topology.cpus:
        raise ValueError("the CPUs of this machine have not been read yet")
    return tick.snapshot


OF_ONE = "cpu "
"""Prefix of such a question."""
BEST_EFFORT = "besteffort"
_OWNED_BY = {
    "reserved": "is reserved for the system",
    "system": "is set apart for SYSTEM pods",
    "LSE": "belongs to an LSE pod alone",
    "LSR": "belongs to an LSR pod, and best-effort pods may share it",
    "LS": "is in the pool that LS pods share",
}
_SETS = ("cpuset", "reservedCPUs", "ls_pool", "be_pool")
"""Evidence that names CPUs."""


def text_of_one(number: str, tick: Tick, past: Remembered) -> str:
    """The answer as lines; ValueError when there is no such CPU."""
    cell = _cell(number, tick)
    lines = [
        f"CPU {cell.cpu}: NUMA node {cell.node}, {_OWNED_BY[cell.owner]}",
        f"  best-effort pods {'may' if cell.best_effort else 'may not'} run on it at present",
        *pieces.section("decisions that name it", about(cell.cpu, tick.decisions), "none"),
        *pieces.section("best effort at present", _best_effort(tick.decisions), "nothing was decided"),
        *_moves(cell.cpu, past.events),
    ]
    return "\n".join(lines) + "\n"


def document_of_one(number: str, tick: Tick, past: Remembered) -> dict[str, Any]:
    """The same as plain values."""
    cell = _cell(number, tick)
    last = last_move(cell.cpu, past.events)
    moved = {"time": last[0].time, "given": last[1], **run_report.decided(last[0].decision)} if last else None
    decisions = [run_report.decided(decision) for decision in about(cell.cpu, tick.decisions)]
    return {**run_report.fields(cell), "decisions": decisions, "lastMove": moved}


def about(cpu: int, found: Iterable[Decision]) -> list[Decision]:
    """Decisions in whose evidence a CPU list has this CPU, those about best effort as a whole left out."""
    return [d for d in found if d.subject != BEST_EFFORT and any(cpu in _listed(d, name) for name in _SETS)]


def last_move(cpu: int, events: Iterable[DecisionEvent]) -> tuple[DecisionEvent, bool] | None:
    """The last time best-effort pods got (True) or lost (False) the CPU, among the events; None without one."""
    had: bool | None = None
    last = None
    for event in events:
        for given in _given(event.decision):
            has = cpu in given
            last = (event, has) if had is not None and has != had else last
            had = has
    return last


def _given(decision: Decision) -> Iterator[CPUSet]:
    """The set a decision about best effort asks for."""
    if decision.subject == BEST_EFFORT:
        wanted = (c.value for c in decision.changes if isinstance(c, CgroupChange) and isinstance(c.value, CPUSet))
        yield from list(wanted)[-1:]


def _listed(decision: Decision, name: str) -> CPUSet:
    try:
        return CPUSet.parse(str(decision.evidence.get(name, "")))
    except ValueError:
        return CPUSet()


def _cell(number: str, tick: Tick) -> CPUCell:
    found = next((cell for cell in tick.cpus if str(cell.cpu) == number.strip()), None)
    if found is None:
        ids = str(CPUSet(cell.cpu for cell in tick.cpus))
        raise ValueError(f"there is no CPU {number!r}; this machine has {ids or 'not been read yet'}")
    return found


def _best_effort(found: Iterable[Decision]) -> list[Decision]:
    return [decision for decision in found if decision.subject == BEST_EFFORT]


def _moves(cpu: int, events: Iterable[DecisionEvent]) -> Iterator[str]:
    last = last_move(cpu, events)
    if last:
        event, given = last
        did = "got" if given else "lost"
        moment = units.when(event.time, event.wall)
        yield f"\nlast change: best-effort pods {did} it at {moment}: {headline(event.decision)}"
