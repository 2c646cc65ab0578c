"""Notices from the kernel that threads wait for CPU: triggers on pressure files.

Rules of the Linux document "PSI - Pressure Stall Information": one write of `some STALL_US WINDOW_US` to a pressure
file makes a trigger that lives as long as the descriptor; a window is 0.5 to 10 s; poll(2) answers POLLPRI at most
once a window, and POLLERR when the group is gone. Without CAP_SYS_RESOURCE a window must be a multiple of 2 s, which
is refused with EINVAL. A second trigger on one descriptor is EBUSY; kernels without PSI have no such file or refuse to
open it (EOPNOTSUPP).
"""

from __future__ import annotations

import os
import select
from typing import Literal

SHORTEST_WINDOW_US = 500_000
STALL_US = 25_000
"""Stall within a window that is worth a measurement: a twentieth of it."""

Event = Literal["quiet", "pressure", "gone", "other"]
"""`other`: the descriptor given to `also` can be read."""


class PressureTrigger:
    """One trigger on one pressure file. OSError with the path where the kernel refuses it."""

    def __init__(self, path: str, *, stall_us: int = STALL_US, window_us: int = SHORTEST_WINDOW_US) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            # The kernel overwrites the last byte with its own end of string.
            os.write(self._fd, f"some {stall_us} {window_us}\0".encode())
        except OSError as error:
            os.close(self._fd)
            raise OSError(error.errno, error.strerror, path) from None
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLPRI)

    def also(self, descriptor: int) -> None:
        """Let a wait end as well when `descriptor` can be read."""
        self._poll.register(descriptor, select.POLLIN)

    def wait(self, seconds: float) -> Event:
        """Pass `seconds` at most, less when there is pressure or the group is gone."""
        events = dict(self._poll.poll(max(0.0, seconds) * 1000))
        if self._fd in events:
            return "gone" if events[self._fd] & (select.POLLERR | select.POLLNVAL) else "pressure"
        return "other" if events else "quiet"

    def close(self) -> None:
        """Take the trigger away."""
        os.close(self._fd)
