"""How long work waits for CPU, memory or input and output: pressure stall information of the machine or of a group.

Source: Linux "PSI - Pressure Stall Information".
"""

from __future__ import annotations

import dataclasses
import re

_LINE = re.compile(
    rb"(some|full) avg10=(\d+\.\d+) avg60=(\d+\.\d+) avg300=(\d+\.\d+) total=(\d+)",
    re.ASCII,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Stall:
    """Part of the time that was lost, in percent of the last 10, 60 and 300 seconds, and in µs since the start."""

    avg10: float
    avg60: float
    avg300: float
    total_us: int


@dataclasses.dataclass(frozen=True, slots=True)
class Pressure:
    """One pressure file: `some` task waited, or all of them did (`full`)."""

    some: Stall
    full: Stall | None
    """None where the kernel does not say: for CPU before Linux 5.13."""


def parse(raw: bytes) -> Pressure:
    """What a pressure file says; ValueError when a line is none of its two, or `some` is missing."""
    stalls = dict(map(_stall, raw.strip().splitlines()))
    if b"some" not in stalls:
        raise ValueError(f"no line some in {raw[:80]!r}")
    return Pressure(stalls[b"some"], stalls.get(b"full"))


def _stall(line: bytes) -> tuple[bytes, Stall]:
    match = _LINE.fullmatch(line.strip())
    if not match:
        raise ValueError(f"{line[:80]!r} is no line of a pressure file: some|full avg10= avg60= avg300= total=")
    return match[1], Stall(float(match[2]), float(match[3]), float(match[4]), int(match[5]))
