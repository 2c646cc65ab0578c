"""One write that is tried: the kernel's or the cluster's words are kept when it is refused."""

from __future__ import annotations

import errno
from collections.abc import Callable
from types import TracebackType

from koordlite.host.bundle import Host
from koordlite.model.change import Change
from koordlite.model.status import AppliedStep

GONE = "gone meanwhile"


class Attempt:
    """Context of one kernel change: what is written in it is set as `value`, and `step` says afterwards what became of
    it. What is `gone` after an error is no refusal: its limit went with it."""

    value = ""
    step: AppliedStep

    def __init__(self, host: Host, change: Change, *, gone: Callable[[OSError], bool] = lambda _: False) -> None:
        self._clock, self._change, self._gone = host.clock, change, gone

    def __enter__(self) -> Attempt:
        self._started = self._clock.monotonic()
        return self

    def __exit__(self, _: object, error: BaseException | None, _traceback: TracebackType | None) -> bool:
        """Take an OSError and a ValueError as a refusal; all others go on."""
        place, seconds = self._change.place, self._clock.monotonic() - self._started
        if isinstance(error, OSError) and self._gone(error):
            self.step = AppliedStep(place, GONE)
        elif isinstance(error, OSError | ValueError):
            self.step = AppliedStep(place, self._change.describe(), False, words(error), seconds)
        elif error is None:
            self.step = AppliedStep(place, self.value, seconds=seconds)
        return isinstance(error, OSError | ValueError)


def words(error: OSError | ValueError) -> str:
    """`EBUSY: Device or resource busy (/sys/fs/…)`: errno, the kernel's text and the file; or our own refusal."""
    if not isinstance(error, OSError):
        return str(error)
    name = errno.errorcode.get(error.errno or 0, str(error.errno))
    where = f" ({error.filename})" if error.filename else ""
    return f"{name}: {error.strerror}{where}"
