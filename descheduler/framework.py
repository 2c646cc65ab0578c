"""The words between the cycle and its plugins: what a plugin is given, what it may yield, what it is answered.

A plugin is a module with

* `NAME`, as in policy files, and `POINT`: `deschedule` or `balance`;
* `Config`, a frozen dataclass with a docstring under every field: its arguments, read strictly;
* `ORDER`, where it has one: `own` (the default: what it names is decided on at once, in the order in which it names it)
  or `cycle` (it names in any order, and the cycle sorts: lowest priority first and so on);
* `judge(view, config, handle)`, a generator. `verdict = yield Finding(...)` names a pod and learns at once whether the
  plan takes it, so that a balancing plugin subtracts only what really goes. Who does not care ignores the answer;
* `READS`, where it does not follow from everything: which `Facet`s its findings follow from. While none of them has
  changed, nor nodes, pods' specs and places, nor the plan so far, what it named in the last cycle is named again;
* `numbers(pod, view, config, handle)`, if it has something to say of a single pod: the numbers that it goes by, in one
  line, also where nothing is wrong. Only `explain` asks.

It never evicts and changes nothing. It may name a pod that is guarded: the answer is no, and the report shows the pod
with the guard's reason. Guards say why not, limits how many, fit where to.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from descheduler.picture.cluster import (
    DisruptionBudget,
    NodeGroup,
    NodeView,
    ReservedCPUs,
    Usage,
    View,
)
from descheduler.picture.pods import PodView
from descheduler.picture.templates import SpecGroup
from koordlite.formulas.make_room import Rooms
from koordlite.formulas.topology.numa import Severity
from koordlite.model import duration

__all__ = [
    "FACETS",
    "POINTS",
    "Aside",
    "Conversation",
    "Cordon",
    "DeletionCost",
    "DisruptionBudget",
    "Facet",
    "Finding",
    "Handle",
    "Judge",
    "NodeGroup",
    "NodeView",
    "Note",
    "Plugin",
    "PodView",
    "Point",
    "Refusal",
    "Remember",
    "ReservedCPUs",
    "Rooms",
    "Together",
    "Usage",
    "Verdict",
    "View",
    "judgeable",
    "stale_placement",
]

Point = Literal["deschedule", "balance"]
"""Point at which a plugin works: all of `deschedule`, of every profile, before the first of `balance`."""
POINTS: tuple[Point, ...] = ("deschedule", "balance")
Facet = Literal["statuses", "time", "usage"]
"""Parts of a picture that change where no place of a pod follows from them: statuses of pods, which of them have ended,
and reports of what their containers have; the time; and measured usage."""
FACETS: frozenset[Facet] = frozenset(("statuses", "time", "usage"))


class Refusal(msgspec.Struct, frozen=True):
    """A reason not to evict a pod: a stable CamelCase word, and a sentence."""

    reason: str
    text: str


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a plugin says is wrong with a pod."""

    pod: str
    """uid."""
    reason: str
    """A stable CamelCase word."""
    severity: Severity = "hard"
    """`hard`: only a move cures it. Findings that are not hard are reported and never evict."""
    container: str = "*"
    promise: str = ""
    """Promise or requirement, one line; empty when the fact says it all."""
    fact: str = ""
    """The fact against it, one line."""
    cure: str = ""
    """A cure, one line."""
    evidence: Mapping[str, int | float | str] = msgspec.field(default_factory=dict)
    weight: float = 0
    """Amount of it: CPUs, or a ratio. Of pods that are equal otherwise, the heavier goes first."""
    kept: Refusal | None = None
    """The plugin's own reason not to evict yet."""
    min_age_seconds: float = 0
    """A younger pod, or one of unknown age, is kept: what was promised may not have reached the node yet."""
    sightings: int = 1
    """Number of pictures in a row that must show it before a pod is evicted for it."""
    home: Literal["", "any", "elsewhere"] = ""
    """Evict only if a place is known where it would be placed well, whatever `nodeFit` says: `any`, a new start on its
    own node included, or `elsewhere`."""
    plugin: str = ""
    """Filled in by the cycle."""


class Together(msgspec.Struct, frozen=True, kw_only=True):
    """Findings about pods that go all or not at all, so that another pod fits; yielded like one finding, with one
    verdict for all."""

    findings: tuple[Finding, ...]
    homes: tuple[str, ...]
    """The node on which each of them is expected, in the same order."""
    waiting: PodView
    """The pod that waits for a node."""
    node: str
    """The node on which it would fit then."""


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """Something a plugin could not judge, and why."""

    node: str = ""
    """Empty when it speaks of all nodes."""
    reason: str
    text: str
    plugin: str = ""
    """Filled in by the cycle."""

    @property
    def line(self) -> str:
        """All of it, for people."""
        return f"{self.node or 'all nodes'}: {self.reason} ({self.plugin}): {self.text}"


class Remember(msgspec.Struct, frozen=True):
    """A value that a plugin gets back in the next cycle; the last one counts."""

    value: object


class Cordon(msgspec.Struct, frozen=True):
    """A node that is to take no more pods, yielded before its pods are named. Where none of them goes it is opened
    again; in a dry run nothing happens to it."""

    node: str


class DeletionCost(msgspec.Struct, frozen=True):
    """A pod's place in the order in which its owner should remove pods; the lowest goes first. Nothing is evicted."""

    pod: str
    """uid."""
    cost: int
    why: str


class Verdict(msgspec.Struct, frozen=True):
    """The answer to a finding."""

    evicted: bool
    reason: str = ""
    """The word of the guard or limit that protects the pod; empty when it is evicted."""
    stop: Literal["", "node", "namespace", "total"] = ""
    """A limit is used up: nothing more can go from this node, of this namespace, or at all in this cycle."""


class Handle(Protocol):
    """A plugin's questions about the policy and the plan so far. Answers are for the plugin's own profile."""

    @property
    def nodes(self) -> NodeGroup:
        """Nodes to judge, by name: ready, and chosen by the policy's nodeSelector. `view.nodes` are all there are."""

    @property
    def remembered(self) -> object:
        """The value of `Remember` from the last cycle; None the first time."""

    def refusals(self, pod: PodView) -> tuple[Refusal, ...]:
        """Every guard that speaks against evicting the pod (upstream Filter); empty when none does."""

    def evictable(self, pod: PodView) -> bool:
        """No guard speaks against evicting it (upstream Filter). Cheap: remembered for the cycle."""

    def evictable_of(self, group: SpecGroup) -> Sequence[PodView]:
        """Its pods that are `evictable`, in the order of the picture: asked once where the pods do not differ."""

    def movable(self, pod: PodView) -> bool:
        """It may go as far as nodeFit and namespaceLabelSelector are concerned (upstream PreEvictionFilter)."""

    def fits(self, pod: PodView, nodes: Iterable[NodeView]) -> bool:
        """It would fit on one of these nodes (upstream NodeFit), whatever `nodeFit` says. Quickest for a
        `NodeGroup`."""

    def first_fit(self, pod: PodView, nodes: Iterable[NodeView]) -> NodeView | None:
        """The first of these nodes, its own aside, that it would fit on, whatever `nodeFit` says."""

    def kind(self, pod: PodView) -> object | None:
        """Equal for pods that get the same answer from every node they are not on; None for a pod like no other."""

    def going(self, pod: PodView) -> bool:
        """The plan takes it already. Upstream keeps showing such pods to plugins, and so does the view."""

    def rooms(self, waiting: PodView, most_moves: int) -> Rooms[PodView]:
        """Places for a pod that waits after up to so many moves, of pods that may all go and fit elsewhere."""

    def usage(self, source: str, query: str = "") -> Usage:
        """Measured usage from `KubernetesMetrics`, or from `Prometheus` by its query; `absent` says why not."""


Aside = Note | Remember | Cordon | DeletionCost
"""Values that a plugin yields and that get no answer."""
Conversation = Generator[Finding | Together | Aside, Verdict | None, None]
"""Conversation of a plugin with the cycle. Only a `Finding`, and findings `Together`, get a verdict."""

Judge = Callable[[View, Any, Handle], Conversation]
Numbers = Callable[[PodView, View, Any, Handle], str]


class Plugin(msgspec.Struct, frozen=True):
    """A rule found in the package `plugins`, or in the entry point group `descheduler.plugins`."""

    name: str
    """Name in a policy file: `ReservedCPUs`."""
    config: type[Any]
    """Its arguments: a frozen dataclass with a docstring under every field."""
    judge: Judge
    doc: str
    point: Point = "deschedule"
    order: Literal["own", "cycle"] = "own"
    numbers: Numbers | None = None
    """Its numbers about one pod; None when it has no words for that."""
    reads: frozenset[Facet] = FACETS
    """Facets that its findings follow from."""


def judgeable(pod: PodView) -> bool:
    """Pods that have ended, or are going, are not judged."""
    return pod.pod.active and not pod.pod.deleting


def stale_placement(node: NodeView, oldest_seconds: float, view: View) -> Note | None:
    """The note on a node that cannot be judged: its agent stopped looking, and pods may have moved since. None when it
    can."""
    age = view.placement_age(node)
    if age is None or age <= oldest_seconds:
        return None
    ago = "at an unknown time" if age == float("inf") else f"{duration.brief(age)} ago"
    text = f"the agent last reported {ago}, more than {duration.brief(oldest_seconds)}: its pods are not judged"
    return Note(node=node.name, reason="StalePlacement", text=text)
