"""`koordlite explain numa NAMESPACE/POD --memory`: where a pod's pages lie, why some are remote, what a move costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from koordlite.model.picture.numa_memory import KINDS, ContainerMemory, PodMemory
from koordlite.report import units
from koordlite.report.explain.pieces import Answer

COPIED_PER_SECOND = 10**9
"""Bytes that migrate_pages(2) copies a second, page by page of 4 KiB: assumed, and not measured on this machine."""
_MOST = 0.9
"""Part of the CPU time from which on threads count as running on one NUMA node."""


class Remote(msgspec.Struct, frozen=True, kw_only=True):
    """Pages of a container that lie away from its CPUs."""

    home: tuple[int, ...]
    """NUMA nodes of the CPUs it may use; where those are of all nodes, the one that its threads ran on."""
    pages: Mapping[int, int]
    """Bytes by NUMA node."""
    movable: int
    """Bytes that a plain migrate_pages(2) moves."""
    seconds: float
    """Estimate of how long that takes."""


def answer(memory: PodMemory) -> Answer:
    """The pages of each container, those that are remote, and why; as values in bytes, with NUMA nodes as keys."""
    lines, documents = [f"memory of pod {memory.pod}, by the pages of its processes"], []
    for container in memory.containers:
        away = remote(memory, container)
        why = list(_why(container, away))
        lines += [f"  {line}" for line in (*_pages(memory, container), *_away(memory, container, away, why))]
        document = msgspec.to_builtins(container, str_keys=True, enc_hook=str)
        unread = document.pop("unread")
        about_remote = {
            "home": list(away.home),
            "remote": _keyed(away.pages),
            "movable": away.movable,
            "moveSeconds": away.seconds,
            "why": why,
        }
        documents.append({**document, **about_remote, "unread": unread})
    head = {"version": 1, "kind": "koordlite-numa-memory", "pod": memory.pod, "seconds": memory.seconds}
    return Answer(lines, {**head, "available": _keyed(memory.available), "containers": documents})


def _keyed(amounts: Mapping[int, float]) -> dict[str, float]:
    return {str(node): amount for node, amount in amounts.items()}


def remote(memory: PodMemory, container: ContainerMemory) -> Remote:
    """Memory away from the container's home; nothing where it has none."""
    near = tuple(node for node, cpus in memory.cpus.items() if cpus & container.cpus)
    if len(near) == len(memory.cpus) and len(near) > 1:
        near = tuple(node for node, part in container.ran.items() if part >= _MOST)
    totals: dict[int, int] = {}
    huge = container.pages.get("huge", {})
    for amounts in container.pages.values():
        for node, amount in amounts.items():
            totals[node] = totals.get(node, 0) + amount
    away = {node: amount for node, amount in sorted(totals.items()) if near and node not in near and amount}
    movable = sum(
        max(0, amount - container.mapped_by_others.get(node, 0) - huge.get(node, 0)) for node, amount in away.items()
    )
    return Remote(home=near, pages=away, movable=movable, seconds=movable / COPIED_PER_SECOND)


def _pages(memory: PodMemory, container: ContainerMemory) -> Iterator[str]:
    """A table of the pages by kind and NUMA node, and where the threads ran."""
    nodes = sorted({*memory.cpus, *(node for amounts in container.pages.values() for node in amounts)})
    cpus = f"may use CPUs {container.cpus or '?'} and memory of NUMA {container.mems or '?'}"
    count = "1 process" if container.processes == 1 else f"{container.processes} processes"
    yield f"container {container.container}: {count}; it {cpus}"
    yield "  " + "".join([f"{'':18}", *(f"{f'NUMA {node}':>12}" for node in nodes)])
    rows = {KINDS[kind]: amounts for kind, amounts in container.pages.items()}
    if container.counted:
        rows["kernel's own sum"] = container.counted
    for name, amounts in rows.items():
        yield "  " + "".join([f"{name:18}", *(f"{units.size(amounts.get(node, 0)):>12}" for node in nodes)])
    if container.unread:
        yield f"  ! not all of it was read: {container.unread}"
    if container.ran:
        parts = ", ".join(f"{part:.0%} on NUMA {node}" for node, part in container.ran.items())
        yield f"  its threads ran {parts}, in {memory.seconds:g} s"
    else:
        yield f"  its threads used no CPU time in {memory.seconds:g} s"


def _away(memory: PodMemory, container: ContainerMemory, away: Remote, why: Sequence[str]) -> Iterator[str]:
    if not away.home:
        yield "  it has no home: its CPUs and its threads are on several NUMA nodes, so no page is remote"
        return
    home = ", ".join(map(str, away.home))
    if not away.pages:
        yield f"  no page lies away from NUMA {home}"
        return
    total = sum(sum(amounts.values()) for amounts in container.pages.values())
    apart = sum(away.pages.values())
    where = ", ".join(f"{units.size(amount)} on NUMA {node}" for node, amount in away.pages.items())
    yield f"  ! remote: {units.size(apart)} ({apart / total:.0%}) lie away from NUMA {home}: {where}"
    yield from (f"    why: {sentence}" for sentence in why)
    if not away.movable:
        yield "    none of it can be moved: it is mapped by other processes too, or in huge pages"
        return
    room = memory.available.get(away.home[0])
    has = "" if room is None else f"; NUMA {away.home[0]} has {units.size(room)} available"
    short = ", too little" if room is not None and room < away.movable else ""
    copy = f"{units.size(away.movable)} in about {away.seconds:.1f} s (assumed: 1 GB/s){has}{short}"
    yield f"    a move would copy {copy}; the container's threads wait while their pages are copied"
    sources = ",".join(map(str, away.pages))
    yield f"    nothing is moved here; for each process: migratepages PID {sources} {away.home[0]}"


def _why(container: ContainerMemory, away: Remote) -> Iterator[str]:
    """Causes, as far as what stands now tells them."""
    if not away.pages:
        return
    home, mems = ", ".join(map(str, away.home)), container.mems
    forbidden = [str(node) for node in away.pages if mems and node not in mems]
    allowed = [str(node) for node in away.pages if node in mems]
    if forbidden:
        yield (
            f"its memory is confined to NUMA {mems} now, and pages on NUMA {', '.join(forbidden)} are from before: the "
            "kernel moves them only where cpuset.memory_migrate is on, or on v2 when cpuset.mems is written"
        )
    if allowed:
        yield (
            f"it may take memory of NUMA {', '.join(allowed)} as well: a page lies where the thread ran that touched "
            f"it first, maybe before its CPUs were those of NUMA {home}, or there was no room on NUMA {home}"
        )
    elsewhere = {node: part for node, part in container.ran.items() if node not in away.home}
    if elsewhere:
        parts = ", ".join(f"{part:.0%} on NUMA {node}" for node, part in elsewhere.items())
        yield f"its threads ran {parts}, so pages are touched first there"
    files = sum(container.pages.get(kind, {}).get(node, 0) for kind in ("library", "file") for node in away.pages)
    if files * 2 > sum(away.pages.values()):
        yield "most of it are pages of files, which lie where the process ran that read them first, maybe another pod's"
