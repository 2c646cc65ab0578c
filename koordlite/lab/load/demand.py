"""Demand of a workload of the sandbox for CPU or memory over time, as written in a pod annotation.

    500m                                     always half a core
    greedy                                   all it can get
    wave(low=2,high=14,period=120)           from low to high and back once a period, starting low
    steps(0:2,60:14,120:3)                   2 cores, from second 60 on 14, from second 120 on 3
    spike(base=2,high=20,at=60,for=30)       2 cores, 20 from second 60 to second 90

Amounts are quantities of CPU or bytes, times are seconds since the sandbox started. `noise=0.01` in wave and spike lets
the amount jump by up to ±1 %, the same way in every run with the same seed.
"""

from __future__ import annotations

import math
import random
import re
from typing import Protocol

import msgspec

from koordlite.model.quantity import Quantity

_CALL = re.compile(r"([a-z]+)\((.*)\)\Z")
_HELP = "write a quantity, greedy, wave(low=,high=,period=), steps(0:2,60:14) or spike(base=,high=,at=,for=)"


class Demand(Protocol):
    """Demand of a workload."""

    def milli(self, seconds: float) -> float:
        """Wanted millicores at that time; infinite when greedy."""


class Constant(msgspec.Struct, frozen=True):
    """The same all the time."""

    amount: float

    def milli(self, seconds: float) -> float:
        """The amount."""
        return self.amount


GREEDY = Constant(math.inf)
NOTHING = Constant(0.0)


class Wave(msgspec.Struct, frozen=True):
    """low + (high − low) × (1 − cos 2πt/period)/2"""

    low: float
    high: float
    period: float

    def milli(self, seconds: float) -> float:
        """The wave at that time."""
        return self.low + (self.high - self.low) * (1 - math.cos(2 * math.pi * seconds / self.period)) / 2


class Steps(msgspec.Struct, frozen=True):
    """Amounts that hold from a second on, in ascending order of the seconds; nothing before the first."""

    steps: tuple[tuple[float, float], ...]

    def milli(self, seconds: float) -> float:
        """The last step that has begun."""
        return next((amount for begin, amount in reversed(self.steps) if begin <= seconds), 0.0)


class Noisy(msgspec.Struct, frozen=True):
    """Another demand, off by up to `fraction`, drawn again every second."""

    base: Demand
    fraction: float
    seed: str

    def milli(self, seconds: float) -> float:
        """The base demand times 1 ± fraction."""
        offset = random.Random(f"{self.seed}/{int(seconds)}").uniform(-self.fraction, self.fraction)
        return self.base.milli(seconds) * (1 + offset)


def parse(text: str, *, seed: str = "") -> Demand:
    """The demand `text` describes; ValueError says what it could have been."""
    text = text.strip()
    if text == "greedy":
        return GREEDY
    call = _CALL.match(text)
    if call is None:
        return Constant(_milli(text))
    name, body = call[1], call[2]
    if name == "steps":
        return _steps(body)
    arguments = _arguments(body)
    noise = _fraction(arguments.pop("noise", "0"))
    base = _named(name, arguments)
    return Noisy(base, noise, seed) if noise else base


def _named(name: str, arguments: dict[str, str]) -> Demand:
    match name, sorted(arguments):
        case "wave", ["high", "low", "period"]:
            return Wave(_milli(arguments["low"]), _milli(arguments["high"]), _seconds(arguments["period"]))
        case "spike", ["at", "base", "for", "high"]:
            base, begin = _milli(arguments["base"]), _seconds(arguments["at"], least=0)
            end = begin + _seconds(arguments["for"])
            return Steps(((0.0, base), (begin, _milli(arguments["high"])), (end, base)))
    raise ValueError(f"{name}({', '.join(arguments)}) is no demand: {_HELP}")


def _steps(body: str) -> Steps:
    pairs = [piece.partition(":") for piece in body.split(",")]
    steps = tuple((_seconds(begin, least=0), _milli(amount)) for begin, _, amount in pairs)
    if list(steps) != sorted(steps, key=lambda step: step[0]):
        raise ValueError(f"the seconds in steps({body}) must ascend")
    return Steps(steps)


def _arguments(body: str) -> dict[str, str]:
    pairs = (piece.partition("=") for piece in body.split(","))
    return {key.strip(): value.strip() for key, _, value in pairs}


def _milli(text: str) -> float:
    try:
        amount = Quantity.parse(text.strip()).milli
    except ValueError as error:
        raise ValueError(f"{text!r} is no amount of CPU: {_HELP}") from error
    if amount < 0:
        raise ValueError(f"{text!r} is negative: {_HELP}")
    return amount


def _fraction(text: str) -> float:
    try:
        fraction = float(text)
    except ValueError as error:
        raise ValueError(f"noise={text} is no number: {_HELP}") from error
    if not 0 <= fraction <= 1:
        raise ValueError(f"noise={text} is not between 0 and 1: {_HELP}")
    return fraction


def _seconds(text: str, *, least: float = 0.001) -> float:
    try:
        seconds = float(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is no number of seconds: {_HELP}") from error
    if not least <= seconds < math.inf:
        raise ValueError(f"{text!r} seconds are too few or too many: {_HELP}")
    return seconds
