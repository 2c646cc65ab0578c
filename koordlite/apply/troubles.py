"""Troubles by place: refusals and foreign writes, counted as long as the agent runs."""

from __future__ import annotations

import collections
import logging
from collections.abc import Iterable, Mapping

from koordlite.apply.foreign import ForeignWriters
from koordlite.model import printable
from koordlite.model.place import Place
from koordlite.model.status import AppliedStep, FileTrouble

LOG = logging.getLogger(__name__)
MAX_PLACES = 500
"""Pods come and go: what was refused longest ago is forgotten first."""
MAX_LISTED = 50


class Troubles:
    """Counts refusals by place; `ForeignWriters` counts the others."""

    def __init__(self, foreign: ForeignWriters) -> None:
        self._foreign = foreign
        self._refused: collections.OrderedDict[Place, tuple[int, str]] = collections.OrderedDict()

    def note(self, steps: Iterable[AppliedStep]) -> None:
        """Count the refusals among `steps`."""
        for step in steps:
            if not step.ok:
                times, _ = self._refused.pop(step.place, (0, ""))
                self._refused[step.place] = times + 1, step.error
        while len(self._refused) > MAX_PLACES:
            self._refused.popitem(last=False)

    def worst(self, now: float) -> tuple[FileTrouble, ...]:
        """The places with the most trouble first, at most `MAX_LISTED`."""
        places = {*self._refused, *self._foreign.fought}
        found = [self._trouble(place, now) for place in places]
        found.sort(key=lambda trouble: (-trouble.refused - trouble.foreign, trouble.place))
        return tuple(found[:MAX_LISTED])

    def _trouble(self, place: Place, now: float) -> FileTrouble:
        times, error = self._refused.get(place, (0, ""))
        return FileTrouble(place, times, error, self._foreign.count(place), self._foreign.kept_off_seconds(place, now))


def log_refused(applied: Iterable[AppliedStep], before: Mapping[Place, str]) -> Mapping[Place, str]:
    """Log refusals that are not in `before`, once for all places that share one; the refusals of now, by place."""
    refused = [step for step in applied if not step.ok]
    fresh: dict[str, list[AppliedStep]] = {}
    for step in refused:
        if before.get(step.place) != step.error:
            fresh.setdefault(step.error, []).append(step)
    for error, (first, *others) in fresh.items():
        more = f" and {len(others)} more" if others else ""
        LOG.warning("refused: %s = %s%s: %s", first.place, printable.shortened(first.value), more, error)
    return {step.place: step.error for step in refused}
