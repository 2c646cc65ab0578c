"""Pages by NUMA node and kind, as kernels print them, on emulated nodes, and of this process on this kernel."""

from __future__ import annotations

import mmap
import os
import pathlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from emulated import Emulated
from hooked_files import HookedFiles

from koordlite.cli import serving
from koordlite.http.answers import Request
from koordlite.model.snapshot import Snapshot
from koordlite.observe import Observer, numa_pages
from koordlite.observe.numa_pages import PageMapping, mappings
from koordlite.report.tick import Tick

MAPS = pathlib.Path("/proc/self/numa_maps")
MiB = 2**20


@pytest.mark.parametrize(
    ("line", "mapping"),
    [
        pytest.param(
            b"7f25d3000000 default anon=300 dirty=300 N0=100 N1=200 kernelpagesize_kB=4",
            PageMapping("private", b"", False, {0: 400 << 10, 1: 800 << 10}),
            id="private memory on two nodes",
        ),
        pytest.param(
            b"55d6ce7ee000 default heap anon=8 dirty=8 active=0 N1=8 kernelpagesize_kB=4",
            PageMapping("private", b"", False, {1: 32 << 10}),
            id="the heap",
        ),
        pytest.param(
            b"7f25d3c00000 default file=/usr/lib/libc.so.6 mapped=40 mapmax=29 N0=40 kernelpagesize_kB=4",
            PageMapping("library", b"/usr/lib/libc.so.6", True, {0: 160 << 10}),
            id="a shared library that others map",
        ),
        pytest.param(
            b"7f25d3e00000 bind:1 file=/var/lib/db/data\\040one mapped=2 N1=2 kernelpagesize_kB=4",
            PageMapping("file", b"/var/lib/db/data\\040one", False, {1: 8 << 10}),
            id="a file, by a policy of its own",
        ),
        pytest.param(
            b"7f0000000000 default file=/dev/hugepages/x huge anon=3 dirty=3 N0=1 N1=2 kernelpagesize_kB=2048",
            PageMapping("huge", b"/dev/hugepages/x", False, {0: 2 * MiB, 1: 4 * MiB}),
            id="huge pages count in their own size",
        ),
        pytest.param(
            b"7f1111000000 interleave:0-1 file=/dev/shm/ring dirty=16 mapmax=2 N0=8 N1=8 kernelpagesize_kB=4",
            PageMapping("shared", b"/dev/shm/ring", True, {0: 32 << 10, 1: 32 << 10}),
            id="shared memory",
        ),
        pytest.param(
            b"7f1112000000 default file=/memfd:jit\\040(deleted) dirty=1 N0=1 kernelpagesize_kB=4",
            PageMapping("shared", b"/memfd:jit\\040(deleted)", False, {0: 4 << 10}),
            id="a file without a name",
        ),
    ],
)
def test_a_mapping_as_the_kernel_prints_it(line: bytes, mapping: PageMapping) -> None:
    assert list(mappings(line + b"\n")) == [mapping]


@pytest.mark.parametrize(
    "line",
    [
        b"7ffd1b7fe000 default stack",
        b"7f25d3000000 default anon=300 dirty=300 N0=100",
        b"N0=1 kernelpagesize_kB=4",
        b"7f default file=/N0=7 anon=1 kernelpagesize_kB=4",
        b"7f default N0=" + b"9" * 400 + b" kernelpagesize_kB=4",
        b"\xff\xfe",
        b"",
    ],
    ids=[
        "no page yet",
        "cut off",
        "no address",
        "only by name",
        "no number of a kernel's",
        "no text",
        "empty",
    ],
)
def test_what_says_nothing_is_passed_over(line: bytes) -> None:
    assert list(mappings(line)) == []


def _observed(node: Emulated) -> Snapshot:
    return Observer(node.host(), node.cluster, tasks_seconds=5.0).observe()


@pytest.mark.parametrize("shape", ["intel-2s-ht", "amd-ccd", "small"])
def test_the_sum_of_pages_is_the_kernels_own_within_a_twentieth(tmp_path: Path, shape: str) -> None:
    node = Emulated(shape, tmp_path)
    node.pod("web", "LS", "1", memory="64Mi")
    node.sandbox.advance(5.0)
    host = node.host()
    memory = numa_pages.of_pod(host, _observed(node), "ns/web", wait=node.sandbox.advance)
    (container,) = memory.containers
    assert (memory.pod, container.container, container.processes, container.unread) == ("ns/web", "main", 1, "")
    sums: dict[int, int] = {}
    for amounts in container.pages.values():
        for at, amount in amounts.items():
            sums[at] = sums.get(at, 0) + amount
    assert sums, "it has memory"
    if container.counted:
        assert sums == pytest.approx(container.counted, rel=0.05)
    assert sum(container.ran.values()) == pytest.approx(1.0)
    assert memory.available.keys() == memory.cpus.keys() == {each.id for each in node.sandbox.machine.nodes}


def test_pages_of_a_file_that_processes_of_a_container_share_count_once(tmp_path: Path) -> None:
    node = Emulated("intel-2s-ht", tmp_path)
    node.pod("web", "LS", "1")
    node.sandbox.advance(1.0)
    snapshot = _observed(node)
    (group,) = snapshot.places["uid-web"].containers.values()
    cgroups = node.host().cgroups
    other = node.sandbox.processes.spawn("worker", threads=1, now=0.0)
    node.sandbox.files.write(f"/sys/fs/cgroup/{group}/cgroup.procs", b"%d" % other.pid)
    library = b"7f00 default file=/lib/libc.so.6 mapped=10 mapmax=9 N0=%d kernelpagesize_kB=4\n"
    maps = {
        other.pid: library % 10
        + library.replace(b"7f00", b"7f01") % 5
        + b"7f02 default anon=1 N1=1 kernelpagesize_kB=4",
        cgroups.procs(group)[0]: library % 12,
    }

    def content(path: str, raw: bytes) -> bytes:
        pid = path.removeprefix("/proc/").removesuffix("/numa_maps")
        return maps.get(int(pid), raw) if path.endswith("/numa_maps") else raw

    host = node.host(HookedFiles(node.sandbox.files, content=content))
    (container,) = numa_pages.of_pod(host, snapshot, "web", wait=node.sandbox.advance).containers
    assert container.processes == 2
    assert container.pages == {"library": {0: 15 * 4096}, "private": {1: 4096}}
    assert container.mapped_by_others == {0: 15 * 4096}


def test_memory_that_only_root_may_see_is_said_to_be_left_out(tmp_path: Path) -> None:
    node = Emulated("intel-2s-ht", tmp_path)
    node.pod("web", "LS", "1")
    node.sandbox.advance(1.0)

    def refuse(call: str, path: str) -> None:
        if path.endswith("/numa_maps"):
            raise PermissionError(13, "Permission denied", path)

    host = node.host(HookedFiles(node.sandbox.files, look=refuse))
    (container,) = numa_pages.of_pod(host, _observed(node), "web", wait=node.sandbox.advance).containers
    assert (container.processes, container.pages) == (0, {})
    assert "Permission denied" in container.unread and "root only" in container.unread


@pytest.mark.parametrize(("name", "why"), [("db", "no pod 'db'"), ("web", "2 pods here")])
def test_which_pod_is_meant_has_to_be_clear(tmp_path: Path, name: str, why: str) -> None:
    node = Emulated("small", tmp_path)
    node.pod("web", "LS", "1")
    node.sandbox.advance(1.0)
    import dataclasses

    import msgspec

    snapshot = _observed(node)
    (web,) = snapshot.pods
    snapshot = dataclasses.replace(snapshot, pods=(web, msgspec.structs.replace(web, namespace="other", uid="other")))
    with pytest.raises(ValueError, match=why):
        numa_pages.of_pod(node.host(), snapshot, name, wait=node.sandbox.advance)


def test_a_running_agent_answers_one_question_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Emulated("small", tmp_path)
    node.pod("web", "LS", "1")
    node.sandbox.advance(1.0)
    machine: Any = SimpleNamespace(host=node.host())
    tick = Tick(snapshot=_observed(node))
    page = serving._numa_memory(machine)
    meanwhile = []

    def ask(pod: str, output: str = "text") -> Any:
        return page(Request("/explain/numa-memory", {"pod": pod, "output": output}, ""), tick, None)  # type: ignore[arg-type]

    def wait(_seconds: float) -> None:
        if not meanwhile:
            meanwhile.append(ask("web"))

    monkeypatch.setattr("koordlite.cli.serving.time.sleep", wait)
    answer = ask("ns/web")
    assert answer.status == 200 and answer.body.startswith(b"memory of pod ns/web")
    assert [each.status for each in meanwhile] == [503]
    assert ask("ns/web", "json").body.startswith(b"{")
    assert (ask("db").status, ask("").status) == (404, 400)


@pytest.mark.skipif(not MAPS.exists(), reason="this kernel has no numa_maps")
def test_this_kernel_shows_pages_of_each_kind(tmp_path: Path) -> None:
    """32 MiB of private memory, 16 of a file, 8 without a name."""
    file = tmp_path / "data"
    file.write_bytes(bytes(16 * MiB))
    private = mmap.mmap(-1, 32 * MiB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    nameless = os.memfd_create("koordlite")
    os.ftruncate(nameless, 8 * MiB)
    with file.open("rb") as opened, mmap.mmap(nameless, 8 * MiB) as shared:
        mapped = mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ)
        for at in range(0, 32 * MiB, 4096):
            private[at] = 1
            if at < 8 * MiB:
                shared[at] = 1
            if at < 16 * MiB:
                assert mapped[at] == 0
        read = list(mappings(MAPS.read_bytes()))
        mapped.close()
    private.close()
    os.close(nameless)

    def total(kind: str, ends: bytes = b"") -> int:
        return sum(sum(each.pages.values()) for each in read if each.kind == kind and ends in each.file)

    assert total("private") >= 32 * MiB
    assert total("file", b"/data") == pytest.approx(16 * MiB, rel=0.05)
    assert total("shared", b"memfd:koordlite") == 8 * MiB
    assert total("library") > 0
