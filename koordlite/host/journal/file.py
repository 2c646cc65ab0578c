"""The form of the undo journal on disk, and how it is replaced so that no crash can lose it."""

from __future__ import annotations

import functools
import operator
import sys
import zlib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import msgspec

from koordlite import changes
from koordlite.changes import cgroup, resctrl
from koordlite.host import beneath, state_folder
from koordlite.model.change import Entry
from koordlite.model.errors import UNREADABLE, JournalDenied, JournalError
from koordlite.model.place import Place

NAME = "journal.json"
DAMAGED = "journal-damaged.txt"
"""Entries that could not be read, as they were found."""
AHEAD = "journal-ahead.txt"
"""Entries that were added since the journal was last replaced: one line each, of boot, checksum and entry. Where an
answer cannot wait for the whole file to be written, a line is flushed before it."""
_VERSION = 1
_RESCTRL = "resctrl/"


class FileEntry(Entry, frozen=True, kw_only=True, tag="file", omit_defaults=True):
    """A kernel file and the bytes found in it. For one resource of a schemata file, the line of that resource."""

    path: str
    group: str
    """Cgroup path; `resctrl/NAME` for a schemata line."""
    field: str
    text: str
    """The bytes found, read as Latin-1: each byte is one character, so that none is lost."""
    found_at: float
    """Seconds since the epoch."""
    strategy: str = ""
    at_creation: bool = False
    """The runtime was asked to make the group with a value of ours: `text` is what it would have written."""

    @classmethod
    def of(
        cls,
        *,
        path: str,
        group: str,
        field: str,
        raw: bytes,
        found_at: float,
        strategy: str = "",
        at_creation: bool = False,
    ) -> FileEntry:
        """An entry for the bytes `raw`."""
        return cls(
            path=sys.intern(path),
            group=group,
            field=field,
            text=sys.intern(raw.decode("latin-1")),
            found_at=found_at,
            strategy=strategy,
            at_creation=at_creation,
        )

    def interned(self) -> FileEntry:
        """The same entry, whose texts thousands of others share."""
        names = ("path", "group", "field", "text", "strategy")
        return msgspec.structs.replace(self, **{name: sys.intern(getattr(self, name)) for name in names})

    @property
    def raw(self) -> bytes:
        """The bytes to write back."""
        return self.text.encode("latin-1")

    @property
    def groups(self) -> tuple[str, ...]:
        """A cgroup, or a group of resctrl."""
        if self.group.startswith(_RESCTRL):
            return (resctrl.below_root(self.group.removeprefix(_RESCTRL)),)
        return (self.group.removeprefix("io:"),)

    @property
    def place(self) -> Place:
        """The place as `CgroupChange` and `SchemataChange` name it."""
        if self.field in cgroup.FIELDS:
            # By far the most, and a text to parse would be kept for each.
            return cgroup.PLACE.place(self.group, self.field)
        try:
            return changes.parse(f"{self.group}/{self.field}")
        except ValueError:
            # A field that an earlier version wrote and this one does not know.
            return cgroup.PLACE.place(self.group, self.field)

    def describe(self) -> str:
        """Value that comes back, in one line."""
        return self.text.strip() or "(empty)"


class Damage(msgspec.Struct, frozen=True):
    """An entry that cannot be read: what stood in its place before us is not known."""

    line: int
    """Line of the file, from 1."""
    why: str
    raw: bytes


class Content(msgspec.Struct, frozen=True):
    """Contents of a journal."""

    boot_id: str
    entries: tuple[Entry, ...]
    damaged: tuple[Damage, ...] = ()


class _Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    boot_id: str
    entries: tuple[msgspec.Raw, ...]
    crc: tuple[str, ...] = ()
    """The checksum of each entry."""


class _Kind(msgspec.Struct, frozen=True):
    kind: str = ""


@functools.cache
def _decoder(forms: tuple[type[Entry], ...]) -> msgspec.json.Decoder[Any]:
    """Type of an entry of one of these forms; the tag says which."""
    return msgspec.json.Decoder(functools.reduce(operator.or_, forms))


def load(path: Path, boot_id: str) -> Content | None:
    """Contents of the file, without the entries that died with another boot; None when there is no file yet.
    An entry that cannot be read is damaged, and the others count. JournalError when the file as a whole cannot be read
    or is not what we write."""
    content = _content(path)
    if content is None or content.boot_id == boot_id:
        return content
    return msgspec.structs.replace(content, entries=tuple(e for e in content.entries if not e.dies_with_boot))


def boot_of(path: Path) -> str:
    """The boot for which the file was written; empty when there is no file yet. Errors as of `load`."""
    content = _content(path)
    return content.boot_id if content else ""


def _content(path: Path) -> Content | None:
    """The journal, and what was added to it since it was replaced. What it lists already it keeps."""
    whole, added = _whole(path), _ahead(path.with_name(AHEAD))
    if added is None or (whole is not None and whole.boot_id != added.boot_id):
        return whole
    if whole is None:
        return added
    places = {entry.place for entry in whole.entries}
    fresh = tuple(entry for entry in added.entries if entry.place not in places)
    return Content(whole.boot_id, (*whole.entries, *fresh), (*whole.damaged, *added.damaged))


def _read(path: Path) -> bytes | None:
    """The content of a file of the journal; None when it is not there."""
    try:
        return state_folder.read(path)
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise JournalDenied(
            f"the undo journal {path} cannot be read: {error}; ask as its owner, most often root"
        ) from error
    except OSError as error:
        raise JournalError(f"the undo journal {path} cannot be read: {error}; {_HELP}") from error


def _ahead(path: Path) -> Content | None:
    """The entries of the newest boot in the file; None when there are none. A last line without its end was cut off
    before anybody was answered, and so means nothing."""
    raw = _read(path)
    if raw is None:
        return None
    *lines, _cut = raw.split(b"\n")
    boot, entries, damaged = "", dict[Place, Entry](), list[Damage]()
    for number, line in enumerate(lines, 1):
        of, _, fields = line.partition(b" ")
        checksum, _, raw = fields.partition(b" ")
        if of.decode(errors="replace") != boot:
            boot, entries, damaged = of.decode(errors="replace"), {}, []
        try:
            entry = _entry(raw, (checksum.decode(errors="replace"),))
            entries.setdefault(entry.place, entry)
        except UNREADABLE as error:
            damaged.append(Damage(number, str(error), line))
    return Content(boot, tuple(entries.values()), tuple(damaged)) if boot else None


def _whole(path: Path) -> Content | None:
    raw = _read(path)
    if raw is None:
        return None
    try:
        head, lines = _lines(raw)
    except UNREADABLE as error:
        raise JournalError(f"the undo journal {path} cannot be read: {error}; {_HELP}") from error
    if head.version != _VERSION:
        why = f"it has version {head.version}, this program knows {_VERSION}"
        raise JournalError(f"the undo journal {path} cannot be read: {why}; {_OTHER}")
    entries: list[Entry] = []
    damaged: list[Damage] = []
    for number, line in lines:
        try:
            entries.append(_entry(line, head.crc))
        except UNREADABLE as error:
            why = f"{error}; {_OTHER}" if _is_of_another_version(line) else str(error)
            damaged.append(Damage(number, why, line))
    return Content(head.boot_id, tuple(entries), tuple(damaged))


def _lines(raw: bytes) -> tuple[_Head, list[tuple[int, bytes]]]:
    """Header of the file, and its entries, each with its line. A file as we write it has one on each line:
    what is wrong with a line, or with the end of the file, does not concern the others."""
    first, _, body = raw.partition(b"\n")
    if not first.endswith(b'"entries":['):
        head = msgspec.json.decode(raw, type=_Head)
        return head, [(number, bytes(entry)) for number, entry in enumerate(head.entries, 1)]
    numbered = enumerate((line.strip().removesuffix(b",") for line in body.split(b"\n")), 2)
    lines = [(number, line) for number, line in numbered if line]
    try:
        head = msgspec.json.decode(first + (lines[-1][1] if lines else b""), type=_Head)
    except UNREADABLE:
        head = msgspec.json.decode(first + b"]}", type=_Head)
        return head, [*lines, (len(lines) + 2, b"")]  # The end of the file is missing, and entries with it.
    return head, lines[:-1]


def _entry(line: bytes, checksums: Collection[str]) -> Entry:
    """ValueError when the line is no entry, or has changed since it was written."""
    if not line:
        raise ValueError("the end of the file is missing")
    if checksums and _checksum(line) not in checksums:
        raise ValueError("its checksum does not fit: it has changed since it was written")
    entry: Entry = _decoder((FileEntry, *changes.entry_types())).decode(line)
    if not isinstance(entry.place, Place):
        raise ValueError("it names no place")
    # A name that leads out of its root is damage: what we write never does.
    for group in entry.groups:
        beneath.group(group)
    if isinstance(entry, FileEntry):
        beneath.absolute(entry.path)
        return entry.interned()
    return entry


def _is_of_another_version(line: bytes) -> bool:
    """Tell whether the line is an entry of a kind that this program does not know."""
    try:
        kind = msgspec.json.decode(line, type=_Kind).kind
    except UNREADABLE:
        return False
    forms: tuple[Any, ...] = (FileEntry, *changes.entry_types())
    return bool(kind) and kind not in {form.__struct_config__.tag for form in forms}


def _checksum(line: bytes) -> str:
    return f"{zlib.crc32(line):08x}"


def store(path: Path, boot_id: str, entries: tuple[Entry, ...]) -> None:
    """Replace the file as a whole (`state_folder.replace`): one entry a line, and the checksum of each at the end."""
    head = msgspec.json.encode({"version": _VERSION, "boot_id": boot_id}).removesuffix(b"}")
    # JSON has no newline inside of a text.
    lines = _LINES.encode_lines(entries).splitlines()
    checksums = msgspec.json.encode([_checksum(line) for line in lines])
    state_folder.replace(path, b'%s,"entries":[\n%s\n],"crc":%s}\n' % (head, b",\n".join(lines), checksums))
    # What was added is in `entries`. A crash before this leaves lines that are known already.
    path.with_name(AHEAD).unlink(missing_ok=True)


def add(path: Path, boot_id: str, entries: Sequence[Entry]) -> None:
    """Keep entries beside the journal without writing it anew, flushed to disk."""
    lines = _LINES.encode_lines(entries).splitlines()
    content = b"".join(b"%s %s %s\n" % (boot_id.encode(), _checksum(line).encode(), line) for line in lines)
    state_folder.append(path.with_name(AHEAD), content)


def keep_damaged(path: Path, damaged: Sequence[Damage]) -> None:
    """Write what cannot be read beside the journal, before the journal is written without it. OSError when the folder
    cannot be written."""
    aside = path.with_name(DAMAGED)
    before = state_folder.read(aside).splitlines() if aside.exists() else []
    lines = dict.fromkeys([*before, *(each.raw for each in damaged if each.raw)])
    state_folder.replace(aside, b"".join(b"%s\n" % line for line in lines))


_LINES = msgspec.json.Encoder()


_OTHER = "restore with the program that wrote it"
_HELP = "nothing was changed; read it, restore by hand what it lists, then remove it"
