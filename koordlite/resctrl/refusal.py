"""Reasons why resctrl refused: the kernel's errno together with what it left in `info/last_cmd_status`.

That file is a hint only: some commands clear it first, others append to it, so the newest lines count and only after a
failure. Source: Linux 6.1 and 6.12, `rdtgroup.c`; the Linux resctrl document says otherwise.
"""

from __future__ import annotations

import errno

from koordlite.resctrl.files import Files

# Refusals that leave their reason in last_cmd_status; after others it still holds an older one.
_EXPLAINED = frozenset({errno.EINVAL, errno.EBUSY, errno.ENOSPC, errno.EPERM})
UNKNOWN_ID = "the kernel gives no reason, as it does for a cache id that is no longer there"


def explained(files: Files, root: str, error: OSError, path: str, *, last: int, silent: str = "") -> OSError:
    """The same errno with the newest `last` lines of last_cmd_status in text and note.

    `silent` is what it means when the kernel says EINVAL and nothing else.
    """
    lines = status(files, root) if error.errno in _EXPLAINED else []
    reason = "; ".join(lines[-last:]) or (silent if error.errno == errno.EINVAL else "")
    text = f"{error.strerror}: {reason}" if reason else error.strerror
    with_reason = OSError(error.errno, text, error.filename or path)
    if reason:
        with_reason.add_note(f"last_cmd_status: {reason}")
    return with_reason


def status(files: Files, root: str) -> list[str]:
    """The lines of last_cmd_status, none when it says `ok` or cannot be read."""
    try:
        raw = files.read(f"{root}/info/last_cmd_status")
    except OSError:
        return []
    lines = [line.strip() for line in raw.decode(errors="replace").splitlines()]
    return [line for line in lines if line and line != "ok"]
