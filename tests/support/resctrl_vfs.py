"""What the kernel's file layer answers for resctrl beyond reading and writing: attributes, links, renames."""

from __future__ import annotations

import dataclasses
import errno

from kernel_resctrl import KernelResctrl

from koordlite.lab.machine.tree import File, Folder, Tree, refusal
from koordlite.lab.resctrl.filesystem import MONITORS, POINT, RDTGroup

MAGIC = 0x7655821


@dataclasses.dataclass(frozen=True, slots=True)
class Attributes:
    """What stat(2) says; every size is 0."""

    folder: bool
    mode: int
    links: int


class ResctrlVFS:
    """A tree with resctrl in it, asked as system calls ask. Errors are OSError with the kernel's errno."""

    def __init__(self, files: Tree, resctrl: KernelResctrl) -> None:
        self.files, self.resctrl = files, resctrl

    def attributes(self, path: str) -> Attributes:
        """Kind, permission bits and links of a file or folder. What the driver makes belongs to nobody else: only
        folders in groups that users made can be written."""
        entry = self.files.entry(path)
        if not isinstance(entry, Folder):
            return Attributes(False, _mode(entry) if isinstance(entry, File) else 0o777, 1)
        folders = sum(name.endswith("/") for name in self.files.list(path))
        first, second, *_ = [*_parts(path), "", ""]
        made = (first or not self.resctrl.mounted) and first not in ("info", "mon_data", MONITORS)
        made = made or (first == MONITORS and second)
        return Attributes(True, 0o755 if made else 0o555, 2 + folders)

    def open(self, path: str, *, write: bool) -> File:
        """A file to read or write: still there, and dead, when its group is removed."""
        entry = self.files.entry(path)
        if not isinstance(entry, File):
            raise refusal(errno.EISDIR)
        if write and self.resctrl.read_only:
            raise refusal(errno.EROFS)
        if write and (entry.write is None or (self.resctrl.caller.uid and not _mode(entry) & 0o002)):
            raise refusal(errno.EACCES)
        return entry

    def rmdir(self, path: str) -> None:
        """As the tree does; a mount point stays."""
        if self.resctrl.mounted and not _parts(path):
            raise refusal(errno.EBUSY)
        self.files.rmdir(path)

    def rename(self, path: str, target: str) -> None:
        """Only monitor groups, to another name or to another control group, with their threads; Linux 6.5 and later."""
        (folder, _, name), (into, _, new) = path.rpartition("/"), target.rpartition("/")
        if self.resctrl.mounted and not (_parts(path) and _parts(target)):
            # The folder that a mount point is in belongs to another file system.
            raise refusal(errno.EXDEV)
        entry = self.files.entry(path)
        parent, there = self.files.entry(folder), self.files.entry(into)
        if not isinstance(parent, Folder) or not isinstance(there, Folder):
            raise refusal(errno.ENOTDIR)
        if (parent, name) == (there, new):
            return
        if f"{target}/".startswith(f"{path}/"):
            raise refusal(errno.EINVAL)
        if f"{path}/".startswith(f"{target}/"):
            raise refusal(errno.ENOTEMPTY)
        present = there.find(new)
        if present is not None and isinstance(entry, Folder) != isinstance(present, Folder):
            # A folder replaces no file, a file no folder: the file layer says so before the file system is asked.
            raise refusal(errno.ENOTDIR if isinstance(entry, Folder) else errno.EISDIR)
        if not self.resctrl.rdt.since(6, 5) or not _is_kept(_parts(folder)):
            raise refusal(errno.EPERM)
        self._move(path, target)

    def _move(self, path: str, target: str) -> None:
        """What the driver does with a rename, and says where it refuses."""
        status, entry = self.resctrl.status, self.files.entry(path)
        (folder, _, name), (into, _, new) = path.rpartition("/"), target.rpartition("/")
        parent, there = self.files.entry(folder), self.files.entry(into)
        assert isinstance(parent, Folder) and isinstance(there, Folder)
        if self.resctrl.read_only:
            raise refusal(errno.EROFS)
        if _is_info(_parts(path), entry) or _is_info(_parts(into), there):
            raise refusal(errno.ENOENT)
        status.clear()
        if not isinstance(entry, Folder):
            # This message has no end of line.
            status.add("Source and destination must be directories", end="")
            raise refusal(errno.EPERM)
        group = self._monitor(_parts(path))
        if group is None or group.parent is None:
            raise status.refusal(errno.EPERM, "Source must be a MON group")
        control = self.resctrl.groups.get(_parts(into)[0] if len(_parts(into)) == 2 else "")
        if _parts(into)[-1:] != [MONITORS] or len(_parts(into)) > 2 or control is None or new == MONITORS:
            raise status.refusal(errno.EPERM, "Destination must be a mon_groups subdirectory")
        if self.resctrl.cpus.get(group) and group.parent is not control:
            raise status.refusal(errno.EPERM, "Cannot move a MON group that monitors CPUs")
        if new in there.entries:
            raise refusal(errno.EEXIST)
        there.entries[new] = parent.entries.pop(name)
        control.monitors[new] = group.parent.monitors.pop(name)
        group.name, group.parent, group.closid = new, control, control.closid

    def _monitor(self, parts: list[str]) -> RDTGroup | None:
        """The monitor group at this place below the mount point."""
        *control, folder, name = ["", *parts] if len(parts) < 3 else parts
        group = self.resctrl.groups.get("".join(control))
        return group.monitors.get(name) if folder == MONITORS and group else None

    def unlink(self, path: str) -> None:
        """Files go with their group only."""
        raise refusal(errno.EISDIR if isinstance(self.files.entry(path), Folder) else errno.EPERM)

    def create(self, path: str) -> None:
        """Nobody makes files here."""
        self._absent(path)
        raise refusal(errno.EACCES)

    def link(self, path: str) -> None:
        """Nor links of any kind."""
        self._absent(path)
        raise refusal(errno.EPERM)

    def set_attribute(self, path: str, name: str) -> None:
        """Extended attributes: kernfs keeps those of the system, not those of users."""
        self.files.entry(path)
        if name.startswith("user."):
            raise refusal(errno.ENOTSUP)

    def _absent(self, path: str) -> None:
        folder, _, name = path.rstrip("/").rpartition("/")
        found = self.files.entry(folder)
        if not isinstance(found, Folder):
            raise refusal(errno.ENOTDIR)
        if found.find(name) is not None:
            raise refusal(errno.EEXIST)


def _mode(file: File) -> int:
    return 0o644 if file.write else 0o444


def _parts(path: str) -> list[str]:
    """The names below the mount point."""
    return [part for part in path.removeprefix(POINT).split("/") if part]


def _is_info(parts: list[str], entry: object) -> bool:
    return parts[:1] == ["info"] and isinstance(entry, Folder)


def _is_kept(parts: list[str]) -> bool:
    """The driver answers for what is in this folder: not for those that are made when they are opened."""
    return "mon_data" not in parts[:-1]
