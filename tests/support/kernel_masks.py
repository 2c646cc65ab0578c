"""CPU masks as the kernel reads and prints them."""

from __future__ import annotations

import errno
import re

from koordlite.lab.machine.tree import refusal
from koordlite.model.cpuset import CPUSet


def cpu_mask(text: str, size: int) -> CPUSet:
    """A CPU mask as bitmap_parse reads it: EINVAL for nonsense, EOVERFLOW for bits ≥ `size`."""
    groups = [group for group in re.split(r"[,\s]+", text.split("\n", maxsplit=1)[0]) if group]
    mask = 0
    for place, group in enumerate(reversed(groups)):
        if place >= (size + 31) // 32:
            raise refusal(errno.EOVERFLOW)
        mask |= _word(group) << 32 * place
    if mask >> size:
        raise refusal(errno.EOVERFLOW)
    return CPUSet(cpu for cpu in range(size) if mask >> cpu & 1)


def _word(digits: str) -> int:
    """One group of 32 bits, read from its end."""
    if not re.fullmatch(r"[0-9a-fA-F]+", digits[-8:]):
        raise refusal(errno.EINVAL)
    if len(digits) > 8:
        raise refusal(errno.EOVERFLOW if re.fullmatch(r"[0-9a-fA-F]", digits[-9]) else errno.EINVAL)
    return int(digits, 16)


def hex_mask(ids: CPUSet, size: int) -> str:
    """A CPU mask as the kernel prints it: groups of 32 bits, as wide as `size` CPUs."""
    mask = sum(1 << cpu for cpu in ids)
    width = (size + 3) // 4
    digits = f"{mask:0{width}x}"
    head = len(digits) % 8
    groups = [digits[:head]] if head else []
    return ",".join(groups + [digits[at : at + 8] for at in range(head, len(digits), 8)])
