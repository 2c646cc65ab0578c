"""One cycle: picture and policy in, plan out. Pure; what carries a plan out is in `evictors`.

Plugins work in the order of upstream: `deschedule` of every profile, then `balance` of every profile, each in the
order of the policy. A pod that a plugin named is asked in this order: is the finding ripe, does a guard speak against
it, would it fit elsewhere, do the limits allow it. Each answer counts on what the plan has decided so far, and the
plugin hears it at once.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec

from descheduler.arguments.common import LabelSelector, MovingPods, Namespaces
from descheduler.cycle import faults
from descheduler.cycle.candidate import Candidate, Pacer, decision_order
from descheduler.cycle.handle import ProfileHandle
from descheduler.cycle.node_changes import changes
from descheduler.cycle.steps import Step, Steps
from descheduler.filters import default_evictor, limits
from descheduler.filters.limits import Budget
from descheduler.fit import kept
from descheduler.fit.search import Place, Search
from descheduler.framework import (
    POINTS,
    Aside,
    Conversation,
    Cordon,
    DeletionCost,
    Finding,
    NodeGroup,
    Note,
    Plugin,
    PodView,
    Point,
    Refusal,
    Together,
    Verdict,
    View,
    judgeable,
)
from descheduler.history import past_evictions
from descheduler.history.past_evictions import Requests
from descheduler.picture.node_index import take_over
from descheduler.plan import EvictionPlan, Outcome, PluginAnswer, PodAnswer, Profile, Setup, Sightings
from koordlite.model import isolation
from koordlite.model.label_selectors import labels_match
from koordlite.model.quantity import Quantity

Memory = Mapping[tuple[str, str], object]
"""Memory of plugins, by profile and plugin."""

MOST_NAMES = 10
"""Pods that a note names."""
MOST_MOVES = 3
"""Maximum number of moves to make room for a pod that an explanation is about."""
FAULT = "ProgramFault"
"""The reason where a fault of ours ended the decision about a pod,"""
REQUESTED = "EvictionRequested"
"""The reason of a pod that was asked by an EvictionRequest,"""
REFUSED = "RequestRefused"
"""and of one that is not evicted as it refused."""
PLUGIN_FAULT = "PluginFault"
"""and where it ended what a plugin says of a pod, a node or all of them."""
_TRIED = Verdict(evicted=False, reason=PLUGIN_FAULT)
_UNSURE = frozenset(
    {
        PLUGIN_FAULT,
        "NoNodeInScope",
        "Paused",
        "ReservedCPUsUnknown",
        "StalePlacement",
        "TopologyUnknown",
        "UsageUnknown",
    }
)
"""Notes that say that a plugin could not judge; the others say why nothing is to be done."""
_GOES = Refusal("GoesAlready", "the plan takes it already")
_STOPS: Mapping[str, Literal["node", "namespace", "total"]] = {
    limits.TOTAL: "total",
    limits.PER_NODE: "node",
    limits.PER_NAMESPACE: "namespace",
}


def plan(
    view: View,
    setup: Setup,
    sightings: Sightings | None = None,
    memory: Memory | None = None,
    background: Requests | None = None,
    *,
    history: past_evictions.History | None = None,
    explained: str = "",
) -> EvictionPlan:
    """The plan for this picture. InputError when the policy names what is not in the picture.

    What earlier cycles left: without `sightings` this picture is all there is and no finding waits to be seen again,
    without `memory` plugins remember nothing, without `background` no pod goes already,
    without `history` no owner was ever moved.

    `explained` names a pod whose answer has what every node says; of the others reasons are counted.
    """
    for profile in setup.profiles:
        default_evictor.check(view, profile.args)
    return _Draft(view, setup, Past(sightings, memory or {}, background or {}, history or {}), explained).finished()


class Past(msgspec.Struct, frozen=True):
    """State that earlier cycles left."""

    sightings: Sightings | None
    memory: Memory
    background: Requests
    history: past_evictions.History


class _Judge:
    """A profile at work: its guards, which remember, and the nodes it judges."""

    def __init__(self, view: View, setup: Setup, number: int) -> None:
        """`number`: place of the profile in the policy; upstream's names may be alike."""
        profile = setup.profiles[number]
        self.profile, self.number = profile, number
        self.guards = default_evictor.Guards.of(view, (profile.args, *profile.more_args), profile.name)
        self.nodes = in_scope(view, setup, profile)
        take_over(self.nodes, view, profile.name)


class _Draft:
    """A plan while it is made."""

    def __init__(self, view: View, setup: Setup, past: Past, explained: str) -> None:
        self._view = view
        self._explained = explained
        self._setup = setup
        self._past = past
        self._memory: dict[tuple[str, str], object] = {}
        self._budget = Budget(setup.limits, view, past_evictions.places(past.background.values()))
        self._fit = kept.of(view)
        self._steps = Steps.of(view, setup, self._fit, alone=bool(explained or past.background or past.history))
        self._step = Step()
        """The one that is made."""
        now = view.now
        self._pacer = Pacer(setup.pacing, past.history, now)
        self._expect(past_evictions.outstanding(past.history, view.unbound, now))
        self._alone = setup.spare_the_only_node and sum(node.ready for node in view.nodes.values()) < 2
        self._outcomes: dict[str, Outcome] = {}
        self._evictions: set[str] = set()
        self._notes: list[Note] = []
        self._cordons: list[str] = []
        self._costs: dict[str, DeletionCost] = {}
        self._answers: dict[str, Refusal] = {}
        """Refusals of pods with an EvictionRequest that the plan still wants gone."""
        self._not_judged: dict[str, set[str]] = defaultdict(set)
        """Pods of which a plugin has said nothing because it could not, by plugin."""
        self._judges = [_Judge(view, setup, number) for number in range(len(setup.profiles))]

    def _expect(self, coming: Iterable[tuple[PodView, past_evictions.Move]]) -> None:
        """Places that earlier evictions counted on, whose successors still wait for a node, are not free."""
        for pod, move in coming if self._setup.fit == "plan" else ():
            if move.target in self._view.nodes:
                booked = [(zone, {n: Quantity.parse(t) for n, t in amounts.items()}) for zone, amounts in move.booked]
                self._fit.move(pod, Place(move.target, bookings=tuple(booked)))

    def _work(self, judge: _Judge, point: Point) -> None:
        """Let the profile's plugins of this point judge."""
        plugins = [entry for entry in judge.profile.plugins if entry[0].point == point]
        if self._view.nodes and not judge.nodes:
            self._notes += [_nowhere(judge.profile, plugin) for plugin, _ in plugins]
        for order, group in itertools.groupby(plugins, key=lambda entry: entry[0].order):
            for entries in [list(group)] if order == "cycle" else [[entry] for entry in group]:
                key = (judge.number, point, *(plugin.name for plugin, _ in entries))
                memory = self._past.memory
                last = self._steps.last(key)
                lasting = not any((judge.profile.name, one.name) in memory for one, _ in entries)
                self._step = Step(lasting=lasting, last=last.answers)
                if order == "cycle":
                    self._together(judge, entries)
                elif self._steps.is_same(last, entries[0][0]):
                    for message in last.asides:
                        self._keep(judge, *entries[0], message)
                    for uid, findings, _ in last.answers:
                        self._answer(judge, uid, findings)
                else:
                    self._hear(judge, *entries[0], lambda finding: self._answer(judge, finding.pod, (finding,)))
                self._steps.add(key, self._step)

    def _handle(self, judge: _Judge, plugin: str, view: View) -> ProfileHandle:
        profile, names = judge.profile, judge.nodes.names
        whole = view is self._view
        return ProfileHandle(
            view=view,
            args=profile.args,
            guards=judge.guards,
            fit=self._fit,
            nodes=judge.nodes if whole else NodeGroup(node for node in view.nodes.values() if node.name in names),
            evictions=self._evictions,
            remembered=self._past.memory.get((profile.name, plugin)),
            budget=self._budget,
        )

    def _together(self, judge: _Judge, entries: Iterable[tuple[Plugin, Any]]) -> None:
        """Plugins without an order of their own: all that they found is sorted, and a pod is decided on once."""
        findings: dict[str, list[Finding]] = defaultdict(list)
        for plugin, config in entries:
            self._hear(judge, plugin, config, lambda finding: findings[finding.pod].append(finding))
        for uid in sorted(findings, key=lambda uid: decision_order(self._view.by_uid[uid], findings[uid])):
            self._answer(judge, uid, tuple(findings[uid]))

    def _hear(self, judge: _Judge, plugin: Plugin, config: object, answer: Callable[[Finding], Verdict | None]) -> None:
        """Let a plugin judge. A fault of its own costs the pods and nodes that bring it about; the plugin is asked
        again without them. Where there are none, it has said what it says in this cycle."""
        if isinstance(config, MovingPods) and config.paused:
            self._keep(judge, plugin, config, Note(reason="Paused", text=f"{plugin.name} is paused"))
            return
        verdicts: dict[tuple[tuple[str, str, str], ...], Verdict | None] = {}

        def once(message: Finding | Together) -> Verdict | None:
            findings = message.findings if isinstance(message, Together) else (message,)
            named = tuple([msgspec.structs.replace(finding, plugin=plugin.name) for finding in findings])
            key = tuple([(finding.pod, finding.reason, finding.fact) for finding in named])
            if key not in verdicts:
                verdicts[key] = (
                    self._answer_all(judge, msgspec.structs.replace(message, findings=named))
                    if isinstance(message, Together)
                    else answer(named[0])
                )
            return verdicts[key]

        fault = self._converse(judge, plugin, config, self._view, once)
        if not fault:
            return
        self._step.lasting = False
        bad = faults.culprits(self._view, lambda view: self._converse(judge, plugin, config, view, None))
        self._notes += [
            Note(node=node, reason=PLUGIN_FAULT, text=text, plugin=plugin.name) for node, text in faults.summaries(bad)
        ]
        for one in bad:
            pods = self._view.nodes[one.node].pods
            self._miss(plugin, config, [pod for pod in pods if one.pod in ("", pod.uid)])
        fault = self._converse(judge, plugin, config, faults.without(self._view, bad), once) if bad else fault
        if fault:
            self._keep(judge, plugin, config, Note(reason=PLUGIN_FAULT, text=fault))

    def _converse(
        self,
        judge: _Judge,
        plugin: Plugin,
        config: object,
        view: View,
        answer: Callable[[Finding | Together], Verdict | None] | None,
    ) -> str:
        """The fault that ended what the plugin says of `view`, or nothing. Without `answer` nobody listens: each pod
        that it names stays."""
        verdict: Verdict | None = None
        conversation: Conversation | None = None
        while True:
            try:
                conversation = conversation or plugin.judge(view, config, self._handle(judge, plugin.name, view))
                message = conversation.send(verdict)
            except StopIteration:
                return ""
            except Exception as error:  # noqa: BLE001 - a fault about one pod or node costs that one
                return isolation.fault(error)
            verdict = None
            if isinstance(message, Finding | Together):
                verdict = answer(message) if answer else _TRIED
            elif answer:
                self._keep(judge, plugin, config, message)

    def _keep(self, judge: _Judge, plugin: Plugin, config: object, message: Aside) -> None:
        self._step.asides.append(message)
        if isinstance(message, Note):
            self._notes.append(msgspec.structs.replace(message, plugin=plugin.name))
            if message.reason in _UNSURE:
                alone = (self._view.nodes[message.node],) if message.node in judge.nodes.names else ()
                concerned = alone if message.node else judge.nodes
                self._miss(plugin, config, itertools.chain.from_iterable(node.pods for node in concerned))
        elif isinstance(message, Cordon):
            self._cordons.append(message.node)
        elif isinstance(message, DeletionCost):
            self._costs.setdefault(message.pod, message)
        else:
            self._memory[(judge.profile.name, plugin.name)] = message.value

    def _miss(self, plugin: Plugin, config: object, pods: Iterable[PodView]) -> None:
        """The plugin could not judge these pods, as far as it was to look at them."""
        self._not_judged[plugin.name].update(pod.uid for pod in pods if judgeable(pod) and not _left_out(pod, config))

    def _answer(self, judge: _Judge, uid: str, findings: tuple[Finding, ...]) -> Verdict:
        pod = self._view.by_uid[uid]
        before = self._outcomes.get(uid)
        if before and before.verdict == "evict":
            self._step.last_answer(uid, findings, taken=True)
            self._step.answers.append((uid, findings, None))
            self._outcomes[uid] = _merge(before, msgspec.structs.replace(before, findings=findings))
            return Verdict(evicted=False, reason="GoesAlready")
        age, last = self._view.age(pod), self._step.last_answer(uid, findings)
        if last:
            is_same = last.pod is pod and last.age_seconds == age
            outcome = last if is_same else msgspec.structs.replace(last, pod=pod, age_seconds=age)
            if last.verdict == "evict":
                self._count(pod)
                if self._setup.fit == "plan" and not (isinstance(self._fit, kept.KeptFit) and self._fit.repeat()):
                    self._go(outcome)
        else:
            candidate = Candidate(pod, findings, judge.profile, age, self._past.sightings)
            try:
                outcome = self._decide(candidate, judge.guards)
            except Exception as error:  # noqa: BLE001 - one pod's fault costs that pod
                outcome = candidate.kept((Refusal(FAULT, isolation.fault(error)),))
                self._step.lasting = False
        self._step.answers.append((uid, findings, outcome))
        self._outcomes[uid] = _merge(before, outcome)
        if outcome.verdict == "evict":
            self._evictions.add(uid)
            return Verdict(evicted=True)
        reason = outcome.reasons[0].reason
        if reason == REQUESTED:
            return Verdict(evicted=True)  # It is on its way: a plugin that empties a node takes no other pod for it.
        return Verdict(evicted=False, reason=reason, stop=_STOPS.get(reason, ""))

    def _answer_all(self, judge: _Judge, together: Together) -> Verdict:
        """Decide on pods that go all or not at all."""
        profile, view = judge.profile, self._view
        candidates = [
            Candidate(view.by_uid[f.pod], (f,), profile, view.age(view.by_uid[f.pod]), self._past.sightings)
            for f in together.findings
        ]
        try:
            outcomes = self._decide_all(candidates, judge.guards, together)
        except Exception as error:  # noqa: BLE001 - a fault about one set of pods costs that set
            outcomes = [one.kept((Refusal(FAULT, isolation.fault(error)),)) for one in candidates]
        self._step.lasting, self._step.last = False, []
        for outcome in outcomes:
            self._step.answers.append((outcome.pod.uid, outcome.findings, outcome))
            self._outcomes[outcome.pod.uid] = _merge(self._outcomes.get(outcome.pod.uid), outcome)
        stays = next((outcome for outcome in outcomes if outcome.verdict == "kept"), None)
        if stays:
            return Verdict(evicted=False, reason=stays.reasons[0].reason)
        self._evictions.update(outcome.pod.uid for outcome in outcomes)
        return Verdict(evicted=True)

    def _decide_all(
        self, candidates: list[Candidate], guards: default_evictor.Guards, together: Together
    ) -> list[Outcome]:
        refusals = [(_GOES,) if one.pod.uid in self._evictions else self._refusals(one, guards) for one in candidates]
        if not any(refusals):
            refusals = [self._refusal_of_all([one.pod for one in candidates])] * len(candidates)
        places = list[Place]()
        if not any(refusals):
            with self._fit.attempt():
                places, why = self._arrange(candidates, together)
            if why:
                refusals = [(Refusal("FitsNowhere", why),)] * len(candidates)
        first = next((one for one, spoken in zip(candidates, refusals, strict=True) if spoken), None)
        if first is None:
            if self._setup.fit == "plan":
                self._arrange(candidates, together)
            all_, sources = tuple(one.pod.uid for one in candidates), {one.pod.node for one in candidates}
            free = tuple(
                one.pod.uid for one, place in zip(candidates, places, strict=True) if place.node not in sources
            )
            return [
                msgspec.structs.replace(
                    self._take(one, Search((place,), {})),
                    together=all_,
                    held_first=free,
                    waiting=(together.waiting, together.node),
                )
                for one, place in zip(candidates, places, strict=True)
            ]
        joint_refusal = (Refusal("OthersStay", f"it would go only together with {first.pod.key}, which stays"),)
        return [one.kept(spoken or joint_refusal) for one, spoken in zip(candidates, refusals, strict=True)]

    def _refusal_of_all(self, pods: list[PodView]) -> tuple[Refusal, ...]:
        reason, text = self._budget.refusal_of_all(pods)
        if reason:
            return (Refusal(reason, text),)
        owners = [pod.owner for pod in pods if pod.owner]
        if self._setup.pacing.owner_delay_seconds and len(set(owners)) < len(owners):
            return (Refusal("OwnerDelay", "minDelayPerOwner is set, and two pods of one owner would have to go"),)
        return ()

    def _arrange(self, candidates: list[Candidate], together: Together) -> tuple[list[Place], str]:
        """Make all of the moves, and that of the pod that waits; the places of the others, or what stands against one
        of them."""
        places: list[Place] = []
        for one in candidates:
            self._fit.leave(one.pod)
        coming = [(together.waiting, together.node), *zip((o.pod for o in candidates), together.homes, strict=True)]
        for pod, node in coming:
            why, bookings = self._fit.answer(pod, node)
            if why:
                return [], f"{pod.key} does not fit on {node} any more: {why}"
            places.append(Place(node, bookings=bookings))
            self._fit.move(pod, places[-1])
        return places[1:], ""

    def _decide(self, candidate: Candidate, guards: default_evictor.Guards) -> Outcome:
        pod, profile = candidate.pod, candidate.profile
        refusals = self._refusals(candidate, guards)
        if refusals:
            return candidate.kept(refusals)
        reason, text = self._budget.refusal(pod)
        if reason == limits.TOTAL:
            # Nothing goes after this, so where it would fit is not worth asking every node.
            return candidate.kept((Refusal(reason, text),))
        each = bool(self._explained) and pod.is_called(self._explained)
        search = self._fit.search(pod, profile.args.node_selector, each=each)
        home = candidate.home
        if home == "elsewhere":
            search = msgspec.structs.replace(search, places=tuple(place for place in search.places if not place.here))
        must_fit = profile.args.node_fit or bool(home) or (self._alone and pod.pod.active)
        if must_fit and not search.places:
            return candidate.kept((Refusal("FitsNowhere", search.sentence),), search)
        if reason:
            return candidate.kept((Refusal(reason, text),), search)
        outcome = self._take(candidate, search)
        if self._setup.fit == "plan":
            self._go(outcome)
        return outcome

    def _refusals(self, candidate: Candidate, guards: default_evictor.Guards) -> tuple[Refusal, ...]:
        pod, args = candidate.pod, candidate.profile.args
        request = self._past.background.get(pod.uid)
        if request and request.state == "background":
            return (Refusal("EvictionInBackground", "its eviction was asked for and goes on in the background"),)
        unripe = candidate.unripe()
        early = guards.refusals(pod)
        late = default_evictor.late_refusals(pod, self._view, args)
        settings = self._setup.eviction_requests
        if request and request.state != "gone" and settings.mode == "on" and not early + late:
            reason = REQUESTED if request.state == "asked" else REFUSED
            if reason == REQUESTED or not settings.fallback:
                self._answers[pod.uid] = Refusal(reason, request.text)
                return (self._answers[pod.uid],)
        return ((unripe,) if unripe else ()) + early + late + self._pacer.refusals(pod, candidate.findings)

    def _take(self, candidate: Candidate, search: Search) -> Outcome:
        pod, target = candidate.pod, search.places[0].node if search.places else ""
        self._count(pod)
        return Outcome(
            pod,
            candidate.findings,
            "evict",
            candidate.profile.name,
            search=search,
            target=target,
            age_seconds=candidate.age_seconds,
        )

    def _count(self, pod: PodView) -> None:
        self._budget.take(pod)
        self._pacer.take(pod)

    def _go(self, outcome: Outcome) -> None:
        # A pod that has ended was replaced when it did: nothing comes for it, and it takes no capacity anywhere.
        if outcome.search and outcome.search.places and outcome.pod.pod.active:
            self._fit.move(outcome.pod, outcome.search.places[0])
        else:
            self._fit.leave(outcome.pod)

    def finished(self) -> EvictionPlan:
        """The plan, once every profile's plugins have judged."""
        waiting = tuple(self._waiting())
        for point in POINTS:
            for judge in self._judges:
                self._work(judge, point)
        self._steps.end()
        decided = self._outcomes
        if self._setup.fit == "snapshot":  # Nothing was to count on it; the state of nodes afterwards is reported.
            for outcome in (o for o in decided.values() if o.verdict == "evict"):
                self._go(outcome)
        for plugin, uids in self._not_judged.items():
            named = [uid for uid in uids & decided.keys() if any(f.plugin == plugin for f in decided[uid].findings)]
            uids.difference_update(named)
        unjudged = set[str]().union(*self._not_judged.values())
        evict = tuple(o for o in decided.values() if o.verdict == "evict")
        self._notes += self._would_be_asked(evict)
        return EvictionPlan(
            view=self._view,
            evict=evict,
            kept=tuple(o for o in decided.values() if o.verdict == "kept"),
            notes=tuple(dict.fromkeys(self._notes)),
            nodes=tuple(changes(self._view, decided, self._fit)),
            plugins=tuple(dict.fromkeys(plugin.name for p in self._setup.profiles for plugin, _ in p.plugins)),
            grace_period_seconds=self._setup.grace_period_seconds,
            eviction_requests=self._setup.eviction_requests,
            standing={uid: one.text for uid, one in self._past.background.items() if one.state != "background"},
            withdrawals=self._withdrawals(unjudged),
            memory=self._memory,
            migration=self._setup.migration,
            cordon=tuple(dict.fromkeys(self._cordons)),
            deletion_costs=tuple(self._costs.values()),
            explained=(*waiting, *self._explanations()),
            not_judged=len(unjudged),
            not_judged_by={name: len(pods) for name, pods in sorted(self._not_judged.items()) if pods},
        )

    def _would_be_asked(self, evict: Iterable[Outcome]) -> Iterator[Note]:
        """Say which pods ask to be asked, where that is only observed."""
        if self._setup.eviction_requests.mode != "observe":
            return
        pods = [outcome.pod.key for outcome in evict if outcome.pod.asks_first]
        if pods:
            more = f" and {len(pods) - MOST_NAMES} more" if len(pods) > MOST_NAMES else ""
            text = f"{', '.join(pods[:MOST_NAMES])}{more} would be requested; evictionRequests.mode is observe"
            yield Note(reason="WouldBeRequested", text=text, plugin="EvictionRequests")

    def _withdrawals(self, unjudged: Container[str]) -> dict[str, Refusal]:
        """EvictionRequests that do not go on. A pod that a plugin could not judge stays asked."""
        withdrawals: dict[str, Refusal] = {}
        for uid, request in self._past.background.items():
            outcome, answer = self._outcomes.get(uid), self._answers.get(uid)
            first = outcome.reasons[0] if outcome and outcome.reasons else None
            if request.state == "gone":
                withdrawals[uid] = Refusal("PodGone", request.text)
            elif answer:
                withdrawals |= {uid: answer} if request.state == "refused" and answer.reason == REFUSED else {}
            elif request.state != "background" and outcome is None and uid not in unjudged:
                withdrawals[uid] = Refusal("NotNamed", "no plugin finds anything wrong with it any more")
            elif request.state == "asked" and first and first.reason != FAULT:
                withdrawals[uid] = first
        return withdrawals

    def _waiting(self) -> Iterator[PodAnswer]:
        """Answers about a pod that was asked about and waits for a node, as long as the plan moves nothing."""
        pods = [pod for pod in self._view.unbound if pod.is_called(self._explained) and not pod.node]
        for pod, judge in itertools.product(pods if self._explained else (), self._judges):
            handle = msgspec.structs.replace(self._handle(judge, "", self._view), budget=None)
            search, rooms = self._fit.search(pod, each=True), handle.rooms(pod, MOST_MOVES)
            yield PodAnswer(pod.uid, judge.profile.name, (), (), search, rooms=rooms)

    def _explanations(self) -> Iterator[PodAnswer]:
        """Each profile's answer about the pod that was asked about."""
        if not self._explained:
            return
        pods = [pod for pod in self._view.by_uid.values() if pod.is_called(self._explained) and pod.node]
        for pod, judge in itertools.product(pods, self._judges):
            args = judge.profile.args
            late = default_evictor.late_refusals(pod, self._view, args)
            yield PodAnswer(
                pod=pod.uid,
                profile=judge.profile.name,
                plugins=tuple(
                    self._plugin_answer(pod, judge, plugin, config) for plugin, config in judge.profile.plugins
                ),
                refusals=(*judge.guards.refusals(pod), *late, *self._pacer.refusals(pod, ())),
                search=self._fit.search(pod, args.node_selector, each=True),
                limit=self._budget.refusal(pod)[1],
            )

    def _plugin_answer(self, pod: PodView, judge: _Judge, plugin: Plugin, config: Any) -> PluginAnswer:
        outcome = self._outcomes.get(pod.uid)
        findings = [f for f in outcome.findings if f.plugin == plugin.name] if outcome else []
        notes = [n for n in self._notes if n.plugin == plugin.name and n.node in ("", pod.node)]
        if findings:
            return PluginAnswer(plugin.name, "found", "; ".join(f"{f.reason}: {f.fact or f.promise}" for f in findings))
        why = self._not_chosen(pod, judge, config)
        if why:
            return PluginAnswer(plugin.name, "not chosen", why)
        numbers = (
            plugin.numbers(pod, self._view, config, self._handle(judge, plugin.name, self._view))
            if plugin.numbers
            else ""
        )
        words = [*(f"{note.reason}: {note.text}" for note in notes), *([numbers] if numbers else [])]
        unsure = any(note.reason in _UNSURE for note in notes)
        return PluginAnswer(plugin.name, "not judged" if unsure else "fine", "; ".join(words) or "no finding")

    def _not_chosen(self, pod: PodView, judge: _Judge, config: Any) -> str:
        """The reason why the plugin does not look at the pod; empty when it does."""
        if all(node.name != pod.node for node in judge.nodes):
            return f"{pod.node} is not ready, or not among the nodes of the profile"
        return _left_out(pod, config)


def _left_out(pod: PodView, config: object) -> str:
    """The reason why the plugin's arguments leave the pod out; empty when they do not."""
    namespaces, selector = getattr(config, "namespaces", None), getattr(config, "label_selector", None)
    if isinstance(namespaces, Namespaces) and not namespaces.chosen(pod.pod.namespace):
        return f"namespace {pod.pod.namespace} is not among its namespaces"
    if isinstance(selector, LabelSelector) and not selector.matches(pod.pod.labels):
        return "its labels do not match the labelSelector"
    return ""


def in_scope(view: View, setup: Setup, profile: Profile) -> NodeGroup:
    """Nodes whose pods are judged: ready, and selected by policy and profile. The others only take pods in."""
    nodes = [node for node in view.nodes.values() if node.ready]
    for selector in (setup.node_selector, profile.node_selector):
        if selector is not None:
            nodes = [node for node in nodes if labels_match(selector, node.node.labels)]
    return NodeGroup(nodes)


def _nowhere(profile: Profile, plugin: Plugin) -> Note:
    text = f"profile {profile.name} judges no node: none is ready and selected by nodeSelector"
    return Note(reason="NoNodeInScope", text=text, plugin=plugin.name)


def _merge(before: Outcome | None, outcome: Outcome) -> Outcome:
    """Keep one answer a pod: the later one when it evicts, else the first one; all findings are kept."""
    if before is None:
        return outcome
    decisive = outcome if outcome.verdict == "evict" and before.verdict == "kept" else before
    identities = set(map(_identity, before.findings))
    more = tuple(f for f in outcome.findings if _identity(f) not in identities)
    return msgspec.structs.replace(decisive, findings=(*before.findings, *more))


def _identity(finding: Finding) -> tuple[str, str, str]:
    return finding.plugin, finding.reason, finding.container
