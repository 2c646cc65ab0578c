"""The difference from an earlier report: pods named again, no longer named, and pods with another answer.

The earlier report is the JSON one. Reports of other versions are not compared with: the difference says so.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from descheduler.plan import EvictionPlan
from descheduler.report.document import API_VERSION

Change = Literal["new", "over", "toEvict", "toKeep", "otherReason"]
WORDS: dict[Change, str] = {
    "new": "named for the first time",
    "over": "no longer named",
    "toEvict": "to evict, was kept",
    "toKeep": "kept, was to be evicted",
    "otherReason": "kept for another reason",
}


class _Reason(msgspec.Struct, frozen=True):
    reason: str


class _Pod(msgspec.Struct, frozen=True, rename="camel"):
    pod: str
    uid: str
    node: str
    verdict: str
    kept_because: tuple[_Reason, ...] = ()


class Earlier(msgspec.Struct, frozen=True, rename="camel"):
    """The part of an earlier report that is compared."""

    api_version: str
    time: str
    evict: tuple[_Pod, ...]
    kept: tuple[_Pod, ...]


class Row(msgspec.Struct, frozen=True):
    """A pod whose answer changed."""

    change: Change
    pod: str
    uid: str
    text: str


class Difference(msgspec.Struct, frozen=True):
    """Two reports compared."""

    since: str
    """Time of the earlier one; empty when there is none to compare with."""
    rows: tuple[Row, ...] = ()
    """Rows by kind of change, then in the order of the plans."""
    same: int = 0
    """Pods with the same answer."""
    why_not: str = ""
    """Reason why the earlier report could not be compared with."""


def read(data: bytes) -> Earlier:
    """The earlier report; ValueError when it is none, or of another version."""
    report = msgspec.json.decode(data, type=Earlier)
    if report.api_version != API_VERSION:
        raise ValueError(f"it is of version {report.api_version}, not {API_VERSION}")
    return report


def compare(earlier: Earlier, plan: EvictionPlan) -> Difference:
    """Compare `plan` with the earlier report."""
    before, rows = {pod.uid: pod for pod in (*earlier.evict, *earlier.kept)}, list[Row]()
    for outcome in plan.outcomes:
        then = before.pop(outcome.pod.uid, None)
        reason = outcome.reasons[0].reason if outcome.reasons else ""
        old = then.kept_because[0].reason if then and then.kept_because else ""
        change: Change | None = "otherReason" if old != reason else None
        if then is None:
            change = "new"
        elif outcome.verdict != then.verdict:
            change = "toEvict" if outcome.verdict == "evict" else "toKeep"
        if change:
            keeping = f"kept: {reason}{f', was {old}' if old and old != reason else ''}"
            answer = "to evict" if outcome.verdict == "evict" else keeping
            text = f"{outcome.main.reason} on {outcome.pod.node}: {answer}"
            rows.append(Row(change, outcome.pod.key, outcome.pod.uid, text))
    same = len(plan.outcomes) - len(rows)
    present = {pod.uid: pod.node for node in plan.view.nodes.values() for pod in node.all_pods if pod.uid in before}
    for uid, pod in before.items():
        text = f"nothing is wrong with it on {present[uid]}" if uid in present else f"it is gone from {pod.node}"
        rows.append(Row("over", pod.pod, uid, text))
    order = list(WORDS)
    return Difference(earlier.time, tuple(sorted(rows, key=lambda row: order.index(row.change))), same)
