"""The form of the undo journal on disk, and how it is replaced so that no crash can lose it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from koordlite import changes
from koordlite.changes import (
    cgroup,
    node_annotation,
    node_resource,
    oom_score,
    resctrl_group,
    resctrl_mount,
    resctrl_tasks,
    zone_resource,
)
from koordlite.host import beneath, state_folder
from koordlite.model.errors import JournalError
from koordlite.model.place import Place
from koordlite.model.wire.objects import ZoneResource

NAME = "journal.json"
_VERSION = 1


class FileEntry(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="file"):
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
        return cls(path=path, group=group, field=field, text=text, found_at=found_at, strategy=strategy)

    @property
    def raw(self) -> bytes:
        """The bytes to write back."""
        return self.text.encode("latin-1")

    @property
    def place(self) -> Place:
        """The place as `CgroupChange` and `SchemataChange` name it."""
        try:
            return changes.parse(f"{self.group}/{self.field}")
        except ValueError:
            # A field that an earlier version wrote and this one does not know.
            return cgroup.PLACE.place(self.group, self.field)


class GroupMade(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="group"):
    """A resctrl group that was not there before us; undone by removing it."""

    group: str

    @property
    def place(self) -> Place:
        """The place as `ResctrlGroupChange` names it."""
        return resctrl_group.PLACE.place(self.group)


class TasksMoved(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="task"):
    """A thread and the resctrl group it was in; `start_time` tells it from a later thread of the same id."""

    tid: int
    start_time: int
    """Ticks after boot, column 22 of /proc/TID/stat."""
    group: str
    """Where it was found; empty is the root group."""
    into: str = ""
    """Where we put it. A thread that another program has moved since is not put back."""

    @property
    def place(self) -> Place:
        """One place a thread: threads of one group may have come from several."""
        return resctrl_tasks.THREAD.place(self.into, str(self.tid), str(self.start_time))


class MountMade(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="mount"):
    """resctrl was not mounted before us; undone by unmounting it."""

    point: str

    @property
    def place(self) -> Place:
        """The place as `ResctrlMountChange` names it."""
        return resctrl_mount.PLACE.place()


class OOMScoreFound(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="oomScore"):
    """The oom_score_adj of a process before us; `start_time` tells it from a later process of the same id."""

    pid: int
    start_time: int
    """Ticks after boot, column 22 of /proc/PID/stat."""
    value: int
    strategy: str = ""

    @property
    def place(self) -> Place:
        """The place as `OOMScoreChange` names it."""
        return oom_score.PLACE.place(str(self.pid), str(self.start_time))


class NodeResource(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="nodeResource"):
    """An extended resource of the Node before us; None when the Node had none."""

    resource: str
    previous: int | None
    strategy: str = ""

    @property
    def place(self) -> Place:
        """The place as `NodeResourceChange` names it."""
        return node_resource.PLACE.place(self.resource)


class NodeAnnotation(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="nodeAnnotation"):
    """An annotation of the Node before us; None when there was none."""

    key: str
    previous: str | None
    strategy: str = ""

    @property
    def place(self) -> Place:
        """The place as `NodeAnnotationChange` names it."""
        return node_annotation.PLACE.place(self.key)


class ZoneAmount(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="zoneResource"):
    """A resource of a zone of the node's NodeResourceTopology before us; None when the zone had none."""

    zone: str
    resource: str
    previous: ZoneResource | None
    strategy: str = ""

    @property
    def place(self) -> Place:
        """The place as `ZoneResourceChange` names it."""
        return zone_resource.PLACE.place(self.zone, self.resource)


ClusterEntry = NodeResource | NodeAnnotation | ZoneAmount
"""What a cluster has to take back."""
Entry = FileEntry | GroupMade | TasksMoved | MountMade | OOMScoreFound | ClusterEntry
_DIES_WITH_BOOT = (FileEntry, GroupMade, TasksMoved, MountMade, OOMScoreFound)


class _Content(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    boot_id: str
    entries: tuple[Entry, ...]


def load(path: Path, boot_id: str) -> tuple[Entry, ...]:
    """The entries in the file, without those that died with another boot; none when there is no file yet.

    JournalError when the file cannot be read or is not what we write.
    """
    content = _content(path)
    if content is None or content.boot_id == boot_id:
        return content.entries if content else ()
    return tuple(entry for entry in content.entries if not isinstance(entry, _DIES_WITH_BOOT))


def boot_of(path: Path) -> str:
    """The boot for which the file was written; empty when there is no file yet. Errors as of `load`."""
    content = _content(path)
    return content.boot_id if content else ""


def _content(path: Path) -> _Content | None:
    try:
        content = msgspec.json.decode(state_folder.read(path), type=_Content)
    except FileNotFoundError:
        return None
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
        for group in _groups(entry):
            beneath.group(group)
        if isinstance(entry, FileEntry):
            beneath.absolute(entry.path)
    except ValueError as error:
        raise JournalError(f"the undo journal {path} was not written by this program: {error}; {_HELP}") from error


def _groups(entry: Entry) -> Iterator[str]:
    """Groups the entry names, below their root; a monitoring group of resctrl's root has no group before it."""
    match entry:
        case FileEntry(group=group):
            yield group.removeprefix("io:") if not group.startswith("resctrl/") else _resctrl(group[len("resctrl/") :])
        case GroupMade(group=group):
            yield _resctrl(group)
        case TasksMoved(group=group, into=into):
            yield from map(_resctrl, (group, into))


def _resctrl(group: str) -> str:
    return group.removeprefix("/mon_groups/")


def store(path: Path, boot_id: str, entries: tuple[Entry, ...]) -> None:
    """Replace the file as a whole (`state_folder.replace`)."""
    state_folder.replace(path, msgspec.json.format(msgspec.json.encode(_Content(_VERSION, boot_id, entries)), indent=1))


_HELP = "nothing was changed; read it, restore by hand what it lists, then remove it"
