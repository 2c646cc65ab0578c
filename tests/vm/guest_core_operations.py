"""Runs inside the guest: plays a sequence of `core_operations` on real processes. One line of JSON for each answer."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pathlib
import signal
import socket
import sys
import threading
import time

import core_operations

from koordlite.host.core_scheduling import RealCoreScheduling

PR_SET_CHILD_SUBREAPER = 36


def serve(commands: socket.socket) -> None:
    """The life of one process: it makes threads and children by its first thread, as it is told."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        data, fds, _, _ = socket.recv_fds(commands, 1, 1)
        if data == b"t":
            made: list[int] = []
            begun = threading.Event()

            def wait(made: list[int] = made, begun: threading.Event = begun) -> None:
                made.append(threading.get_native_id())
                begun.set()
                time.sleep(3600)

            threading.Thread(target=wait, daemon=True).start()
            begun.wait()
            commands.sendall(b"%10d" % made[0])
        elif data == b"f":
            child = os.fork()
            if child == 0:
                commands = socket.socket(fileno=fds[0])
                continue
            os.close(fds[0])
            commands.sendall(b"%10d" % child)
        else:
            os._exit(0)


class RealProcesses:
    """`core_operations.Processes` of this machine."""

    def __init__(self) -> None:
        self._channels: list[socket.socket | None] = []
        self._threads: list[list[int]] = []

    def __len__(self) -> int:
        return len(self._threads)

    def spawn(self) -> None:
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            serve(theirs)
        theirs.close()
        self._keep(ours, pid)

    def thread(self, who: int) -> None:
        channel = self._channels[who]
        if channel is not None:
            channel.sendall(b"t")
            self._threads[who].append(int(channel.recv(10)))

    def fork(self, who: int) -> None:
        channel = self._channels[who]
        if channel is None:
            self._keep(None, self._threads[who][0])
            return
        ours, theirs = socket.socketpair()
        socket.send_fds(channel, [b"f"], [theirs.fileno()])
        pid = int(channel.recv(10))
        theirs.close()
        self._keep(ours, pid)

    def end(self, who: int) -> None:
        channel = self._channels[who]
        if channel is not None:
            channel.sendall(b"q")
            channel.close()
            self._channels[who] = None
            pid = self._threads[who][0]
            del self._threads[who][1:]
            while pathlib.Path(f"/proc/{pid}").exists():
                time.sleep(0.001)

    def threads(self, who: int) -> list[int]:
        return self._threads[who]

    def _keep(self, channel: socket.socket | None, pid: int) -> None:
        self._channels.append(channel)
        self._threads.append([pid])


def main() -> None:
    """The argument is JSON: the arguments of `core_operations.sequence`."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    processes = RealProcesses()
    player = core_operations.Player(RealCoreScheduling(), processes)
    for operation in core_operations.sequence(**json.loads(sys.argv[1])):
        print(json.dumps(player.play(operation)), flush=True)
    for who in range(len(processes)):
        with contextlib.suppress(OSError):
            processes.end(who)


if __name__ == "__main__":
    main()
