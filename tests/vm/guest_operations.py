"""Runs inside the guest: operations on the real resctrl, one line of JSON for what came of each.

The one argument is JSON: which sequence of `resctrl_operations` to play. The first line tells the machine; each other
line the errno, and every file and folder that does not hold what it held before.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import pathlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import resctrl_operations

ROOT = pathlib.Path("/sys/fs/resctrl")
CPUS = pathlib.Path("/sys/devices/system/cpu")
SLEEPER = """
import threading, time
for _ in "ab":
    threading.Thread(target=time.sleep, args=(1e6,)).start()
time.sleep(1e6)
"""
SHOWN = ("schemata", "size", "mode", "cpus", "cpus_list", "tasks", "bit_usage", "max_threshold_occupancy")
TASK = re.compile(r"(\b(?:task|pid) |^)(\d+)\b", re.MULTILINE)
LIBC = ctypes.CDLL(None, use_errno=True)


class Guest:
    """The mounted file system, and the process that is moved about."""

    def __init__(self) -> None:
        sleeper = subprocess.Popen([sys.executable, "-S", "-c", SLEEPER])
        folder = pathlib.Path(f"/proc/{sleeper.pid}/task")
        while len(tids := sorted(int(each.name) for each in folder.iterdir())) < 3:
            time.sleep(0.05)
        self.symbols = {str(tid): f"$P{number}" for number, tid in enumerate(tids)}
        self.symbols[str(os.getpid())] = "$W"
        self.before: dict[str, str] = {}

    def play(self, operation: list[str]) -> dict[str, Any]:
        verb, path, *more = operation
        result = "ok"
        try:
            self.act(verb, path, *more)
        except OSError as error:
            result = errno.errorcode[error.errno or 0]
        after = dict(self.contents())
        changed = {name: text for name, text in after.items() if self.before.get(name) != text}
        gone = sorted(self.before.keys() - after.keys())
        self.before = after
        return {"result": result, "changed": changed, "gone": gone}

    def act(self, verb: str, path: str, text: str = "") -> None:
        match verb:
            case "mount":
                check(LIBC.mount(b"resctrl", bytes(ROOT), b"resctrl", ctypes.c_ulong(0), path.encode()))
            case "umount":
                check(LIBC.umount(bytes(ROOT)))
            case "mkdir":
                os.mkdir(f"{ROOT}/{path}")
            case "rmdir":
                os.rmdir(f"{ROOT}/{path}")
            case "rename":
                os.rename(f"{ROOT}/{path}", f"{ROOT}/{text}")
            case "write":
                self.write(f"{ROOT}/{path}", text)
            case "unlink":
                os.unlink(f"{ROOT}/{path}")
            case "create":
                os.close(os.open(f"{ROOT}/{path}", os.O_WRONLY | os.O_CREAT | os.O_EXCL))
            case "count":
                pathlib.Path("/proc/fake_rdt").write_text(f"ctr {path} {text}\n")
            case "symlink":
                os.symlink("target", f"{ROOT}/{path}")
            case _:
                self.write(f"{CPUS}/cpu{path}/online", "1" if verb == "online" else "0")

    def write(self, path: str, text: str) -> None:
        for tid, symbol in self.symbols.items():
            text = text.replace(symbol, tid)
        descriptor = os.open(path, os.O_WRONLY)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)

    def contents(self) -> Iterator[tuple[str, str]]:
        """Every file that is compared, and the names in every folder."""
        for folder, folders, files in os.walk(ROOT):
            place = os.path.relpath(folder, ROOT)
            yield f"{place}/", " ".join(sorted([*(f"{name}/" for name in folders), *files]))
            for name in files:
                counted = place.startswith("mon_data")
                if name in SHOWN or name == "last_cmd_status" or name.endswith("_config") or counted:
                    yield f"{place}/{name}", self.shown(pathlib.Path(folder, name))

    def shown(self, file: pathlib.Path) -> str:
        text = file.read_text()
        if file.name == "tasks":
            return " ".join(sorted(self.symbols[tid] for tid in text.split() if tid in self.symbols))
        if file.name == "last_cmd_status":
            return TASK.sub(lambda match: f"{match[1]}{self.symbols.get(match[2], match[2])}", text)
        return text


def check(answer: int) -> None:
    if answer:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def machine() -> dict[str, Any]:
    """The machine as the emulation has to know it."""
    return {
        "kernel": os.uname().release,
        "cmdline": pathlib.Path("/proc/cmdline").read_text(),
        "cpus": [cpu(number) for number in range(os.cpu_count() or 1)],
    }


def cpu(number: int) -> dict[str, Any]:
    folder = CPUS / f"cpu{number}"
    text = lambda path: (folder / path).read_text().strip()  # noqa: E731
    return {
        "cpu": number,
        "package": text("topology/physical_package_id"),
        "core": text("topology/core_id"),
        "node": [each.name for each in folder.glob("node*")],
        "l3_id": text("cache/index3/id"),
        "l2_id": text("cache/index2/id"),
        "l3_size": text("cache/index3/size"),
    }


def main() -> None:
    """Everything in the order that was asked."""
    print(json.dumps(machine()), flush=True)
    guest = Guest()
    for operation in resctrl_operations.sequence(**json.loads(sys.argv[1])):
        print(json.dumps(guest.play(operation)), flush=True)


if __name__ == "__main__":
    main()
