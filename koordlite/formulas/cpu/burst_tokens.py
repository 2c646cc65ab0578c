"""The tokens of all containers from tick to tick: read from what was remembered, spent, and written down again.

Flat text keys, since memory between ticks is a flat JSON object: `GROUP:left`, `GROUP:capacity`, `GROUP:period` and
`GROUP:time`.
"""

from __future__ import annotations

from collections.abc import Mapping

from koordlite.formulas.cpu import burst
from koordlite.formulas.cpu.burst import Tokens

_PARTS = ("left", "capacity", "period", "time")


class Ledger:
    """The tokens of one tick."""

    def __init__(self, remembered: Mapping[str, float], now: float) -> None:
        groups = {key.rpartition(":")[0] for key in remembered}
        read = {group: _read(remembered, group) for group in groups}
        self._now = now
        self._tokens = {group: tokens for group, tokens in read.items() if tokens and not burst.expired(tokens, now)}

    def allows(self, group: str, *, period_seconds: int, percent: int, usage_percent: int) -> bool:
        """Whether the container may have a raised quota at this moment; counts the time since it was asked last.

        A period below 0 has no end, a percentage below 100 no beginning. Other settings than last time start over.
        """
        if percent < burst.FULL_PERCENT or period_seconds < 0:
            return percent >= burst.FULL_PERCENT
        held = self._tokens.get(group)
        if held is None or held.capacity != burst.capacity(period_seconds=period_seconds, percent=percent):
            held = burst.first_tokens(group, period_seconds=period_seconds, percent=percent, time=self._now)
        held = burst.spend(held, usage_percent=usage_percent, now=self._now)
        self._tokens[group] = held
        return held.allowed

    def remember(self) -> dict[str, float]:
        """What to find next time."""
        return {
            f"{group}:{part}": value
            for group, held in sorted(self._tokens.items())
            for part, value in zip(_PARTS, (held.left, held.capacity, held.period_seconds, held.time), strict=True)
        }


def _read(remembered: Mapping[str, float], group: str) -> Tokens | None:
    """None when a part is missing: then the container starts over."""
    values = [remembered.get(f"{group}:{part}") for part in _PARTS]
    if None in values:
        return None
    left, capacity, period, time = (value for value in values if value is not None)
    return Tokens(int(left), int(capacity), int(period), time)
