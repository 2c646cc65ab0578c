"""A pause as Prometheus metrics."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily

from koordlite.report.tick import Tick


def families(tick: Tick) -> Iterator[GaugeMetricFamily]:
    """Whether the agent is paused, and until when; who asked is a label."""
    paused = GaugeMetricFamily("koordlite_paused", "1 while nothing is written because of a pause", labels=("by",))
    end = GaugeMetricFamily("koordlite_pause_end_seconds", "When the pause ends, seconds since the epoch", labels=())
    if tick.pause is None:
        paused.add_metric([""], 0)
    else:
        paused.add_metric([tick.pause.by], 1)
        end.add_metric([], tick.pause.until)
    yield paused
    yield end
