"""A pod that a plugin has named, and whether what was found is a reason to move it, and ripe."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from descheduler.arguments import pacing
from descheduler.arguments.pacing import Pacing
from descheduler.fit.search import Search
from descheduler.framework import Finding, PodView, Refusal
from descheduler.history import past_evictions
from descheduler.picture.pods import least_important_first
from descheduler.plan import Outcome, Profile, Sightings
from koordlite.model import duration, times


class Candidate(msgspec.Struct, frozen=True):
    """A pod with what one profile has found against it."""

    pod: PodView
    findings: tuple[Finding, ...]
    profile: Profile
    age_seconds: float | None
    """Since the pod started; None when nobody knows."""
    sightings: Sightings | None
    """None: this one picture is all there is."""

    def kept(self, reasons: tuple[Refusal, ...], search: Search | None = None) -> Outcome:
        """The answer that it stays, the deciding reason first; `search` when it was asked where it would fit."""
        return Outcome(
            self.pod, self.findings, "kept", self.profile.name, reasons, search, age_seconds=self.age_seconds
        )

    @property
    def home(self) -> Literal["", "any", "elsewhere"]:
        """Scope of the place that must be known, whatever `nodeFit` says; empty when a finding asks for none."""
        if not any(f.home for f in self.findings):
            return ""
        scopes = {f.home for f in self.findings if f.severity == "hard" and not self._waits(f)}
        if "" in scopes or not scopes:
            return ""
        return "elsewhere" if "elsewhere" in scopes else "any"

    def unripe(self) -> Refusal | None:
        """The refusal where no finding is a reason to move the pod, or not yet."""
        hard = [f for f in self.findings if f.severity == "hard"]
        if not hard and any(f.severity == "fixable" for f in self.findings):
            return Refusal("CuredOnNode", "the agent on its node can put it right: nothing has to move")
        if not hard:
            return Refusal("OnlyExposed", self.findings[0].cure)
        waiting = [reason for f in hard if (reason := self._waits(f))]
        return waiting[0] if len(waiting) == len(hard) else None

    def _waits(self, finding: Finding) -> Refusal | None:
        if finding.kept:
            return finding.kept
        age = self.age_seconds
        if finding.min_age_seconds > 0 and (age is None or age < finding.min_age_seconds):
            words = "its age is unknown" if age is None else f"it started {duration.age(age)} ago"
            return Refusal("PodTooYoung", f"{words}: too young for {finding.plugin} to be sure")
        count = None if self.sightings is None else self.sightings.get((self.pod.uid, finding.reason), 1)
        if count is not None and count < finding.sightings:
            text = f"seen in {count} of {finding.sightings} pictures that {finding.plugin} needs"
            return Refusal("SeenTooFewTimes", text)
        return None


def decision_order(pod: PodView, findings: list[Finding]) -> tuple[float, int, bool, float, float, str]:
    """Sort key for findings of plugins without an order of their own: the least important pod first, then the worst
    off, then the youngest, then names."""
    heaviest = max(f.weight for f in findings)
    youngest = float("inf") if pod.started is None else -pod.started
    return (*least_important_first(pod), -heaviest, youngest, pod.key)


class Pacer:
    """Asked for each pod while a plan is made; knows what the plan has taken."""

    def __init__(self, args: Pacing, history: past_evictions.History, now: float) -> None:
        """`now`: the picture's time, in seconds since the epoch."""
        self._args, self._history, self._now = args, history, now
        self._closed: Refusal | None = None
        if not pacing.is_open(args.windows, now):
            opens = times.show(pacing.next_opening(args.windows, now))
            text = f"no window for evictions is open; the next one opens at {opens}"
            self._closed = Refusal("OutsideWindow", text)
        self._is_idle = not (self._closed or history or args.owner_delay_seconds)
        """Nothing can speak against any pod."""
        self._owners: set[str] = set()

    def refusals(self, pod: PodView, findings: Iterable[Finding]) -> tuple[Refusal, ...]:
        """Reasons for it to stay for now; empty when it may go."""
        if self._is_idle:
            return ()
        past = past_evictions.refusal(pod, findings, self._history, self._args.loops, now=self._now)
        return tuple(filter(None, (self._closed, past, self._too_soon(pod))))

    def take(self, pod: PodView) -> None:
        """The plan takes the pod."""
        if self._args.owner_delay_seconds:
            self._owners.add(pod.owner)

    def _too_soon(self, pod: PodView) -> Refusal | None:
        delay = self._args.owner_delay_seconds
        if not delay or not pod.owner:
            return None
        words = f"minDelayPerOwner is {duration.brief(delay)}"
        if pod.owner in self._owners:
            return Refusal("OwnerDelay", f"{words}, and another pod of {pod.owner} goes before it")
        past = self._history.get(pod.owner)
        if past is None or not past.moves or self._now - past.moves[-1].at >= delay:
            return None
        ago = duration.brief(self._now - past.moves[-1].at)
        return Refusal("OwnerDelay", f"{words}, and another pod of {pod.owner} went {ago} ago")
