"""The cookie of the processes in a container: with whom they share a core."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from koordlite.model.change import Entry, KernelChange
from koordlite.model.picture.groups import NO_COOKIE
from koordlite.model.place import Place, PlaceKind

_WORD = "core_sched_cookie"
PLACE = PlaceKind.of("core scheduling", "{cgroup}/{field}", metrics=(_WORD,), cgroup=".*", field=_WORD)
COOKIE = PlaceKind.of(
    "core scheduling cookie",
    f"{_WORD}/{{core_group}}/{{cookie}}",
    metrics=(_WORD,),
    core_group=".*",
    cookie="[0-9a-f]{16}",
)
"""A cookie that we had made: those who have it are not listed, since their children have it too."""


def cookie_of(place: Place) -> int:
    """The number of the cookie in a place of the kind `COOKIE`."""
    return int(place.part("cookie"), 16)


class CoreCookieChange(KernelChange, msgspec.Struct, frozen=True):
    """Give the processes in the cgroup `group` the cookie of the core group `core_group`, or take ours away."""

    place_kind: ClassVar[PlaceKind] = PLACE
    rank: ClassVar[int] = 61

    group: str
    core_group: str
    """Empty: none."""
    cookie: int = NO_COOKIE
    """The cookie that the core group has; `NO_COOKIE` while it has none: then one is made."""
    holders: tuple[int, ...] = ()
    """Processes that have it: one is enough to take it from."""
    gives_back: bool = False
    """Same as in `CgroupChange`."""

    @property
    def place(self) -> Place:
        """Place that is changed."""
        return PLACE.place(self.group, _WORD)

    def describe(self) -> str:
        """The value in one line."""
        return f"cookie of {self.core_group}" if self.core_group else "no cookie"


class CookieEntry(Entry, frozen=True, kw_only=True, tag="coreCookie"):
    """A cookie that was not there before us; undone by taking it from whoever has it."""

    core_group: str
    cookie: str
    """16 hexadecimal digits."""
    strategy: str = ""

    @property
    def place(self) -> Place:
        """A place for each cookie: a core group whose processes all ended gets another one."""
        return COOKIE.place(self.core_group, self.cookie)

    def describe(self) -> str:
        """State that comes back, in one line."""
        return "no cookie"
