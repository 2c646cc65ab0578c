"""How long work waits for CPU, memory or input and output, as the kernel's pressure stall information counts it."""

from __future__ import annotations

import msgspec


class Stall(msgspec.Struct, frozen=True):
    """Part of the time that was lost, in percent of the last 10, 60 and 300 seconds, and in µs since the start."""

    avg10: float
    avg60: float
    avg300: float
    total_us: int


class Pressure(msgspec.Struct, frozen=True):
    """One pressure file: `some` task waited, or all of them did (`full`)."""

    some: Stall
    full: Stall | None
    """None where the kernel does not say: for CPU before Linux 5.13."""
