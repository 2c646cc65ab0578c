"""The emulated resctrl of a machine that was seen, asked and looked at as the guest of `tests/vm` asks the kernel's."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from typing import Any

from kernel_processes import KernelProcesses
from kernel_resctrl import Caller, KernelResctrl
from resctrl_vfs import ResctrlVFS

from koordlite.lab.machine.machine import EVENTS
from koordlite.lab.machine.tree import Tree
from koordlite.lab.resctrl.filesystem import POINT
from tests.conformance import recorded_machine

SHOWN = ("schemata", "size", "mode", "cpus", "cpus_list", "tasks", "bit_usage", "max_threshold_occupancy")
_TASK = re.compile(r"(\b(?:task|pid) |^)(\d+)\b", re.MULTILINE)
_FIRST_TID = 50_000
"""Beyond every number that an operation may write."""
_OPERATION_SECONDS = 0.02


class Twin:
    """Plays operations and tells what came of each: errno, what changed, what is gone."""

    def __init__(self, recording: Any) -> None:
        machine = recorded_machine.machine(recording)
        processes = KernelProcesses(_FIRST_TID)
        moved, writer = processes.spawn("p", threads=3, now=0), processes.spawn("w", threads=1, now=0)
        self._symbols = {str(tid): f"$P{number}" for number, tid in enumerate(moved.tids)} | {str(writer.pid): "$W"}
        self._now = 0.0
        assert machine.rdt
        self._resctrl = KernelResctrl(machine, machine.rdt, processes, lambda: self._now)
        self._resctrl.caller = Caller(tid=writer.pid)
        self._files = Tree()
        self._files.place(POINT, self._resctrl.folder)
        self._vfs = ResctrlVFS(self._files, self._resctrl)
        self._before: dict[str, str] = {}

    def play(self, operation: list[str]) -> dict[str, Any]:
        """As the guest's line for it."""
        self._now += _OPERATION_SECONDS
        result = "ok"
        try:
            self._act(*operation)
        except OSError as error:
            result = errno.errorcode[error.errno or 0]
        after = dict(self._contents())
        changed = {name: text for name, text in after.items() if self._before.get(name) != text}
        gone = sorted(self._before.keys() - after.keys())
        self._before = after
        return {"result": result, "changed": changed, "gone": gone}

    def _act(self, verb: str, path: str, text: str = "") -> None:
        place = f"{POINT}/{path}"
        match verb:
            case "mount":
                self._resctrl.mount(path)
            case "umount":
                self._resctrl.umount()
            case "rename":
                self._vfs.rename(place, f"{POINT}/{text}")
            case "mkdir":
                self._files.mkdir(place)
            case "write":
                self._files.write(place, self._numbered(text).encode())
            case "rmdir" | "unlink" | "create":
                getattr(self._vfs, verb)(place)
            case "count":
                self._count(*map(int, path.split()), text)
            case "symlink":
                self._vfs.link(place)
            case "offline" | "online":
                getattr(self._resctrl, verb)(int(path))
            case _:
                raise ValueError(f"no operation is called {verb}")

    def _count(self, cache: int, rmid: int, event: int, value: str) -> None:
        counters = self._resctrl.counters
        if counters:
            place = (cache, rmid, EVENTS[event - 1])
            counters.set(place, int(value) if value.isdigit() else 0)
            if not value.isdigit():
                counters.break_(place, errno.EIO if value == "err" else errno.EINVAL)

    def _numbered(self, text: str) -> str:
        for tid, symbol in self._symbols.items():
            text = text.replace(symbol, tid)
        return text

    def _contents(self, place: str = "") -> Iterator[tuple[str, str]]:
        names = self._files.list(f"{POINT}/{place}")
        yield f"{place or '.'}/", " ".join(sorted(names))
        for name in names:
            inside = f"{place}/{name}" if place else name
            if name.endswith("/"):
                yield from self._contents(inside[:-1])
            elif name in SHOWN or name == "last_cmd_status" or name.endswith("_config") or place.startswith("mon_data"):
                yield inside if place else f"./{name}", self._shown(inside, name)

    def _shown(self, path: str, name: str) -> str:
        text = self._files.read(f"{POINT}/{path}").decode()
        if name == "tasks":
            return " ".join(sorted(self._symbols[tid] for tid in text.split() if tid in self._symbols))
        if name == "last_cmd_status":
            return _TASK.sub(lambda match: f"{match[1]}{self._symbols.get(match[2], match[2])}", text)
        return text
