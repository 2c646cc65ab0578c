"""The threads a transcript speaks of by symbols: `$P` and its threads, a child, a zombie, one that is gone."""

from __future__ import annotations

import re

from kernel_processes import KernelProcesses

from koordlite.lab.machine.processes import Process

_SYMBOL = re.compile(r"\$(?:P\.new|P\.\d+|P|C|Z|gone|init|kthreadd)")
_OTHERS = 3368


class Threads:
    """A machine with init, kthreadd, some others and the process `$P` with three threads."""

    def __init__(self, processes: KernelProcesses) -> None:
        self.processes = processes
        self._processes: dict[int, Process] = {}
        self._tids: dict[str, int] = {"$init": self.spawn(0), "$kthreadd": self.spawn(0)}
        self._spawn(_OTHERS, 0)
        process = self._spawn(3, 0)
        self._tids |= {"$P": process.pid, "$P.1": process.tids[1], "$P.2": process.tids[2]}
        self._known = {"$P", "$P.1", "$P.2"}

    def spawn(self, now: float) -> int:
        """A process with one thread; its pid."""
        return self._spawn(1, now).pid

    def end(self, pid: int) -> None:
        """It is gone."""
        self.processes.end(self._processes.pop(pid))

    def multiply(self) -> None:
        """The main thread of `$P` starts a thread and forks a child."""
        self._tids["$P.new"] = self.processes.clone(self._tids["$P"])
        self._tids["$C"] = self.processes.fork(self._tids["$P"], now=0).pid
        self._known |= {"$P.new", "$C"}

    def know(self, text: str, now: float) -> None:
        """The transcript mentions these: from here on it shows them."""
        for symbol in _SYMBOL.findall(text):
            if symbol not in self._tids:
                self._tids[symbol] = self.spawn(now)
                if symbol == "$gone":
                    self.end(self._tids[symbol])
            self._known.add(symbol)

    def real(self, text: str) -> str:
        """Symbols as the numbers of this machine."""
        text = re.sub(r"0x<hex of (\S+?)>", lambda match: hex(self._tids[match[1]]), text)
        text = re.sub(r"0<octal of (\S+?)>", lambda match: f"0{self._tids[match[1]]:o}", text)
        return _SYMBOL.sub(lambda match: str(self._tids[match[0]]), text)

    def symbolic_tasks(self, text: str) -> str:
        """A list of threads by symbols; those without one are left out."""
        names = self._names()
        return "".join(f"{names[tid]}\n" for tid in map(int, text.split()) if tid in names)

    def symbolic_status(self, text: str) -> str:
        """A message with the symbols of the threads it names."""
        names = {str(tid): name for tid, name in self._names().items() if tid > 2}
        return re.sub(r"\b\d+\b", lambda match: names.get(match[0], match[0]), text)

    def _names(self) -> dict[int, str]:
        return {self._tids[symbol]: symbol for symbol in self._known}

    def _spawn(self, threads: int, now: float) -> Process:
        process = self.processes.spawn("recorded", threads=threads, now=now)
        self._processes[process.pid] = process
        return process
