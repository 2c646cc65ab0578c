"""The resctrl file system: what it offers, its groups, and writes that carry the kernel's own reason when refused."""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from koordlite.formulas import schemata
from koordlite.host import resctrl_info
from koordlite.model.snapshot import BandwidthCapability, CacheCapability, Resctrl, ResctrlGroup
from koordlite.ports import Files

_NOT_GROUPS = frozenset({"info", "mon_data", "mon_groups"})
_WRITE_LIMIT_BYTES = 4096
_GONE = (errno.ENOENT, errno.ENODEV)
# Refusals that leave their reason in last_cmd_status; after others it still holds an older one.
_EXPLAINED = frozenset({errno.EINVAL, errno.EBUSY, errno.ENOSPC, errno.EPERM})

Values = Mapping[int, int]


class ResctrlFS:
    """Control groups below `root`; the root group has the empty name. Nothing is mounted or unmounted here."""

    def __init__(self, files: Files, root: str = "/sys/fs/resctrl") -> None:
        self.root = root
        self._files = files
        self._largest: dict[str, int] = {}

    def read(self, *, with_tasks: Collection[str] | None = None) -> Resctrl:
        """Capabilities and groups as they are; `absent` says why there are none.

        Threads are read for the groups named in `with_tasks` only: the root group lists the whole machine.
        """
        why = resctrl_info.absence(self._files, self.root)
        if why:
            return Resctrl(absent=why)
        groups = dict(self._groups(frozenset(with_tasks or ())))
        self._remember_largest(groups.values())
        caches, bandwidths = self._capabilities()
        if not caches and not bandwidths:
            return Resctrl(absent=f"{self.root} can only monitor: it has no info/L3, L2 or MB with num_closids")
        return Resctrl("", caches, bandwidths, groups)

    def make_group(self, name: str) -> None:
        """Make the control group, unless it is there. OSError ENOSPC: no CLOSID is left; EBUSY: try in two seconds."""
        folder = self._group_folder(name)
        try:
            self._files.mkdir(folder)
        except FileExistsError:
            return
        except OSError as error:
            raise self._explained(error, folder, last=1) from error

    def remove_group(self, name: str) -> None:
        """Remove the control group, if it is there; its threads fall back to the root group."""
        try:
            self._files.rmdir(self._group_folder(name))
        except FileNotFoundError:
            return

    def write_schemata(self, group: str, values: Mapping[str, Values]) -> None:
        """Give each resource its values by cache id. One write, which the kernel takes or refuses as a whole.

        Only what does not fit in 4096 bytes is split, since the kernel takes no longer write.
        """
        path = f"{self._folder(group)}/schemata"
        for text in _pieces([line for name, ids in values.items() for line in _lines(name, ids)]):
            self._write(path, text.encode(), last=_WRITE_LIMIT_BYTES)

    def move(self, group: str, tids: Iterable[int]) -> int:
        """Move threads into the group, one a write; how many were still there to move.

        Children begun meanwhile stay where their parent was: read the threads again until none is new.
        """
        path = f"{self._folder(group)}/tasks"
        return sum(self._move_one(path, tid) for tid in tids)

    def group_of(self, tid: int) -> str | None:
        """The control group a thread is in, empty for the root; None when the thread is gone, or resctrl is."""
        try:
            raw = self._files.read(f"/proc/{tid}/cpu_resctrl_groups")
        except (FileNotFoundError, ProcessLookupError):
            return None
        for line in raw.decode().splitlines():
            if line.startswith("res:") and line != "res:":
                return line.removeprefix("res:").strip("/")
        return None

    def schemata_raw(self, group: str, resource: str) -> bytes:
        """The line of one resource as the kernel prints it, ready to be written back; KeyError when there is none."""
        found = schemata.parse(self._files.read(f"{self._folder(group)}/schemata").decode())
        return f"{schemata.line(resource, found[resource])}\n".encode()

    def write_raw(self, group: str, raw: bytes) -> None:
        """Write lines back that `schemata_raw` found."""
        self._write(f"{self._folder(group)}/schemata", raw, last=_WRITE_LIMIT_BYTES)

    def _groups(self, with_tasks: frozenset[str]) -> Iterator[tuple[str, ResctrlGroup]]:
        for name in ("", *self._group_names()):
            try:
                yield name, self._group(name, name in with_tasks)
            except OSError as error:
                if error.errno not in _GONE:
                    raise

    def _group_names(self) -> list[str]:
        folders = (name[:-1] for name in self._files.list(self.root) if name.endswith("/"))
        return sorted(name for name in folders if name not in _NOT_GROUPS)

    def _group(self, name: str, with_tasks: bool) -> ResctrlGroup:
        text = self._files.read(f"{self._folder(name)}/schemata").decode()
        tasks = self._files.read(f"{self._folder(name)}/tasks").split() if with_tasks else None
        return ResctrlGroup(_parsed(text), None if tasks is None else frozenset(map(int, tasks)))

    def _remember_largest(self, groups: Iterable[ResctrlGroup]) -> None:
        """info/ does not tell the largest bandwidth; a group shows it before anyone limits it."""
        for group in groups:
            for resource, values in group.schemata.items():
                self._largest[resource] = max([self._largest.get(resource, 0), *values.values()])

    def _capabilities(self) -> tuple[dict[str, CacheCapability], dict[str, BandwidthCapability]]:
        return resctrl_info.capabilities(self._files, self.root, self._largest)

    def _move_one(self, path: str, tid: int) -> bool:
        if tid <= 0:
            raise ValueError(f"{tid} is no thread id; 0 would move the writer itself")
        try:
            self._write(path, b"%d\n" % tid, last=2)
        except ProcessLookupError:
            return False
        return True

    def _write(self, path: str, data: bytes, *, last: int) -> None:
        try:
            self._files.write(path, data)
        except ProcessLookupError:
            raise
        except OSError as error:
            raise self._explained(error, path, last=last) from error

    def _explained(self, error: OSError, path: str, *, last: int) -> OSError:
        """The same errno with the newest `last` lines of last_cmd_status in text and note: it may hold older ones."""
        status = self._last_status() if error.errno in _EXPLAINED else []
        reason = "; ".join(status[-last:])
        text = f"{error.strerror}: {reason}" if reason else error.strerror
        told = OSError(error.errno, text, error.filename or path)
        if reason:
            told.add_note(f"resctrl said: {reason}")
        return told

    def _last_status(self) -> list[str]:
        try:
            raw = self._files.read(f"{self.root}/info/last_cmd_status")
        except OSError:
            return []
        lines = [line.strip() for line in raw.decode(errors="replace").splitlines()]
        return [line for line in lines if line and line != "ok"]

    def _folder(self, group: str) -> str:
        return self._group_folder(group) if group else self.root

    def _group_folder(self, name: str) -> str:
        if not name or "/" in name or "\n" in name or name in _NOT_GROUPS or name in (".", ".."):
            raise ValueError(f"{name!r} is no name for a resctrl group")
        return f"{self.root}/{name}"


def _parsed(text: str) -> Mapping[str, Values]:
    """A group in pseudo-locksetup prints words for values: it has none we could judge."""
    try:
        return schemata.parse(text)
    except ValueError:
        return {}


def _lines(resource: str, values: Values) -> Iterator[str]:
    """One line for a resource, or several where one would be longer than a write may be."""
    text = f"{schemata.line(resource, values)}\n"
    if len(text) <= _WRITE_LIMIT_BYTES or len(values) == 1:
        yield text
        return
    ids = sorted(values)
    for half in (ids[: len(ids) // 2], ids[len(ids) // 2 :]):
        yield from _lines(resource, {cache: values[cache] for cache in half})


def _pieces(lines: Sequence[str]) -> list[str]:
    pieces: list[str] = []
    for line in lines:
        if pieces and len(pieces[-1]) + len(line) <= _WRITE_LIMIT_BYTES:
            pieces[-1] += line
        else:
            pieces.append(line)
    return pieces
