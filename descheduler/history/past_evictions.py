"""The outcome of earlier evictions, by owner: pods that came back misplaced move later and later, then not at all.

A pod that was started after pods of its owner were moved by the same plugin may be the successor of one of them. When
it has the same thing wrong, moving did not help. Each time it comes back is a round; a round waits twice as long as the
one before, and after the last round the owner is left alone until nothing was found with it for a while. Pods that
were there all along are no successors, however many of them there are.

What a cycle is about to do is kept before it is done (`intents`), so that a process that ends in the middle forgets
nothing: the next one asks the picture which of the pods went (`resume`).

Pure: the history is a value that goes into a cycle and comes out of it; `configmap` keeps it on the cluster.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal, Protocol

import msgspec

from descheduler.arguments.pacing import Loops
from descheduler.framework import Finding, PodView, Refusal, View
from descheduler.plan import Attempt, EvictionPlan, Sightings
from koordlite.model import duration, times
from koordlite.model.errors import InputError, KoordliteError, Problem

REQUEST_ONLY = "descheduler.alpha.kubernetes.io/request-evict-only"
IN_PROGRESS = "descheduler.alpha.kubernetes.io/eviction-in-progress"
TRIGGERED = "Eviction triggered evacuation"
"""Words in the API's refusal when it started an eviction in the background."""
FORGET_SECONDS = 600.0
"""A request that nobody took up for so long is forgotten, and may be made again."""


class Request(msgspec.Struct, frozen=True):
    """An eviction that was asked for and goes on."""

    namespace: str
    name: str
    uid: str
    node: str
    since: float
    """Seconds since the epoch."""
    confirmed: bool = False
    """The pod says itself that it is being moved."""
    state: Literal["background", "asked", "refused", "withdrawn", "gone"] = "background"
    """`background`: of the Eviction API. The others are of an EvictionRequest: `asked` until the pod is `gone`, or the
    request was `refused` or not answered in time; a refusal that was acknowledged is `withdrawn`."""
    text: str = ""
    """Responder of an EvictionRequest, and its answer."""


class Ended(msgspec.Struct, frozen=True):
    """A request that is over: `Evicted`, or why it was `Forgotten` or `Failed`."""

    request: Request
    result: str
    text: str


Requests = Mapping[str, Request]
"""Requests by pod uid."""


def follow(before: Requests, view: View, now: float) -> tuple[Requests, tuple[Ended, ...]]:
    """Requests that go on according to this picture, and those that have ended since the last one. `now`: seconds since
    the epoch.

    Pods that say they are being moved are taken in whoever asked, so that a restart forgets nothing that was taken up.
    """
    present = {pod.uid: pod for pod in view.everything()}
    ended = [over for request in before.values() if (over := _end(request, present.get(request.uid), now))]
    done = {one.request.uid for one in ended}
    going: dict[str, Request] = {}
    for uid, request in before.items():
        if uid not in done:
            confirmed = request.confirmed or IN_PROGRESS in present[uid].pod.annotations
            going[uid] = msgspec.structs.replace(request, confirmed=confirmed)
    for pod in present.values():
        if pod.uid not in before and IN_PROGRESS in pod.pod.annotations and pod.pod.active:
            going[pod.uid] = msgspec.structs.replace(request_for(pod, now), confirmed=True)
    return going, tuple(ended)


def request_for(pod: PodView, now: float) -> Request:
    """The pod's eviction was just asked for."""
    return Request(pod.pod.namespace, pod.pod.name, pod.uid, pod.node, now)


def places(requests: Iterable[Request]) -> Iterator[tuple[str, str]]:
    """(node, namespace) of each request that goes on, for the limits."""
    for request in requests:
        if request.state in ("background", "asked"):
            yield request.node, request.namespace


def _end(request: Request, pod: PodView | None, now: float) -> Ended | None:
    if pod is None:
        return Ended(request, "Evicted", "the pod is gone")
    if pod.pod.phase == "Succeeded":
        return Ended(request, "Evicted", "the pod has succeeded")
    if pod.pod.phase == "Failed":
        return Ended(request, "Failed", "the pod has failed")
    taken_up = IN_PROGRESS in pod.pod.annotations
    if request.confirmed and not taken_up:
        return Ended(request, "Failed", "the pod no longer says that it is being moved")
    if not taken_up and now - request.since > FORGET_SECONDS:
        return Ended(request, "Forgotten", f"it was not taken up for {FORGET_SECONDS:.0f} seconds")
    return None


RECURRING = ("PodLifeTime", "RemoveFailedPods", "TopologyAffinityErrors")
"""Plugins whose findings come again by their nature: there is no loop to end."""
LOAD_DRIVEN = ("LowNodeUtilization", "HighNodeUtilization", "LowNodeLoad", "FragmentationAware", "CustomPriority")
"""Plugins whose findings come and go with the load: what they find again does not prolong the time an owner is left
alone."""
OUTSTANDING_SECONDS = 600.0
"""Time after an eviction for which a pod of the owner that waits for a node counts as the successor."""
CLOCKS_SECONDS = 5.0
"""Time by which a successor may seem to start before the eviction: ages are in whole seconds, and the clock of this
machine, by which evictions are remembered, may be ahead of the server's."""
MOST_OWNERS = 2000
"""More are forgotten, those first that were not seen for longest: a ConfigMap holds one MiB."""
MOST_MOVES = 10
"""Number of one owner's latest moves that are kept one by one."""
MOST_INTENTS = 1000
"""Number of one cycle's evictions, the first ones, that are kept before they are requested: they have to fit beside the
history."""


class Round(msgspec.Struct, frozen=True, gc=False):
    """Pods of an owner that one plugin moved for the same time."""

    first: float
    """Seconds since the epoch."""
    last: float
    count: int


class Move(msgspec.Struct, frozen=True):
    """An eviction, and the place the plan counted on."""

    at: float
    pod: str
    node: str
    target: str = ""
    booked: tuple[tuple[int, dict[str, str]], ...] = ()
    """Amounts by NUMA node of the target."""


class Past(msgspec.Struct, frozen=True):
    """The past of one owner."""

    seen: float
    """Time of its last finding."""
    rounds: dict[str, tuple[Round, ...]] = {}
    """Rounds by plugin."""
    moves: tuple[Move, ...] = ()
    """The latest, oldest first."""


class Intent(msgspec.Struct, frozen=True):
    """An eviction that is about to be asked for: what the history would say of it."""

    uid: str
    owner: str
    move: Move
    rounds: dict[str, int] = {}
    """Number of earlier rounds that moved the owner, by plugin."""


History = Mapping[str, Past]
"""Past evictions by owner, `Kind/namespace/name`."""


def generation(pod: PodView, plugin: str, past: Past | None) -> int:
    """Number of rounds of moves by `plugin` that this pod may have come back from; 0 for a pod that was there
    before."""
    rounds = past.rounds.get(plugin, ()) if past else ()
    if pod.started is None:
        return len(rounds)
    return sum(one.first <= pod.started + CLOCKS_SECONDS for one in rounds)


def refusal(pod: PodView, findings: Iterable[Finding], history: History, rules: Loops, *, now: float) -> Refusal | None:
    """The reason why moving this pod again would not help, or not yet; None when nothing speaks against it."""
    past = history.get(pod.owner) if history else None
    if not past or now - past.seen > duration.seconds(rules.forget_after):
        return None
    plugins = dict.fromkeys(f.plugin for f in findings if f.severity == "hard")
    refusals = [_refusal(pod, plugin, past, rules, now) for plugin in plugins]
    # A finding that has no such past is a reason of its own.
    return refusals[0] if refusals and all(refusals) else None


def _refusal(pod: PodView, plugin: str, past: Past, rules: Loops, now: float) -> Refusal | None:
    came_back = 0 if plugin in RECURRING else generation(pod, plugin, past)
    if not came_back:
        return None
    rounds = past.rounds[plugin]
    last = rounds[came_back - 1].last
    if came_back >= rules.max_rounds:
        span = duration.brief(last - rounds[0].first)
        times_moved = f"moved {came_back} {'time' if came_back == 1 else 'times'}"
        quiet = duration.brief(duration.seconds(rules.forget_after))
        text = f"{pod.owner} was {times_moved} for {plugin} within {span} and came back; it is left alone until nothing"
        return Refusal("MovedAndCameBack", f"{text} was found with it for {quiet}")
    remaining = duration.seconds(rules.back_off) * 2 ** (came_back - 1) - (now - last)
    if remaining <= 0:
        return None
    text = f"a pod of {pod.owner} was moved {duration.brief(now - last)} ago for {plugin} and came back; next try in"
    return Refusal("BackOff", f"{text} {duration.brief(remaining)}")


def outstanding(history: History, waiting: Iterable[PodView], now: float) -> Iterator[tuple[PodView, Move]]:
    """Pods that wait for a node and follow a recent eviction of ours, with that move: its place is still taken."""
    by_owner = {
        owner: [move for move in past.moves if move.target and now - move.at <= OUTSTANDING_SECONDS]
        for owner, past in history.items()
    }
    for pod in waiting:
        moves = by_owner.get(pod.owner)
        if moves and pod.pod.active and (pod.started is None or pod.started + CLOCKS_SECONDS >= moves[0].at):
            yield pod, moves.pop()


def after(history: History, plan: EvictionPlan, attempts: Iterable[Attempt], rules: Loops) -> dict[str, Past]:
    """The history with what this cycle found and did; what is too old, or too much, is left out.

    `attempts` that evicted nothing leave no trace. Owners are remembered from their first eviction on.
    """
    now = times.parse(plan.view.time)
    forget = duration.seconds(rules.forget_after)
    by_owner = {owner: past for owner, past in history.items() if now - past.seen <= forget}
    for outcome in plan.outcomes:
        past = by_owner.get(outcome.pod.owner)
        if past and any(f.severity == "hard" and f.plugin not in LOAD_DRIVEN for f in outcome.findings):
            by_owner[outcome.pod.owner] = msgspec.structs.replace(past, seen=now)
    evicted = {attempt.uid for attempt in attempts if attempt.goes}
    by_owner = _with(by_owner, (intent for intent in _intents(history, plan) if intent.uid in evicted))
    newest = sorted(by_owner, key=lambda owner: (-by_owner[owner].seen, owner))[:MOST_OWNERS]
    return {owner: by_owner[owner] for owner in sorted(newest)}


def intents(history: History, plan: EvictionPlan) -> tuple[Intent, ...]:
    """The plan's evictions for a process to come, should nobody be left to say which of them were carried out."""
    return tuple(itertools.islice(_intents(history, plan), MOST_INTENTS))


def resume(history: History, pending: Iterable[Intent], view: View) -> History:
    """The history with those evictions of a cycle without an end that were carried out, as this picture shows them.

    A pod that is still there, is not going and has no migration job was not evicted.
    """
    there = {pod.uid: pod for pod in (*view.by_uid.values(), *view.unbound)}
    staying = {
        uid for uid, pod in there.items() if not pod.pod.deleting and IN_PROGRESS not in pod.pod.annotations
    } - view.moving.keys()
    return _with(history, (one for one in pending if one.uid not in staying))


def _intents(history: History, plan: EvictionPlan) -> Iterator[Intent]:
    """`history`: as the cycle began; pods of one cycle are of the same round."""
    now = times.parse(plan.view.time)
    for outcome in plan.evict:
        pod = outcome.pod
        plugins = dict.fromkeys(f.plugin for f in outcome.findings if f.severity == "hard")
        if pod.owner:
            before = history.get(pod.owner)
            rounds = {name: generation(pod, name, before) for name in plugins if name not in RECURRING}
            places = outcome.search.places if outcome.search else ()
            bookings = next((place.bookings for place in places if place.node == outcome.target), ())
            booked = tuple((zone, {n: str(q) for n, q in amounts.items()}) for zone, amounts in bookings)
            yield Intent(pod.uid, pod.owner, Move(now, pod.key, pod.node, outcome.target, booked), rounds)


def _with(history: History, carried_out: Iterable[Intent]) -> dict[str, Past]:
    by_owner = dict(history)
    for one in carried_out:
        past, now = by_owner.get(one.owner) or Past(one.move.at), one.move.at
        rounds = {
            plugin: _count_round(past.rounds.get(plugin, ()), number, now) for plugin, number in one.rounds.items()
        }
        moves = (*past.moves, one.move)[-MOST_MOVES:]
        by_owner[one.owner] = Past(max(past.seen, now), {**past.rounds, **rounds}, moves)
    return by_owner


def _count_round(rounds: tuple[Round, ...], number: int, now: float) -> tuple[Round, ...]:
    if number >= len(rounds):
        return (*rounds, Round(now, now, 1))
    one = rounds[number]
    return (*rounds[:number], Round(one.first, now, one.count + 1), *rounds[number + 1 :])


class StoredMemory(msgspec.Struct, frozen=True):
    """The memory that one cycle leaves to the next, whoever runs it."""

    history: History = msgspec.field(default_factory=dict)
    sightings: Sightings = msgspec.field(default_factory=dict)
    pending: tuple[Intent, ...] = ()
    """Evictions of a cycle that has not ended; empty after one that has."""


class Store(Protocol):
    """A place where the memory outlives the process."""

    def load(self) -> StoredMemory:
        """Read the memory. InputError when it is damaged, other KoordliteErrors and OSError when it cannot be had."""

    def save(self, memory: StoredMemory) -> None:
        """Keep it; KoordliteError or OSError when that failed."""


class CycleMemory:
    """Given to each cycle, and informed of what it did."""

    def __init__(
        self, store: Store | None = None, *, leads: Callable[[], bool] = lambda: True, single: bool = False
    ) -> None:
        """`single`: there is one cycle and no store, so findings cannot be seen again. `leads` is asked before each
        write: who has lost the lease meanwhile keeps nothing."""
        self._store, self._leads, self._single = store, leads, single and store is None
        self._memory = StoredMemory()
        self._loaded = store is None
        self._damaged = False
        self.problems: tuple[Problem, ...] = ()
        """Mistakes of the store; the history in this process holds meanwhile."""

    @property
    def history(self) -> History:
        """Past evictions by owner."""
        return self._memory.history

    @property
    def sightings(self) -> Sightings | None:
        """Number of pictures in a row that will have had each finding, if this one has it too; None when this
        picture is all there is."""
        return None if self._single else self._memory.sightings

    def begin(self, view: View, *, leads: bool) -> None:
        """Begin a cycle. A new leader reads the history of the one before. The picture shows which evictions of an
        interrupted cycle were carried out.

        Other errors than a damaged store are raised: to go on would be to forget every loop.
        """
        if self._store is None or not leads:
            self._loaded = self._store is None
        elif not self._loaded:
            self.problems, self._damaged = (), False
            try:
                self._memory = self._store.load()
            except InputError as error:
                self.problems, self._damaged = tuple(error.problems), True
            self._loaded = True
        if self._memory.pending:
            history = resume(self._memory.history, self._memory.pending, view)
            self._memory = StoredMemory(history, self._memory.sightings)

    def intend(self, plan: EvictionPlan, *, keep: bool) -> None:
        """Keep the intended evictions of a cycle before the first of them, in case the process does not live to report
        them. `keep`: see `end`."""
        pending = intents(self._memory.history, plan) if keep else ()
        if pending:
            self._memory = msgspec.structs.replace(self._memory, pending=pending)
            counts = count_sightings(self._memory.sightings, plan)
            self._save(_worth_keeping(msgspec.structs.replace(self._memory, sightings=counts), plan))

    def end(self, plan: EvictionPlan, attempts: Iterable[Attempt], loops: Loops, *, keep: bool) -> None:
        """End a cycle. `keep`: evictions were real, and this process leads; a damaged store is never written over."""
        history = after(self._memory.history, plan, attempts, loops) if keep else self._memory.history
        self._memory = StoredMemory(history, count_sightings(self._memory.sightings, plan))
        if keep:
            self._save(_worth_keeping(self._memory, plan))

    def _save(self, memory: StoredMemory) -> None:
        if self._store is None or self._damaged or not self._leads():
            return
        try:
            self._store.save(memory)
            self.problems = ()
        except (KoordliteError, OSError) as error:
            do = "let the service account get, create and patch this ConfigMap; the history holds in this process"
            self.problems = (Problem("configmap descheduler-memory", "data", "", str(error), do),)


def _worth_keeping(memory: StoredMemory, plan: EvictionPlan) -> StoredMemory:
    """Counts that some finding still waits for; all others would only make the ConfigMap change each time."""
    required = {(o.pod.uid, f.reason): f.sightings for o in plan.outcomes for f in o.findings if f.severity == "hard"}
    counts = memory.sightings
    waiting = {key: min(counts[key], most) for key, most in required.items() if most > 1 and key in counts}
    return msgspec.structs.replace(memory, sightings=waiting)


def count_sightings(before: Sightings, plan: EvictionPlan) -> Sightings:
    """Number of pictures in a row that will have had each finding if the next one has it too."""
    keys = {(outcome.pod.uid, finding.reason) for outcome in plan.outcomes for finding in outcome.findings}
    return {key: before.get(key, 1) + 1 for key in keys}
