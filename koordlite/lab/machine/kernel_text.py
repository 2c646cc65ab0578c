"""The kernel's parser of numbers and CPU lists that user space writes, with its errno for what it refuses."""

from __future__ import annotations

import errno
import re

from koordlite.lab.machine.tree import refusal
from koordlite.model.cpuset import CPUSet

_REGION = re.compile(r"(\d+|N)(?:-(\d+|N)(?::(\d+)/(\d+))?)?\Z", re.ASCII)
_INTEGER = re.compile(r"([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)\Z", re.ASCII)


def cpu_list(text: str, size: int) -> CPUSet:
    """A CPU list as bitmap_parselist reads it: EINVAL for nonsense, ERANGE for an id ≥ `size` (nr_cpu_ids)."""
    ids: set[int] = set()
    for region in re.split(r"[,\s]+", text.split("\n", maxsplit=1)[0]):
        if region:
            ids.update(_region(region, size))
    return CPUSet(ids)


def _region(text: str, size: int) -> range | list[int]:
    match = _REGION.match(text.replace("all", "0-N"))
    if not match:
        raise refusal(errno.EINVAL)
    first, last = (size - 1 if each == "N" else int(each) for each in (match[1], match[2] or match[1]))
    used, group = int(match[3] or 1), int(match[4] or 1)
    if first > last or used > group or group == 0:
        raise refusal(errno.EINVAL)
    if last >= size:
        raise refusal(errno.ERANGE)
    return [cpu for cpu in range(first, last + 1) if (cpu - first) % group < used]


def integer(data: bytes, *, low: int = -(2**63), high: int = 2**63 - 1, outside: int = errno.ERANGE) -> int:
    """A number as kstrtoll reads it (base by prefix, blanks around it): EINVAL for nonsense, `outside` out of range."""
    match = _INTEGER.match(data.decode("latin-1").strip())
    if not match:
        raise refusal(errno.EINVAL)
    digits = match[2].lower()
    base = 16 if digits.startswith("0x") else 8 if digits.startswith("0") else 10
    value = int(digits, base) * (-1 if match[1] == "-" else 1)
    if not low <= value <= high:
        raise refusal(outside)
    return value
