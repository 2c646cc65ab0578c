"""Places that hold values of ours: these are read also when nothing names or asks for them any more."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping

import msgspec

from koordlite.changes import cgroup, core_cookie, system
from koordlite.model.place import Place
from koordlite.unchanged import with_equal_shared


class Held(msgspec.Struct, frozen=True):
    """By what is read of the machine."""

    groups: frozenset[str]
    fields: Mapping[str, frozenset[str]]
    """By group."""
    settings: bool
    """Settings of the kernel."""
    scores: bool
    """Places in the queue of the OOM killer."""
    cookies: bool
    """Cookies of core scheduling."""

    @classmethod
    def of(cls, found: Collection[Place]) -> Held:
        """From the places of the undo journal."""
        files = [place for place in found if place.kind is cgroup.PLACE]
        by_group = itertools.groupby(sorted(files, key=_group), _group)
        return cls(
            groups=frozenset(place.part("cgroup") for place in files),
            fields=with_equal_shared(
                {group: frozenset(place.part("field") for place in theirs) for group, theirs in by_group}
            ),
            settings=any(place.kind is system.SETTING for place in found),
            scores=any(place.kind in (system.OOM_SCORE, system.OOM_SCORE_AT_CREATION) for place in found),
            cookies=any(place.kind is core_cookie.COOKIE for place in found),
        )


def _group(place: Place) -> str:
    return place.part("cgroup")
