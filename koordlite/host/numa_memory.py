"""Memory in use per NUMA node, of the machine and of a group; ids may have gaps."""

from __future__ import annotations

import re
from collections.abc import Sequence

from koordlite.host import kernel_number

_ROW = re.compile(rb"^(\w+)(?:=\d+)?((?: \S+)*)$", re.ASCII)
_AMOUNT = re.compile(rb"N(\d+)=(\d+)", re.ASCII)
_KIB = 1024
_RECLAIMABLE = ("MemFree", "Active(file)", "Inactive(file)", "SReclaimable")


def of_group(raw: bytes, *, version: int, page_bytes: int, below: bool = False) -> dict[int, int]:
    """NUMA node → bytes of `memory.numa_stat`, page cache included; ValueError when it has another form.

    v1 counts pages in its row `total`, without the groups below; with `below` in `hierarchical_total`. v2 counts bytes,
    always with the groups below: the rows `anon` and `file` together. Source: Linux
    "Memory Resource Controller" and "Control Group v2"; Koordinator `ReadMemoryNumaStat` takes 4096 bytes for a page
    of v2 whatever the machine's page is, and refuses ids with gaps.
    """
    if version == 1:
        row = _row(raw, b"hierarchical_total" if below else b"total")
        return {node: pages * page_bytes for node, pages in row.items()}
    anonymous, cached = _row(raw, b"anon"), _row(raw, b"file")
    return {node: anonymous.get(node, 0) + cached.get(node, 0) for node in sorted(anonymous.keys() | cached.keys())}


def of_node(raw: bytes) -> int:
    """Bytes in use on one NUMA node: max(MemTotal − MemFree − page cache − SReclaimable, 0) of its `meminfo`.

    ValueError when a line is missing. Source: Koordinator's node resource collector.
    """
    total, *free = (_line(raw, name) for name in ("MemTotal", *_RECLAIMABLE))
    return max(total - sum(free), 0) * _KIB


def _row(raw: bytes, name: bytes) -> dict[int, int]:
    rows = (match for line in raw.splitlines() if (match := _ROW.fullmatch(line)))
    found = next((match[2].split() for match in rows if match[1] == name), None)
    if not found:
        raise ValueError(f"no row {name.decode()} in {raw[:80]!r}")
    return _amounts(found)


def _amounts(words: Sequence[bytes]) -> dict[int, int]:
    matches = [_AMOUNT.fullmatch(word) for word in words]
    if None in matches:
        raise ValueError(f"{b' '.join(words)[:80]!r} is no list of amounts like N0=1 N1=2")
    return {int(match[1]): kernel_number.parse(match[2]) for match in matches if match}


def _line(raw: bytes, name: str) -> int:
    match = re.search(rb"\b" + re.escape(name).encode() + rb":\s+(\d+) kB", raw)
    if not match:
        raise ValueError(f"no line {name} in kB in {raw[:80]!r}")
    return kernel_number.parse(match[1])
