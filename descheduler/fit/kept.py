"""The fit of one picture after the other: an answer of the last plan holds while nothing that it follows from changed.

An answer follows from the picture as far as places in it go, from the pod that is asked about, and from what the plan
has moved before. So while the picture is alike and a plan makes the moves of the last one, each question is answered
from the last plan, and the moves are made only when a question comes that was not asked then.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Collection, Iterator
from typing import Any, TypeVar

from descheduler.fit.free_capacity import FreeCapacity
from descheduler.fit.search import FitSearch, Place, Question, Search
from descheduler.framework import NodeView, PodView, View
from descheduler.picture.pods import alike_pods

T = TypeVar("T")
_Answers = dict[tuple[object, ...], tuple[PodView, Any]]
"""Answers by the number of moves before, the pod's uid and the question; with the pod that they were about."""
_Moves = list[tuple[PodView, Place | None]]
"""Pods in turn, and where their successors are expected; None: nowhere known."""


def of(view: View) -> FitSearch:
    """The fit of a picture, with answers of the picture before as far as they hold."""
    if view.cache is None:
        return FitSearch(view)
    last = view.cache.get(KeptFit)
    fit = view.cache[KeptFit] = last if isinstance(last, KeptFit) and last.follows(view) else KeptFit(view)
    return fit


class KeptFit(FitSearch):
    """A fit that knows the answers of the last plan."""

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._view = view
        self._last: tuple[_Moves, _Answers] = [], {}
        """Moves and answers of the last plan."""
        self._moves: _Moves = []
        self._answers: _Answers = {}
        self._is_alike = True
        """All moves so far are those of the last plan."""
        self._made = 0
        """Number of moves that the capacities count on, as long as `_is_alike` also later ones of the last plan; -1:
        some of them are not in this plan."""

    def follows(self, view: View) -> bool:
        """Begin a new plan, for `view`; False when answers about the picture before say nothing of it."""
        before = self._view
        same = before.volume_nodes == view.volume_nodes and before.namespaces == view.namespaces
        same = same and len(before.nodes) == len(view.nodes)
        if not same or not all(map(_alike_nodes, before.nodes.values(), view.nodes.values())):
            return False
        # What a plan did not ask, since it repeated its steps, holds like what it asked.
        answers = self._last[1] if self._is_alike else {}
        answers.update(self._answers)
        if not before.by_uid.keys() <= view.by_uid.keys():
            answers = {key: entry for key, entry in answers.items() if key[1] in view.by_uid}
        self._view, self._last = view, (self._moves, answers)
        self._moves, self._answers, self._is_alike = [], {}, True
        self._last_question = None
        return True

    def search(self, pod: PodView, inside: str = "", *, each: bool = False) -> Search:
        """Ask the nodes."""
        return self._answer_once(
            pod, ("search", inside, each), lambda: super(KeptFit, self).search(pod, inside, each=each)
        )

    def fits(self, pod: PodView, inside: str = "") -> bool:
        """Tell whether `search` finds a place."""
        return self._answer_once(pod, ("fits", inside), lambda: super(KeptFit, self).fits(pod, inside))

    def fits_on(self, pod: PodView, names: Collection[str]) -> bool:
        """Tell whether it would fit on one of these nodes."""
        return self._answer_once(pod, ("on", frozenset(names)), lambda: super(KeptFit, self).fits_on(pod, names))

    def capacity(self, node: str) -> FreeCapacity:
        """Rest of a node."""
        self._catch_up()
        return super().capacity(node)

    @contextlib.contextmanager
    def attempt(self) -> Iterator[None]:
        """Forget in the end what is noted meanwhile."""
        self._catch_up()
        with super().attempt():
            yield

    def move(self, pod: PodView, place: Place) -> None:
        """Note that the plan takes `pod` away."""
        if self._journal is None:
            self._note(pod, place)
        else:
            super().move(pod, place)

    def leave(self, pod: PodView) -> None:
        """Note that the plan takes `pod` away, to nowhere we know of."""
        if self._journal is None:
            self._note(pod, None)
        else:
            super().leave(pod)

    def repeat(self) -> bool:
        """Note the next move of the last plan; False, and nothing is noted, where other moves were made."""
        if self._is_alike:
            self._moves.append(self._last[0][len(self._moves)])
        return self._is_alike

    def _answer_once(self, pod: PodView, question: tuple[object, ...], ask: Callable[[], T]) -> T:
        if self._journal is not None:
            return ask()
        key = (len(self._moves), pod.uid, *question)
        entry = self._answers.get(key)
        if entry is None and self._is_alike:
            entry = self._last[1].get(key)
        answer: T
        _, answer = self._answers[key] = entry if entry and alike_pods(entry[0], pod) else (pod, ask())
        return answer

    def _note(self, pod: PodView, place: Place | None) -> None:
        """A move of the last plan is made when a question needs it, another one at once."""
        number, last = len(self._moves), self._last[0]
        if self._is_alike:
            self._is_alike = number < len(last) and last[number][1] == place and alike_pods(last[number][0], pod)
            if not self._is_alike and self._made > number:
                self._made = -1
        if not self._is_alike:
            self._catch_up()
            self._make(pod, place)
        self._moves.append((pod, place))

    def _question(self, pod: PodView, inside: str) -> Question:
        self._catch_up()
        return super()._question(pod, inside)

    def _catch_up(self) -> None:
        """Make the moves that are only noted so far."""
        if self._journal is not None:
            return
        if not 0 <= self._made <= len(self._moves):
            FitSearch.__init__(self, self._view)
            self._made = 0
        for pod, place in self._moves[self._made :]:
            self._make(pod, place)

    def _make(self, pod: PodView, place: Place | None) -> None:
        if place is None:
            super().leave(pod)
        else:
            super().move(pod, place)
        self._made += 1


_CHANGING = ("pods", "ended", "reserved", "placement_at")
_fixed = operator.attrgetter(*[name for name in NodeView.__struct_fields__ if name not in _CHANGING])


def _alike_nodes(one: NodeView, other: NodeView) -> bool:
    """Tell whether all pods get the same answers from a node: the same ones are on it, and take the same of it."""
    if one is other or one.once(_alike_nodes, object) is other.once(_alike_nodes, object):
        return True
    same = all(map(operator.is_, _fixed(one), _fixed(other))) and one.reserved == other.reserved
    return same and len(one.pods) == len(other.pods) and all(map(alike_pods, one.pods, other.pods))
