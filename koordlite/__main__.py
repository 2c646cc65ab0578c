"""Entry of the commands, `python -m koordlite` too. It imports next to nothing before Ctrl-C is looked after."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

INTERRUPTED = 130
"""Exit code by which a shell reports a command that Ctrl-C ended."""


def begin(program: str, module: str) -> int:
    """Import `module` and run its `main`; its exit code. A Ctrl-C while anything is imported ends the process there."""

    def interrupted(_number: int, frame: FrameType | None) -> None:
        # An exception there would come as a traceback of the import system, or crash a class that C code is making.
        while frame is not None:
            if frame.f_code.co_filename.startswith("<frozen importlib"):
                os.write(2, f"{program}: interrupted\n".encode())
                os._exit(INTERRUPTED)
            frame = frame.f_back
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, signal.SIG_DFL):
        signal.signal(signal.SIGINT, interrupted)
    try:
        import importlib

        return int(importlib.import_module(module).main())
    except KeyboardInterrupt:
        return INTERRUPTED  # Before the command's own answer to it, or after.
    finally:
        if signal.getsignal(signal.SIGINT) is interrupted:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # The answer was given; the interpreter only ends.


def main() -> int:
    """`koordlite`."""
    return begin("koordlite", "koordlite.cli")


def kubectl() -> int:
    """`kubectl koordlite`."""
    return begin("kubectl koordlite", "koordlite.cli.kubectl_plugin")


if __name__ == "__main__":
    sys.exit(main())
