"""Log lines: one a decision, one a cycle, each with the same words as the report.

`key=value` text, or one JSON object a line, for people and for programs that read logs.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping

from descheduler.evictors.migration import Progress
from descheduler.plan import Attempt, Outcome
from descheduler.serve.loop import Round

LOG = logging.getLogger("descheduler")
Line = dict[str, object]


class Narrator:
    """Tells rounds to the log. What stays the same from one cycle to the next is told once, then at debug level."""

    def __init__(self) -> None:
        self._told: Mapping[str, Line] = {}
        self._policy_problems: tuple[object, ...] = ()

    def tell(self, told: Round) -> None:
        """Lines for one cycle."""
        if told.problems != self._policy_problems:
            self._policy_problems = told.problems
            for problem in told.problems:
                LOG.error("%s", line(event="policy", result="rejected", text=f"{problem}; the last good one holds"))
            if not told.problems:
                LOG.info("%s", line(event="policy", result="accepted"))
        decisions = {str(each["uid"]): each for each in _decisions(told)}
        for uid, each in decisions.items():
            level = logging.DEBUG if self._told.get(uid) == each else logging.INFO
            LOG.log(level, "%s", line(event="decision", **each))
        self._told = decisions
        for over in told.ended:
            LOG.info("%s", line(event="background", pod=f"{over.request.namespace}/{over.request.name}",
                                result=over.result, text=over.text))  # fmt: skip
        LOG.log(logging.ERROR if told.error else logging.INFO, "%s", line(event="cycle", **_summary(told)))


class Lines:
    """Tells the progress of migration jobs to the log; what a job says again and again is told once."""

    def __init__(self) -> None:
        self._told: dict[str, Progress] = {}

    def job(self, progress: Progress) -> None:
        """A line for one step of a job."""
        again = self._told.get(progress.job) == progress
        self._told[progress.job] = progress
        if progress.reason == "Removed":
            del self._told[progress.job]
        level = logging.ERROR if progress.reason == "Failed" else logging.INFO
        fields = {"job": progress.job, "pod": progress.pod, "result": progress.reason, "text": progress.text}
        LOG.log(logging.DEBUG if again else level, "%s", line(event="migration", **fields))


def line(**fields: object) -> Line:
    """A log line; the formatters below write it."""
    return _Line(fields)


class _Line(Line):
    """Prints itself as `key=value`; values with spaces are quoted as JSON has it."""

    def __str__(self) -> str:
        return " ".join(f"{key}={_value(value)}" for key, value in self.items())


class JsonFormatter(logging.Formatter):
    """One JSON object a line: `time`, `level`, and the fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The line; records of others have their text in `message`."""
        fields = record.args[0] if isinstance(record.args, tuple) and record.args else record.args
        said = fields if isinstance(fields, _Line) else {"message": record.getMessage()}
        head = {"time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"), "level": record.levelname.lower()}
        return json.dumps({**head, **said}, ensure_ascii=False)


def _value(value: object) -> str:
    text = str(value)
    return text if text and not any(c in text for c in ' "=\n') else json.dumps(text, ensure_ascii=False)


def _decisions(told: Round) -> Iterator[Line]:
    if told.plan is None:
        return
    attempts = {attempt.uid or attempt.pod: attempt for attempt in told.attempts}
    for outcome in told.plan.outcomes:
        found = attempts.get(outcome.pod.uid) or attempts.get(outcome.pod.key)
        yield _decision(outcome, found if outcome.verdict == "evict" else None)


def _decision(outcome: Outcome, attempt: Attempt | None) -> Line:
    main = outcome.main
    said: Line = {
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
        said |= {"sparedBy": outcome.reasons[0].reason, "text": outcome.reasons[0].text}
    if attempt:
        said |= {"result": attempt.result} | ({"text": attempt.text} if attempt.text else {})
    return said | ({"target": outcome.target} if outcome.target else {})


def _summary(told: Round) -> Line:
    said: Line = {"number": told.number, "seconds": round(told.seconds, 3), "leader": told.leader}
    said["dryRun"] = told.dry_run
    if told.plan is None:
        return said | {"result": "failed", "text": told.error}
    counts = {"nodes": len(told.plan.view.nodes), "found": len(told.plan.outcomes)}
    return said | counts | {"evict": len(told.plan.evict), "spare": len(told.plan.spare)}
