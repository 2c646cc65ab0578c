"""Search for a koordlet that still runs on this machine."""

from __future__ import annotations

from koordlite.host import procfs
from koordlite.ports import Files

NAME = "koordlet"


def koordlet_pid(files: Files) -> int | None:
    """The id of a process called koordlet; None where there is none. Two agents would write the same files."""
    numbers = (name.rstrip("/") for name in files.list("/proc"))
    for pid in sorted(int(name) for name in numbers if name.isdigit()):
        try:
            process = procfs.process(files, pid)
        except ValueError:
            continue  # No process has such a form; whatever it is, it is not koordlet.
        if process and process.name == NAME and not process.has_ended:
            return pid
    return None
