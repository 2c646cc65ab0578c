"""How an agent reacts between two ticks, as reports state it."""

from __future__ import annotations

from typing import Literal

import msgspec

Way = Literal["tick", "sentinel", "triggers"]
"""tick: not at all; sentinel: it samples CPU time; triggers: the kernel reports pressure, then it samples."""
Setting = Literal["off", "automatic", "required"]


class Beginning(msgspec.Struct, frozen=True):
    """How the agent learns of groups that are made between two ticks, and how often it did."""

    watched: int = 0
    """Groups below which new ones are reported."""
    why: str = ""
    """Why none is watched, or not all."""
    rounds: int = 0
    """Rounds before their time about new groups."""
    overflows: int = 0
    """How often the kernel lost reports, and a whole tick followed at once."""


class Reaction(msgspec.Struct, frozen=True):
    """What wakes the agent besides the tick, what that costs, and how often it happened in this run."""

    way: Way = "tick"
    why: str = ""
    """Why it is this way and no better one."""
    missing: bool = False
    """It is required and not possible."""
    hertz: float = 0.0
    """Samples a second at present; 0 while nothing is watched."""
    cost_seconds: float = 0.0
    """CPU time the samples have cost in this run."""
    cost_percent: float = 0.0
    """The same as percent of one core, over the time something was watched."""
    samples: int = 0
    pressure: int = 0
    """How often the kernel reported pressure."""
    surges: int = 0
    """How often a surge of latency-sensitive use led to a round before its time."""
    beginning: Beginning = msgspec.field(default_factory=Beginning)


class FreshUse(msgspec.Struct, frozen=True):
    """CPU use over some hundredths of a second, in millicores."""

    node: int | None
    """None where the kernel has no exact counter of the whole node (cgroup v2)."""
    pods: int
    best_effort: int
