"""Pages of a pod's processes by NUMA node and kind, and the NUMA nodes its threads run on. Never in a tick.

Source: Linux, `Documentation/filesystems/proc.rst` (numa_maps, stat, schedstat) and `fs/proc/task_mmu.c`.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Callable, Collection, Iterator, Mapping

import msgspec

from koordlite.host import procfs
from koordlite.host.bundle import Host
from koordlite.host.cgroups.filesystem import vanished
from koordlite.host.files import readable
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.picture.numa_memory import ContainerMemory, PageKind, PodMemory
from koordlite.model.snapshot import Snapshot, pod_called
from koordlite.model.topology import Topology
from koordlite.observe import numa

MOST_PROCESSES = 64
MOST_BYTES = 20 << 20
"""Maximum length of the text of numa_maps read of one container: a process with many small mappings has megabytes."""
MOST_SECONDS = 1.0
"""Maximum time in seconds to read one container."""
MOST_THREADS = 256
SAMPLES, SAMPLE_SECONDS = 10, 0.1
_NODE = re.compile(rb"N\d{1,4}", re.ASCII)
_LIBRARY = re.compile(rb"\.so(\.[\w.]+)?\Z", re.ASCII)
_LOCKED = re.compile(rb"^VmLck:\s+(\d{1,12}) kB", re.ASCII | re.MULTILINE)
_SHARED = (b"/dev/shm/", b"/SYSV", b"/memfd:", b"/dev/zero")
"""Beginnings of paths that are no files of a disk: POSIX and System V shared memory, memfd, shared anonymous."""


class PageMapping(msgspec.Struct, frozen=True):
    """A mapping of a process."""

    kind: PageKind
    file: bytes
    """Empty for memory without one."""
    is_mapped_by_others: bool
    pages: Mapping[int, int]
    """Bytes by NUMA node."""


def mappings(raw: bytes) -> Iterator[PageMapping]:
    """The mappings of `numa_maps` that have pages; lines of any other form are passed over."""
    for line in raw.splitlines():
        # A space in the name of a file is escaped, so that the name is one word whatever it is.
        words = dict(word.partition(b"=")[::2] for word in line.split()[2:])
        try:
            size = procfs.number(words[b"kernelpagesize_kB"]) * 1024
            pages = {int(word[1:]): procfs.number(n) * size for word, n in words.items() if _NODE.fullmatch(word)}
            is_mapped_by_others = procfs.number(words.get(b"mapmax", b"1")) > 1
        except (KeyError, ValueError):
            continue
        if pages:
            path = words.get(b"file", b"")
            yield PageMapping(_kind(words, path), path, is_mapped_by_others, pages)


def _kind(words: Collection[bytes], path: bytes) -> PageKind:
    if b"huge" in words:
        return "huge"
    if not path:
        return "private"
    if path.startswith(_SHARED):
        return "shared"
    return "library" if _LIBRARY.search(path) else "file"


def of_pod(host: Host, snapshot: Snapshot, name: str, *, wait: Callable[[float], object]) -> PodMemory:
    """The memory of the pod `name`, NAMESPACE/NAME or NAME; it takes a second, by `wait`. ValueError when there is not
    exactly one such pod, or it has no containers on this node."""
    pod = pod_called(snapshot, name)
    place = snapshot.places.get(pod.uid)
    if place is None or not place.containers:
        raise ValueError(f"pod {pod.key} has no container on this node")
    groups = place.containers
    ran = _ran(host, groups, snapshot.topology, wait)
    nodes = snapshot.topology.nodes
    used = {node.id: numa.memory_used(host.files, node) for node in nodes}
    return PodMemory(
        pod=pod.key,
        seconds=SAMPLES * SAMPLE_SECONDS,
        containers=tuple(_container(host, container, group, ran[group]) for container, group in groups.items()),
        available={n.id: max(0, n.memory - each) for n in nodes if (each := used[n.id]) is not None},
        cpus={node.id: CPUSet(node.cpus) for node in nodes},
    )


def _container(host: Host, container: str, group: str, ran: Mapping[int, float]) -> ContainerMemory:
    pids, unread = _pids(host, group)
    end = host.clock.monotonic() + MOST_SECONDS
    pages: dict[PageKind, collections.Counter[int]] = {}
    many: collections.Counter[int] = collections.Counter()
    files: dict[tuple[PageKind, bytes], collections.Counter[int]] = {}
    budget, processes, locked = MOST_BYTES, 0, 0
    for pid in pids:
        if processes == MOST_PROCESSES or budget <= 0 or host.clock.monotonic() > end:
            unread = f"{len(pids) - processes} of {len(pids)} processes were left out: reading them would take too long"
            break
        try:
            raw = host.files.read(f"/proc/{pid}/numa_maps")
            status = _LOCKED.search(host.files.read(f"/proc/{pid}/status"))
        except OSError as error:
            if not vanished(error):
                unread = f"process {pid}: {error.strerror or error}; the kernel shows other users' memory to root only"
            continue
        processes, budget = processes + 1, budget - len(raw)
        locked += int(status[1]) * 1024 if status else 0
        own: dict[tuple[PageKind, bytes], collections.Counter[int]] = {}
        for each in mappings(raw):
            if each.file and each.is_mapped_by_others:
                own.setdefault((each.kind, each.file), collections.Counter()).update(each.pages)
            else:
                pages.setdefault(each.kind, collections.Counter()).update(each.pages)
                many.update(each.pages if each.is_mapped_by_others else {})
        for file, amounts in own.items():
            # Processes of one container map the same pages of a file: they count as often as the one with most has.
            files[file] = files.get(file, collections.Counter()) | amounts
    for (kind, _), amounts in files.items():
        pages.setdefault(kind, collections.Counter()).update(amounts)
        many.update(amounts)
    state = readable(host.cgroups.state, group)
    return ContainerMemory(
        container=container,
        processes=processes,
        pages={kind: dict(sorted(amounts.items())) for kind, amounts in pages.items()},
        mapped_by_others=dict(sorted(many.items())),
        locked=locked,
        ran=ran,
        counted=numa.of_group(host.cgroups, group) or {},
        cpus=(state and state.effective) or EMPTY,
        mems=numa.allowed_nodes(host.cgroups, group),
        unread=unread,
    )


def _pids(host: Host, group: str) -> tuple[tuple[int, ...], str]:
    try:
        return host.cgroups.procs(group), ""
    except OSError as error:
        return (), error.strerror or str(error)


def _ran(
    host: Host, groups: Mapping[str, str], topology: Topology, wait: Callable[[float], object]
) -> dict[str, dict[int, float]]:
    """Part of the CPU time of each group's threads by NUMA node: where a thread is seen, it has run since the look
    before."""
    node_of = {cpu.id: cpu.node for cpu in topology.cpus}
    threads = {g: (readable(host.cgroups.threads, g) or ())[:MOST_THREADS] for g in groups.values()}
    before = {tid: _run_ns(host, tid) for tids in threads.values() for tid in tids}
    used: dict[str, collections.Counter[int]] = {group: collections.Counter() for group in threads}
    for _ in range(SAMPLES):
        wait(SAMPLE_SECONDS)
        for group, tids in threads.items():
            for tid in tids:
                now, then = _run_ns(host, tid), before[tid]
                if now is not None and then is not None and now > then:
                    cpu = readable(procfs.last_cpu, host.files, tid)
                    if cpu is not None and (node := node_of.get(cpu)) is not None:
                        used[group][node] += now - then
                    before[tid] = now
    return {
        group: {node: amount / counter.total() for node, amount in sorted(counter.items())}
        for group, counter in used.items()
    }


def _run_ns(host: Host, tid: int) -> int | None:
    delay = readable(procfs.run_delay, host.files, tid)
    return delay[0] if delay else None
