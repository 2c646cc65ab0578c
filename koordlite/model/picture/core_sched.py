"""Core scheduling: which threads may run on the hyperthreads of one core at the same time, by the kernel's cookies."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

NO_COOKIE = 0
"""The cookie of a task that nobody gave one: it shares a core with others that have none."""
NOT_READ = "no strategy asked for it"


class TaskCookie(msgspec.Struct, frozen=True):
    """A process and its cookie."""

    pid: int
    cookie: int | None
    """None where the kernel does not let us look."""


class CoreSched(msgspec.Struct, frozen=True):
    """The cookies of processes in containers."""

    missing: str = NOT_READ
    """Why there are none to be seen; empty while there are."""
    tasks: Mapping[str, tuple[TaskCookie, ...]] = msgspec.field(default_factory=dict)
    """By group of a container, each at most `observe.core_cookies.SECONDS` old."""
