"""Operations of core scheduling, the same on a real kernel and on the emulated one, and what each answers.

Processes are called by numbers in the order in which they began. A cookie is called by the order in which it appeared:
its own number is chance, and is given again to another one when nobody has it any more.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from koordlite.ports import CoreScheduling

Operation = Sequence[str | int | bool]
_KINDS = ("spawn", "thread", "fork", "create", "share", "clear", "end", "create", "share", "thread", "fork")


def sequence(*, seed: int, count: int) -> Iterator[Operation]:
    """So many operations; some name a process that has ended, or none."""
    chance, begun = random.Random(seed), 2
    yield from (("spawn",), ("spawn",))
    for _ in range(count):
        kind = chance.choice(_KINDS)
        who, other = chance.randrange(begun), chance.randrange(begun)
        if kind in ("spawn", "fork"):
            begun += 1
        yield {
            "spawn": ("spawn",),
            "share": ("share", other, who, chance.random() < 0.5),
            "create": ("create", who, chance.random() < 0.5),
            "clear": ("clear", who, chance.random() < 0.5),
        }.get(kind, (kind, who))


class Processes(Protocol):
    """What makes and ends processes, by their numbers; nothing happens to one that has ended."""

    def spawn(self) -> None:
        """A process that nobody's child is."""

    def thread(self, who: int) -> None:
        """One more thread of a process."""

    def fork(self, who: int) -> None:
        """A child; also of a process that has ended a number is used up."""

    def end(self, who: int) -> None:
        """The process is gone, with all its threads."""

    def threads(self, who: int) -> Sequence[int]:
        """Ids of its threads, its own first; of one that has ended the id it had."""

    def __len__(self) -> int: ...


class Player:
    """Plays operations on one kernel."""

    def __init__(self, kernel: CoreScheduling, processes: Processes) -> None:
        self._kernel, self._processes = kernel, processes
        self._names: dict[int, int] = {0: 0}
        self._named = 0

    def play(self, operation: Operation) -> dict[str, Any]:
        """The kernel's word, and the cookies of all threads afterwards."""
        kind, *rest = operation
        word = self._share(str(kind), rest) if kind in ("create", "share", "clear") else ""
        if not word and kind not in ("create", "share", "clear"):
            getattr(self._processes, str(kind))(*rest)
        every = [[self._cookie(tid) for tid in self._processes.threads(who)] for who in range(len(self._processes))]
        held = {cookie for each in every for cookie in each if isinstance(cookie, int)}
        self._names = {cookie: name for cookie, name in self._names.items() if cookie in held or not cookie}
        return {"word": word, "cookies": [[self._name(cookie) for cookie in each] for each in every]}

    def _share(self, kind: str, rest: Sequence[str | int | bool]) -> str:
        *others, whole = rest
        at = [self._processes.threads(int(who)) for who in others]
        try:
            with self._kernel.helper() as helper:
                if kind == "create":
                    helper.create()
                elif kind == "share":
                    helper.take(at[0][-1])
                helper.give(at[-1][-1], whole_process=bool(whole))
        except OSError as error:
            return errno.errorcode[error.errno or 0]
        return "ok"

    def _name(self, cookie: int | str) -> int | str:
        if isinstance(cookie, str):
            return cookie
        if cookie not in self._names:
            self._named += 1
            self._names[cookie] = self._named
        return self._names[cookie]

    def _cookie(self, tid: int) -> int | str:
        try:
            return self._kernel.cookie(tid)
        except OSError as error:
            return errno.errorcode[error.errno or 0]
