"""A command in a terminal of its own: what it draws, as lines, and keys for it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator, Sequence

import pyte


class Terminal:
    """A pseudo terminal with a screen that `pyte` keeps."""

    def __init__(self, command: Sequence[str], *, width: int, height: int) -> None:
        self.screen = pyte.Screen(width, height)
        self._stream = pyte.ByteStream(self.screen)
        self.written = 0
        """Bytes that the command has drawn."""
        self.left_alternate = False
        """Whether it has given the screen back that was there before."""
        ours, theirs = pty.openpty()
        self._fd = ours
        self._size(width, height)
        # A worker of pytest-xdist has a size in these variables, which counts more than that of the terminal.
        ours_alone = {name: text for name, text in os.environ.items() if name not in ("COLUMNS", "LINES")}
        given = {**ours_alone, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=given, start_new_session=True
        )
        os.close(theirs)

    @property
    def lines(self) -> list[str]:
        """The screen, without blanks at the ends."""
        return [line.rstrip() for line in self.screen.display]

    def until(self, has: Callable[[list[str]], bool], seconds: float = 30.0) -> list[str]:
        """The screen once `has` is true of it; fails with what is there when it does not come to that."""
        end = time.monotonic() + seconds
        while not has(self.lines):
            assert time.monotonic() < end, "the screen is:\n" + "\n".join(self.lines)
            self.read(0.1)
        return self.lines

    def type(self, keys: str) -> None:
        """Press keys; escape sequences are keys as well."""
        os.write(self._fd, keys.encode())

    def resize(self, width: int, height: int) -> None:
        """Another size, as when a window is dragged."""
        self.screen.resize(height, width)
        self.screen.erase_in_display(2)  # What counts is drawn after this.
        self._size(width, height)
        os.killpg(self.process.pid, signal.SIGWINCH)

    def read(self, seconds: float) -> None:
        """Draw what comes within this time."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and select.select([self._fd], [], [], left)[0]:
            try:
                drawn = os.read(self._fd, 1 << 16)
            except OSError:  # The command has ended.
                return
            self.written += len(drawn)
            self.left_alternate = self.left_alternate or b"\x1b[?1049l" in drawn
            self._stream.feed(_without_strange(drawn))

    def close(self) -> None:
        """End the command."""
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(timeout=20)
        os.close(self._fd)

    def _size(self, width: int, height: int) -> None:
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))


def _without_strange(drawn: bytes) -> bytes:
    """Without the keyboard protocol of kitty, which pyte would print: `ESC [ > 1 u` and `ESC [ < u`."""
    for sequence in (b"\x1b[>1u", b"\x1b[<u"):
        drawn = drawn.replace(sequence, b"")
    return drawn


@contextlib.contextmanager
def terminal(command: Sequence[str], *, width: int, height: int) -> Iterator[Terminal]:
    """The command in a terminal, which ends with the block."""
    opened = Terminal(command, width=width, height=height)
    try:
        yield opened
    finally:
        opened.close()
