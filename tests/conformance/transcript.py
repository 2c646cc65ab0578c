"""Play a recorded session with resctrl against the emulation, operation by operation."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from typing import Any

from kernel_processes import KernelProcesses
from kernel_resctrl import Caller, KernelResctrl
from resctrl_vfs import ResctrlVFS

from koordlite.lab.machine.machine import RDT
from koordlite.lab.machine.tree import File, Folder, Tree
from koordlite.lab.resctrl.filesystem import POINT
from tests.conformance import recorded_machine, transcript_counters, transcript_view
from tests.conformance.transcript_threads import Threads

MS_RDONLY, MS_REMOUNT = 1, 32
NOBODY = 65534
_SETTLING_SECONDS = 3.0
_LATER = re.compile(r"([0-9.]+) s later")


class Player:
    """One machine with its resctrl, and what the transcript's operations mean to it."""

    def __init__(self, recording: Any) -> None:
        machine = recorded_machine.machine(recording)
        self.now = 0.0
        self.files = Tree()
        self.threads = Threads(KernelProcesses(1))
        self.files.place("/sys/fs/present", Folder())
        self.resctrl: KernelResctrl | None = None
        self.hardware = machine.rdt or RDT()
        if machine.rdt is not None:
            self.resctrl = KernelResctrl(machine, machine.rdt, self.threads.processes, lambda: self.now)
            self.files.place(POINT, self.resctrl.folder)
        self._open: dict[str, File] = {}
        self._lengths: list[int] = []
        self._tried = False
        self._verbs: dict[str, Callable[[Any], Any]] = {
            "mount": self._mount,
            "umount": self._umount,
            "mkdir": lambda op: self.files.mkdir(self.path(op)),
            "rmdir": self._rmdir,
            "rename": lambda op: self.vfs.rename(self.path(op), f"{POINT}/{op['data']}"),
            "read": self._read,
            "write": self._write,
            "list": lambda op: self.files.list(self.path(op)),
            "unlink": lambda op: self.vfs.unlink(self.path(op)),
            "create": lambda op: self.vfs.create(self.path(op)),
            "symlink": lambda op: self.vfs.link(self.path(op)),
            "link": lambda op: self.vfs.link(self.path(op)),
            "setxattr": self._set_attribute,
            "write-twice": lambda op: [self._put(op["path"], data) for data in op["data"]],
            "pwrite": self._write,
            "writev": lambda op: self._put(op["path"], "".join(op["data"])),
            "write x40": self._write_often,
            "open-as-nobody": lambda op: self._as(Caller(uid=NOBODY), self._open_for_writing, op),
            "write-as-nobody": lambda op: self._as(Caller(uid=NOBODY), self._write, op),
            "pid-namespace": self._namespace,
            "cpu-offline": lambda op: self.there.offline(int(op["path"].removeprefix("cpu"))),
            "cpu-online": lambda op: self.there.online(int(op["path"].removeprefix("cpu"))),
            "domain-offline": lambda op: [self.there.offline(cpu) for cpu in op["data"]],
            "domain-online": lambda op: [self.there.online(cpu) for cpu in op["data"]],
        }

    @property
    def there(self) -> KernelResctrl:
        """The file system; OSError ENOENT on a machine without it."""
        if self.resctrl is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return self.resctrl

    @property
    def vfs(self) -> ResctrlVFS:
        """The file layer above it."""
        return ResctrlVFS(self.files, self.there)

    def play(self, op: Any) -> dict[str, Any]:
        """What comes of one operation, in the transcript's fields."""
        self._prepare(op)
        result: Any = "ok"
        try:
            special = self._verbs.get(op["op"], self._look)(op)
            result = special if op["op"] == "pid-namespace" else result
        except OSError as error:
            result = "ENOTSUP" if error.errno == errno.ENOTSUP else errno.errorcode[error.errno or 0]
        found: dict[str, Any] = {"result": result, "last_cmd_status": self._status()}
        if op.get("readback") is not None:
            found["readback"] = transcript_view.readback(self, op)
        if "also" in op:
            found["also"] = {path: self.content(path) for path in op["also"]}
        if "raw" in op:
            found["raw"] = bool(self.files.read(self.path(op)))
        if "lengths" in op:
            found["lengths"] = self._lengths
        return found

    def _prepare(self, op: Any) -> None:
        """What the transcript tells in words only: time that passed, threads that were made, counters that were set."""
        note = op.get("note", "")
        later = _LATER.search(note)
        if later or "limbo worker (" in note:
            self.now += float(later[1]) if later else _SETTLING_SECONDS
        if "forked by the moved main thread" in note:
            self.threads.multiply()
        if "tasks are open" in note:
            names = ("schemata", "tasks")
            self._open = {f"(removed)/{name}": self._file(f"{op['path']}/{name}") for name in names}
        if self.resctrl and self.resctrl.mounted:
            transcript_counters.play(self.resctrl, note, op["path"])
        self.threads.know(f"{op['path']} {op['data']}", self.now)

    def _look(self, op: Any) -> None:
        """Operations that only need the path to be there: stat, flock, chmod and the like."""
        if op["path"].strip(".") and not op["path"].startswith("/"):
            self.files.entry(self.path(op))

    def _mount(self, op: Any) -> None:
        flags = op.get("flags", 0)
        how = self.there.remount if flags & MS_REMOUNT else self.there.mount
        how(op["data"] or "", read_only=bool(flags & MS_RDONLY))
        if op["section"] != "limbo":
            # Sections begin with every RMID out of limbo: the recording waited for it.
            self.now += _SETTLING_SECONDS

    def _umount(self, op: Any) -> None:
        self.there.users = int("a file inside is open" in op.get("note", ""))
        try:
            self.there.umount()
        finally:
            self.there.users = 0
        transcript_counters.reset(self.there)

    def _rmdir(self, op: Any) -> None:
        self.vfs.rmdir(POINT if op["path"] == "." else self.path(op))

    def _read(self, op: Any) -> None:
        if "*" not in op["path"] and op["path"] not in self._open:
            self.bytes(op["path"])
        elif op["path"] in self._open:
            self._open[op["path"]].read()

    def _write(self, op: Any) -> None:
        self._put(op["path"], self._data(op))

    def _put(self, path: str, text: str) -> None:
        data = self.threads.real(text).encode()
        if path in self._open:
            (self._open[path].write or (lambda _: None))(data)
            return
        self.files.write(f"{POINT}/{path}", data)

    def _write_often(self, op: Any) -> None:
        self._lengths = []
        reason: OSError | None = None
        for _ in range(40):
            # The recording wrote through a buffer, which repeats on closing what has failed.
            for _ in ("write", "close"):
                try:
                    self._write(op)
                except OSError as error:
                    reason = error
            self._lengths.append(len(self._status() or ""))
        if reason:
            raise reason

    def _open_for_writing(self, op: Any) -> None:
        self.vfs.open(self.path(op), write=True)

    def _as(self, caller: Caller, action: Callable[[Any], None], op: Any) -> None:
        before, self.there.caller = self.there.caller, caller
        try:
            action(op)
        finally:
            self.there.caller = before

    def _namespace(self, op: Any) -> str:
        """In a new PID namespace: write one's own pid, write a pid from outside, read who is there."""
        own = self.threads.spawn(self.now)
        answers = ["own pid 1"]
        before, self.there.caller = self.there.caller, Caller(tid=own, pids={1: own})
        for text in ("1", self.threads.real("$P")):
            try:
                self.files.write(self.path(op), text.encode())
                answers.append("ok")
            except OSError as error:
                answers.append(os.strerror(error.errno or 0))
        seen = self.files.read(self.path(op)).decode().split()
        self.there.caller = before
        self.threads.end(own)
        return "|".join([*answers, f"tasks seen: {' '.join(seen)}"])

    def _set_attribute(self, op: Any) -> None:
        """The transcript does not name the attribute: first one of users, then a trusted one."""
        self._tried = not self._tried
        self.vfs.set_attribute(self.path(op), "user.x" if self._tried else "trusted.x")

    def _status(self) -> str | None:
        if self.resctrl is None or not self.resctrl.mounted:
            return None
        return self.threads.symbolic_status(self.files.read(f"{POINT}/info/last_cmd_status").decode())

    def content(self, path: str) -> Any:
        """What stands in a file, with symbols for threads; an error as the transcript writes it."""
        try:
            text = self.bytes(path).decode()
        except OSError as error:
            return {"error": errno.errorcode[error.errno or 0]}
        return self.threads.symbolic_tasks(text) if path.endswith("tasks") else text

    def bytes(self, path: str) -> bytes:
        """A file below the mount point, or one of /proc."""
        if path.startswith("/proc/"):
            tid = self.threads.real(path.split("/")[2])
            return self.there.proc_text(int(tid) if tid.isdecimal() else 0).encode()
        return self.files.read(f"{POINT}/{path}")

    def _file(self, path: str) -> File:
        return self.vfs.open(f"{POINT}/{path}", write=True)

    def path(self, op: Any) -> str:
        """The whole path of an operation. Long names are abbreviated in the transcript."""
        path = re.sub(r"(.)\1*\.\.\.\((\d+)\)\Z", lambda match: match[1] * int(match[2]), op["path"])
        return f"{POINT}/{path}".rstrip("/")

    def _data(self, op: Any) -> str:
        """Long data is abbreviated too: its last value is the one that is read back."""
        data = op["data"]
        if data is None:
            return "L3:0=1\n" if op["path"].endswith("schemata") else "0\n"
        if not isinstance(data, dict):
            return str(data)
        start, length = data["repeat"].removesuffix("..."), data["length"]
        if not start.endswith("00"):
            period = start[start.index("=") - 1 :]
            piece = period[: period.index(";") + 1]
            return (start[: start.index("=") - 1] + piece * length)[: length - 1] + "\n"
        read = re.search(r"L3:\s*0=([0-9a-f]+)", str(op["readback"]))
        end = (read[1].lstrip("0") if read else "f") + "\n"
        return start[: start.index("=") + 1].ljust(length - len(end), "0") + end
