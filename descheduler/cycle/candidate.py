"""A pod that a plugin has named, and whether what was found is a reason to move it, and ripe."""

from __future__ import annotations

from typing import Literal

import msgspec

from descheduler.fit.search import Search
from descheduler.framework import Finding, PodView, Refusal
from descheduler.picture.pods import least_important_first, youngest_first
from descheduler.plan import Outcome, Profile, Sightings
from koordlite.model import duration


class Candidate(msgspec.Struct, frozen=True):
    """A pod with what one profile has found against it."""

    pod: PodView
    findings: tuple[Finding, ...]
    profile: Profile
    age_seconds: float | None
    """Since the pod started; None when nobody knows."""
    sightings: Sightings | None
    """None: this one picture is all there is."""

    def spared(self, reasons: tuple[Refusal, ...], search: Search | None = None) -> Outcome:
        """The answer that it stays, the deciding reason first; `search` when it was asked where it would fit."""
        return Outcome(
            self.pod, self.findings, "spare", self.profile.name, reasons, search, age_seconds=self.age_seconds
        )

    @property
    def home(self) -> Literal["", "any", "elsewhere"]:
        """Scope of the place that must be known, whatever `nodeFit` says; empty when a finding asks for none."""
        asked = {f.home for f in self.findings if f.severity == "hard" and not self._waits(f)}
        if "" in asked or not asked:
            return ""
        return "elsewhere" if "elsewhere" in asked else "any"

    def unripe(self) -> Refusal | None:
        """The refusal where no finding is a reason to move the pod, or not yet."""
        hard = [f for f in self.findings if f.severity == "hard"]
        if not hard:
            return _no_move_needed(self.findings)
        waiting = [reason for f in hard if (reason := self._waits(f))]
        return waiting[0] if len(waiting) == len(hard) else None

    def _waits(self, finding: Finding) -> Refusal | None:
        if finding.spare_text:
            return Refusal(finding.spare, finding.spare_text)
        if finding.spare:
            age = self.age_seconds
            shown = "its age is unknown" if age is None else f"it started {duration.brief(age)} ago"
            return Refusal(finding.spare, f"{shown}: too young for {finding.plugin} to be sure")
        seen = None if self.sightings is None else self.sightings.get((self.pod.uid, finding.reason), 1)
        if seen is not None and seen < finding.sightings:
            text = f"seen in {seen} of {finding.sightings} pictures that {finding.plugin} needs"
            return Refusal("SeenTooFewTimes", text)
        return None


def _no_move_needed(findings: tuple[Finding, ...]) -> Refusal:
    if any(f.severity == "fixable" for f in findings):
        return Refusal("CuredOnNode", "the agent on its node can put it right: nothing has to move")
    return Refusal("OnlyExposed", findings[0].cure)


def order(pod: PodView, findings: list[Finding]) -> tuple[float, int, bool, float, float, str]:
    """Sort key for findings of plugins without an order of their own: the least important pod first, then the worst
    off, then the youngest, then names."""
    heaviest = max(f.weight for f in findings)
    return (*least_important_first(pod), -heaviest, youngest_first(pod), pod.key)
