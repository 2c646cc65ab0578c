"""The last safety net under a loop: a fault of ours costs one round, is reported, and ends the process if it stays.

What is known to go wrong is answered where it goes wrong. This is only for what was not expected.
"""

from __future__ import annotations

import logging
import types
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import msgspec

from koordlite.model import isolation
from koordlite.model.errors import Problem
from koordlite.model.status import Faults

P = ParamSpec("P")
T = TypeVar("T")
LOG = logging.getLogger(__name__)
KINDS = 100
"""Kinds of faults of subjects that are logged."""
ROUNDS = 10
"""Rounds in a row whose faults end the process: a fresh start may help, another round will not."""


class FaultGuard:
    """`with guard:` around the parts of a round. With `limit=0` it lets everything through."""

    def __init__(self, *, limit: int = ROUNDS) -> None:
        self.state = Faults()
        self._limit = limit
        self.hurt = False
        """True where this round has ended in a fault."""
        self._logged: set[tuple[type[BaseException], str]] = set()

    @property
    def past(self) -> Faults:
        """Faults survived before this round, for its own report."""
        return msgspec.structs.replace(self.state, in_a_row=0)

    def begin(self) -> None:
        """A round begins. A round without a fault ends the row."""
        if not self.hurt:
            self.state = self.past
        self.hurt = False

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: types.TracebackType | None
    ) -> bool:
        """True when the fault is survived. A reader of our output who has gone is no fault of ours."""
        if not self._limit or not isinstance(error, Exception) or isinstance(error, BrokenPipeError):
            return False
        self._count(error, isolation.place(error))
        if self.state.in_a_row < self._limit:
            return True
        LOG.error("%d rounds in a row ended in a fault; the process ends, to be restarted", self.state.in_a_row)
        return False

    def _count(self, error: Exception, place: str) -> None:
        row = self.state.in_a_row + (not self.hurt)
        self.hurt = True
        text = f"{type(error).__name__}: {error}"
        self.state = Faults(total=self.state.total + 1, in_a_row=row, place=place, error=text)
        if (type(error), place) in self._logged:
            return
        self._logged.add((type(error), place))
        LOG.error("%s; what is in force stays, the next round is tried", self.state.why, exc_info=error)


class SubjectFaults:
    """Faults of ours that cost one subject its turn, and none of the others: counted, and each kind logged once."""

    def __init__(self, work: str) -> None:
        """`work` is what could not be done, for the log."""
        self.work = work
        self.total = 0
        self._logged: set[tuple[str, str]] = set()

    def note(self, subject: str, error: Exception) -> str:
        """Count it; returns why there is no result for `subject`."""
        self.total += 1
        place = isolation.place(error)
        kind = type(error).__name__, place
        if kind not in self._logged and len(self._logged) < KINDS:
            self._logged.add(kind)
            LOG.error("%s: %s is left out: %s: %s", self.work, subject, kind[0], error, exc_info=error)
        return f"{self.work}: a fault of the program itself: {kind[0]} at {place}"

    def guarded(self, subject: str, judgement: Callable[P, T], *of: P.args, **more: P.kwargs) -> T | str:
        """Result of the judgement about `subject`, or the text of the fault that stands in for it."""
        try:
            return judgement(*of, **more)
        except Exception as error:  # noqa: BLE001 - as said
            return self.note(subject, error)

    def problem(self, subject: str, error: Exception) -> Problem:
        """The same as something that its reader can act on."""
        return Problem(subject, "object", "", self.note(subject, error), "it is left out; report it with the log")
