"""Disk limits of cgroups, by the names we use, wherever v1 and v2 keep it; each file has a line for each disk.

`io.max` of v2 is four files on v1; weight and cost are a v1 interface on Anolis kernels only. Rules: the kernel's
cgroup-v2 document, "IO Interface Files"; Koordinator's file map.
"""

from __future__ import annotations

from koordlite.formulas import blkio
from koordlite.host.cgroups.filesystem import Cgroups, vanished
from koordlite.model.file_names import BLOCK_COSTS, BLOCK_LIMITS
from koordlite.model.picture.blocks import BlockField
from koordlite.ports import Files


def path(cgroups: Cgroups, group: str, field: BlockField) -> str:
    """The file of a field."""
    name = BLOCK_LIMITS[field][0] if field in BLOCK_LIMITS else BLOCK_COSTS[field]
    if cgroups.layout.version == 2:
        name = "io.max" if field in BLOCK_LIMITS else field
    return f"{cgroups.folder(group, 'blkio')}/{name}"


def read(files: Files, cgroups: Cgroups, group: str, field: BlockField) -> dict[str, str] | None:
    """The value for each disk that has one; None where this kernel has no such file, or the group is gone."""
    try:
        text = files.read(path(cgroups, group, field)).decode()
    except OSError as error:
        if vanished(error):
            return None
        raise
    lines = (line.partition(" ") for line in text.splitlines())
    # v2 has a line `default 100` among the weights.
    return {device: _value(cgroups, field, rest) for device, _, rest in lines if ":" in device}


def write(files: Files, cgroups: Cgroups, group: str, field: BlockField, line: tuple[str, str]) -> None:
    """Write the (disk, value) `line`."""
    device, value = line
    files.write(path(cgroups, group, field), f"{device} {_written(cgroups, field, value)}".encode())


def _value(cgroups: Cgroups, field: BlockField, rest: str) -> str:
    if field in BLOCK_LIMITS and cgroups.layout.version == 2:
        words = dict(word.partition("=")[::2] for word in rest.split())
        return words.get(BLOCK_LIMITS[field][1], blkio.UNLIMITED)
    if field in BLOCK_LIMITS or field == "io.weight":
        return rest.strip()
    terms = rest.split()
    # The numbers of a disk that the kernel rates itself are its own: to write them would make them ours.
    return " ".join(term for term in terms if "ctrl=auto" not in terms or term.startswith(("ctrl=", "enable=")))


def _written(cgroups: Cgroups, field: BlockField, value: str) -> str:
    if cgroups.layout.version == 2:
        return f"{BLOCK_LIMITS[field][1]}={value}" if field in BLOCK_LIMITS else value
    if field == "io.weight" and value == blkio.DEFAULT_WEIGHT:
        return str(blkio.NEUTRAL_WEIGHT)
    return "0" if value == blkio.UNLIMITED else value
