"""What paces evictions beyond the limits of one cycle: windows, pauses for one owner, and loops that end."""

from __future__ import annotations

import dataclasses

from descheduler.arguments.windows import Window
from koordlite.model.settings import bounded, duration_text


@dataclasses.dataclass(frozen=True, kw_only=True)
class Loops:
    """How often an owner's pods are moved when they come back wrong each time. The history is kept on the cluster."""

    max_rounds: int = bounded(2, ge=1)
    """Times they are moved by one plugin; then they are left alone."""
    back_off: str = duration_text("10m")
    """Wait before the second time; before each further one twice as long."""
    forget_after: str = duration_text("24h")
    """An owner with nothing wrong for so long starts afresh."""


LOOPS = Loops()
"""What holds when a policy says nothing."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pacing:
    """All of it, as a policy asks for it."""

    windows: tuple[Window, ...] = ()
    loops: Loops = LOOPS
    owner_delay_seconds: float = 0
    """Least time between two evictions among the pods of one owner."""


DEFAULT_PACING = Pacing()
"""No windows, no pauses, and loops end as by default."""
