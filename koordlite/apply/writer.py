"""One write that is tried: the kernel's or the cluster's words are kept when it is refused."""

from __future__ import annotations

import errno
from collections.abc import Callable

from koordlite.host.bundle import Host
from koordlite.model.change import Change
from koordlite.model.status import AppliedStep

GONE = "gone meanwhile"


def attempt(
    host: Host, change: Change, act: Callable[[], str], *, gone: Callable[[OSError], bool] = lambda _: False
) -> AppliedStep:
    """Let `act` carry out one kernel change; it says what was written. What is `gone` after an error is no refusal: its
    limit went with it."""
    started = host.clock.monotonic()
    try:
        value = act()
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and gone(error):
            return AppliedStep(change.place, GONE)
        return AppliedStep(change.place, change.describe(), False, words(error), host.clock.monotonic() - started)
    return AppliedStep(change.place, value, seconds=host.clock.monotonic() - started)


def words(error: OSError | ValueError) -> str:
    """`EBUSY: Device or resource busy (/sys/fs/…)`: errno, the kernel's text and the file; or our own refusal."""
    if not isinstance(error, OSError):
        return str(error)
    name = errno.errorcode.get(error.errno or 0, str(error.errno))
    where = f" ({error.filename})" if error.filename else ""
    return f"{name}: {error.strerror}{where}"
