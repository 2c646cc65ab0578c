"""Hints: NUMA nodes of a node that would do for a pod, resource by resource, with scores of 0 to 100; and the one that
they are merged to, with the policy's answer.

Source: Koordinator v1.9 `GetTopologyHints`, `generateResourceHints` (resource_manager.go), scoring.go,
least_allocated.go, most_allocated.go, frameworkext/topologymanager (policy.go, policy_best_effort.go,
policy_restricted.go, policy_single_numa_node.go). Under Restricted every hint is preferred
(`hints`), so it is weaker than kubelet's.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from koordlite.numa.koordinator.allocate import NodeRequest
from koordlite.numa.koordinator.ask import NUMAArgs
from koordlite.numa.koordinator.values import (
    BEST_EFFORT,
    EXCLUSIVE_REQUIRED,
    IDLE,
    MOST_ALLOCATED,
    RESTRICTED,
    SHARED,
    SINGLE,
    SINGLE_NUMA_NODE,
    Amounts,
    Hint,
    Zones,
    mask_text,
)
from koordlite.numa.machine import mask_of, nodes_of, subsets
from koordlite.numa.nrt.score import Costs, mean_distance

Provider = Mapping[str, Sequence[Hint] | None]
"""Hints by resource: None is no preference, an empty list that no NUMA nodes would do."""
_MOST_COMBINATIONS = 20_000


class Merged(msgspec.Struct, frozen=True):
    """The best hint, and whether the pod may run with it."""

    hint: Hint
    admitted: bool
    reasons: tuple[str, ...] = ()


def merge(
    policy: str,
    nodes: Sequence[int],
    providers: Sequence[Provider | None],
    *,
    exclusive: str,
    states: Mapping[int, str],
    costs: Costs | None = None,
) -> Merged:
    """The hint for the pod. `states`: those of `NodeAllocation`, for the `exclusive` rule. `costs`: of as many NUMA
    nodes those nearest together come first; None: Koordinator's order."""
    lists, reasons = _collected(providers)
    everywhere = mask_of(nodes)
    if policy != BEST_EFFORT and reasons:
        return Merged(Hint(None if policy == SINGLE_NUMA_NODE else everywhere), False, tuple(reasons))
    if policy == SINGLE_NUMA_NODE:
        lists = [[h for h in hints if h.preferred and (h.mask is None or h.mask.bit_count() == 1)] for hints in lists]
    best = _best(lists, everywhere, lambda mask: may_use(mask, exclusive, states), costs)
    if policy == BEST_EFFORT:
        return Merged(Hint(everywhere) if best.unsatisfied else best, True)
    if policy == SINGLE_NUMA_NODE and best.mask == everywhere:
        best = Hint(None, best.preferred)
    if best.preferred:
        return Merged(best, True)
    joined = ("," if policy == SINGLE_NUMA_NODE else " & ").join(sorted(_summaries(providers)))
    return Merged(best, False, (f"Unaligned NUMA Hint cause {joined}",))


def may_use(mask: int | None, exclusive: str, states: Mapping[int, str]) -> bool:
    """Tell whether the exclusive rule `Required` lets a pod use these NUMA nodes.

    One node must not be shared by a pod that spans several; several must not hold one of pods that stay in it.
    """
    if mask is None or exclusive != EXCLUSIVE_REQUIRED:
        return mask is not None
    refused = SINGLE if mask.bit_count() > 1 else SHARED
    return all(states.get(node, IDLE) != refused for node in nodes_of(mask))


def _collected(providers: Iterable[Provider | None]) -> tuple[list[Sequence[Hint]], list[str]]:
    """(lists of hints, a reason for each resource without any), resources by name."""
    lists: list[Sequence[Hint]] = []
    reasons: list[str] = []
    for provider in providers:
        for resource, hints in sorted(provider.items()) if provider else (("", None),):
            if hints is None:
                lists.append((Hint(None, preferred=True),))
            elif not hints:
                lists.append((Hint(None, unsatisfied=True),))
                reasons.append(f"Unsatisfied NUMA {resource}")
            else:
                lists.append(hints)
    return lists, reasons


def _summaries(providers: Iterable[Provider | None]) -> Iterator[str]:
    for resource, hints in (pair for provider in providers if provider for pair in provider.items()):
        possible = [
            ("<nil>" if hint.mask is None else mask_text(hint.mask), hint.preferred)
            for hint in hints or ()
            if not hint.unsatisfied
        ]
        if hints:
            preferred = " ".join(mask for mask, is_preferred in possible if is_preferred)
            yield f"{resource} prefer [{preferred}] among [{' '.join(mask for mask, _ in possible)}]"


def _best(
    lists: Sequence[Sequence[Hint]], everywhere: int, allowed: Callable[[int], bool], costs: Costs | None
) -> Hint:
    """The best of all combinations of one hint from each list.

    Preferred ones decide when there are any, and they are found without going through the others. Where there are none,
    and too many combinations to try, the narrowest hints of each list are tried.
    """
    best = Hint(everywhere)
    for combination in _aligned(lists):
        candidate = _combined(combination, everywhere, allowed)
        if candidate.mask and candidate.preferred and (not best.preferred or _beats(candidate, best, costs)):
            best = candidate
    if best.preferred:
        return best
    for combination in _all(lists):
        candidate = _combined(combination, everywhere, allowed)
        if candidate.mask and _beats(candidate, best, costs):
            best = candidate
    return best


def _beats(candidate: Hint, best: Hint, costs: Costs | None) -> bool:
    """Fewer NUMA nodes; of as many, nearer ones where that counts, then lower ones, or a higher score."""
    assert candidate.mask is not None and best.mask is not None
    a, b = (candidate.mask.bit_count(), candidate.mask), (best.mask.bit_count(), best.mask)
    if costs is not None and a[0] == b[0]:
        here, there = mean_distance(candidate.mask, costs), mean_distance(best.mask, costs)
        if here != there:
            return here < there
    return a < b or (a[0] == b[0] and candidate.score > best.score)


def _aligned(lists: Sequence[Sequence[Hint]]) -> Iterator[tuple[Hint, ...]]:
    """Combinations of preferred hints for the same NUMA nodes, in the order of all combinations."""
    places = [_by_mask(hints) for hints in lists]

    def beginning(prefix: tuple[Hint, ...], mask: int | None) -> Iterator[tuple[Hint, ...]]:
        if len(prefix) == len(lists):
            yield prefix
            return
        hints, by_mask = lists[len(prefix)], places[len(prefix)]
        same = range(len(hints)) if mask is None else sorted([*by_mask.get(mask, ()), *by_mask.get(None, ())])
        for place in same:
            if hints[place].preferred:
                yield from beginning((*prefix, hints[place]), hints[place].mask if mask is None else mask)

    return beginning((), None)


def _by_mask(hints: Sequence[Hint]) -> dict[int | None, list[int]]:
    places: dict[int | None, list[int]] = {}
    for place, hint in enumerate(hints):
        places.setdefault(hint.mask, []).append(place)
    return places


def _all(lists: Sequence[Sequence[Hint]]) -> Iterator[tuple[Hint, ...]]:
    if math.prod(map(len, lists)) > _MOST_COMBINATIONS:
        most = max(1, int(_MOST_COMBINATIONS ** (1 / len(lists))))
        lists = [
            sorted(hints, key=lambda hint: ((hint.mask or 0).bit_count(), hint.mask or 0))[:most] for hints in lists
        ]
    return itertools.product(*lists)


def _combined(combination: Sequence[Hint], everywhere: int, allowed: Callable[[int], bool]) -> Hint:
    """The NUMA nodes common to all; preferred when all are, and name the same ones."""
    masks = [hint.mask for hint in combination if hint.mask is not None]
    merged, widest = everywhere, 0
    for mask in masks:
        merged &= mask
        widest = max(widest, mask.bit_count())
    preferred = all(hint.preferred for hint in combination) and len(set(masks)) <= 1 and merged != 0 and allowed(merged)
    satisfied = not any(hint.unsatisfied for hint in combination) and (not masks or widest == merged.bit_count())
    score = sum(hint.score for hint in combination if hint.mask == merged)
    return Hint(merged, preferred, score, unsatisfied=not satisfied)


Fits = Callable[[int], bool]
"""Test whether the pod can be allocated inside the NUMA nodes of a mask."""


def hints(
    zones: Zones, available: Zones, request: NodeRequest, fits: Fits, *, policy: str, settings: NUMAArgs | None
) -> dict[str, Sequence[Hint]]:
    """Hints for each requested resource that NUMA nodes have; an empty list where no set of them would do.

    A set of NUMA nodes is a hint when the whole pod can be allocated inside it and each of them has some of the
    resource. The smallest sets are preferred; under Restricted all are. Without `settings` nothing is scored.
    """
    listed = {name for part in zones.values() for name in part}
    lacking = {
        name: mask_of(zone for zone, part in available.items() if name not in part or not part[name].nano)
        for name in request.requests
        if name in listed
    }
    scores: dict[str, list[tuple[int, int]]] = {name: [] for name in lacking}
    points = _Points(zones, available, request, settings) if settings else None
    for _, mask in subsets(zones):
        names = [name for name in scores if not mask & lacking[name]]
        if names and fits(mask):
            score_of_mask = points.of(mask) if points else 0
            for name in names:
                scores[name].append((mask, score_of_mask))
    return {name: _preferred(pairs, len(zones), policy) for name, pairs in scores.items()}


def _preferred(pairs: Sequence[tuple[int, int]], most: int, policy: str) -> list[Hint]:
    smallest = min([most, *(mask.bit_count() for mask, _ in pairs)])
    return [Hint(mask, mask.bit_count() == smallest or policy == RESTRICTED, points) for mask, points in pairs]


class _Points:
    """The score of a set of NUMA nodes: what is used of them now, and the pod."""

    def __init__(self, zones: Zones, available: Zones, request: NodeRequest, settings: NUMAArgs) -> None:
        self.settings = settings
        self.request = whole(request.requests, settings.weights)
        self.total = {name: _nano(name, zones) for name in settings.weights}
        self.free = {name: _nano(name, available) for name in settings.weights}

    def of(self, mask: int) -> int:
        """The score of these NUMA nodes."""
        here, total, used = nodes_of(mask), dict[str, int](), dict[str, int]()
        for name in self.settings.weights:
            most = sum(self.total[name].get(zone, 0) for zone in here)
            free = sum(self.free[name].get(zone, 0) for zone in here)
            total[name] = whole_nano(name, most)
            used[name] = whole_nano(name, max(most - free, 0))
        return score(
            self.settings.numa_scoring, self.settings.weights, allocatable=total, requested=used, request=self.request
        )


def _nano(name: str, zones: Zones) -> Mapping[int, int]:
    return {zone: amounts[name].nano for zone, amounts in zones.items() if name in amounts}


MOST = 100
Whole = Mapping[str, int]
"""Thousandths of a CPU, whole units of anything else, by resource."""
_NATIVE = ("cpu", "memory", "ephemeral-storage")


def score(strategy: str, weights: Mapping[str, int], *, allocatable: Whole, requested: Whole, request: Whole) -> int:
    """The weighted mean over resources of how empty (or, under MostAllocated, how full) they would be with the pod.

    Resources of which there is nothing do not count, nor do extended ones the pod does not ask for.
    """
    total = weight_sum = 0
    for name, weight in weights.items():
        more, most = request.get(name, 0), allocatable.get(name, 0)
        if not most or (not more and name not in _NATIVE):
            continue
        total += weight * _one(strategy, requested.get(name, 0) + more, most)
        weight_sum += weight
    return total // weight_sum if weight_sum else 0


def whole(amounts: Amounts, names: Iterable[str]) -> dict[str, int]:
    """The amounts of these resources as the scheduler counts them, rounded up."""
    return {name: amounts[name].milli if name == "cpu" else amounts[name].value for name in names if name in amounts}


def whole_nano(name: str, nano: int) -> int:
    """The same for one amount in nano-units."""
    return -(-nano // 10**6) if name == "cpu" else -(-nano // 10**9)


def _one(strategy: str, used: int, most: int) -> int:
    if strategy == MOST_ALLOCATED:
        return min(used, most) * MOST // most
    return 0 if used > most else (most - used) * MOST // most
