"""Pressure stall information of the machine or of a group as the kernel prints it.

Source: Linux "PSI - Pressure Stall Information".
"""

from __future__ import annotations

import re

from koordlite.host import kernel_number
from koordlite.model.picture.usage import Pressure, Stall

_LINE = re.compile(
    rb"(some|full) avg10=(\d{1,3}\.\d+) avg60=(\d{1,3}\.\d+) avg300=(\d{1,3}\.\d+) total=(\d+)",
    re.ASCII,
)


def parse(raw: bytes) -> Pressure:
    """Contents of a pressure file; ValueError when a line is none of its two, or `some` is missing."""
    stalls = dict(map(_stall, raw.strip().splitlines()))
    if b"some" not in stalls:
        raise ValueError(f"no line some in {raw[:80]!r}")
    return Pressure(stalls[b"some"], stalls.get(b"full"))


def _stall(line: bytes) -> tuple[bytes, Stall]:
    match = _LINE.fullmatch(line.strip())
    if not match:
        raise ValueError(f"{line[:80]!r} is no line of a pressure file: some|full avg10= avg60= avg300= total=")
    return match[1], Stall(float(match[2]), float(match[3]), float(match[4]), kernel_number.parse(match[5]))
