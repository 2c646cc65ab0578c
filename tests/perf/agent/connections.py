"""What one count of TCP connections costs: pods with network namespaces of their own, on this machine's kernel.

As root. The connections are real sockets of this kernel, established by TCP_REPAIR without a packet, so thousands of
them cost nothing but memory. The kernel walks its table of all established sockets for each namespace that it prints:
the size of that table, which depends on the machine's memory, is printed too.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import errno
import fcntl
import os
import random
import signal
import socket
import statistics
import struct
import time
from types import SimpleNamespace
from typing import Any

from koordlite.host.files import RealFiles
from koordlite.model.picture.groups import PodGroups
from koordlite.model.picture.kubelet import Kubelet
from koordlite.model.wire import objects
from koordlite.observe import connections
from koordlite.observe.connections import ConnectionReader, Work
from koordlite.ports import ClusterView
from koordlite.resctrl.files import LocalFiles
from koordlite.strategies.numa_affinity import Config

CLONE_NEWNET = 0x40000000
TCP_REPAIR, SIOCSIFFLAGS, IFF_UP = 19, 0x8914, 1
SERVER_PORT = 8080
BUDGET_MILLISECONDS = 500.0
WIDE = 4.0
"""The machine may be shared: a run fails beyond this many times the budget for 250 pods with 5,000 connections."""


@dataclasses.dataclass(frozen=True)
class Cost:
    """Of counts of all pods, in milliseconds of CPU."""

    whole: float
    """Median of the counts."""
    worst: float
    """Median of the dearest pod of each count."""
    found: int


def address(pod: int) -> str:
    """Within 127.0.0.0/8, to which every namespace has a route once its `lo` is up."""
    return f"127.1.{pod >> 8}.{pod & 255}"


def hold(own: int, ends: list[tuple[int, int, int]], done: int) -> None:
    """A child: a namespace, the ends of its connections (own port, other pod, other port), and then it waits."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    with socket.socket() as control:
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))
    held = []
    for port, other, other_port in ends:
        end = socket.socket()
        end.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        end.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
        end.bind((address(own), port))
        end.connect((address(other), other_port))
        held.append(end)
    os.write(done, b".")
    signal.pause()


def ends_of(pods: int, wanted: int) -> dict[int, list[tuple[int, int, int]]]:
    """Every connection from one pod to another, as both of them hold it."""
    chance = random.Random(7)
    found: dict[int, list[tuple[int, int, int]]] = {pod: [] for pod in range(pods)}
    for number in range(wanted):
        client, server = chance.sample(range(pods), 2)
        port = 20000 + number
        found[client].append((port, server, SERVER_PORT))
        found[server].append((SERVER_PORT, client, port))
    return found


def begin(pods: int, wanted: int) -> list[int]:
    """Pids of the children, all of which hold their connections."""
    read, write = os.pipe()
    children = []
    for pod, ends in ends_of(pods, wanted).items():
        child = os.fork()
        if not child:
            try:
                hold(pod, ends, write)
            finally:
                os._exit(1)
        children.append(child)
    waiting = pods
    while waiting:
        waiting -= len(os.read(read, waiting))
    return children


def measure(children: list[int], rounds: int) -> Cost:
    """`rounds` counts, without the rests between two pods."""
    places = {str(pid): PodGroups(str(pid), {}, (str(pid),)) for pid in children}
    pods = tuple(objects.PodObject(metadata=objects.ObjectMeta(uid=uid)) for uid in places)
    view = ClusterView(node=None, pods=pods, config=None, topology=None, kubelet=Kubelet())
    cgroups = SimpleNamespace(procs=lambda group: (int(group),))
    host: Any = SimpleNamespace(files=RealFiles(), cgroups=cgroups, clock=time)
    rests: list[float] = []
    work = Work(files=LocalFiles(), begin=lambda count: count(), wait=rests.append, spent=time.thread_time)
    reader = ConnectionReader(host, Config(mode="observe", sample_seconds=0.001), work)
    costs, worst, found = list[float](), list[float](), 0
    for number in range(1, rounds + 1):
        rests.clear()
        counted = None
        while counted is None or counted.rounds < number:
            counted = reader.read(1e6 * number, view, places).connections
        costs.append(1000 * counted.cost_seconds)
        worst.append(1000 * max(rests) / connections.REST)
        found = sum(talk.connections for talk in counted.talks)
    return Cost(statistics.median(costs), statistics.median(worst), found)


def table_entries() -> str:
    """What the kernel said of its table, where its log can be read."""
    try:
        with open("/dev/kmsg", "rb", buffering=0) as log:
            os.set_blocking(log.fileno(), False)
            while line := log.read(8192):
                if b"TCP established hash" in line:
                    return line.split(b"entries:")[1].split(b"(")[0].decode().strip()
    except OSError as error:
        return "unknown" if error.errno in (errno.EPERM, errno.EAGAIN, errno.ENOENT, errno.EPIPE) else str(error)
    return "unknown"


def main() -> int:
    """Print the cost; 1 far beyond the budget."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=250)
    parser.add_argument("--connections", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=10)
    given = parser.parse_args()
    children = begin(given.pods, given.connections)
    try:
        cost = measure(children, given.rounds)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    print(f"{given.pods} pods, {given.connections} connections, {cost.found} found; table of {table_entries()} entries")
    seconds = cost.whole / 1000 * (1 + connections.REST)
    every = max(Config().sample_seconds, cost.whole / 1000 / connections.MOST_OF_A_CORE)
    print(f"a count takes {cost.whole:.1f} ms of CPU in a thread, the dearest pod {cost.worst:.1f} ms of it")
    print(f"with its rests about {seconds:.1f} s, every {every:.0f} s: {cost.whole / 10 / every:.2f} % of a core")
    print(f"load {' '.join(f'{each:.1f}' for each in os.getloadavg())}")
    too_dear = (given.pods, given.connections) == (250, 5000) and cost.whole > WIDE * BUDGET_MILLISECONDS
    return int(too_dear or cost.found != given.connections)


if __name__ == "__main__":
    raise SystemExit(main())
