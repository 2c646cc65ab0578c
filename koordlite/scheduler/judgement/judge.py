"""Judge of a pod and a node. What is reserved comes first, then the rules of the scheduler whose agent allocates there,
and last kubelet, whose topology manager's admission is predicted from the node's report. The first refusal counts; the
choice of the first allocator is written."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Protocol

import msgspec

from koordlite.model import keys
from koordlite.model.quantity import Quantity
from koordlite.numa import volcano
from koordlite.numa.nrt import filter as nrt
from koordlite.numa.nrt import score as nrt_score
from koordlite.numa.nrt.filter import add
from koordlite.reservation import matching
from koordlite.reservation.matching import Candidate
from koordlite.reservation.placed import PlacedReservation, preferred
from koordlite.reservation.pods import PodShape
from koordlite.scheduler.judgement import crane, koordinator, reserved
from koordlite.scheduler.judgement.nodes import JudgeSettings, Promise, Row, Score, Verdict

KUBELET, VOLCANO = "kubelet", "volcano"
INVALID = "invalid node topology data"
"""Upstream's text for a node about which nothing may be concluded at present."""
ELSEWHERE = "node(s) other than that of the reservation for the pod"
OCCUPIED = "node(s) on which a placeholder still has the CPUs reserved for the pod"
SINGLE, RESTRICTED = "single-numa-node", "restricted"
_NOT_ALIGNED = Verdict(KUBELET, why="kubelet aligns nothing that the pod asks for")
_NO_REPORT = Verdict(KUBELET, why="no NodeResourceTopology: its NUMA nodes are unknown")
_NO_POLICY = Verdict(KUBELET, why="kubelet's topology manager admits every pod here")


class Allocator(Protocol):
    """The rules of one scheduler, for nodes on which its agent, or ours, carries out what was promised."""

    def concerns(self, shape: PodShape, row: Row) -> bool:
        """Tell whether pod and node ask for these rules."""

    def verdict(self, shape: PodShape, row: Row, settings: JudgeSettings) -> Verdict:
        """Judge whether the pod fits, and on which NUMA nodes."""

    def score(self, shape: PodShape, row: Row, settings: JudgeSettings) -> Score:
        """Score of the node."""

    def promise(self, shape: PodShape, row: Row, settings: JudgeSettings, uid: str) -> Promise:
        """Allocation of the pod there."""


ALLOCATORS: tuple[Allocator, ...] = (koordinator, crane)
"""Allocators in the order in which they are asked."""


def allocators(shape: PodShape, row: Row) -> list[Allocator]:
    """The schedulers' rules that pod and node ask for."""
    if row.is_plain and not shape.names_scheduler:
        return []
    return [each for each in ALLOCATORS if each.concerns(shape, row)]


def verdict(shape: PodShape, row: Row, settings: JudgeSettings) -> Verdict:
    """Judge whether the pod may go to the node."""
    one = row.reservations.match
    takes = f"takes reservation {one.name}" if one is not None else ""
    if why := reserved.refusal(shape, row):
        return Verdict(reserved.NAME, why, why=takes)
    if why := reserved.refusal_beside(shape, row):
        return Verdict(reserved.BESIDE, why)
    verdicts = [each.verdict(shape, row, settings) for each in allocators(shape, row)]
    if why := _policy_mismatch(shape, row, settings):
        verdicts.append(Verdict(VOLCANO, why))
    verdicts.append(_admission(shape, row, settings))
    first = next((each for each in verdicts if not each.passes), verdicts[0])
    return msgspec.structs.replace(first, why=takes) if takes and first.passes else first


def refusal(shape: PodShape, row: Row, settings: JudgeSettings) -> str:
    """The refusal of `verdict` alone, which is asked about thousands of nodes."""
    if why := reserved.refusal(shape, row) or reserved.refusal_beside(shape, row):
        return why
    for each in allocators(shape, row):
        if why := each.verdict(shape, row, settings).refusal:
            return why
    if shape.names_scheduler and (why := _policy_mismatch(shape, row, settings)):
        return why
    if not shape.aligned or shape.best_effort:
        return ""
    if row.unusable:
        return INVALID
    fit = _fit(shape, row, settings)
    return fit.why_not if fit is not None else ""


def for_candidate(candidate: Candidate, shape: PodShape, row: Row, settings: JudgeSettings) -> Row:
    """The node as this pod sees it: with the best of the reservations it may take in which it finds its capacity.

    A pod that may do without one, and finds it in none, is judged by what the node has beside them. It waits for one
    that is handed over to it, or on whose node pods leave, such as placeholders of reservations that are over, or have
    not been reported yet.
    """

    def passes(one: Row) -> bool:
        return verdict(shape, one, settings).passes

    on_node = row.reservations
    if candidate.ignores:
        return msgspec.structs.replace(row, reservations=msgspec.structs.replace(on_node, ignores=True), extra={})
    mine = preferred(candidate, [one for one in on_node.placed if _may_take(candidate, one, row)])
    rows = [taking(row, one, is_rest=one.is_rest(candidate.pod.metadata)) for one in mine]
    fallback = rows[0] if rows and candidate.affinity is not None else row
    # What cannot be known yet, or is about to be free, keeps no owner from its place.
    leaving = any(pod.deleting or (pod.stands_for and pod.stands_for not in on_node.uids) for pod in row.pods)
    surely = on_node.is_behind or leaving or any(one.handed_to for one in mine)
    fitting = next((each for each in rows if any(map(passes, freed(each)))), None)
    row = fitting or (rows[0] if rows and surely else fallback)
    # Placeholders that only the report still has do not count where the pod fits wherever they were.
    on_node = row.reservations
    if on_node.taking in on_node.freed and not any(pod.stands_for == on_node.taking for pod in row.pods):
        cases = list(freed(row))
        return cases[0] if all(map(passes, cases)) else row
    return row


def taking(row: Row, one: PlacedReservation, *, is_rest: bool = False) -> Row:
    """The node as a pod meets it that takes this reservation."""
    on_node = msgspec.structs.replace(row.reservations, taking=one.uid, is_rest=is_rest)
    return msgspec.structs.replace(row, reservations=on_node, extra={})


def freed(row: Row) -> Iterator[Row]:
    """The node once the placeholders of the reservation that the pod takes have gone, in each way in which they may be
    on its NUMA nodes: what they have is for the pod, and goes with them."""
    on_node = row.reservations
    cases = on_node.freed.get(on_node.taking)
    if not cases:
        yield row
        return
    pods = tuple(pod for pod in row.pods if pod.stands_for != on_node.taking)
    for zones in cases:
        yield msgspec.structs.replace(row, zones=zones, at_most={}, pods=pods, extra={})


def is_occupied(row: Row) -> bool:
    """Tell whether a placeholder still has the CPUs that the pod is to get: a node's agent gives CPUs to one pod
    only."""
    one = row.reservations.match
    if one is None or row.reservations.is_rest or not one.own.cpus:
        return False
    remainder = one.hand_over.rest if one.hand_over is not None else ""
    return any(pod.stands_for == one.uid and not pod.deleting and pod.name != remainder for pod in row.pods)


def waits_for(candidate: Candidate, row: Row) -> bool:
    """Tell whether room on this node is going to be made for the pod, so that it does not go elsewhere meanwhile."""
    uid = candidate.pod.metadata.uid
    return any(_may_take(candidate, one, row) and not one.gave_up(uid) for one in row.reservations.placed)


def _may_take(candidate: Candidate, one: PlacedReservation, row: Row) -> bool:
    if one.is_rest(candidate.pod.metadata):
        return True
    if candidate.ignores or not one.is_matchable or one.handed_to not in ("", candidate.pod.metadata.uid):
        return False
    labels = row.node.labels if row.node else {}
    return matching.match(candidate, one.object, one.holding.allocatable, labels) == matching.MATCHED


def promise(shape: PodShape, row: Row, settings: JudgeSettings, uid: str) -> Promise:
    """Annotations that the Binding of a pod to this node has to carry, or why nothing can be promised any more."""
    if why := reserved.refusal(shape, row):
        return Promise(refusal=why)
    allocation, admission = Promise(), _admission(shape, row, settings)
    nodes = admission.numa_nodes
    for each in allocators(shape, row)[:1]:
        allocation = each.promise(shape, row, settings, uid)
        if allocation.refusal:
            return allocation
        nodes = each.verdict(shape, row, settings).numa_nodes
    return Promise({**allocation.annotations, **reserved.binding_annotation(row)}, admission.refusal, nodes)


def takes(shape: PodShape, row: Row, settings: JudgeSettings) -> dict[int, dict[str, int]]:
    """Resources that kubelet would give the pod, by NUMA node; nothing where one part would be on several of them."""
    if shape.best_effort or not shape.aligned or row.unusable:
        return {}
    fit = _fit(shape, row, settings)
    if fit is None or fit.why_not or any(len(nodes) != 1 for _, nodes in fit.placed):
        return {}
    total: dict[int, dict[str, int]] = {}
    for part, (node,) in fit.placed:
        add(total.setdefault(node, {}), part.usage)
    return total


def _policy_mismatch(shape: PodShape, row: Row, settings: JudgeSettings) -> str:
    """Volcano's text when a Guaranteed pod names a topology policy, and kubelet's is another one."""
    policy, report = shape.pod.annotations.get(keys.VOLCANO_NUMA_POLICY, ""), row.report
    if policy in ("", "none") or not (settings.check_volcano and shape.guaranteed):
        return ""
    if report is None:
        return volcano.policy_mismatch(policy, None, "")
    cpu_policy = row.once(VOLCANO, lambda: report.reader([]).cpu_manager.policy)
    # A report without the CPU manager's policy comes from nodes that align, which kubelet does with static only.
    return volcano.policy_mismatch(policy, cpu_policy or "static", report.policy)


def _admission(shape: PodShape, row: Row, settings: JudgeSettings) -> Verdict:
    """Predict whether kubelet's topology manager admits a pod like `shape`."""
    if shape.best_effort or not shape.aligned:
        return _NOT_ALIGNED
    if row.unusable:
        return Verdict(KUBELET, INVALID, why=row.unusable)
    fit = _fit(shape, row, settings)
    if fit is None:
        return _NO_REPORT if row.report is None else _NO_POLICY
    if fit.why_not:
        return Verdict(KUBELET, fit.why_not)
    return _admitted(tuple((part.name or "*", nodes) for part, nodes in fit.placed))


def _fit(shape: PodShape, row: Row, settings: JudgeSettings) -> nrt.Fit | None:
    """None: without a report nothing is known, or the policy admits every pod."""
    report = row.report
    if report is None:
        return None
    policy: nrt.Policy
    if report.policy == SINGLE:
        policy = "single-numa-node"
    elif report.policy == RESTRICTED and settings.check_restricted:
        policy = "restricted"
    else:
        return None
    return nrt.admit(
        shape.request,
        policy,
        zones=row.zones,
        at_most=row.at_most or row.zones,
        totals=report.totals,
        scope=report.scope,
    )


@functools.lru_cache(maxsize=4096)
def _admitted(placed: tuple[tuple[str, tuple[int, ...]], ...]) -> Verdict:
    """Few of them differ, and thousands of nodes share them."""
    return Verdict(KUBELET, numa_nodes=tuple(sorted({node for _, nodes in placed for node in nodes})), placed=placed)


def score(shape: PodShape, row: Row, settings: JudgeSettings) -> Score:
    """Score the node for the pod, by the rules of whoever allocates there; a reservation for it is above all. By
    kubelet's NUMA nodes: the strategy in `settings`. Source: scheduler-plugins score.go."""
    total = reserved.points(shape, row)
    if total is not None:
        return Score(total, {"Reservation": total})
    if first := next(iter(allocators(shape, row)), None):
        return first.score(shape, row, settings)
    total, report = _points(shape, row, settings), row.report
    if not shape.guaranteed:
        return Score(total, {"class": "not Guaranteed: every node is as good"})
    if report is None or row.unusable:
        return Score(total, {"report": "none that can be used"})
    terms: dict[str, int | str] = {"policy": report.policy, settings.strategy: _by_amounts(shape, row, settings)}
    if settings.numa_distance:
        terms["NUMADistance"] = _nearness(shape, row)
    return Score(total, terms)


def points(shape: PodShape, row: Row, settings: JudgeSettings) -> int:
    """The total of `score` alone."""
    if row.reservations.taking or allocators(shape, row):
        return score(shape, row, settings).total
    return _points(shape, row, settings)


def _points(shape: PodShape, row: Row, settings: JudgeSettings) -> int:
    """Points by kubelet's NUMA nodes, 0 to 100."""
    total = _by_amounts(shape, row, settings)
    if not settings.numa_distance or not shape.guaranteed or row.report is None or row.unusable:
        return total
    return nrt_score.blended(total, _nearness(shape, row))


def _nearness(shape: PodShape, row: Row) -> int:
    """Points by the distance between the NUMA nodes on which kubelet's managers would put the pod."""
    report = row.report
    if report is None or report.policy not in (SINGLE, RESTRICTED, "best-effort"):
        return 0
    if report.policy == SINGLE:
        return nrt_score.NEAREST
    return nrt_score.nearness_of_parts(shape.request.of_scope(report.scope), row.zones, report.costs)


def _by_amounts(shape: PodShape, row: Row, settings: JudgeSettings) -> int:
    report, strategy = row.report, settings.strategy
    if not shape.guaranteed:
        return nrt_score.FULL
    if report is None or row.unusable or (report.policy != SINGLE and strategy != nrt_score.LEAST_NUMA_NODES):
        return 0
    if strategy == nrt_score.LEAST_NUMA_NODES:
        return nrt_score.score(
            shape.request,
            zones=row.zones,
            costs=report.costs,
            scope=report.scope,
            strategy=strategy,
            max_numa_nodes=report.max_numa_nodes,
        )
    request = shape.extra.get(report.scope)
    if request is None:
        request = nrt_score.weighted(shape.request.of_scope(report.scope), settings.weights)
        shape.extra[report.scope] = request
    units = row.extra.get("units") or row.once("units", lambda: nrt_score.whole_units(_free(row)))
    return nrt_score.mean_score(request, units, strategy)


def _free(row: Row) -> nrt.Zones:
    """Amounts by NUMA node, none above what the node has beside its own reservation."""
    most = reserved.room(row)
    if not most:
        return row.zones
    return {
        node: {name: min(nano, most.get(name, nano)) for name, nano in zone.items()} for node, zone in row.zones.items()
    }


def shortage(shape: PodShape, row: Row) -> Iterator[str]:
    """Reason why kubelet does not admit a pod, with numbers: for each resource of each part, what every NUMA node
    has."""
    if row.report is None:
        return
    for part in shape.request.of_scope(row.report.scope):
        for name, amount, is_aligned in part.requests:
            zones = {node: zone[name] for node, zone in row.zones.items() if name in zone}
            if is_aligned and zones and max(zones.values()) < amount:
                where = f"container {part.name}" if part.name else "the pod"
                there = ", ".join(f"NUMA node {node} has {_amount(nano)}" for node, nano in sorted(zones.items()))
                yield f"{where} asks {name} {_amount(amount)}; {there}"


def _amount(nano: int) -> str:
    """An amount for people: large ones as binary units."""
    return str(Quantity(nano, "BinarySI" if nano >= 2**20 * nrt.NANO else "DecimalSI"))
