"""Cookies of core scheduling: made by a helper task, noted, and only then handed to processes of containers."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from koordlite.apply.kind import Kind, Undoing, Work
from koordlite.changes.core_cookie import COOKIE, CookieEntry, CoreCookieChange, cookie_of
from koordlite.host.bundle import Host
from koordlite.host.cgroups.filesystem import vanished
from koordlite.model.errors import kernel_words
from koordlite.model.picture.groups import NO_COOKIE, Original
from koordlite.model.place import Place
from koordlite.model.snapshot import Snapshot
from koordlite.model.status import AppliedStep
from koordlite.ports import CookieHelper

_AT_ONCE = 32
"""Core groups whose cookies are made together: one flush of the journal for all, one thread for each."""
OWNER = "coreSched"
"""The one strategy that gives cookies."""
_Carried = tuple[int, CookieHelper]


class CoreCookie(Kind[CoreCookieChange, CookieEntry]):
    """Processes are not noted one by one: they come and go, and their children have the cookie too."""

    change = CoreCookieChange
    entry_places = (COOKIE,)

    def carry_out(self, changes: Sequence[CoreCookieChange], work: Work) -> Iterator[AppliedStep]:
        """Core group by core group."""
        back = [change for change in changes if change.gives_back]
        if back:
            yield from _take_away(back, work)
        by_group: dict[str, list[CoreCookieChange]] = {}
        for change in changes:
            if not change.gives_back:
                by_group.setdefault(change.core_group, []).append(change)
        names = iter(by_group)
        while several := tuple(itertools.islice(names, _AT_ONCE)):
            yield from _hand_out({name: by_group[name] for name in several}, work)

    def is_gone(self, host: Host, change: CoreCookieChange, error: OSError) -> bool:
        """Gone with its group."""
        return vanished(error)

    def value_before(self, entry: CookieEntry, host: Host) -> Original | None:
        """The number of the cookie."""
        return Original(cookie_of(entry.place), entry.strategy)

    def has_ended(self, entry: CookieEntry, host: Host, snapshot: Snapshot) -> bool:
        """Ended with its last process."""
        tasks = itertools.chain.from_iterable(snapshot.core_sched.tasks.values())
        return not snapshot.core_sched.missing and all(task.cookie != cookie_of(entry.place) for task in tasks)

    def undo(self, entries: Sequence[CookieEntry], back: Undoing) -> Iterable[AppliedStep]:
        """All at once, since the whole machine is searched for them."""
        try:
            refused = back.host.cookies.take_away({cookie_of(entry.place) for entry in entries})
        except OSError as error:
            refused = dict.fromkeys((cookie_of(entry.place) for entry in entries), error)
        for entry in entries:
            refusal = refused.get(cookie_of(entry.place))
            yield AppliedStep(entry.place, entry.describe(), refusal is None, kernel_words(refusal) if refusal else "")


def _hand_out(by_group: Mapping[str, Sequence[CoreCookieChange]], work: Work) -> Iterator[AppliedStep]:
    with contextlib.ExitStack() as helpers:
        carried: dict[str, _Carried] = {}
        for name, changes in by_group.items():
            try:
                carried[name] = _cookie(changes, work, helpers)
            except OSError as error:
                words = kernel_words(error)
                yield from (AppliedStep(each.place, each.describe(), False, words) for each in changes)
        _note({name: cookie for name, (cookie, _) in carried.items()}, work)
        for name, (cookie, helper) in carried.items():
            yield from (_put(work, change, cookie, helper) for change in by_group[name])


def _cookie(changes: Sequence[CoreCookieChange], work: Work, helpers: contextlib.ExitStack) -> _Carried:
    """A helper that has the cookie of the core group: taken from a process that has it, else a new one."""
    helper = helpers.enter_context(work.host.cookies.helper())
    cookie, holders = changes[0].cookie, changes[0].holders
    for pid in holders if cookie != NO_COOKIE else ():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if helper.take(pid) == cookie:
                return cookie, helper
    return helper.create(), helper


def _put(work: Work, change: CoreCookieChange, cookie: int, helper: CookieHelper) -> AppliedStep:
    ours = {cookie_of(place) for place in work.journal.places if place.kind is COOKIE}

    def give() -> str:
        return f"{change.describe()}: {work.host.cookies.give(change.group, cookie, helper, instead_of=ours)} processes"

    return KIND.attempt(work.host, change, give)


def _take_away(changes: Sequence[CoreCookieChange], work: Work) -> Iterator[AppliedStep]:
    """The groups lose our cookies. A cookie that no other group in the picture has leaves the journal."""
    try:
        with work.host.cookies.helper() as helper:
            steps = [_put(work, change, NO_COOKIE, helper) for change in changes]
    except OSError as error:
        words = kernel_words(error)
        steps = [AppliedStep(change.place, change.describe(), False, words) for change in changes]
    groups = {change.group for change, step in zip(changes, steps, strict=True) if step.ok}
    work.journal.forget(_unused(work, groups, ()))
    yield from steps


def _note(cookies: Mapping[str, int], work: Work) -> None:
    """These cookies, by core group, are noted; those that nobody has any more leave the journal with the same write:
    the kernel may give their numbers to the next ones, and has done so where two core groups would have one number."""
    entries = [CookieEntry(core_group=name, cookie=f"{each:016x}", strategy=OWNER) for name, each in cookies.items()]
    fresh = {entry.place for entry in entries}
    noted = [place for place in work.journal.places if place.kind is COOKIE and place not in fresh]
    reused = {place for place in noted if cookie_of(place) in cookies.values()}
    unused = reused | (_unused(work, (), cookies.values()) - fresh)
    work.journal.record(entries, removed=unused)
    work.journal.forget(reused)


def _unused(work: Work, groups: Collection[str], in_use: Collection[int]) -> set[Place]:
    """Places of cookies that no process in the picture has, but for those in `groups`; numbers in `in_use` stay."""
    tasks = work.snapshot.core_sched.tasks
    cookies = {task.cookie for group, theirs in tasks.items() if group not in groups for task in theirs}.union(in_use)
    return {place for place in work.journal.places if place.kind is COOKIE and cookie_of(place) not in cookies}


KIND = CoreCookie()
