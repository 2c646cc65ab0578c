"""Which differences about memory QoS are on purpose."""

from __future__ import annotations

from typing import Any

_LOW = "memory.low"


def level_low(given: Any, wanted: Any, found: Any) -> bool:
    """A level has the lows its pods really have: nothing else differs, and the root has the sum of all pods."""
    ours, theirs = (dict(_lows(answer)) for answer in (found, wanted))
    of_pods = sum(int(row["value"]) for row in found["podLevel"] if row["resource"] == _LOW)
    raised = ours.keys() == theirs.keys() and all(ours[tier] >= theirs[tier] for tier in ours)
    return bool(raised and ours.get("Guaranteed") == of_pods and _without_lows(found) == _without_lows(wanted))


def _lows(answer: Any) -> list[tuple[str, int]]:
    return [(row["kubeQoS"], int(row["value"])) for row in answer["qosLevel"] if row["resource"] == _LOW]


def _without_lows(answer: Any) -> Any:
    return {**answer, "qosLevel": [row for row in answer["qosLevel"] if row["resource"] != _LOW]}
