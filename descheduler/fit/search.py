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
from descheduler.fit.free_capacity import Booking, FreeCapacity, Port
from descheduler.fit.node_rules import Closing, EligibleNodes, Groups, NodeRules, Order, Tally, merge
from descheduler.fit.pod_affinity import MatchingPods, PodAffinity, PodAntiAffinity
from descheduler.fit.topology_spread import Spread
from descheduler.framework import PodView, View
from koordlite.model import label_selectors
from koordlite.model.wire import objects
from koordlite.numa.nrt import filter as nrt


class _Static(msgspec.Struct, frozen=True):
    """The requirements of all pods of one template, whatever the plan does."""

    eligible: EligibleNodes
    needs: tuple[tuple[str, int], ...]
    """Nano-units by resource."""
    ports: tuple[Port, ...]
    numa: nrt.AlignedRequest | None
    key: object
    """Equal for pods that get the same answers from every node as far as resources are concerned."""
    has_affinity: bool
    spreads: bool


class Question(msgspec.Struct, frozen=True):
    """All requirements of a pod, at one point of the plan."""

    pod: PodView
    static: _Static
    blocked: pod_affinity.Blocked
    required: pod_affinity.RequiredDomains
    rules: list[topology_spread.Rule]
    plain: bool
    """It asks for nothing but resources on nodes of its shape. If not, no other pod gets the same answers."""

    @property
    def kind(self) -> object | None:
        """Equal for pods that get the same answer from every node they are not on; None for a pod like no other."""
        return self.static.key if self.plain and not self.pod.promised else None

    @property
    def closing(self) -> Closing | None:
        """The rule that is put first, to whole domains of nodes; None when resources are."""
        if self.blocked:
            key, values = self.blocked[0]
            return Closing(key, lambda value: pod_affinity.TOGETHER if value in values else "")
        if self.required:
            key, domains = self.required[0]
            return Closing(key, lambda value: pod_affinity.refusal(key, value, domains))
        return Closing(self.rules[0].key, self.rules[0].refusal) if self.rules else None

    @property
    def resources_only(self) -> Question:
        """The question reduced to resources: where that fits nowhere, the pod does not either."""
        return Question(self.pod, msgspec.structs.replace(self.static, ports=(), numa=None), [], [], [], True)


class Questions:
    """Makes questions about one picture, as the plan has left it."""

    def __init__(self, view: View) -> None:
        self._view = view
        # They follow from the nodes' objects alone, which are the same from picture to picture.
        objects = [node.object for node in view.nodes.values()]
        self._node_rules = view.same(NodeRules, objects, lambda: NodeRules(view.nodes))
        self._node_rules.begin()
        self._static: dict[tuple[object, ...], _Static] = {}

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
        static = self._static.get(key)
        if static is None:
            eligible = self._node_rules.of(pod, _parsed(inside), self._view.volume_nodes)
            needs = tuple([(name, amount.nano) for name, amount in pod.pod.requests.items()])
            static = self._static[key] = _Static(
                eligible=eligible,
                needs=needs,
                ports=tuple(free_capacity.host_ports(pod)),
                numa=numa.ask(pod) if numa.is_numa_aware(pod) else None,
                key=(eligible, needs),
                has_affinity=bool(pod_affinity.terms(pod)),
                spreads=bool(topology_spread.constraints(pod)),
            )
        blocked = self.anti_affinity.blocked(pod)
        required = self._affinity.required_domains(pod) if static.has_affinity else []
        rules = self._spread.rules(pod, static.eligible) if static.spreads else []
        return Question(
            pod, static, blocked, required, rules, not (blocked or required or rules or static.ports or static.numa)
        )


@functools.lru_cache(maxsize=64)
def _parsed(text: str) -> objects.LabelSelector:
    return label_selectors.parse(text)


ASK_ALL = 200
"""Maximum number of nodes that are all asked, for the sake of the report."""
ENOUGH = 3
"""Places at which the search ends where there are more than `ASK_ALL` nodes."""

Answer = tuple[str, tuple[Booking, ...]]
"""Reason why not, or else the bookings by NUMA node."""


class Place(msgspec.Struct, frozen=True):
    """A node the pod would fit on."""

    node: str
    here: bool = False
    """The node it is on: a restart there would do."""
    bookings: tuple[Booking, ...] = ()
    """Amounts that it would take from NUMA nodes."""


class Search(msgspec.Struct, frozen=True):
    """The places for a pod, the best first, and the refusals elsewhere."""

    places: tuple[Place, ...]
    groups: Groups
    """Refusals of other nodes: how many for each reason, and some for example."""
    unasked: int = 0
    """Nodes that were not asked, because enough others would take the pod."""
    by_node: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Refusal of each node that does not fit; empty unless that was asked for."""

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
    """Length of the list of changes when they were last asked."""
    refusals: Tally
    unasked: frozenset[str]
    """The node that the pod was on: to others of its kind it might say something else."""


class _Answers(msgspec.Struct, frozen=True):
    """The answers of the nodes of the pod's shape."""

    places: list[Place]
    refusals: Tally
    closed: Groups = msgspec.field(default_factory=dict)
    """Nodes that were not asked one by one, because all of a domain refuse for one reason."""


class FitSearch:
    """Every node's free capacity, kept up to date while a plan is made."""

    def __init__(self, view: View) -> None:
        # No reference to itself: a plan's fit has to be gone as soon as the next one has its own.
        self.by_node = by_node = {name: FreeCapacity.of(node) for name, node in view.nodes.items()}
        self._questions = Questions(view)
        self._changed: list[str] = []
        self._nowhere: dict[object, _Nowhere] = {}
        self._order = Order(view.nodes, lambda name: by_node[name].fullness)
        self._last_question: tuple[tuple[object, ...], Question] | None = None
        self._takers: dict[object, FreeCapacity] = {}
        """A node that takes pods of one kind, for as long as it stays as it is."""
        self._journal: list[Callable[[], None]] | None = None
        """Steps that undo an attempt, the last first; None outside of one."""

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
        eligible = question.static.eligible
        answers = self._ask(question, len(eligible.names) if each or len(eligible.names) <= ASK_ALL else ENOUGH)
        own = pod.node if not pod.promised else ""
        never = eligible.others.by_node
        groups = merge((eligible.others.groups(own), answers.refusals.groups(own), answers.closed))
        refusing = sum([group.nodes for group in groups.values()]) - len(never) + (own in never)
        unasked = len(eligible.names) - len(answers.places) - refusing - (own in eligible.names)
        by_node: dict[str, str] = {}
        if each:
            by_node = {**never, **answers.refusals.by_node}
            silent = eligible.names.keys() - by_node.keys() - {place.node for place in answers.places}
            by_node |= {name: self._answer(question, name)[0] for name in silent}
            by_node = {name: why for name, why in sorted(by_node.items()) if name != own}
        return Search(tuple(answers.places), groups, unasked, by_node)

    def fits(self, pod: PodView, inside: str = "") -> bool:
        """Tell whether `search` finds a place. Much faster, because it stops at the first."""
        question = self._question(pod, inside)
        kind = question.kind
        taker = self._takers.get(kind)
        if taker is not None and taker.node.name != pod.node and self.by_node[taker.node.name] is taker:
            return True
        places = self._ask(question, 1).places
        if places and kind is not None:
            self._takers[kind] = self.by_node[places[0].node]
        return bool(places)

    def fits_on(self, pod: PodView, names: Collection[str]) -> bool:
        """Tell whether it would fit on one of these nodes, its own included."""
        question = self._question(pod, "")
        few, many = sorted((names, question.static.eligible.names), key=len)
        return any(not self._answer(question, name, moved=False)[0] for name in few if name in many)

    def first_fit(self, pod: PodView, names: Iterable[str]) -> str:
        """The first of these nodes, its own aside, that it would fit on; empty when there is none."""
        question = self._question(pod, "")
        elsewhere = (name for name in names if name in question.static.eligible.names and name != pod.node)
        return next((name for name in elsewhere if not self._answer(question, name)[0]), "")

    def kind(self, pod: PodView) -> object | None:
        """Equal for pods that get the same answer from every node they are not on; None for a pod like no other."""
        return self._question(pod, "").kind

    def answer(self, pod: PodView, node: str) -> Answer:
        """Answer of one node to a pod that comes to it anew."""
        question = self._question(pod, "")
        static = question.static.eligible.others.by_node.get(node)
        return (static, ()) if static else self._answer(question, node)

    def eligible(self, pod: PodView) -> Collection[str]:
        """Nodes that would take it by their state, labels and taints."""
        return self._question(pod, "").static.eligible.names

    def refusal(self, pod: PodView, node: str) -> str:
        """Refusal of one node, be it the pod's own; empty when the pod fits there.

        Resources are not asked of its own node, as upstream has it: it is there already.
        """
        question = self._question(pod, "")
        return question.static.eligible.others.by_node.get(node) or self._answer(question, node, moved=False)[0]

    def move(self, pod: PodView, place: Place) -> None:
        """Note that the plan takes `pod` away, and that its successor is expected at `place`."""
        self._leave(pod)
        self._set(place.node, self.by_node[place.node].with_arrival(pod, place.bookings))
        self._match(pod, place.node)
        self._questions.anti_affinity.add(pod, place.node)
        if self._journal is not None:
            self._journal.append(lambda: self._questions.anti_affinity.remove(pod, place.node))

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
        self._questions.anti_affinity.remove(pod, pod.node)
        if self._journal is not None:
            self._journal.append(lambda: self._questions.anti_affinity.add(pod, pod.node))

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
        key = (pod.uid, inside, len(self._changed))
        if self._last_question is None or self._last_question[0] != key:
            self._last_question = key, self._questions.of(pod, inside)
        return self._last_question[1]

    def _ask(self, question: Question, most: int) -> _Answers:
        """Up to `most` places, and why the other nodes are none."""
        pod = question.pod
        refusals = None if pod.promised else self._refusals_everywhere(question)
        if refusals is not None:
            return _Answers([], refusals)
        eligible, closing = question.static.eligible, question.closing
        if closing is None or most >= len(eligible.names):
            answers = self._ask_nodes(question, self._order.of(eligible), most)
        else:
            answers = self._ask_nodes(question, self._order.open_to(eligible, closing), most)
            if not answers.places:
                own = "" if pod.promised else pod.node
                answers = msgspec.structs.replace(answers, closed=self._order.closed(eligible, closing, own))
        if answers.places or pod.promised:
            return answers
        if question.plain:
            self._nowhere[question.static.key] = _Nowhere(len(self._changed), answers.refusals, frozenset((pod.node,)))
            return answers
        # Too little capacity for any pod of its kind? That is remembered for all of them, and reported instead.
        plainly = self._ask(question.resources_only, 1)
        return answers if plainly.places else plainly

    def _ask_nodes(self, question: Question, names: Iterable[str], most: int) -> _Answers:
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
                if not why and question.static.numa is not None:
                    why, bookings = numa.answer(pod, capacity, question.static.numa)
            if why:
                refused[name] = why
                continue
            places.append(Place(name, name == pod.node, bookings))
            if len(places) == most:
                break
        return _Answers(places, Tally(refused))

    def _refusals_everywhere(self, question: Question) -> Tally | None:
        """Refusals of a pod like this, when none of them takes it even now; None when that is not known."""
        nowhere = self._nowhere.get(question.static.key)
        if nowhere is None:
            return None
        question = question if question.plain else question.resources_only
        since = dict.fromkeys((*self._changed[nowhere.since :], *nowhere.unasked))
        open_ = [name for name in since if name in question.static.eligible.names]
        for name in open_:
            if name == question.pod.node:
                continue
            why = self._answer(question, name)[0]
            if not why:
                del self._nowhere[question.static.key]
                return None
            nowhere.refusals.note(name, why)
        nowhere.since, nowhere.unasked = len(self._changed), frozenset((question.pod.node,)).intersection(open_)
        return nowhere.refusals

    def _answer(self, question: Question, name: str, *, moved: bool = True) -> Answer:
        """Answer of a node of the pod's shape. `moved`: the pod would restart there, even where it is already."""
        capacity, pod = self.by_node[name], question.pod
        here = name == pod.node
        if here:
            capacity = capacity.without(pod)
        why = _refusal(question, capacity, resources=moved or not here)
        if why or question.static.numa is None:
            return why, ()
        return numa.answer(pod, capacity, question.static.numa)


def _refusal(question: Question, capacity: FreeCapacity, *, resources: bool) -> str:
    """The first objection but for NUMA nodes, the quickest to find first: asked hundreds of thousands of times."""
    labels = capacity.node.node.labels
    for key, values in question.blocked:
        if labels.get(key) in values:
            return pod_affinity.TOGETHER
    for key, domains in question.required:
        why = pod_affinity.refusal(key, labels.get(key), domains)
        if why:
            return why
    for rule in question.rules:
        why = rule.refusal(labels.get(rule.key))
        if why:
            return why
    if resources:
        free = capacity.unrequested
        for name, nano in question.static.needs:
            if nano > free.get(name, 0):
                return f"insufficient {name}"
        if capacity.free_slots is not None and capacity.free_slots < 1:
            return "insufficient pods"
    port = next((port for port in question.static.ports if free_capacity.clashes(port, capacity.ports)), None)
    return f"host port {port[1]}/{port[0]} is in use" if port else ""
