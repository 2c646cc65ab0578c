"""One write that is tried: the kernel's or the cluster's words are kept when it is refused."""

from __future__ import annotations

import errno
from collections.abc import Callable

from koordlite.host.bundle import Host
from koordlite.model.change import Change
from koordlite.model.status import AppliedStep

GONE = "gone meanwhile"


def attempt(
    host: Host, change: Change, write: Callable[[], str | None], is_gone: Callable[[OSError], bool]
) -> AppliedStep:
    """Try one kernel change. `write` says what it has written; None: the value of the change. An OSError or ValueError
    is a refusal, but for what is `gone`: its limit went with it."""
    started = host.clock.monotonic()
    try:
        value = write()
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and is_gone(error):
            return AppliedStep(change.place, GONE)
        return AppliedStep(change.place, change.describe(), False, words(error), host.clock.monotonic() - started)
    seconds = host.clock.monotonic() - started
    return AppliedStep(change.place, change.describe() if value is None else value, seconds=seconds)


def words(error: OSError | ValueError) -> str:
    """`EBUSY: Device or resource busy (/sys/fs/…)`: errno, the kernel's text and the file; or our own refusal."""
    if not isinstance(error, OSError):
        return str(error)
    name = errno.errorcode.get(error.errno or 0, str(error.errno))
    where = f" ({error.filename})" if error.filename else ""
    return f"{name}: {error.strerror}{where}"
