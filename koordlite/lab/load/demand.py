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

import msgspec

from koordlite.model.quantity import Quantity

_CALL = re.compile(r"([a-z]+)\((.*)\)\Z")
_HELP = "write a quantity, greedy, wave(low=,high=,period=), steps(0:2,60:14) or spike(base=,high=,at=,for=)"


class Demand(msgspec.Struct, frozen=True):
    """Demand of a workload: a wave, or steps, and noise over it."""

    steps: tuple[tuple[float, float], ...] = ()
    """Seconds from which on an amount holds, ascending, and the amount; nothing before the first."""
    wave: tuple[float, float, float] | None = None
    """low, high and period: low + (high − low) × (1 − cos 2πt/period)/2"""
    noise: float = 0.0
    """Part by which the amount is off at most, drawn again every second."""
    seed: str = ""

    def milli(self, seconds: float) -> float:
        """Wanted millicores at that time; infinite when greedy."""
        if self.wave:
            low, high, period = self.wave
            amount = low + (high - low) * (1 - math.cos(2 * math.pi * seconds / period)) / 2
        else:
            amount = next((amount for begin, amount in reversed(self.steps) if begin <= seconds), 0.0)
        if self.noise:
            amount *= 1 + random.Random(f"{self.seed}/{int(seconds)}").uniform(-self.noise, self.noise)
        return amount


def constant(amount: float) -> Demand:
    """The same all the time."""
    return Demand(((-math.inf, amount),))


GREEDY = constant(math.inf)
NOTHING = Demand()


def parse(text: str, *, seed: str = "") -> Demand:
    """The demand `text` describes; ValueError says what it could have been."""
    text = text.strip()
    if text == "greedy":
        return GREEDY
    call = _CALL.match(text)
    if call is None:
        return constant(_milli(text))
    name, body = call[1], call[2]
    if name == "steps":
        pairs = (piece.partition(":") for piece in body.split(","))
        steps = tuple((_seconds(begin, least=0), _milli(amount)) for begin, _, amount in pairs)
        if list(steps) != sorted(steps, key=lambda step: step[0]):
            raise ValueError(f"the seconds in steps({body}) must ascend")
        return Demand(steps)
    arguments = {key.strip(): value.strip() for key, _, value in (piece.partition("=") for piece in body.split(","))}
    noise = _fraction(arguments.pop("noise", "0"))
    match name, sorted(arguments):
        case "wave", ["high", "low", "period"]:
            wave = _milli(arguments["low"]), _milli(arguments["high"]), _seconds(arguments["period"])
            return Demand(wave=wave, noise=noise, seed=seed)
        case "spike", ["at", "base", "for", "high"]:
            base, begin = _milli(arguments["base"]), _seconds(arguments["at"], least=0)
            end = begin + _seconds(arguments["for"])
            steps = ((0.0, base), (begin, _milli(arguments["high"])), (end, base))
            return Demand(steps, noise=noise, seed=seed)
    raise ValueError(f"{name}({', '.join(arguments)}) is no demand: {_HELP}")


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
