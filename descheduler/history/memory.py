"""The memory that cycles leave to each other: sightings and past evictions, in this process, and beyond it with a
store."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from descheduler.arguments.pacing import Loops
from descheduler.framework import View
from descheduler.history import past_evictions
from descheduler.plan import Attempt, EvictionPlan, Sightings
from koordlite.model.errors import InputError, KoordliteError, Problem


class Kept(msgspec.Struct, frozen=True):
    """The memory that one cycle leaves to the next, whoever runs it."""

    history: past_evictions.History = msgspec.field(default_factory=dict)
    sightings: Sightings = msgspec.field(default_factory=dict)
    pending: tuple[past_evictions.Intent, ...] = ()
    """Evictions of a cycle that has not ended; empty after one that has."""


class Store(Protocol):
    """A place where the memory outlives the process."""

    def load(self) -> Kept:
        """Read the memory. InputError when it is damaged, other KoordliteErrors and OSError when it cannot be had."""

    def save(self, kept: Kept) -> None:
        """Keep it; KoordliteError or OSError when that failed."""


class CycleMemory:
    """Given to each cycle, and informed of what it did."""

    def __init__(
        self, store: Store | None = None, *, leads: Callable[[], bool] = lambda: True, single: bool = False
    ) -> None:
        """`single`: there is one cycle and no store, so findings cannot be seen again. `leads` is asked before each
        write: who has lost the lease meanwhile keeps nothing."""
        self._store, self._leads, self._single = store, leads, single and store is None
        self._kept = Kept()
        self._known = store is None
        self._damaged = False
        self.problems: tuple[Problem, ...] = ()
        """What is wrong with the store; what is known in this process holds meanwhile."""

    @property
    def history(self) -> past_evictions.History:
        """Past evictions by owner."""
        return self._kept.history

    @property
    def sightings(self) -> Sightings | None:
        """Number of pictures in a row that will have had each finding, if this one has it too; None when this
        picture is all there is."""
        return None if self._single else self._kept.sightings

    def begin(self, view: View, *, leads: bool) -> None:
        """Before a cycle. Who begins to lead reads what the leader before has kept. Of evictions whose cycle did not
        end the picture shows which were carried out.

        Other errors than a damaged store are raised: to go on would be to forget every loop.
        """
        if self._store is None or not leads:
            self._known = self._store is None
        elif not self._known:
            self.problems, self._damaged = (), False
            try:
                self._kept = self._store.load()
            except InputError as error:
                self.problems, self._damaged = tuple(error.problems), True
            self._known = True
        if self._kept.pending:
            history = past_evictions.resumed(self._kept.history, self._kept.pending, view)
            self._kept = Kept(history, self._kept.sightings)

    def intend(self, plan: EvictionPlan, *, keep: bool) -> None:
        """Before the first eviction of a cycle: keep what is about to be done, should there be nobody to say what was
        done. `keep`: see `end`."""
        pending = past_evictions.intents(self._kept.history, plan) if keep else ()
        if pending:
            self._kept = msgspec.structs.replace(self._kept, pending=pending)
            counts = seen_again(self._kept.sightings, plan)
            self._save(_worth_keeping(msgspec.structs.replace(self._kept, sightings=counts), plan))

    def end(self, plan: EvictionPlan, attempts: Iterable[Attempt], loops: Loops, *, keep: bool) -> None:
        """After a cycle. `keep`: evictions were real, and this process leads; a damaged store is never written over."""
        history = past_evictions.after(self._kept.history, plan, attempts, loops) if keep else self._kept.history
        self._kept = Kept(history, seen_again(self._kept.sightings, plan))
        if keep:
            self._save(_worth_keeping(self._kept, plan))

    def _save(self, kept: Kept) -> None:
        if self._store is None or self._damaged or not self._leads():
            return
        try:
            self._store.save(kept)
            self.problems = ()
        except (KoordliteError, OSError) as error:
            do = "let the service account get, create and patch this ConfigMap; the history holds in this process"
            self.problems = (Problem("configmap descheduler-memory", "data", "", str(error), do),)


def _worth_keeping(kept: Kept, plan: EvictionPlan) -> Kept:
    """Counts that some finding still waits for; all others would only make the ConfigMap change each time."""
    asked = {(o.pod.uid, f.reason): f.sightings for o in plan.outcomes for f in o.findings if f.severity == "hard"}
    counts = kept.sightings
    waiting = {key: min(counts[key], most) for key, most in asked.items() if most > 1 and key in counts}
    return msgspec.structs.replace(kept, sightings=waiting)


def seen_again(before: Sightings, plan: EvictionPlan) -> Sightings:
    """Number of pictures in a row that will have had each finding if the next one has it too."""
    found = {(outcome.pod.uid, finding.reason) for outcome in plan.outcomes for finding in outcome.findings}
    return {key: before.get(key, 1) + 1 for key in found}
