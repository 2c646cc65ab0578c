"""The form of the undo journal on disk, and how it is replaced so that no crash can lose it."""

from __future__ import annotations

import functools
import operator
import sys
from pathlib import Path
from typing import Any

import msgspec

from koordlite import changes
from koordlite.changes import cgroup, resctrl_group
from koordlite.host import beneath, state_folder
from koordlite.model.entry import Entry
from koordlite.model.errors import JournalDenied, JournalError
from koordlite.model.place import Place

NAME = "journal.json"
_VERSION = 1
_RESCTRL = "resctrl/"


class FileEntry(Entry, frozen=True, kw_only=True, tag="file"):
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

    @classmethod
    def of(cls, *, path: str, group: str, field: str, raw: bytes, found_at: float, strategy: str = "") -> FileEntry:
        """An entry for the bytes `raw`."""
        text = raw.decode("latin-1")
        return cls(path=sys.intern(path), group=group, field=field, text=text, found_at=found_at, strategy=strategy)

    @property
    def raw(self) -> bytes:
        """The bytes to write back."""
        return self.text.encode("latin-1")

    @property
    def groups(self) -> tuple[str, ...]:
        """A cgroup, or a group of resctrl."""
        if self.group.startswith(_RESCTRL):
            return (resctrl_group.below_root(self.group.removeprefix(_RESCTRL)),)
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
        """What comes back, in one line."""
        return self.text.strip() or "(empty)"


class _Content(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    boot_id: str
    entries: tuple[Entry, ...]


@functools.cache
def _decoder(forms: tuple[type[Entry], ...]) -> msgspec.json.Decoder[Any]:
    """Of a file with entries of these forms; the tag says which."""
    entries = tuple[functools.reduce(operator.or_, forms), ...]  # type: ignore[misc, valid-type]
    return msgspec.json.Decoder(msgspec.defstruct("Journal", [("entries", entries)], bases=(_Content,)))


def load(path: Path, boot_id: str) -> tuple[Entry, ...]:
    """The entries in the file, without those that died with another boot; none when there is no file yet.

    JournalError when the file cannot be read or is not what we write.
    """
    content = _content(path)
    if content is None or content.boot_id == boot_id:
        return content.entries if content else ()
    return tuple(entry for entry in content.entries if not entry.dies_with_boot)


def boot_of(path: Path) -> str:
    """The boot for which the file was written; empty when there is no file yet. Errors as of `load`."""
    content = _content(path)
    return content.boot_id if content else ""


def _content(path: Path) -> _Content | None:
    try:
        content: _Content = _decoder((FileEntry, *changes.entry_types())).decode(state_folder.read(path))
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise JournalDenied(
            f"the undo journal {path} cannot be read: {error}; ask as its owner, most often root"
        ) from error
    except (OSError, msgspec.DecodeError) as error:
        raise JournalError(f"the undo journal {path} cannot be read: {error}; {_HELP}") from error
    if content.version != _VERSION:
        why = f"it has version {content.version}, this program knows {_VERSION}"
        raise JournalError(f"the undo journal {path} cannot be read: {why}; restore with the program that wrote it")
    for entry in content.entries:
        _check(path, entry)
    return content


def _check(path: Path, entry: Entry) -> None:
    """What we write names nothing outside of its root. A journal that does was not written by us."""
    try:
        for group in entry.groups:
            beneath.group(group)
        if isinstance(entry, FileEntry):
            beneath.absolute(entry.path)
    except ValueError as error:
        raise JournalError(f"the undo journal {path} was not written by this program: {error}; {_HELP}") from error


def store(path: Path, boot_id: str, entries: tuple[Entry, ...]) -> None:
    """Replace the file as a whole (`state_folder.replace`), one entry a line."""
    head = msgspec.json.encode({"version": _VERSION, "boot_id": boot_id}).removesuffix(b"}")
    # JSON has no newline inside of a text.
    lines = _LINES.encode_lines(entries).removesuffix(b"\n").replace(b"\n", b",\n")
    state_folder.replace(path, b'%s,"entries":[\n%s\n]}\n' % (head, lines))


_LINES = msgspec.json.Encoder()


_HELP = "nothing was changed; read it, restore by hand what it lists, then remove it"
