"""What the kernel's file layer answers for resctrl beyond reading and writing: attributes, permissions, links."""

from __future__ import annotations

import dataclasses
import errno

from koordlite.lab.machine.tree import File, Folder, Tree, refusal
from koordlite.lab.resctrl.filesystem import EmulatedResctrl

MAGIC = 0x7655821
LONGEST_NAME = 255


@dataclasses.dataclass(frozen=True, slots=True)
class Attributes:
    """What stat(2) says; every size is 0."""

    folder: bool
    mode: int
    links: int


class ResctrlVFS:
    """A tree with resctrl in it, asked as system calls ask. Errors are OSError with the kernel's errno."""

    def __init__(self, files: Tree, resctrl: EmulatedResctrl) -> None:
        self.files, self.resctrl = files, resctrl

    def attributes(self, path: str) -> Attributes:
        """Kind, permission bits and links of a file or folder."""
        entry = self.files.entry(path)
        if isinstance(entry, Folder):
            folders = sum(name.endswith("/") for name in self.files.list(path))
            return Attributes(True, entry.mode, 2 + folders)
        return Attributes(False, entry.mode if isinstance(entry, File) else 0o777, 1)

    def open(self, path: str, *, write: bool) -> File:
        """A file to read or write: still there, and dead, when its group is removed."""
        entry = self.files.entry(path)
        if not isinstance(entry, File):
            raise refusal(errno.EISDIR)
        if write and self.resctrl.options.startswith("ro"):
            raise refusal(errno.EROFS)
        if write and (entry.write is None or (self.resctrl.caller.uid and not entry.mode & 0o002)):
            raise refusal(errno.EACCES)
        return entry

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
