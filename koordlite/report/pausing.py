"""A pause in words and as metrics."""

from __future__ import annotations

import datetime
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily

from koordlite.model.status.pause import Pause
from koordlite.report import units
from koordlite.report.tick import Tick

_ASKED = {"command": "koordlite pause", "annotation": "an annotation of the Node"}


def words(pause: Pause | None, *, wall: float) -> str:
    """How long it holds, who asked for it and why, what it means; `wall` is seconds since the epoch."""
    if pause is None:
        return "no"
    in_force = "what was in force is given back" if pause.release else "what is in force stays"
    left = units.clock(pause.until - wall)
    return f"until {moment(pause.until)} ({left} left) by {_ASKED[pause.by]}: {pause.because}; {in_force}"


def moment(wall: float) -> str:
    """Seconds since the epoch for people."""
    return datetime.datetime.fromtimestamp(wall, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


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
