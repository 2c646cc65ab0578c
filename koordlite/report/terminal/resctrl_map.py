"""A picture of the ways of each cache, who holds them, and what the machine can divide, for a terminal and as JSON."""

from __future__ import annotations

import string
from collections.abc import Iterable, Iterator, Mapping

from koordlite.report import paragraph
from koordlite.resctrl import masks
from koordlite.resctrl.values import ROOT, BandwidthCapability, CacheCapability, Resctrl

_ONLY_ROOT, _NOBODY, _SHARED = "·", "-", "io"
_LABEL, _WIDEST_LABEL = 14, 28
_NAME = 30
_THREADS = {"max": "; both threads of a core get the tighter limit", "per-thread": "; each thread has its own limit"}


def text(machine: Resctrl, *, width: int = 80, labels: Mapping[str, str] | None = None) -> str:
    """Capabilities of the machine, its ways with a row for each cache, and a row for each group.

    `labels` are names for people, by group. Caches that are divided the same way share a row.
    """
    monitor, alphabet = machine.monitor, string.ascii_uppercase + string.ascii_lowercase
    if machine.absent:
        ids = f"; {monitor.num_rmids} ids for monitoring" if monitor else ""
        return _wrapped("resctrl", machine.absent + ids, width) + "\n"
    lines = [_wrapped(name, _cache_words(machine, name, cap), width) for name, cap in machine.caches.items()]
    lines += (_wrapped(name, _bandwidth_words(cap), width) for name, cap in machine.bandwidths.items())
    if monitor:
        mode = f", counters in mode {monitor.assign_mode}" if monitor.assign_mode else ""
        parts = f"{', '.join(monitor.features) or 'nothing'}; {monitor.num_rmids} ids{mode}"
        lines.append(_wrapped("monitoring", parts, width))
    groups = f": {', '.join(machine.group_names)}" if machine.group_names else ""
    lines.append(_wrapped("groups", f"{len(machine.group_names)} of {machine.max_groups} made{groups}", width))
    # A letter for each group; beyond the alphabet they share `?`, no hardware has that many.
    own = dict(zip(machine.group_names, alphabet, strict=False))
    letters = {ROOT: _ONLY_ROOT, **dict.fromkeys(machine.group_names, "?"), **own}
    for name, cap in machine.caches.items():
        lines += ["", *_picture(machine, name, cap, letters, width)]
    lines += ["", *_groups(machine, letters, labels or {}, width)]
    return "\n".join(lines) + "\n"


def _wrapped(head: str, parts: str, width: int) -> str:
    return paragraph.fill(parts, max(width, 40), first=f"{head:<{_LABEL}}", hanging=" " * _LABEL).rstrip()


def _cache_words(machine: Resctrl, name: str, cap: CacheCapability) -> str:
    ids = machine.groups[ROOT].schemata.get(name, {})
    shape = "with holes as they come" if cap.sparse_masks else "in one run"
    parts = [
        f"{cap.ways} ways in cache{'s' * (len(ids) != 1)} {_ranges(ids)}",
        f"a mask has at least {max(1, cap.min_cbm_bits)}, {shape}",
        f"{cap.num_closids} classes",
        f"ways {masks.format_ways(cap.shareable_bits)} are shared with I/O" if cap.shareable_bits else "",
        "I/O has a part of its own" if cap.io_alloc else "",
    ]
    return "; ".join(filter(None, parts))


def _bandwidth_words(cap: BandwidthCapability) -> str:
    if cap.mbps:
        unit = "MB/s (mba_MBps)"
    elif cap.absolute:
        unit = f"eighths of a GB/s, no limit is{'' if cap.maximum_known else ' at least'} {cap.maximum}"
    else:
        unit = f"percent in steps of {cap.bandwidth_gran}, at least {cap.min_bandwidth}"
    return f"{unit}; {cap.num_closids} classes{_THREADS.get(cap.throttle_mode, '')}"


def _picture(
    machine: Resctrl, name: str, cap: CacheCapability, letters: Mapping[str, str], width: int
) -> Iterator[str]:
    """Highest way first, as masks are written; a row for the caches that every group divides alike. A cell has the
    letters of the groups that hold a way; the root, which usually holds all, counts only where it is alone."""
    ways = range(cap.ways - 1, -1, -1)
    alike: dict[tuple[int, ...], list[int]] = {}
    for cache in sorted(machine.groups[ROOT].schemata.get(name, {})):
        parts = tuple(group.schemata.get(name, {}).get(cache, 0) for group in machine.groups.values())
        alike.setdefault(parts, []).append(cache)
    cells = {}
    for parts, ids in alike.items():
        row = []
        for way in ways:
            holders = [group for group, mask in zip(machine.groups, parts, strict=True) if mask >> way & 1]
            own = "".join(letters[group] for group in holders if group != ROOT)
            row.append(own or (_ONLY_ROOT if holders else _NOBODY))
        cells[f"cache{'s' * (len(ids) > 1)} {_ranges(ids)}"] = row
    room = min(max(_LABEL, *(len(label) + 1 for label in cells)), _WIDEST_LABEL)
    widest = max([len(str(cap.ways - 1)), *(len(cell) for row in cells.values() for cell in row)])
    if room + cap.ways * (widest + 1) > width:
        # Too narrow for letters side by side: where several hold a way, how many.
        cells = {label: [each if len(each) == 1 else str(len(each)) for each in row] for label, row in cells.items()}
        widest = 1 if room + cap.ways * 3 > width else 2
    rows = [(f"{name} way", [str(way) if widest > 1 else str(way % 10) for way in ways]), *cells.items()]
    if cap.shareable_bits:
        rows.append(("  I/O too", [_SHARED[:widest] if cap.shareable_bits >> way & 1 else "" for way in ways]))
    for label, row in rows:
        head = label if len(label) < room else f"{label[: room - 2]}…"
        yield f"{head:<{room}}{' '.join(f'{cell:>{widest}}' for cell in row)}".rstrip()


def _groups(machine: Resctrl, letters: Mapping[str, str], labels: Mapping[str, str], width: int) -> Iterator[str]:
    table = [("", "group", "threads", "holds")]
    for name, group in machine.groups.items():
        label = labels.get(name, name) or "(root)"
        label = label if len(label) <= _NAME else f"{label[: _NAME - 1]}…"
        mode = f" ({group.mode})" if group.mode not in ("", "shareable") else ""
        parts = []
        for resource in (*machine.caches, *machine.bandwidths):
            caches: dict[int, list[int]] = {}
            for cache, value in sorted(group.schemata.get(resource, {}).items()):
                caches.setdefault(value, []).append(cache)
            for value, ids in caches.items():
                where = f" in {_ranges(ids)}" if len(caches) > 1 else ""
                parts.append(f"{resource} {_amount(machine, resource, value)}{where}")
        holds = "; ".join([*parts, *group.unknown]) or "nothing that can be read"
        table.append((letters[name], label + mode, "" if group.tasks is None else str(len(group.tasks)), holds))
    sizes = [max(len(row[column]) for row in table) for column in range(3)]
    for letter, label, threads, holds in table:
        head = f"{letter:<{sizes[0]}} {label:<{sizes[1]}}  {threads:>{sizes[2]}}  "
        yield paragraph.fill(holds, max(width, len(head) + 20), first=head, hanging=" " * len(head))


def _amount(machine: Resctrl, name: str, value: int) -> str:
    if name in machine.caches:
        return f"{masks.format_ways(value)} ({100 * value.bit_count() // max(1, machine.caches[name].ways)} %)"
    cap = machine.bandwidths[name]
    if value == cap.maximum:
        return "no limit"
    if cap.mbps:
        return f"{value} MB/s"
    return f"{value / 8:g} GB/s" if cap.absolute else f"{value} %"


def _ranges(ids: Iterable[int]) -> str:
    """`0-3,8`: ids as ranges."""
    return masks.format_ways(sum(1 << cache for cache in set(ids)))


def document(machine: Resctrl) -> dict[str, object]:
    """The same as plain values; masks as schemata write them, without 0x."""
    ids = machine.groups[ROOT].schemata if machine.groups else {}
    own_groups = [group.schemata for name, group in machine.groups.items() if name != ROOT]
    monitor = machine.monitor
    return {
        "absent": machine.absent,
        "caches": {
            name: {
                "heldTwice": {
                    str(cache): f"{masks.overlap(parts.get(name, {}).get(cache, 0) for parts in own_groups):x}"
                    for cache in ids.get(name, {})
                },
                "ways": cap.ways,
                "minCBMBits": cap.min_cbm_bits,
                "shareableBits": f"{cap.shareable_bits:x}",
                "sparseMasks": cap.sparse_masks,
                "classes": cap.num_closids,
                "ioAlloc": cap.io_alloc,
            }
            for name, cap in machine.caches.items()
        },
        "bandwidths": {
            name: {
                "unit": "MBps" if limit.mbps else "eighthsOfGBps" if limit.absolute else "percent",
                "minimum": limit.min_bandwidth,
                "step": limit.bandwidth_gran,
                "maximum": limit.maximum,
                "maximumKnown": limit.maximum_known,
                "classes": limit.num_closids,
                "throttleMode": limit.throttle_mode,
            }
            for name, limit in machine.bandwidths.items()
        },
        "monitoring": monitor
        and {"ids": monitor.num_rmids, "features": list(monitor.features), "assignMode": monitor.assign_mode},
        "mostGroups": machine.max_groups,
        "groups": {
            name or "(root)": {
                "schemata": {
                    resource: {
                        str(cache): value if resource in ("MB", "SMBA") else f"{value:x}"
                        for cache, value in values.items()
                    }
                    for resource, values in group.schemata.items()
                },
                "threads": None if group.tasks is None else len(group.tasks),
                "mode": group.mode,
            }
            for name, group in machine.groups.items()
        },
    }
