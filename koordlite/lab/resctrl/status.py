"""`last_cmd_status`: the resctrl driver's messages about the last command that failed."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

from koordlite.lab.machine.tree import refusal
from koordlite.lab.resctrl.rules import Rejected

BUFFER_BYTES = 512

_WHOLE = frozenset(
    (
        "Bad CPU list/mask",
        "CDP enabled",
        "Can only add CPUs to mongroup that belong to parent",
        "Can only assign online CPUs",
        "Can't drop CPUs from default group",
        "Can't move task to different control group",
        "Cannot be exclusive without CAT/CDP",
        "Cannot move a MON group that monitors CPUs",
        "Cannot pseudo-lock default group",
        "Destination must be a mon_groups subdirectory",
        "Mask out of range",
        "Missing ':'",
        "Missing '=' or non-numeric domain",
        "Missing '=' or non-numeric domain id",
        "Non-numeric event configuration value",
        "Out of CLOSIDs",
        "Out of RMIDs",
        "Overlaps with exclusive group",
        "Overlaps with other group",
        "Pseudo-locking in progress",
        "Pseudo-locking not supported",
        "Schemata overlaps",
        "Source must be a MON group",
        "Unknown or unsupported mode",
    )
)
"""Messages that are copied as a whole or not at all; those with a value in them are cut where the buffer ends."""


class LastStatus:
    """The driver's buffer of 512 bytes: messages are appended, and after one that did not fit no other is added."""

    def __init__(self) -> None:
        self._text = ""
        self._full = False

    def __str__(self) -> str:
        return self._text or "ok\n"

    def clear(self) -> None:
        """Clear the status, as commands do that start afresh."""
        self._text, self._full = "", False

    def add(self, message: str, *, end: str = "\n") -> None:
        """Append one line as far as it fits with its closing NUL."""
        if self._full:
            return
        text = self._text + message + end
        self._full = len(text) >= BUFFER_BYTES
        if not self._full or message not in _WHOLE:
            self._text = text[: BUFFER_BYTES - 1]

    def refusal(self, code: int, message: str) -> OSError:
        """The errno of a command that failed, after its message was noted; an empty one is none."""
        if message:
            self.add(message)
        return refusal(code)

    @contextlib.contextmanager
    def judging(self) -> Iterator[None]:
        """Turn what a rule rejects into EINVAL, and note its text."""
        try:
            yield
        except Rejected as error:
            raise self.refusal(errno.EINVAL, str(error)) from error
