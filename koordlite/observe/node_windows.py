"""Use of the node over the durations of `metricAggregatePolicy`: kept for the NodeMetric, and only while one is
reported. One history of half an hour is small; a history of each pod would not be."""

from __future__ import annotations

from collections.abc import Sequence

from koordlite.formulas import measured
from koordlite.formulas.allocatable import allocatable
from koordlite.model import duration
from koordlite.model.picture.usage import NodeWindow, Spread, Usage
from koordlite.observe.history import History
from koordlite.observe.windows import NODE_PERCENTS

SECONDS = 15.0
"""How often percentiles are computed again: sorting half an hour of samples in each tick would cost more than the rest
of them, and a report is sent every 30 seconds at most."""
MOST_SECONDS = 4 * 3600.0
"""A longer duration is reported as if there were too few samples: it would have to be kept in memory."""


class NodeWindows:
    """Remembers samples of the node and of the system."""

    def __init__(self) -> None:
        self._node, self._system = History(()), History(())
        self._lengths: tuple[int, ...] = ()
        self._read_at: float | None = None
        self._kept: tuple[NodeWindow, ...] = ()

    def read(self, now: float, sample: Usage, lengths_ns: Sequence[int]) -> tuple[NodeWindow, ...]:
        """Take in `sample`, and give what the windows come to; at most `SECONDS` old."""
        self._resize(tuple(lengths_ns))
        if sample.node is not None:
            rest = allocatable.system_use(
                node=sample.node, pods=sample.pods.values(), host_apps=sample.host_apps.values()
            )
            self._node.add(now, sample.node)
            self._system.add(now, rest)
        if self._read_at is None or now - self._read_at >= SECONDS:
            self._read_at = now
            self._kept = tuple(self._window(length) for length in self._lengths)
        return self._kept

    def _resize(self, lengths: tuple[int, ...]) -> None:
        if lengths == self._lengths:
            return
        self._lengths, self._read_at = lengths, None
        kept = [seconds for seconds in map(_seconds, lengths) if seconds <= MOST_SECONDS]
        self._node.over(kept)
        self._system.over(kept)

    def _window(self, length: int) -> NodeWindow:
        return NodeWindow(length_ns=length, node=_spread(self._node, length), system=_spread(self._system, length))


def _spread(history: History, length: int) -> Spread | None:
    seconds = _seconds(length)
    if seconds > MOST_SECONDS:
        return None
    mean = history.mean(seconds)
    if mean is None or measured.cold_start(window_seconds=seconds, span_seconds=history.span(seconds)):
        return None
    return Spread(mean=mean, percentiles=history.percentiles(seconds, NODE_PERCENTS))


def _seconds(length_ns: int) -> float:
    return length_ns / duration.SECOND
