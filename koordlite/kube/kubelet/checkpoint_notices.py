"""Notices that kubelet wrote a checkpoint, so that it is read at once and not with the next round.

Kubelet writes a checkpoint beside the old one and renames it. Where inotify is not to be had, or a folder is not there
yet, the rounds go on as without it.
"""

from __future__ import annotations

import logging
import os
import select
from collections.abc import Collection

from koordlite import inotify
from koordlite.inotify import Inotify

LOG = logging.getLogger(__name__)
_MASK = inotify.MOVED_TO | inotify.CLOSE_WRITE | inotify.ONLYDIR


class CheckpointNotices:
    """Waits for some files of kubelet. `wait` belongs to one thread; `end` may be called from any."""

    def __init__(self, paths: Collection[str]) -> None:
        """The files are absolute paths, and need not be there yet."""
        self._wanted: dict[str, set[str]] = {}
        for path in paths:
            self._wanted.setdefault(os.path.dirname(path), set()).add(os.path.basename(path))
        self._folders: dict[int, str] = {}
        self._ended = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._inotify: Inotify | None = None
        try:
            self._inotify = Inotify()
        except OSError as error:
            LOG.info("checkpoints of kubelet are read once a second: %s", error)

    def wait(self, seconds: float) -> bool:
        """Pass `seconds` at most; True at once when one of the files was written."""
        watched = self._watch()
        descriptors = [self._ended, *([watched.fileno()] if watched else [])]
        ready, _, _ = select.select(descriptors, [], [], max(0.0, seconds))
        return watched is not None and watched.fileno() in ready and self._take(watched)

    def end(self) -> None:
        """End the wait, and every later one."""
        os.eventfd_write(self._ended, 1)

    def close(self) -> None:
        """Give the descriptors back; nobody may wait any more."""
        os.close(self._ended)
        if self._inotify:
            self._inotify.close()

    def _watch(self) -> Inotify | None:
        """Folders that came since the last time are watched as well."""
        if self._inotify is None:
            return None
        for folder in self._wanted.keys() - self._folders.values():
            try:
                self._folders[self._inotify.add(folder, _MASK)] = folder
            except OSError:
                continue  # It is not there yet, or not readable; reading the file says so.
        return self._inotify

    def _take(self, watched: Inotify) -> bool:
        written = False
        for watch, mask, name in watched.events():
            if mask & inotify.IGNORED:
                self._folders.pop(watch, None)
            written |= bool(mask & inotify.OVERFLOW) or name in self._wanted.get(self._folders.get(watch, ""), ())
        return written
