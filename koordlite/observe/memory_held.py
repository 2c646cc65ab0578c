"""Memory that groups hold at this instant, of those whose limit a strategy is about to lower."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from koordlite.host.cgroups.filesystem import Cgroups
from koordlite.model.picture.groups import MemoryHeld


def look(cgroups: Cgroups, groups: Iterable[str]) -> Mapping[str, MemoryHeld]:
    """By group; one that is gone, or whose files cannot be read, is missing."""
    return dict(_read(cgroups, groups))


def _read(cgroups: Cgroups, groups: Iterable[str]) -> Iterator[tuple[str, MemoryHeld]]:
    for group in groups:
        try:
            yield group, cgroups.memory_held(group)
        except (OSError, ValueError):
            continue
