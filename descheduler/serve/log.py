"""Log lines: one a decision, one a cycle, each with the same words as the report."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from descheduler.evictors.migration import Progress
from descheduler.report import document
from descheduler.serve.loop import CycleResult
from koordlite.report.log_format import Fields

LOG = logging.getLogger("descheduler")
Line = dict[str, object]


class CycleLog:
    """Log of cycles. What stays the same from one cycle to the next is reported once, then at debug level."""

    def __init__(self) -> None:
        self._last: Mapping[str, Line] = {}
        self._policy_problems: tuple[object, ...] = ()

    def tell(self, result: CycleResult) -> None:
        """Lines for one cycle."""
        if result.problems != self._policy_problems:
            self._policy_problems = result.problems
            for problem in result.problems:
                LOG.error("%s", Fields(event="policy", result="rejected", text=f"{problem}; the last good one holds"))
            if not result.problems:
                LOG.info("%s", Fields(event="policy", result="accepted"))
        decisions = {str(each["uid"]): each for each in _decisions(result)}
        for uid, each in decisions.items():
            level = logging.DEBUG if self._last.get(uid) == each else logging.INFO
            LOG.log(level, "%s", Fields(event="decision", **each))
        self._last = decisions
        for over in result.ended:
            LOG.info("%s", Fields(event="background", pod=f"{over.request.namespace}/{over.request.name}",
                                result=over.result, text=over.text))  # fmt: skip
        for warning in document.warnings(result.plan) if result.plan else ():
            LOG.warning("%s", Fields(event="plan", result="warning", text=warning))
        LOG.log(logging.ERROR if result.error else logging.INFO, "%s", Fields(event="cycle", **_summary(result)))


class JobLog:
    """Log of migration jobs; what a job says again and again is reported once."""

    def __init__(self) -> None:
        self._last: dict[str, Progress] = {}

    def job(self, progress: Progress) -> None:
        """A line for one step of a job."""
        repeats = self._last.get(progress.job) == progress
        self._last[progress.job] = progress
        if progress.reason == "Removed":
            del self._last[progress.job]
        level = logging.ERROR if progress.reason == "Failed" else logging.INFO
        fields = {"job": progress.job, "pod": progress.pod, "result": progress.reason, "text": progress.text}
        LOG.log(logging.DEBUG if repeats else level, "%s", Fields(event="migration", **fields))


def _decisions(result: CycleResult) -> Iterator[Line]:
    if result.plan is None:
        return
    attempts = {attempt.uid or attempt.pod: attempt for attempt in result.attempts}
    for outcome in result.plan.outcomes:
        eviction = attempts.get(outcome.pod.uid) or attempts.get(outcome.pod.key)
        main = outcome.main
        entry: Line = {
            "verdict": outcome.verdict,
            "pod": outcome.pod.key,
            "uid": outcome.pod.uid,
            "node": outcome.pod.node,
            "profile": outcome.profile,
            "plugin": main.plugin,
            "reason": main.reason,
            "fact": main.fact,
        }
        if outcome.reasons:
            entry |= {"keptBy": outcome.reasons[0].reason, "text": outcome.reasons[0].text}
        if eviction and outcome.verdict == "evict":
            entry |= {"result": eviction.result} | ({"text": eviction.text} if eviction.text else {})
        yield entry | ({"target": outcome.target} if outcome.target else {})


def _summary(result: CycleResult) -> Line:
    entry: Line = {"number": result.number, "seconds": round(result.seconds, 3), "leader": result.leader}
    entry["dryRun"] = result.dry_run
    if result.plan is None:
        return entry | {"result": "failed", "text": result.error}
    counts = {"nodes": len(result.plan.view.nodes), "found": len(result.plan.outcomes)}
    counts |= {"notJudged": result.plan.not_judged}
    return entry | counts | {"evict": len(result.plan.evict), "kept": len(result.plan.kept)}
