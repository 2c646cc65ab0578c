"""Cycle after cycle: observe, decide, evict what may be evicted, report. What one cycle learns is kept for the next.

A cycle that fails is reported and the next one comes, also where the fault is our own. A process that is not the leader
decides and reports all the same, but evicts nothing. How long each plugin thinks is measured here, from outside:
plugins and cycle have no clock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from descheduler.cycle import planner
from descheduler.evictors import eviction_api
from descheduler.framework import Conversation, Handle, Plugin, View
from descheduler.history import past_evictions
from descheduler.history.past_evictions import CycleMemory, Ended, Requests
from descheduler.plan import Attempt, EvictionPlan, Setup
from descheduler.policy import reader
from descheduler.policy.reader import PolicyDocument
from descheduler.policy.watched_file import PolicyFile
from koordlite.fault_guard import FaultGuard
from koordlite.model.errors import KoordliteError, Problem
from koordlite.model.status import Faults
from koordlite.ports import Clock


class Stopwatch:
    """Seconds by profile and plugin. The time a plugin waits for its answers is not its own, and not counted."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._spent: dict[tuple[str, str], float] = defaultdict(float)

    @property
    def seconds(self) -> Mapping[tuple[str, str], float]:
        """Seconds so far, by profile and plugin."""
        return dict(self._spent)

    def time_plugins(self, setup: Setup) -> Setup:
        """The same policy with plugins that are watched."""
        return msgspec.structs.replace(
            setup,
            profiles=tuple(
                msgspec.structs.replace(
                    one, plugins=tuple((self._plugin(one.name, plugin), args) for plugin, args in one.plugins)
                )
                for one in setup.profiles
            ),
        )

    def _plugin(self, profile: str, plugin: Plugin) -> Plugin:
        self._spent[profile, plugin.name] += 0.0  # Also of one that is not asked, as its last findings hold.

        def judge(view: View, args: Any, handle: Handle) -> Conversation:
            conversation, verdict = plugin.judge(view, args, handle), None
            while True:
                began = self._monotonic()
                try:
                    message = conversation.send(verdict)
                except StopIteration:
                    return
                finally:
                    self._spent[profile, plugin.name] += self._monotonic() - began
                verdict = yield message

        return msgspec.structs.replace(plugin, judge=judge)


Evict = Callable[[EvictionPlan], tuple[Attempt, ...]]
"""Carries a plan out, and says what became of each eviction."""


class Source(Protocol):
    """A source of pictures."""

    def view(self, document: PolicyDocument, setup: Setup) -> View:
        """The cluster as it is. KoordliteError or OSError when there is no picture."""


class CycleResult(msgspec.Struct, frozen=True, kw_only=True):
    """A cycle, for all that report it."""

    number: int
    began: float
    """Seconds since the epoch."""
    seconds: float
    setup: Setup
    leader: bool
    """True where this process was the leader when it decided."""
    dry_run: bool
    """Nothing was to be evicted: by choice, or because another process is the leader."""
    plan: EvictionPlan | None = None
    """None when the cycle failed."""
    attempts: tuple[Attempt, ...] = ()
    ended: tuple[Ended, ...] = ()
    """Evictions in the background that are over."""
    problems: tuple[Problem, ...] = ()
    """Reasons why the present policy file does not hold."""
    error: str = ""
    """Reason why there is no plan."""
    unreachable: bool = False
    """There is no plan because the source of pictures gave no answer."""
    faults: Faults = msgspec.field(default_factory=Faults)
    """Cycles that a fault of the descheduler itself has ended, this one or earlier ones of this run."""
    plugin_seconds: Mapping[tuple[str, str], float] = msgspec.field(default_factory=dict)
    """Duration by profile and plugin."""


Tell = Callable[[CycleResult], None]
RETRY_SECONDS = 5.0
"""Time until the next cycle after one that failed before anything was evicted; doubled after each further failure, up
to the interval."""

LOOK_SECONDS = 60.0
"""While it waits for the schedule it looks at the clock this often."""
WOKEN_SECONDS = 0.5
"""A wait that ends so much too early was ended by a request to reload."""
SMALL_STEP_SECONDS = 3600.0
"""A clock that is set back by less repeats no start."""


class Loop:
    """A descheduler at work."""

    def __init__(
        self,
        source: Source,
        policy: PolicyFile,
        clock: Clock,
        *,
        evict: Evict | None = None,
        leads: Callable[[], bool] = lambda: True,
        memory: CycleMemory | None = None,
        moving: Callable[[], Mapping[str, str]] = dict,
        requests: Callable[[Setup, View], Requests] | None = None,
    ) -> None:
        """Without `evict` every cycle is a dry run; without `memory` what is remembered ends with this object. `moving`
        says where migration jobs stand, by the uids of their pods, and `requests` where EvictionRequests do."""
        self._source, self._policy, self._clock = source, policy, clock
        self._evict, self._leads, self._moving, self._requests = evict, leads, moving, requests
        self._setup = reader.setup(policy.document)
        self._number = 0
        self._scheduled = float("-inf")
        """The last start by the schedule, in seconds since the epoch."""
        self._due = True
        """True where the cycle may evict: with a schedule neither the one at the start, nor one after a request to
        reload."""
        self._acted = False
        """True where this cycle has begun to evict."""
        self._cycle_memory = memory or CycleMemory()
        self._memory: planner.Memory = {}
        self._background: Requests = {}

    def run(
        self,
        tell: Tell,
        *,
        interval_seconds: float,
        wait: Callable[[float], bool],
        around: Callable[[Callable[[], CycleResult]], CycleResult] = lambda once: once(),
        guard: FaultGuard | None = None,
    ) -> None:
        """Cycles until `wait` says stop. The interval is that between two starts; a cycle that is late is not made up
        for. A cycle that failed is tried again sooner, unless it may have evicted something: limits are per interval.
        `around` runs each cycle, in whatever surroundings it wants. Faults, also of `tell`, that `guard` survives are
        reported as a cycle that failed; without a guard they end the run."""
        guard = guard or FaultGuard(limit=0)
        failures = 0
        self._due = self._policy.schedule is None
        while True:
            began = self._clock.monotonic()
            guard.begin()
            failed = True
            with guard:
                result = around(self.once)
                failed = bool(result.error)
                tell(msgspec.structs.replace(result, faults=guard.past))
            failures = failures + 1 if failed and not self._acted else 0
            if guard.hurt:
                faults = guard.state
                with guard:
                    tell(msgspec.structs.replace(self._begun_cycle(), error=faults.why, faults=faults))
            passed = self._clock.monotonic() - began
            if failures or self._policy.schedule is None:
                ends = wait(max(0.0, _pause(failures, interval_seconds) - passed))
            else:
                ends = self._wait_for_schedule(wait)
            if ends:
                return

    def _wait_for_schedule(self, wait: Callable[[float], bool]) -> bool:
        """Wait until the schedule says so, or `wait` is woken. True to stop. The clock is looked at again each
        minute: one that steps forward past a start leads to one cycle, and one that steps back to none twice."""
        start = float("inf")
        while (schedule := self._policy.schedule) is not None:
            now = self._clock.wall()
            stepped_back = 0.0 < self._scheduled - now < SMALL_STEP_SECONDS
            start = min(start, schedule.next_after(self._scheduled if stepped_back else now))
            if start <= now:
                break
            seconds, began = min(start - now, LOOK_SECONDS), self._clock.monotonic()
            if wait(seconds):
                return True
            if self._clock.monotonic() - began < seconds - WOKEN_SECONDS:
                self._due = False
                return False
            if start <= self._clock.wall():
                break
        self._scheduled, self._due = start, True
        return False

    def once(self) -> CycleResult:
        """Run one cycle. Whatever goes wrong with the cluster is in its result."""
        if self._policy.refresh():
            self._setup = reader.setup(self._policy.document)
        self._number += 1
        self._acted = False
        watch, began = Stopwatch(self._clock.monotonic), self._clock.monotonic()
        result = self._begun_cycle()
        try:
            result = self._decide(result, watch)
        except (KoordliteError, OSError) as error:
            result = msgspec.structs.replace(result, error=str(error), unreachable=isinstance(error, OSError))
        seconds = self._clock.monotonic() - began
        return msgspec.structs.replace(result, seconds=seconds, plugin_seconds=watch.seconds)

    def _begun_cycle(self) -> CycleResult:
        """The cycle that begins, of which there is nothing to tell yet."""
        leads = self._leads()
        return CycleResult(
            number=self._number,
            began=self._clock.wall(),
            seconds=0.0,
            setup=self._setup,
            leader=leads,
            dry_run=self._evict is None or not leads or self._policy.dry_run or not self._due,
            problems=self._policy.problems,
        )

    def _decide(self, result: CycleResult, watch: Stopwatch) -> CycleResult:
        view = self._source.view(self._policy.document, self._setup)
        view = msgspec.structs.replace(view, moving=self._moving())
        self._background, ended = past_evictions.follow(self._background, view, result.began)
        standing = self._requests(self._setup, view) if self._requests else {}
        ended += tuple(Ended(one, "Evicted", one.text) for one in standing.values() if one.state == "gone")
        self._cycle_memory.begin(view, leads=result.leader)
        plan = planner.plan(
            view,
            watch.time_plugins(self._setup),
            self._cycle_memory.sightings,
            self._memory,
            {**self._background, **standing},
            history=self._cycle_memory.history,
        )
        self._memory = plan.memory
        carry_out = eviction_api.prepare if self._evict is None or result.dry_run else self._evict
        self._cycle_memory.intend(plan, keep=not result.dry_run)
        self._acted = not result.dry_run
        attempts = carry_out(plan)
        begun = {attempt.uid for attempt in attempts if attempt.result == "InBackground"}
        requests = {
            o.pod.uid: past_evictions.request_for(o.pod, result.began) for o in plan.evict if o.pod.uid in begun
        }
        self._background = {**self._background, **requests}
        self._cycle_memory.end(plan, attempts, self._setup.pacing.loops, keep=not result.dry_run)
        problems = (*result.problems, *self._cycle_memory.problems)
        return msgspec.structs.replace(result, plan=plan, attempts=attempts, ended=ended, problems=problems)


def _pause(failures: int, interval_seconds: float) -> float:
    """Seconds from the start of a cycle to that of the next, after so many in a row that failed."""
    if not failures:
        return interval_seconds
    return min(RETRY_SECONDS * 2.0 ** min(failures - 1, 30), interval_seconds)
