"""Who is asked for connections, who is not, and how often."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from koordlite.model.picture.affinity import Talk
from koordlite.model.picture.groups import PodGroups
from koordlite.model.picture.kubelet import Kubelet
from koordlite.model.wire import objects
from koordlite.observe import connections
from koordlite.observe.connections import ConnectionReader, Work
from koordlite.ports import ClusterView
from koordlite.strategies.numa_affinity import Config

HEAD = "  sl  local_address rem_address   st\n"
QUIET = b"TCP: inuse 0 orphan 0 tw 0 alloc 0 mem 0\n"


class Node:
    """Pods by name, each with one process; what /proc shows of it is in `files`."""

    def __init__(self, *pods: str, host_network: str = "") -> None:
        self.files: dict[str, bytes] = {}
        self.pids = {f"{name}/pause": (number,) for number, name in enumerate(pods, 1)}
        self.places = {name: PodGroups(name, {"main": f"{name}/main"}, (f"{name}/pause",)) for name in pods}
        specs = {name: objects.PodSpec(host_network=name == host_network or None) for name in pods}
        wire = tuple(objects.PodObject(metadata=objects.ObjectMeta(uid=n), spec=spec) for n, spec in specs.items())
        self.view = ClusterView(node=None, pods=wire, config=None, topology=None, kubelet=Kubelet())
        self.spent, self.rests, self.begun = 0.0, list[float](), list[Callable[[], None]]()
        for number in range(1, len(pods) + 1):
            self.sockets(number, [])

    def sockets(self, pid: int, held: list[tuple[str, str]], *, in_use: int | None = None) -> None:
        number = len(held) if in_use is None else in_use
        self.files[f"/proc/{pid}/net/sockstat"] = QUIET.replace(b"inuse 0", b"inuse %d" % number)
        rows = "".join(f"   0: {own} {other} 01 more\n" for own, other in held)
        self.files[f"/proc/{pid}/net/tcp"] = (HEAD + rows).encode()

    def read(self, path: str) -> bytes:
        self.spent += 0.001
        if path not in self.files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self.files[path]

    def procs(self, group: str) -> tuple[int, ...]:
        return self.pids.get(group, ())

    def reader(self, *, seconds: float = 60.0, begin: Callable[[Callable[[], None]], object] | None = None) -> Any:
        host: Any = SimpleNamespace(cgroups=self)
        files: Any = self
        work = Work(
            files=files, begin=begin or (lambda count: count()), wait=self.rests.append, spent=lambda: self.spent
        )
        return ConnectionReader(host, Config(mode="enforce", sample_seconds=seconds), work)

    def read_at(self, reader: Any, now: float) -> Any:
        return reader.read(now, self.view, self.places).connections


A, B = ("0100F40A:1F90", "0200F40A:8000"), ("0200F40A:8000", "0100F40A:1F90")


def test_two_pods_that_talk_and_the_cost_of_asking_them() -> None:
    node = Node("a", "b", "c")
    node.sockets(1, [A])
    node.sockets(2, [B])
    found = node.read_at(node.reader(), 0.0)
    assert (found.rounds, found.talks, found.totals) == (1, (Talk("a", "b", 1),), {"a": 1, "b": 1, "c": 0})
    # c has no socket, so its table is not printed: sockstat and sockstat6 of three pods, tcp of two.
    assert round(found.cost_seconds, 3) == 0.008
    assert [round(rest, 3) for rest in node.rests] == [0.012, 0.012, 0.008]


def test_pods_that_cannot_be_counted_are_named() -> None:
    node = Node("shared", "gone", "flood", "fine", host_network="shared")
    node.pids["gone/pause"] = (99,)
    node.sockets(3, [], in_use=connections.MOST_SOCKETS + 1)
    found = node.read_at(node.reader(), 0.0)
    assert found.totals == {"fine": 0}
    assert found.uncounted.keys() == {"shared", "gone", "flood"}
    assert "4097 sockets" in found.uncounted["flood"]


def test_a_process_that_ended_is_passed_over_for_the_next_one() -> None:
    node = Node("a")
    node.pids |= {"a/pause": (99,), "a/main": (1,)}
    assert node.read_at(node.reader(), 0.0).totals == {"a": 0}


def test_processes_are_looked_up_in_turns() -> None:
    node = Node(*(f"pod{number}" for number in range(40)))
    reader = node.reader()
    assert [node.read_at(reader, float(now)) is not None for now in range(4)] == [False, False, True, True]


def test_the_dearer_the_rarer() -> None:
    """3 ms every minute are nothing; 1.2 s have to last for two minutes."""
    node = Node("a")
    reader = node.reader()
    assert [node.read_at(reader, now).rounds for now in (0.0, 59.0, 60.0)] == [1, 1, 2]
    node.sockets(1, [A])
    slow: Mapping[str, bytes] = dict(node.files)
    node.read = lambda path: _slowly(node, slow, path)  # type: ignore[method-assign]
    assert [node.read_at(reader, now).rounds for now in (120.0, 239.0, 241.0)] == [3, 3, 4]


def _slowly(node: Node, files: Mapping[str, bytes], path: str) -> bytes:
    node.spent += 0.4
    if path not in files:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    return files[path]


def test_a_tick_never_waits_for_a_count() -> None:
    node = Node("a")
    reader = node.reader(begin=node.begun.append)
    assert [node.read_at(reader, now) for now in (0.0, 61.0, 122.0)] == [None, None, None]
    (count,) = node.begun
    count()
    assert node.read_at(reader, 123.0).rounds == 1


def test_without_seconds_nothing_is_read() -> None:
    node = Node("a")
    assert node.read_at(node.reader(seconds=0.0), 0.0) is None
    assert node.spent == 0.0
