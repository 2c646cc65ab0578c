"""Services with their requests, and batch work."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import pathlib
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence

from realnode.waiting import until

from tests.perf.colocation.machine import BATCH, SERVICE, Machine

_PACKAGES = {"redis-server": "redis-server", "memcached": "memcached", "nginx": "nginx-light", "cc": "gcc libc6-dev"}
"""Debian packages by program, where they differ from its name."""
_PLACES = "/usr/sbin:/usr/local/sbin:/sbin"


@dataclasses.dataclass(frozen=True)
class Service:
    """A service, how often it is asked, and how to start it on a port."""

    about: str
    protocol: str
    rate: float
    """Requests a second, in the mean."""
    command: Callable[[int, Mapping[str, float], pathlib.Path], Sequence[str]]
    """From the port, nanoseconds of an iteration by kind of work, and a folder of its own."""
    program: str = ""
    """What has to be installed."""
    threads: int = 1
    """Of our own server."""
    is_divided: bool = False
    """Whether each request is divided among its threads."""


def _ours(
    work: str, *, kib: int = 0, rate: float = 250.0, busy: float = 0.46, threads: int = 1, divided: bool = False
) -> tuple[float, Callable[[int, Mapping[str, float], pathlib.Path], Sequence[str]]]:
    """Our own server, with as much work for a request as keeps it busy for that part of a CPU."""

    def command(port: int, iteration_ns: Mapping[str, float], _: pathlib.Path) -> Sequence[str]:
        iterations = round(busy / rate * 1e9 / iteration_ns[f"{work} {kib}"])
        return ["serve", work, str(kib), str(iterations), str(threads), str(port), "divided" if divided else "whole"]

    return rate, command


def _path(program: str) -> str:
    return shutil.which(program) or shutil.which(program, path=_PLACES) or program


def why_missing(name: str) -> str:
    """Why a service or batch work cannot run here; empty when it can."""
    program = SERVICES[name].program if name in SERVICES else BATCHES[name].program
    if not program or pathlib.Path(_path(program)).is_absolute():
        return ""
    package = _PACKAGES.get(program, program)
    return f"{name}: {program} is not installed: on Debian or Ubuntu, as root: apt-get install {package}"


def _redis(port: int, _: Mapping[str, float], folder: pathlib.Path) -> Sequence[str]:
    return [_path("redis-server"), "--port", str(port), "--save", "", "--appendonly", "no", "--dir", str(folder)]


def _memcached(port: int, _: Mapping[str, float], __: pathlib.Path) -> Sequence[str]:
    return [_path("memcached"), "-u", "root", "-l", "127.0.0.1", "-p", str(port), "-t", "2"]


_NGINX = """
daemon off; master_process on; worker_processes 2; user root; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 512; }}
http {{ access_log off; keepalive_requests 100000000; keepalive_timeout 1h; default_type text/plain;
        client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
        uwsgi_temp_path {folder}; scgi_temp_path {folder};
        gzip on; gzip_types text/plain; server {{ listen 127.0.0.1:{port}; root {folder}; }} }}
"""


def _nginx(port: int, _: Mapping[str, float], folder: pathlib.Path) -> Sequence[str]:
    (folder / "nginx.conf").write_text(_NGINX.format(folder=folder, port=port))
    (folder / "page").write_text("a page of some length\n" * 400)
    return [_path("nginx"), "-p", str(folder), "-c", str(folder / "nginx.conf")]


SERVICES = {
    "memory": Service("random reads over 64 MiB, beyond the cache", "work", *_ours("memory", kib=65536)),
    "cached": Service("random reads over 1 MiB, within the cache", "work", *_ours("memory", kib=1024)),
    "compute": Service("arithmetic", "work", *_ours("compute")),
    "heavy": Service(
        "random reads over 64 MiB, three quarters of a CPU", "work", *_ours("memory", kib=65536, busy=0.74)
    ),
    "threads": Service(
        "arithmetic divided among 8 threads a request: more that can run than CPUs",
        "work",
        *_ours("compute", rate=100.0, busy=0.7, threads=8, divided=True),
        threads=8,
        is_divided=True,
    ),
    "pool": Service(
        "arithmetic, 4 threads with a request each, three quarters of a CPU",
        "work",
        *_ours("compute", busy=0.74, threads=4),
        threads=4,
    ),
    "redis": Service("redis, GET of 512 bytes", "redis", 5000.0, _redis, "redis-server"),
    "memcached": Service("memcached, get of 512 bytes", "memcached", 5000.0, _memcached, "memcached"),
    "nginx": Service("nginx, a page of 9 kB", "http", 3000.0, _nginx, "nginx"),
}

CALIBRATED = (("memory", 65536), ("memory", 1024), ("compute", 0))

PATTERNS = {
    "steady": ("steady", 1.0, 0.0, 0.0),
    "bursty-100ms": ("bursty", 0.7, 0.1, 0.5),
    "bursty-1s": ("bursty", 0.7, 1.0, 0.5),
    "bursty-10s": ("bursty", 0.7, 10.0, 0.5),
    "diurnal": ("diurnal", 1.0, 60.0, 0.2),
}
"""Kind, mean rate as a part of the service's, period in seconds, and the part of it in which requests come; of a day,
the rate at night as a part of that at noon. Bursts have 1.4 times the service's rate."""


def arrivals(word: str, rate: float) -> str:
    """A pattern as the client takes it."""
    kind, part_of_rate, period, part = PATTERNS[word]
    return f"{kind}:{rate * part_of_rate:g}:{period:g}:{part:g}"


def whole_periods(word: str, seconds: float) -> float:
    """At least so many seconds, in which every part of the pattern comes equally often."""
    period = PATTERNS[word][2]
    return math.ceil(seconds / period) * period if period else seconds


@contextlib.contextmanager
def serving(name: str, machine: Machine, iteration_ns: Mapping[str, float]) -> Iterator[int]:
    """The port of a service that answers, in the service's pod."""
    service, port = SERVICES[name], _free_port()
    folder = machine.folder / name
    folder.mkdir(exist_ok=True)
    command = list(service.command(port, iteration_ns, folder))
    if service.protocol == "work":
        command.insert(0, str(machine.program))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*machine.inside(SERVICE), *command], stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
    try:
        until(
            lambda: process.poll() is not None or _answers(service, port), f"{name} listens on port {port}", seconds=20
        )
        if process.poll() is not None:
            raise RuntimeError(f"{' '.join(command)} ended: {(folder / 'log').read_text().strip()}")
        yield port
    finally:
        machine.end(SERVICE)
        process.wait()


def _free_port() -> int:
    with socket.socket() as stream, socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        stream.bind(("127.0.0.1", 0))
        port: int = stream.getsockname()[1]
        datagrams.bind(("127.0.0.1", port))
        return port


def _answers(service: Service, port: int) -> bool:
    kind = socket.SOCK_DGRAM if service.protocol == "work" else socket.SOCK_STREAM
    with socket.socket(type=kind) as asker:
        asker.settimeout(0.5)
        try:
            asker.connect(("127.0.0.1", port))
            if service.protocol == "work":
                asker.send(b"\xff" * 8)
                return len(asker.recv(8)) == 8
        except (ConnectionRefusedError, TimeoutError):
            return False
        return True


def _stress(*words: str) -> Callable[[Machine], list[list[str]]]:
    def commands(machine: Machine) -> list[list[str]]:
        amounts = [str(machine.cpus) if word == "CPUS" else word for word in words]
        return [[_path("stress-ng"), "--quiet", "--temp-path", str(machine.folder), *amounts]]

    return commands


def _engine(kind: str, each: float = 1.0) -> Callable[[Machine], list[list[str]]]:
    def commands(machine: Machine) -> list[list[str]]:
        return [[str(machine.program), "batch", kind]] * max(1, round(each * machine.cpus))

    return commands


def _video(machine: Machine) -> list[list[str]]:
    source = ["-f", "lavfi", "-i", "testsrc2=size=1280x720:rate=30"]
    return [
        [_path("ffmpeg"), "-loglevel", "error", *source, "-c:v", "mpeg4", "-q:v", "3", "-f", "null", "-"]
    ] * machine.cpus


def _compiler(machine: Machine) -> list[list[str]]:
    source = pathlib.Path(__file__).with_name("engine.c")
    loop = f"while :; do cc -O2 -c -o /dev/null {source}; done"
    return [["sh", "-c", loop]] * machine.cpus


@dataclasses.dataclass(frozen=True)
class Batch:
    """Work of the best-effort pod."""

    about: str
    commands: Callable[[Machine], list[list[str]]]
    program: str = ""
    """What has to be installed."""


BATCHES = {
    "compute": Batch("arithmetic, a process a CPU", _engine("compute")),
    "stream": Batch("copies of 64 MiB, a process a CPU", _engine("stream")),
    "streams": Batch("copies of 64 MiB, two processes a CPU", _engine("stream", 2)),
    "thrash": Batch("writes at random over 64 MiB, a process a CPU", _engine("thrash")),
    "fork": Batch("short children without an end, two a CPU at a time", _engine("fork", 2)),
    "threads": Batch("a process of 32 threads that compute", lambda machine: _engine("threads")(machine)[:1]),
    "stress-cache": Batch("stress-ng --cache", _stress("--cache", "CPUS"), "stress-ng"),
    "stress-vm": Batch("stress-ng --vm", _stress("--vm", "CPUS", "--vm-bytes", "64m"), "stress-ng"),
    "ffmpeg": Batch("video encoding by ffmpeg", _video, "ffmpeg"),
    "compiler": Batch("a C compiler in a loop", _compiler, "cc"),
}


@contextlib.contextmanager
def batch_work(name: str, machine: Machine, *, slice_us: int = 0) -> Iterator[None]:
    """Greedy work in the best-effort pod."""
    commands = BATCHES[name].commands(machine)
    inside = machine.inside(BATCH, slice_us=slice_us)
    with (machine.folder / "batch.log").open("wb") as log:
        processes = [
            subprocess.Popen([*inside, *command], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
            for command in commands
        ]
    try:
        yield
        for process in processes:
            if process.poll() is not None:
                said = (machine.folder / "batch.log").read_text().strip()
                raise RuntimeError(f"batch work {name} ended by itself with {process.returncode}: {said}")
    finally:
        machine.end(BATCH)
        for process in processes:
            process.wait()
