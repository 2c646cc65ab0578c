"""The undo journal: what was there before our first write, on disk before that write happens.

One JSON file, replaced as a whole and flushed to disk, so that at any moment it is either the old or the new one.
An entry is made once for a place and stays until the place was restored. Only one agent may hold the folder. Within
it, two threads may note what they are about to change.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from types import TracebackType

from koordlite.host.journal import file
from koordlite.host.journal.file import Content, FileEntry
from koordlite.host.journal.lock import Lock
from koordlite.model.change import Entry
from koordlite.model.errors import JournalError, Problem
from koordlite.model.place import Place

__all__ = ["Entry", "FileEntry", "Journal", "is_emulated", "read"]

_VERSION_OF_A_NAME = 5
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Journal:
    """The journal of one agent, held exclusively until `close`."""

    def __init__(self, path: Path, lock: Lock, boot_id: str, content: Content | None) -> None:
        self._path = path
        self._lock = lock
        self._changing = threading.Lock()
        self._boot_id = boot_id
        self._entries = {entry.place: entry for entry in content.entries} if content else {}
        self._listed: tuple[Mapping[Place, Entry], frozenset[Place]] = {}, frozenset()
        self.damaged = content.damaged if content else ()
        """Entries that cannot be read. They are kept beside the journal when it is next written."""
        self._unsaved_damage = self.damaged
        self._is_of_this_boot = content is None or file.boot_of(path) == boot_id
        self.was_missing = content is None
        """No earlier run has written it, or it is lost; one of which everything was restored is empty, not missing."""

    @classmethod
    def open(cls, folder: str | os.PathLike[str], *, boot_id: str | None = None) -> Journal:
        """Take the journal in `folder`, which is made if need be.

        JournalError when another agent holds it, or when it is there but cannot be read: it is never taken for empty.
        Single entries that cannot be read are `damaged`, and the others count.
        `boot_id` is this machine's unless given: what the entries say about the kernel's files of another boot died
        with them.
        """
        path = Path(folder)
        lock = Lock.take(path)
        try:
            boot = boot_id or this_boot()
            return cls(path / file.NAME, lock, boot, file.load(path / file.NAME, boot))
        except BaseException:
            lock.release()
            raise

    @property
    def folder(self) -> Path:
        """The state folder."""
        return self._path.parent

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All entries, oldest first; undo them in reverse."""
        return tuple(self._entries.values())

    @property
    def places(self) -> frozenset[Place]:
        """The places that hold a value of ours, named as `Change.place` names them."""
        entries, places = self._listed
        if entries is not self._entries:
            # Several keep it, and ask for it each tick.
            entries, places = self._listed = self._entries, frozenset(self._entries)
        return places

    @property
    def by_place(self) -> Mapping[Place, Entry]:
        """All entries by their place."""
        return self._entries

    @property
    def is_changing(self) -> bool:
        """Tell whether a thread is about to change it."""
        return self._changing.locked()

    def record(self, entries: Iterable[Entry], *, removed: Collection[Place] = ()) -> None:
        """Keep what was found, before it is overwritten; places already present keep their first entry.
        One flushed write for the whole batch. JournalError when the disk refuses: then nothing may be overwritten.
        The places `removed` do not exist any more: they are dropped by the same write, and stay where there is none."""
        with self._changing:
            fresh = {entry.place: entry for entry in reversed(tuple(entries)) if entry.place not in self._entries}
            if fresh:
                self._replace({**self._without(removed), **dict(reversed(fresh.items()))})

    def add(self, entries: Iterable[Entry]) -> frozenset[Place]:
        """Same as `record`, in the time that one small file takes, however many entries there are; the places that
        were not listed before."""
        with self._changing:
            fresh = {entry.place: entry for entry in entries if entry.place not in self._entries}
            if fresh:
                if not self._is_of_this_boot:
                    self._replace({**self._entries, **fresh})
                    return frozenset(fresh)
                try:
                    file.add(self._path, self._boot_id, tuple(fresh.values()))
                except OSError as error:
                    raise JournalError(f"nothing can be added to the undo journal {self._path}: {error}") from error
                self._entries = {**self._entries, **fresh}
            return frozenset(fresh)

    def amend(self, entries: Iterable[Entry]) -> None:
        """Put these in place of the entries of the same places: their owner has changed what would stand there without
        us. Places that are not listed stay so."""
        with self._changing:
            changed = {e.place: e for e in entries if e.place in self._entries and self._entries[e.place] != e}
            if changed:
                self._replace({**self._entries, **changed})

    def forget(self, places: Iterable[Place]) -> None:
        """Drop places that were restored; those that are not in the journal are ignored."""
        with self._changing:
            restored = [place for place in places if place in self._entries]
            if restored:
                self._replace(self._without(restored))

    def close(self) -> None:
        """Let another agent have the folder; the entries stay on disk."""
        self._lock.release()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _without(self, removed: Iterable[Place]) -> dict[Place, Entry]:
        """A copy: a full node has thousands of entries, and to hash their places again would be most of the cost."""
        remaining = dict(self._entries)
        for place in removed:
            remaining.pop(place, None)
        return remaining

    def _replace(self, entries: dict[Place, Entry]) -> None:
        try:
            if self._unsaved_damage:
                file.keep_damaged(self._path, self._unsaved_damage)
                self._unsaved_damage = ()
            file.store(self._path, self._boot_id, tuple(entries.values()))
        except OSError as error:
            raise JournalError(
                f"the undo journal {self._path} cannot be written: {error}; it stays as it is"
            ) from error
        self._entries, self._is_of_this_boot = entries, True


def read(folder: str | os.PathLike[str], *, boot_id: str | None = None) -> tuple[Entry, ...]:
    """The entries in `folder`, oldest first, without locking it: for reading while an agent runs."""
    content = file.load(Path(folder) / file.NAME, boot_id or this_boot())
    return content.entries if content else ()


def is_missing(folder: str | os.PathLike[str]) -> bool:
    """Tell whether there is no journal in `folder`, not even an empty one."""
    return file.load(Path(folder) / file.NAME, "") is None


def damaged(folder: str | os.PathLike[str]) -> tuple[Problem, ...]:
    """Problems with entries of the journal in `folder`, now and since somebody looked into it."""
    path = Path(folder) / file.NAME
    content = file.load(path, "")
    bad = content.damaged if content else ()
    problems = [
        Problem(f"{path}:{each.line}", "entry", each.raw[:300].decode(errors="backslashreplace"), each.why, _DO)
        for each in bad
    ]
    aside = path.with_name(file.DAMAGED)
    if aside.exists():
        why = "entries of the undo journal could not be read, and are kept there: what they name is not restored"
        problems.append(Problem(str(aside), "file", "", why, "restore them by hand, then remove it"))
    return tuple(problems)


_DO = "restore it by hand, by what can be read of it; the other entries count"


def is_emulated(folder: str | os.PathLike[str]) -> bool:
    """Tell whether the journal in `folder` was written for an emulated node: the kernel's boot ids are random (UUID
    version 4), those of an emulated node are made from its name (version 5)."""
    try:
        return uuid.UUID(file.boot_of(Path(folder) / file.NAME)).version == _VERSION_OF_A_NAME
    except ValueError:
        return False


def this_boot() -> str:
    """The name of this boot of this machine."""
    return _BOOT_ID.read_text().strip()
