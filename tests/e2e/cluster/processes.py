"""The product's commands as processes that a scenario kills, stops and starts again."""

from __future__ import annotations

import contextlib
import http.client
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

START_SECONDS = 60.0


class Command:
    """`koordlite …` with these arguments; `kill` and `start` may alternate."""

    def __init__(self, log: pathlib.Path, *arguments: str, ready: int = 0, program: str = "koordlite") -> None:
        """`ready` is the port that answers /readyz; 0 for none."""
        self._log, self._arguments, self._ready, self._program = log, arguments, ready, program
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *, wait: bool = True) -> None:
        """Start it, and wait until it is ready."""
        with self._log.open("ab") as output:
            command = [sys.executable, "-m", self._program, *self._arguments]
            self._process = subprocess.Popen(command, stdout=output, stderr=output)
        end = time.monotonic() + START_SECONDS
        while wait and self._ready and not self.is_ready():
            assert self._process.poll() is None, f"{self._arguments[0]} ended: {self._log.read_text()[-2000:]}"
            assert time.monotonic() < end, f"{self._arguments[0]} is not ready: {self._log.read_text()[-2000:]}"
            time.sleep(0.05)

    def is_ready(self) -> bool:
        """Whether it says that it is ready."""
        return asked(self._ready, "/readyz") == 200

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """End it without a word, and wait for that."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """End it, whatever state it is in."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGCONT)
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def log(self) -> str:
        """What it has written."""
        return self._log.read_text()


@contextlib.contextmanager
def running(*commands: Command) -> Iterator[None]:
    """Start them all, then wait for each; stop them at the end."""
    try:
        for command in commands:
            command.start(wait=False)
        for command in commands:
            end = time.monotonic() + START_SECONDS
            while command._ready and not command.is_ready():
                assert time.monotonic() < end, f"not ready: {command.log[-2000:]}"
                time.sleep(0.05)
        yield
    finally:
        for command in commands:
            command.stop()


@contextlib.contextmanager
def service(ports: list[int]) -> Iterator[int]:
    """A port of its own that passes each connection on to the first of these ports that takes it, as a Service does."""
    stop, threads = threading.Event(), list[threading.Thread]()

    def carry(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def connect(incoming: socket.socket) -> None:
        with incoming, contextlib.ExitStack() as stack:
            for port in ports:
                with contextlib.suppress(OSError):
                    outgoing = stack.enter_context(socket.create_connection(("127.0.0.1", port), 1.0))
                    break
            else:
                return
            outgoing.settimeout(None)
            back = threading.Thread(target=carry, args=(outgoing, incoming), daemon=True)
            back.start()
            carry(incoming, outgoing)
            back.join()

    def accept() -> None:
        while not stop.is_set():
            with contextlib.suppress(TimeoutError):
                incoming, _ = listener.accept()
                incoming.settimeout(None)
                threads.append(threading.Thread(target=connect, args=(incoming,), daemon=True))
                threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.2)
        acceptor = threading.Thread(target=accept, daemon=True)
        acceptor.start()
        try:
            yield int(listener.getsockname()[1])
        finally:
            stop.set()
            acceptor.join()
            for thread in threads:
                thread.join(5.0)


def asked(port: int, path: str) -> int:
    """The status of a GET on loopback; 0 without an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1.0)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()
