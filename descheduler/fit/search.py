"""The search for nodes that would take a pod, as the plan has left them so far; nodes answer one by one.

What a pod asks is worked out once for pods of one template together, and for the pod alone what differs. Order of the
questions and their words: upstream NodeFit. Volumes, host ports, topology spread, pod affinity, whole-domain
anti-affinity, the node reservation and NUMA nodes are ours.

The emptiest node is asked first, so that a pod which fits is quickly done with. Pods that ask the same are refused
together: the answer of a node holds until the plan changes them.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import msgspec

from descheduler.fit import free_capacity, numa, pod_affinity, topology_spread
from descheduler.fit import numa as fit_numa
from descheduler.fit.free_capacity import Booking, FreeCapacity, Port
from descheduler.fit.node_rules import Closing, EligibleNodes, Groups, NodeRules, Order, Tally, merged
from descheduler.fit.pod_affinity import MatchingPods, PodAffinity, PodAntiAffinity
from descheduler.fit.topology_spread import Spread
from descheduler.framework import PodView, View
from koordlite.model import label_selectors
from koordlite.model.wire import objects
from koordlite.numa.nrt import filter as nrt


class Question(msgspec.Struct, frozen=True):
    """All that a pod asks of nodes."""

    pod: PodView
    eligible: EligibleNodes
    needs: tuple[tuple[str, int], ...]
    """Nano-units by resource."""
    blocked: pod_affinity.Blocked
    wanted: pod_affinity.Wanted
    rules: list[topology_spread.Rule]
    ports: tuple[Port, ...]
    numa: nrt.AlignedRequest | None
    key: object
    """Equal for pods that get the same answers from every node as far as resources are concerned."""
    plain: bool
    """It asks for nothing but resources on nodes of its shape. If not, no other pod gets the same answers."""

    @property
    def kind(self) -> object | None:
        """Equal for pods that get the same answer from every node they are not on; None for a pod like no other."""
        return self.key if self.plain and not self.pod.promised else None

    @property
    def closing(self) -> Closing | None:
        """The rule that is put first, to whole domains of nodes; None when resources are."""
        if self.blocked:
            key, values = self.blocked[0]
            return Closing(key, lambda value: pod_affinity.TOGETHER if value in values else "")
        if self.wanted:
            key, wanted = self.wanted[0]
            return Closing(key, lambda value: "" if pod_affinity.met(value, wanted) else pod_affinity.alone(key))
        return Closing(self.rules[0].key, self.rules[0].refusal) if self.rules else None

    @property
    def resources_only(self) -> Question:
        """The question reduced to resources: where that fits nowhere, the pod does not either."""
        return Question(self.pod, self.eligible, self.needs, [], [], [], (), None, self.key, True)


class _Kind(msgspec.Struct, frozen=True):
    """The questions that all pods of one template share."""

    eligible: EligibleNodes
    needs: tuple[tuple[str, int], ...]
    ports: tuple[Port, ...]
    numa: nrt.AlignedRequest | None
    key: object
    has_affinity: bool
    spreads: bool


class Questions:
    """Makes questions about one picture, as the plan has left it."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._node_rules = NodeRules(view)
        self._kinds: dict[tuple[object, ...], _Kind] = {}

    @functools.cached_property
    def matching_pods(self) -> MatchingPods:
        """The nodes of the pods that selectors select."""
        return MatchingPods(self._view)

    @functools.cached_property
    def anti_affinity(self) -> PodAntiAffinity:
        """The pods that may not share a domain."""
        return PodAntiAffinity(self._view, self.matching_pods)

    @functools.cached_property
    def _affinity(self) -> PodAffinity:
        return PodAffinity(self._view, self.matching_pods)

    @functools.cached_property
    def _spread(self) -> Spread:
        return Spread(self._view, self.matching_pods)

    def of(self, pod: PodView, inside: str) -> Question:
        """The pod's question at this moment of the plan."""
        key = (pod.template.spec, inside, pod.pod.kube_qos, pod.promised)
        kind = self._kinds.get(key)
        if kind is None:
            eligible = self._node_rules.of(pod, _parsed(inside))
            needs = tuple([(name, amount.nano) for name, amount in pod.pod.requests.items()])
            kind = self._kinds[key] = _Kind(
                eligible=eligible,
                needs=needs,
                ports=tuple(free_capacity.host_ports(pod)),
                numa=fit_numa.ask(pod) if fit_numa.concerned(pod) else None,
                key=(eligible, needs),
                has_affinity=bool(pod_affinity.terms(pod)),
                spreads=bool(topology_spread.constraints(pod)),
            )
        blocked = self.anti_affinity.blocked(pod)
        wanted = self._affinity.wanted(pod) if kind.has_affinity else []
        rules = self._spread.rules(pod, kind.eligible) if kind.spreads else []
        plain = not (blocked or wanted or rules or kind.ports or kind.numa)
        return Question(pod, kind.eligible, kind.needs, blocked, wanted, rules, kind.ports, kind.numa, kind.key, plain)


@functools.lru_cache(maxsize=64)
def _parsed(text: str) -> objects.LabelSelector:
    return label_selectors.parse(text)


ASK_ALL = 200
"""Up to so many nodes are all asked, for the sake of the report."""
ENOUGH = 3
"""Of more nodes, no further one is asked once so many would take the pod."""

Answer = tuple[str, tuple[Booking, ...]]
"""Why not, or else what would be taken from which NUMA node."""


class Place(msgspec.Struct, frozen=True):
    """A node the pod would fit on."""

    node: str
    here: bool = False
    """The node it is on: a restart there would do."""
    bookings: tuple[Booking, ...] = ()
    """What it would take from which NUMA node."""


class Search(msgspec.Struct, frozen=True):
    """The places for a pod, the best first, and the refusals elsewhere."""

    places: tuple[Place, ...]
    groups: Groups
    """Why other nodes do not fit: how many for each reason, and which ones for example."""
    unasked: int = 0
    """Nodes that were not asked, because enough others would take the pod."""
    by_node: Mapping[str, str] = msgspec.field(default_factory=dict)
    """What each node that does not fit says; empty unless that was asked for."""

    @property
    def why_not(self) -> Mapping[str, int]:
        """Number of nodes by reason."""
        return {why: group.nodes for why, group in self.groups.items()}

    @property
    def sentence(self) -> str:
        """All nodes' answers in one line, most frequent first."""
        ordered = sorted(self.why_not.items(), key=lambda item: (-item[1], item[0]))
        return ", ".join(f"{count} × {why}" for why, count in ordered) or "there is no other node"


class _Nowhere(msgspec.Struct):
    """Pods of one kind fit nowhere."""

    since: int
    """As of how many changes."""
    refusals: Tally
    unasked: frozenset[str]
    """The node that the pod was on: to others of its kind it might say something else."""


class _Asked(msgspec.Struct, frozen=True):
    """The answers of the nodes of the pod's shape."""

    places: list[Place]
    refusals: Tally
    closed: Groups = msgspec.field(default_factory=dict)
    """Nodes that were not asked one by one, because all of a domain refuse for one reason."""

    def groups(self, without: str) -> list[Groups]:
        """Refusals by reason."""
        return [self.refusals.groups(without), self.closed]


class FitSearch:
    """Every node's free capacity, kept up to date while a plan is made."""

    def __init__(self, view: View) -> None:
        # No reference to itself: a plan's fit has to be gone as soon as the next one has its own.
        self.by_node = by_node = {name: FreeCapacity.of(node) for name, node in view.nodes.items()}
        self._questions = Questions(view)
        self._changed: list[str] = []
        self._nowhere: dict[object, _Nowhere] = {}
        self._order = Order(view.nodes, lambda name: by_node[name].fullness)
        self._asked: tuple[object, ...] = ()
        self._question_asked: Question | None = None
        self._takers: dict[object, tuple[int, str]] = {}
        """For pods of one kind: as of how many changes, and a node that takes them."""
        self._journal: list[Callable[[], None]] | None = None
        """How to undo what was done since an attempt began; None outside of one."""

    @contextlib.contextmanager
    def attempt(self) -> Iterator[None]:
        """Whatever is noted meanwhile is forgotten in the end. Attempts are not nested: see `mark`."""
        self._journal = []
        try:
            yield
        finally:
            self.back_to(0)
            self._journal = None

    def capacity(self, node: str) -> FreeCapacity:
        """Rest that the plan leaves of a node."""
        return self.by_node[node]

    def mark(self) -> int:
        """This state of an attempt, for `back_to`."""
        return len(self._journal or ())

    def back_to(self, mark: int) -> None:
        """Undo what was noted since then."""
        journal = self._journal or []
        while len(journal) > mark:
            journal.pop()()

    def search(self, pod: PodView, inside: str = "", *, each: bool = False) -> Search:
        """Ask the nodes that `inside` selects, and report their answers. The pod's own node is asked only when a new
        start there could cure a broken promise. `each`: ask all nodes, and report what each of them says."""
        question = self._question(pod, inside)
        eligible = question.eligible
        asked = self._ask(question, len(eligible.names) if each or len(eligible.names) <= ASK_ALL else ENOUGH)
        own = pod.node if not pod.promised else ""
        never = eligible.others.by_node
        groups = merged((eligible.others.groups(own), *asked.groups(own)))
        counted = sum(group.nodes for group in groups.values()) - len(never) + (own in never)
        unasked = len(eligible.names) - len(asked.places) - counted - (own in eligible.names)
        return Search(tuple(asked.places), groups, unasked, self._by_node(question, asked, own) if each else {})

    def _by_node(self, question: Question, asked: _Asked, own: str) -> Mapping[str, str]:
        known = {**question.eligible.others.by_node, **asked.refusals.by_node}
        takers = {place.node for place in asked.places}
        others = [name for name in question.eligible.names if name not in known and name not in takers]
        known |= {name: self._answer(question, name)[0] for name in others}
        return {name: why for name, why in sorted(known.items()) if name != own}

    def fits(self, pod: PodView, inside: str = "") -> bool:
        """Tell whether `search` finds a place. Much faster, because it stops at the first."""
        question = self._question(pod, inside)
        kind = question.kind
        since, taker = self._takers.get(kind, (-1, ""))
        if since == len(self._changed) and taker != pod.node:
            return True
        places = self._ask(question, 1).places
        if places and kind is not None:
            self._takers[kind] = len(self._changed), places[0].node
        return bool(places)

    def fits_on(self, pod: PodView, names: Collection[str]) -> bool:
        """Tell whether it would fit on one of these nodes, its own included."""
        question = self._question(pod, "")
        few, many = sorted((names, question.eligible.names), key=len)
        return any(not self._answer(question, name, moved=False)[0] for name in few if name in many)

    def first_fit(self, pod: PodView, names: Iterable[str]) -> str:
        """The first of these nodes, its own aside, that it would fit on; empty when there is none."""
        question = self._question(pod, "")
        others = (name for name in names if name in question.eligible.names and name != pod.node)
        return next((name for name in others if not self._answer(question, name)[0]), "")

    def kind(self, pod: PodView) -> object | None:
        """Equal for pods that get the same answer from every node they are not on; None for a pod like no other."""
        return self._question(pod, "").kind

    def answer(self, pod: PodView, node: str) -> Answer:
        """Answer of one node to a pod that comes to it anew."""
        question = self._question(pod, "")
        static = question.eligible.others.by_node.get(node)
        return (static, ()) if static else self._answer(question, node)

    def eligible(self, pod: PodView) -> Collection[str]:
        """Nodes that would take it by their state, labels and taints."""
        return self._question(pod, "").eligible.names

    def refusal(self, pod: PodView, node: str) -> str:
        """Refusal of one node, be it the pod's own; empty when the pod fits there.

        Resources are not asked of its own node, as upstream has it: it is there already.
        """
        question = self._question(pod, "")
        return question.eligible.others.by_node.get(node) or self._answer(question, node, moved=False)[0]

    def move(self, pod: PodView, place: Place) -> None:
        """Note that the plan takes `pod` away, and that its successor is expected at `place`."""
        self._leave(pod)
        self._set(place.node, self.by_node[place.node].with_arrival(pod, place.bookings))
        self._match(pod, place.node)
        self._questions.anti_affinity.came(pod, place.node)
        if self._journal is not None:
            self._journal.append(lambda: self._questions.anti_affinity.left(pod, place.node))

    def leave(self, pod: PodView) -> None:
        """Note that the plan takes `pod` away, to nowhere we know of."""
        self._leave(pod)
        self._match(pod, "")

    def _match(self, pod: PodView, node: str) -> None:
        matching = self._questions.matching_pods
        before = matching.node_of(pod)
        matching.move(pod, node)
        if self._journal is not None:
            self._journal.append(lambda: matching.move(pod, before))

    def _leave(self, pod: PodView) -> None:
        capacity = self.by_node.get(pod.node)
        after = capacity.without(pod) if capacity else None
        if after is None or after is capacity:  # It has left before.
            return
        self._set(pod.node, after)
        self._questions.anti_affinity.left(pod, pod.node)
        if self._journal is not None:
            self._journal.append(lambda: self._questions.anti_affinity.came(pod, pod.node))

    def _set(self, name: str, capacity: FreeCapacity) -> None:
        before = self.by_node[name]
        self.by_node[name] = capacity
        self._order.changed(name, before.fullness, capacity.fullness)
        self._changed.append(name)
        if self._journal is not None:
            self._journal.append(lambda: self._restore(name, before))

    def _restore(self, name: str, capacity: FreeCapacity) -> None:
        self._order.changed(name, self.by_node[name].fullness, capacity.fullness)
        self.by_node[name] = capacity
        self._changed.append(name)

    def _question(self, pod: PodView, inside: str) -> Question:
        """The last question is kept: whether a pod fits is asked by its plugin, and then again by the cycle."""
        asked = (pod.uid, inside, len(self._changed))
        if asked != self._asked or self._question_asked is None:
            self._asked, self._question_asked = asked, self._questions.of(pod, inside)
        return self._question_asked

    def _ask(self, question: Question, most: int) -> _Asked:
        """Up to `most` places, and why the other nodes are none."""
        pod = question.pod
        known = None if pod.promised else self._known_nowhere(question)
        if known is not None:
            return _Asked([], known)
        eligible, closing = question.eligible, question.closing
        if closing is None or most >= len(eligible.names):
            asked = self._ask_nodes(question, self._order.of(eligible), most)
        else:
            asked = self._ask_nodes(question, self._order.open_to(eligible, closing), most)
            if not asked.places:
                own = "" if pod.promised else pod.node
                asked = msgspec.structs.replace(asked, closed=self._order.closed(eligible, closing, own))
        if asked.places or pod.promised:
            return asked
        if question.plain:
            self._nowhere[question.key] = _Nowhere(len(self._changed), asked.refusals, frozenset((pod.node,)))
            return asked
        # Too little capacity for any pod of its kind? That is remembered for all of them, and reported instead.
        plainly = self._ask(question.resources_only, 1)
        return asked if plainly.places else plainly

    def _ask_nodes(self, question: Question, names: Iterable[str], most: int) -> _Asked:
        pod, by_node = question.pod, self.by_node
        places, refused = list[Place](), dict[str, str]()
        for name in names:
            if name == pod.node:
                if not pod.promised:
                    continue
                why, bookings = self._answer(question, name)
            else:
                # As `_answer`, whose call would cost as much as most refusals.
                capacity = by_node[name]
                why, bookings = _refusal(question, capacity, resources=True), ()
                if not why and question.numa is not None:
                    why, bookings = numa.answer(pod, capacity, question.numa)
            if why:
                refused[name] = why
                continue
            places.append(Place(name, name == pod.node, bookings))
            if len(places) == most:
                break
        return _Asked(places, Tally(refused))

    def _known_nowhere(self, question: Question) -> Tally | None:
        """Refusals of a pod like this, when none of them takes it even now; None when that is not known."""
        found = self._nowhere.get(question.key)
        if found is None:
            return None
        question = question if question.plain else question.resources_only
        since = dict.fromkeys((*self._changed[found.since :], *found.unasked))
        open_ = [name for name in since if name in question.eligible.names]
        for name in open_:
            if name == question.pod.node:
                continue
            why = self._answer(question, name)[0]
            if not why:
                del self._nowhere[question.key]
                return None
            found.refusals.note(name, why)
        found.since, found.unasked = len(self._changed), frozenset((question.pod.node,)).intersection(open_)
        return found.refusals

    def _answer(self, question: Question, name: str, *, moved: bool = True) -> Answer:
        """Answer of a node of the pod's shape. `moved`: the pod would restart there, even where it is already."""
        capacity, pod = self.by_node[name], question.pod
        here = name == pod.node
        if here:
            capacity = capacity.without(pod)
        why = _refusal(question, capacity, resources=moved or not here)
        if why or question.numa is None:
            return why, ()
        return numa.answer(pod, capacity, question.numa)


def _refusal(question: Question, capacity: FreeCapacity, *, resources: bool) -> str:
    """The first objection but for NUMA nodes, the quickest to find first: asked hundreds of thousands of times."""
    labels = capacity.node.node.labels
    for key, values in question.blocked:
        if labels.get(key) in values:
            return pod_affinity.TOGETHER
    for key, wanted in question.wanted:
        if not pod_affinity.met(labels.get(key), wanted):
            return pod_affinity.alone(key)
    for rule in question.rules:
        why = rule.refusal(labels.get(rule.key))
        if why:
            return why
    if resources:
        free = capacity.unrequested
        for name, nano in question.needs:
            if nano > free.get(name, 0):
                return f"insufficient {name}"
        if capacity.free_slots is not None and capacity.free_slots < 1:
            return "insufficient pods"
    taken = next((port for port in question.ports if free_capacity.clashes(port, capacity.ports)), None)
    return f"host port {taken[1]}/{taken[0]} is in use" if taken else ""
