"""Memory files of groups: protection, throttling and events of v2, and the extensions of the Anolis kernel.

Rules: the Linux cgroup v2 document, "Memory Interface Files"; for the extensions the ranges that Koordinator's file map
states, since no kernel that has them could be tried.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping

from koordlite.lab.cgroups import rules
from koordlite.lab.cgroups.rules import Attribute, AttributeTable
from koordlite.lab.cgroups.trees import UNLIMITED, Group
from koordlite.lab.machine import kernel_text
from koordlite.lab.machine.tree import refusal

EVENTS = ("low", "high", "max", "oom", "oom_kill")

_EXTENSIONS: Mapping[str, tuple[int, int, int]] = {
    "memory.wmark_ratio": (0, 100, 0),
    "memory.wmark_scale_factor": (1, 1000, 50),
    "memory.wmark_min_adj": (-25, 50, 0),
    "memory.priority": (0, 12, 0),
    "memory.use_priority_oom": (0, 1, 0),
}
"""File → least, greatest and first value."""

_PAGE_CACHE: Mapping[str, tuple[int, int, int]] = {
    "memory.pagecache_limit.enable": (0, 1, 0),
    "memory.pagecache_limit.size": (0, 2**63 - 1, 0),
    "memory.pagecache_limit.sync": (0, 1, 0),
}


def protection() -> AttributeTable:
    """memory.min, low, high and oom.group with their events, on v2 and on v1 with the extensions."""
    return {
        "memory.min": _amount_file("memory_min"),
        "memory.low": _amount_file("memory_low"),
        "memory.high": _amount_file("memory_high"),
        "memory.oom.group": Attribute(lambda group: f"{group.oom_group}\n", _set_oom_group, root=False),
        "memory.events": Attribute(_events, root=False),
    }


def maximum(*, swap: bool) -> AttributeTable:
    """memory.max, and memory.swap.max of a kernel with swap."""
    return {"memory.max": _amount_file("memory_limit")} | (
        {"memory.swap.max": _amount_file("swap_max")} if swap else {}
    )


def extensions(version: int) -> AttributeTable:
    """Files that the Anolis kernel adds."""
    known = _EXTENSIONS if version == 1 else {**_EXTENSIONS, **_PAGE_CACHE}
    return {name: setting(name, *bounds) for name, bounds in known.items()}


def setting(name: str, low: int, high: int, first: int) -> Attribute:
    """A number that is kept and changes nothing here."""

    def write(group: Group, data: bytes) -> None:
        group.settings[name] = kernel_text.integer(data, low=low, high=high, outside=errno.EINVAL)

    return Attribute(lambda group: f"{group.settings.get(name, first)}\n", write, root=False)


def shown(value: int) -> str:
    """Bytes as v2 prints them."""
    return "max\n" if value == UNLIMITED else f"{value}\n"


def _amount_file(field: str) -> Attribute:
    def write(group: Group, data: bytes) -> None:
        setattr(group, field, amount(data))

    return Attribute(lambda group: shown(getattr(group, field)), write, root=False)


def amount(data: bytes) -> int:
    """A memory amount of v2: as of v1, but `max` is the only word for no limit."""
    if data.strip().startswith(b"-"):
        raise refusal(errno.EINVAL)
    return rules.memory_amount(data)


def _set_oom_group(group: Group, data: bytes) -> None:
    group.oom_group = kernel_text.integer(data, low=0, high=1, outside=errno.EINVAL)


def _events(group: Group) -> str:
    """Events in the group and below it."""
    counts = {name: sum(each.events.get(name, 0) for each in group.walk()) for name in EVENTS}
    return "".join(f"{name} {count}\n" for name, count in counts.items())
