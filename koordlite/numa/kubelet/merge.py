"""The topology manager: hints of all managers into one affinity, and whether its policy admits that.

Source: kubelet 1.36, `cm/topologymanager` (`policy.go`, `numa_info.go`, `policy_options.go`). Up to 1.25 hints with
different masks could be preferred together; `Rules.equal_masks` false merges by that rule, as 1.23 did.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, get_args

import msgspec

from koordlite.model.reading.go_words import parse_bool
from koordlite.numa.machine import mask_of, subsets
from koordlite.numa.nrt import score
from koordlite.numa.nrt.score import Costs

Policy = Literal["none", "best-effort", "restricted", "single-numa-node"]
Scope = Literal["container", "pod"]
POLICIES: tuple[Policy, ...] = get_args(Policy)
SCOPES: tuple[Scope, ...] = get_args(Scope)
LEAST_MAX_NODES = 8
"""Default and smallest value of `max-allowable-numa-nodes`: with a policy kubelet does not start on more nodes."""


class Hint(NamedTuple):
    """NUMA nodes that could serve a request; `mask` None is no opinion. `preferred`: no fewer nodes could ever do."""

    mask: int | None
    preferred: bool


Hints = Mapping[str, Sequence[Hint] | None]
"""Hints of a manager by resource name: None is no opinion, an empty list that nothing could serve the request."""


Nodes = tuple[int, ...]


def hints_by_nodes(
    nodes: Iterable[int],
    could: Callable[[Nodes], bool],
    can: Callable[[Nodes, int], bool],
    preferred: Callable[[Nodes, int], bool] = lambda members, fewest: len(members) == fewest,
) -> list[Hint]:
    """A hint for every set of NUMA nodes (ids, mask) that `can` serve the request now. Preferred are those of the
    smallest size that `could` serve it on an empty machine."""
    sets = list(subsets(nodes))
    fewest = next((len(members) for members, _ in sets if could(members)), len(sets[-1][0]) if sets else 0)
    return [Hint(mask, preferred(members, fewest)) for members, mask in sets if can(members, mask)]


_NO_OPINION = (Hint(None, True),)
_IMPOSSIBLE = (Hint(None, False),)


class Rules(msgspec.Struct, frozen=True):
    """Settings of a merge: the machine's NUMA nodes, and what the options say."""

    nodes: tuple[int, ...]
    distances: Costs = msgspec.field(default_factory=dict)
    prefer_closest: bool = False
    """Option `prefer-closest-numa-nodes`."""
    equal_masks: bool = True
    """Hints with different masks are not preferred together (since kubelet 1.26)."""


class Options(msgspec.Struct, frozen=True):
    """`topologyManagerPolicyOptions`."""

    prefer_closest: bool = False
    max_nodes: int = LEAST_MAX_NODES

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Options:
        """The options as kubelet reads them; ValueError for what kubelet refuses to start with."""
        closest, most = False, LEAST_MAX_NODES
        for name, value in options.items():
            if name == "prefer-closest-numa-nodes":
                closest = parse_bool(value)
            elif name == "max-allowable-numa-nodes":
                most = _max_nodes(name, value)
            else:
                raise ValueError(f"unknown Topology Manager Policy option: {name!r}")
        return cls(closest, most)


NO_OPTIONS = Options()


def merge(policy: Policy, providers: Iterable[Hints | None], rules: Rules) -> tuple[Hint, bool]:
    """(affinity, admitted) of what the managers say, by the policy.

    A mask None in the answer is no affinity: policy `none`, and `single-numa-node` where all nodes are as good.
    """
    if policy == "none":
        return Hint(None, False), True
    hints = _by_resource(providers)
    if policy == "single-numa-node":
        hints = [[h for h in each if h.preferred and (h.mask is None or h.mask.bit_count() == 1)] for each in hints]
        best = _best(hints, msgspec.structs.replace(rules, prefer_closest=False))
        best = Hint(None if best.mask == mask_of(rules.nodes) else best.mask, best.preferred)
        return best, best.preferred
    best = _best(hints, rules)
    return best, policy == "best-effort" or best.preferred


def _by_resource(providers: Iterable[Hints | None]) -> list[Sequence[Hint]]:
    lists: list[Sequence[Hint]] = []
    for hints in providers:
        if not hints:
            lists.append(_NO_OPINION)
            continue
        lists.extend(_NO_OPINION if each is None else each or _IMPOSSIBLE for each in hints.values())
    return lists


def _best(hints: Sequence[Sequence[Hint]], rules: Rules) -> Hint:
    """The best of all combinations of one hint each; all nodes, not preferred, when no combination shares a node."""
    target = max(
        (min((hint.mask.bit_count() for hint in each if hint.mask is not None), default=0) for each in hints), default=0
    )
    candidates = [merged for merged in _combinations(hints, rules) if merged.mask]
    everywhere = Hint(mask_of(rules.nodes), False)
    return min(candidates, key=lambda hint: _rank(hint, target, rules), default=everywhere)


def _combinations(hints: Sequence[Sequence[Hint]], rules: Rules) -> set[Hint]:
    """Merge each combination: masks ANDed, preferred if all are, and all masks the same where that is asked.

    Built up resource by resource, so that equal intermediate results are counted once.
    """
    reached: set[_Partial] = {_Partial(mask_of(rules.nodes), True, None)}
    for each in hints:
        reached = {_joined(partial, hint, rules) for partial in reached for hint in each}
    return {Hint(partial.mask, partial.preferred) for partial in reached}


class _Partial(NamedTuple):
    """A combination on its way. `only`: the mask that those with an opinion share so far, while it is preferred."""

    mask: int
    preferred: bool
    only: int | None


def _joined(partial: _Partial, hint: Hint, rules: Rules) -> _Partial:
    if hint.mask is None:
        preferred = partial.preferred and hint.preferred
        return _Partial(partial.mask, preferred, partial.only if preferred else None)
    alike = partial.only in (None, hint.mask) or not rules.equal_masks
    preferred = partial.preferred and hint.preferred and alike
    return _Partial(partial.mask & hint.mask, preferred, hint.mask if preferred and rules.equal_masks else None)


def _rank(hint: Hint, target: int, rules: Rules) -> tuple[int, int, float, int]:
    """Smaller is better.

    Of preferred hints the narrowest. Of others one of just `target` nodes, the most that a single resource needs;
    then the widest below it, then the narrowest above it. Ties go to the smaller distance if that is asked, then to
    the smaller mask.
    """
    mask = hint.mask or 0
    size = mask.bit_count()
    distance = score.mean_distance(mask, rules.distances) if rules.prefer_closest else 0.0
    if hint.preferred:
        return 0, size, distance, mask
    if size <= target:
        return 1, -size, distance, mask
    return 2, size, distance, mask


def _max_nodes(name: str, value: str) -> int:
    try:
        number = int(value)
    except ValueError:
        raise ValueError(f"unable to convert policy option to integer {name!r}: {value!r}") from None
    if number < LEAST_MAX_NODES:
        raise ValueError(f"the minimum value of {name!r} should not be less than {LEAST_MAX_NODES}")
    return number


AFFINITY = "TopologyAffinityError"
SMT = "SMTAlignmentError"
UNEXPECTED = "UnexpectedAdmissionError"


class Refused(Exception):
    """A manager refuses: `reason` and `message` are those of the pod's status."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason, self.message = reason, message


def unexpected(error: str) -> Refused:
    """An allocation that failed although the topology manager had admitted it."""
    return Refused(UNEXPECTED, f"Allocate failed due to {error}, which is unexpected")
