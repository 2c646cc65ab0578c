"""A picture of the ways of each cache, who holds them, and what the machine can divide, for a terminal and as JSON."""

from __future__ import annotations

import string
from collections.abc import Iterable, Iterator, Mapping, Sequence

from koordlite.report import paragraph
from koordlite.resctrl import masks
from koordlite.resctrl.values import ROOT, BandwidthCapability, CacheCapability, ControlGroup, Resctrl, Values

_ONLY_ROOT, _NOBODY, _SHARED = "·", "-", "io"
_LABEL, _WIDEST_LABEL = 14, 28
_NAME = 30
JsonObject = dict[str, object]


def text(machine: Resctrl, *, width: int = 80, labels: Mapping[str, str] | None = None) -> str:
    """Capabilities of the machine, its ways with a row for each cache, and a row for each group.

    `labels` are names for people, by group. Caches that are divided the same way share a row.
    """
    if machine.absent:
        return _wrapped("resctrl", machine.absent + _monitoring_only(machine), width)
    lines = [*_machine(machine, width)]
    for name, cap in machine.caches.items():
        lines += ["", *_picture(machine, name, cap, width)]
    lines += ["", *_groups(machine, width, labels or {})]
    return "\n".join(lines) + "\n"


def document(machine: Resctrl) -> JsonObject:
    """The same as plain values; masks as schemata write them, without 0x."""
    caches = {name: _cache_document(machine, name, cap) for name, cap in machine.caches.items()}
    groups = {
        name or "(root)": {
            "schemata": {
                resource: {str(cache): _value(resource, value) for cache, value in values.items()}
                for resource, values in group.schemata.items()
            },
            "threads": None if group.tasks is None else len(group.tasks),
            "mode": group.mode,
        }
        for name, group in machine.groups.items()
    }
    bandwidths = {name: _bandwidth_document(cap) for name, cap in machine.bandwidths.items()}
    return {
        "absent": machine.absent,
        "caches": caches,
        "bandwidths": bandwidths,
        "monitoring": _monitoring_document(machine),
        "mostGroups": machine.max_groups,
        "groups": groups,
    }


# ── what there is ──


def _machine(machine: Resctrl, width: int) -> Iterator[str]:
    for name, cap in machine.caches.items():
        yield _wrapped(name, _cache_words(machine, name, cap), width).rstrip()
    for name, limit in machine.bandwidths.items():
        yield _wrapped(name, _bandwidth_words(limit), width).rstrip()
    monitor = machine.monitor
    if monitor:
        mode = f", counters in mode {monitor.assign_mode}" if monitor.assign_mode else ""
        parts = f"{', '.join(monitor.features) or 'nothing'}; {monitor.num_rmids} ids{mode}"
        yield _wrapped("monitoring", parts, width).rstrip()
    names = f": {', '.join(machine.group_names)}" if machine.group_names else ""
    yield _wrapped("groups", f"{len(machine.group_names)} of {machine.max_groups} made{names}", width).rstrip()


def _cache_words(machine: Resctrl, name: str, cap: CacheCapability) -> str:
    ids = machine.groups[ROOT].schemata.get(name, {})
    shape = "with holes as they come" if cap.sparse_masks else "in one run"
    parts = [f"{cap.ways} ways in cache{'s' * (len(ids) != 1)} {_listed(ids)}"]
    parts.append(f"a mask has at least {max(1, cap.min_cbm_bits)}, {shape}")
    parts.append(f"{cap.num_closids} classes")
    if cap.shareable_bits:
        parts.append(f"ways {masks.format_ways(cap.shareable_bits)} are shared with I/O")
    if cap.io_alloc:
        parts.append("I/O has a part of its own")
    return "; ".join(parts)


def _bandwidth_words(cap: BandwidthCapability) -> str:
    if cap.mbps:
        unit = "MB/s (mba_MBps)"
    elif cap.absolute:
        known = "" if cap.maximum_known else " at least"
        unit = f"eighths of a GB/s, no limit is{known} {cap.maximum}"
    else:
        unit = f"percent in steps of {cap.bandwidth_gran}, at least {cap.min_bandwidth}"
    threads = {"max": "; both threads of a core get the tighter limit", "per-thread": "; each thread has its own limit"}
    return f"{unit}; {cap.num_closids} classes{threads.get(cap.throttle_mode, '')}"


def _monitoring_only(machine: Resctrl) -> str:
    return f"; {machine.monitor.num_rmids} ids for monitoring" if machine.monitor else ""


def _wrapped(head: str, parts: str, width: int) -> str:
    indent = " " * _LABEL
    return paragraph.fill(parts, max(width, 40), first=f"{head:<{_LABEL}}", rest=indent) + "\n"


# ── the ways ──


def _picture(machine: Resctrl, name: str, cap: CacheCapability, width: int) -> Iterator[str]:
    """Highest way first, as masks are written."""
    letters = _letters(machine)
    cells = {
        f"cache{'s' * (len(ids) > 1)} {_listed(ids)}": [
            _cell(machine, name, ids[0], way, letters) for way in _ways(cap)
        ]
        for ids in _alike(machine, name)
    }
    room = min(max(_LABEL, *(len(label) + 1 for label in cells)), _WIDEST_LABEL)
    widest = max([len(str(cap.ways - 1)), *(len(cell) for row in cells.values() for cell in row)])
    if room + cap.ways * (widest + 1) > width:
        # Too narrow for letters side by side: where several hold a way, how many.
        cells = {label: [each if len(each) == 1 else str(len(each)) for each in row] for label, row in cells.items()}
        widest = 1 if room + cap.ways * 3 > width else 2
    yield _row(f"{name} way", [str(way) if widest > 1 else str(way % 10) for way in _ways(cap)], room, widest)
    for label, row in cells.items():
        yield _row(label, row, room, widest)
    if cap.shareable_bits:
        marks = [_SHARED[:widest] if cap.shareable_bits >> way & 1 else "" for way in _ways(cap)]
        yield _row("  I/O too", marks, room, widest)


def _row(label: str, cells: Iterable[str], room: int, widest: int) -> str:
    head = label if len(label) < room else f"{label[: room - 2]}…"
    return f"{head:<{room}}{' '.join(f'{cell:>{widest}}' for cell in cells)}".rstrip()


def _ways(cap: CacheCapability) -> range:
    return range(cap.ways - 1, -1, -1)


def _cell(machine: Resctrl, name: str, cache: int, way: int, letters: Mapping[str, str]) -> str:
    """The letters of the groups that hold a way; the root, which usually holds all, counts only where it is alone."""
    holders = [
        group for group in machine.groups if machine.groups[group].schemata.get(name, {}).get(cache, 0) >> way & 1
    ]
    if not holders:
        return _NOBODY
    return "".join(letters[group] for group in holders if group != ROOT) or _ONLY_ROOT


def _letters(machine: Resctrl) -> dict[str, str]:
    """A letter for each group; beyond the alphabet they share `?`, no hardware has that many."""
    alphabet = string.ascii_uppercase + string.ascii_lowercase
    names = dict(zip(machine.group_names, alphabet, strict=False))
    return {ROOT: _ONLY_ROOT, **dict.fromkeys(machine.group_names, "?"), **names}


def _alike(machine: Resctrl, name: str) -> list[tuple[int, ...]]:
    """Cache ids, grouped by how every group divides them."""
    found: dict[tuple[int, ...], list[int]] = {}
    for cache in sorted(machine.groups[ROOT].schemata.get(name, {})):
        parts = tuple(group.schemata.get(name, {}).get(cache, 0) for group in machine.groups.values())
        found.setdefault(parts, []).append(cache)
    return [tuple(ids) for ids in found.values()]


# ── the groups ──


def _groups(machine: Resctrl, width: int, labels: Mapping[str, str]) -> Iterator[str]:
    letters = _letters(machine)
    table = [("", "group", "threads", "holds")]
    for name, group in machine.groups.items():
        threads = "" if group.tasks is None else str(len(group.tasks))
        label = labels.get(name, name) or "(root)"
        label = label if len(label) <= _NAME else f"{label[: _NAME - 1]}…"
        mode = f" ({group.mode})" if group.mode not in ("", "shareable") else ""
        table.append((letters[name], label + mode, threads, _holds(machine, group)))
    sizes = [max(len(row[column]) for row in table) for column in range(3)]
    for row in table:
        head = f"{row[0]:<{sizes[0]}} {row[1]:<{sizes[1]}}  {row[2]:>{sizes[2]}}  "
        yield paragraph.fill(row[3], max(width, len(head) + 20), first=head, rest=" " * len(head))


def _holds(machine: Resctrl, group: ControlGroup) -> str:
    parts = []
    for name in (*machine.caches, *machine.bandwidths):
        by_value = _by_value(group.schemata.get(name, {}))
        for value, ids in by_value.items():
            where = f" in {_listed(ids)}" if len(by_value) > 1 else ""
            parts.append(f"{name} {_amount(machine, name, value)}{where}")
    return "; ".join([*parts, *group.unknown]) or "nothing that can be read"


def _by_value(values: Values) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for cache, value in sorted(values.items()):
        found.setdefault(value, []).append(cache)
    return found


def _amount(machine: Resctrl, name: str, value: int) -> str:
    if name in machine.caches:
        ways = machine.caches[name].ways
        return f"{masks.format_ways(value)} ({100 * value.bit_count() // max(1, ways)} %)"
    cap = machine.bandwidths[name]
    if value == cap.maximum:
        return "no limit"
    if cap.mbps:
        return f"{value} MB/s"
    return f"{value / 8:g} GB/s" if cap.absolute else f"{value} %"


def _listed(ids: Iterable[int]) -> str:
    """`0-3,8`: ids as ranges."""
    return masks.format_ways(sum(1 << cache for cache in set(ids)))


# ── as values ──


def _value(resource: str, value: int) -> int | str:
    return value if resource in ("MB", "SMBA") else f"{value:x}"


def _cache_document(machine: Resctrl, name: str, cap: CacheCapability) -> JsonObject:
    parts = [group.schemata.get(name, {}) for group_name, group in machine.groups.items() if group_name != ROOT]
    ids = machine.groups[ROOT].schemata.get(name, {}) if machine.groups else {}
    return {
        "heldTwice": {str(cache): f"{masks.overlap(part.get(cache, 0) for part in parts):x}" for cache in ids},
        "ways": cap.ways,
        "minCBMBits": cap.min_cbm_bits,
        "shareableBits": f"{cap.shareable_bits:x}",
        "sparseMasks": cap.sparse_masks,
        "classes": cap.num_closids,
        "ioAlloc": cap.io_alloc,
    }


def _bandwidth_document(cap: BandwidthCapability) -> JsonObject:
    return {
        "unit": "MBps" if cap.mbps else "eighthsOfGBps" if cap.absolute else "percent",
        "minimum": cap.min_bandwidth,
        "step": cap.bandwidth_gran,
        "maximum": cap.maximum,
        "maximumKnown": cap.maximum_known,
        "classes": cap.num_closids,
        "throttleMode": cap.throttle_mode,
    }


def _monitoring_document(machine: Resctrl) -> JsonObject | None:
    monitor = machine.monitor
    if monitor is None:
        return None
    features: Sequence[str] = monitor.features
    return {"ids": monitor.num_rmids, "features": list(features), "assignMode": monitor.assign_mode}
