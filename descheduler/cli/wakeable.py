"""The wait between two cycles of `descheduler run`, and the signals that end it."""

from __future__ import annotations

import signal

from koordlite.clock import SignalEvent


class Wakeable:
    """Waits that a stop ends for good, and a request to reload ends early."""

    def __init__(self) -> None:
        self.stop = SignalEvent()
        self._woken = SignalEvent()

    def listen(self) -> None:
        """Take SIGTERM and SIGINT for a stop, and SIGHUP for a request to reload: the policy, and so a cycle at
        once."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: self.end())
        signal.signal(signal.SIGHUP, lambda *_: self.wake())

    def end(self) -> None:
        """Stop."""
        self.stop.set()
        self._woken.set()

    def wake(self) -> None:
        """End the wait that is, or the next one."""
        self._woken.set()

    def wait(self, seconds: float) -> bool:
        """Pass so many seconds, or fewer; True when it is time to stop."""
        self._woken.wait(seconds)
        self._woken.clear()
        return self.stop.is_set()
