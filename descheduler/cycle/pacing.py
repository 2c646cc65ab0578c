"""Is it the time to evict a pod: is a window open, was its owner left in peace long enough, would it help at all?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from descheduler.arguments import pacing
from descheduler.arguments.pacing import Pacing
from descheduler.framework import Finding, PodView, Refusal
from descheduler.history import past_evictions
from koordlite.model import duration, times


class Pacer:
    """Asked for each pod while a plan is made; knows what the plan has taken."""

    def __init__(self, pacing: Pacing, history: past_evictions.History, now: float) -> None:
        """`now`: the picture's time, in seconds since the epoch."""
        self._args, self._history, self._now = pacing, history, now
        self._closed = self._outside()
        self._owners: set[str] = set()

    def refusals(self, pod: PodView, findings: Iterable[Finding]) -> tuple[Refusal, ...]:
        """Reasons for it to stay for now; empty when it may go."""
        return tuple(self._reasons(pod, findings))

    def take(self, pod: PodView) -> None:
        """The plan takes the pod."""
        if self._args.owner_delay_seconds:
            self._owners.add(pod.owner)

    def _reasons(self, pod: PodView, findings: Iterable[Finding]) -> Iterator[Refusal]:
        if self._closed:
            yield self._closed
        known = past_evictions.refusal(pod, findings, self._history, self._args.loops, now=self._now)
        if known:
            yield known
        soon = self._too_soon(pod)
        if soon:
            yield soon

    def _outside(self) -> Refusal | None:
        asked = self._args.windows
        if pacing.is_open(asked, self._now):
            return None
        opens = times.show(pacing.next_opening(asked, self._now))
        return Refusal("OutsideWindow", f"no window for evictions is open; the next one opens at {opens}")

    def _too_soon(self, pod: PodView) -> Refusal | None:
        delay = self._args.owner_delay_seconds
        if not delay or not pod.owner:
            return None
        shown = f"minDelayPerOwner is {duration.brief(delay)}"
        if pod.owner in self._owners:
            return Refusal("OwnerDelay", f"{shown}, and another pod of {pod.owner} goes before it")
        past = self._history.get(pod.owner)
        last = past.last_move if past else None
        if last is None or self._now - last >= delay:
            return None
        ago = duration.brief(self._now - last)
        return Refusal("OwnerDelay", f"{shown}, and another pod of {pod.owner} went {ago} ago")
