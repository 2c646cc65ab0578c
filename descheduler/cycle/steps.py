"""The steps of one plan after the other: what a plugin named and was answered holds while nothing that either follows
from has changed.

A step is one plugin's conversation, or that of several whose findings are decided on together. It follows from the
picture, the policy, what earlier cycles left, and what the plan has moved before. So where these are alike and all
steps before moved what they moved in the last plan, a step is that of the last plan. Of a step that is made again,
since its plugin reads what changed, the answers hold until another pod is named, or for something else.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import msgspec

from descheduler.fit.search import FitSearch
from descheduler.framework import Aside, Facet, Finding, Plugin, Remember, View
from descheduler.picture.pods import alike_pods
from descheduler.plan import Outcome, Setup

Key = tuple[int | str, ...]
"""Number of the profile, point, and plugins."""


class Step(msgspec.Struct):
    """A part of a plan."""

    asides: list[Aside] = []
    answers: list[tuple[str, tuple[Finding, ...], Outcome | None]] = []
    """uid of each pod that was named, what was found, and the answer; None: the plan took it already."""
    lasting: bool = True
    """It follows from what is compared. A step with a fault is tried again, and one that remembers goes on."""
    last: list[tuple[str, tuple[Finding, ...], Outcome | None]] = []
    """Answers of the last plan that hold as long as the same pods are named for the same."""

    def last_answer(self, uid: str, findings: tuple[Finding, ...], *, taken: bool = False) -> Outcome | None:
        """The next answer of the last plan; None where it was another pod's, something else was found, or only one of
        the plans had `taken` the pod already: from there on nothing holds."""
        number = len(self.answers)
        if number < len(self.last):
            last = self.last[number]
            if last[:2] == (uid, findings) and (last[2] is None) == taken:
                return last[2]
        self.last = []
        return None

    def moves(self) -> list[object]:
        """Moves that it made for the steps after it."""
        return [
            (
                uid,
                answer.search and answer.search.places[:1],
                answer.waiting and (answer.waiting[0].uid, answer.waiting[1]),
            )
            for uid, _, answer in self.answers
            if answer and answer.verdict == "evict"
        ]


class Steps:
    """The steps of a plan, and those of the last one as far as they hold."""

    def __init__(self, view: View, setup: Setup, fit: FitSearch) -> None:
        self._inputs = view, setup, fit
        self._steps: dict[Key, Step] = {}
        self._last: Mapping[Key, Step] = {}
        self._changed = frozenset[Facet]()

    @classmethod
    def of(cls, view: View, setup: Setup, fit: FitSearch, *, alone: bool) -> Steps:
        """Begin a plan. Windows and the least age of pods tie steps to the time. `alone`: something else does, such as
        earlier evictions, or the plan explains a pod."""
        steps = cls(view, setup, fit)
        if view.cache is None:
            return steps
        last = view.cache.pop(Steps, None)
        least_ages = [args.min_pod_age for one in setup.profiles for args in (one.args, *one.more_args)]
        if alone or setup.pacing.windows or any(least_ages):
            return steps
        view.cache[Steps] = steps
        if isinstance(last, Steps) and last._holds(view, setup, fit):
            steps._last, steps._changed = last._steps, last._facets(view)
        return steps

    def _holds(self, view: View, setup: Setup, fit: FitSearch) -> bool:
        """Tell whether all that every step follows from is the same. That the fit goes on says it of nodes and pods on
        them, namespaces and volumes."""
        last, last_setup, last_fit = self._inputs
        names = ("budgets", "priority_classes", "storage_classes", "moving", "replicas")
        return (
            fit is last_fit
            and (setup is last_setup or _policy(setup) == _policy(last_setup))
            and all(getattr(view, name) == getattr(last, name) for name in names)
            and len(view.unbound) == len(last.unbound)
            and all(map(alike_pods, view.unbound, last.unbound))
        )

    def _facets(self, view: View) -> frozenset[Facet]:
        last, changed = self._inputs[0], set[Facet]()
        if view.time != last.time:
            changed.add("time")
        if view.usage != last.usage:
            changed.add("usage")
        pairs = itertools.chain(
            zip(view.nodes.values(), last.nodes.values(), strict=True), zip(view.unbound, last.unbound, strict=True)
        )
        if any(one is not other for one, other in pairs):
            changed.add("statuses")
        return frozenset(changed)

    def last(self, key: Key) -> Step:
        """The step of the last plan, as far as it holds; an empty one where it does not."""
        step = self._last.get(key)
        return step if step and step.lasting else Step(lasting=False)

    def is_same(self, step: Step, plugin: Plugin) -> bool:
        """Tell whether the plugin's step of the last plan is this one's too."""
        if not step.lasting or plugin.reads & self._changed:
            return False
        # Else a pod that had ended is gone.
        return self._inputs[0].by_uid.keys() >= {uid for uid, _, _ in step.answers}

    def add(self, key: Key, step: Step) -> None:
        """Note a step that was made. Where it moved something else than in the last plan, none after it is repeated."""
        last, self._steps[key] = self._last.get(key), step
        if any(isinstance(one, Remember) for one in step.asides):
            step.lasting = False
        if step.last and len(step.last) == len(step.answers):
            step.last = []
            return
        if any(f.sightings > 1 or f.min_age_seconds > 0 for _, findings, _ in step.answers for f in findings):
            step.lasting = False
        if last is None or last.moves() != step.moves():
            self._last = {}
        step.last = []

    def end(self) -> None:
        """Forget the last plan."""
        self._last = {}


def _policy(setup: Setup) -> Setup:
    """The policy by the names of its plugins: each cycle times plugins of its own."""
    profiles = [
        msgspec.structs.replace(one, plugins=tuple([(plugin.name, config) for plugin, config in one.plugins]))
        for one in setup.profiles
    ]
    return msgspec.structs.replace(setup, profiles=tuple(profiles))
