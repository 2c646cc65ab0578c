"""Paths that name nothing outside of where they are meant to be: refused by their text, and by the kernel.

Source: openat2(2), which Linux has since 5.6. Where it is missing, or a sandbox hides it, the text alone is checked.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os

_OPENAT2 = 437
"""The same number on every architecture but Alpha."""
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_BENEATH = 0x08
_SYSCALL = ctypes.CDLL(None, use_errno=True).syscall
_SYSCALL.restype = ctypes.c_long
_ROOTS = ("/sys/fs/cgroup", "/sys/fs/resctrl", "/sys", "/proc")
"""The first that holds a path is where it has to stay."""


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


@functools.lru_cache(maxsize=8192)
def group(text: str) -> str:
    """`text` if it is the path of a group below a root, which is empty itself; ValueError names the component that
    leads elsewhere. Kept, because the same groups are named at each tick."""
    _check(text)
    return text


def _check(text: str) -> None:
    if text:
        for part in text.split("/"):
            component(part, of=text)


def component(part: str, *, of: str = "") -> str:
    """`part` if it is one name in a path; ValueError for an empty one, `.`, `..`, and what has a slash or a NUL."""
    if part in ("", ".", "..") or "/" in part or "\0" in part:
        where = f" in {of[:200]!r}" if of and of != part else ""
        raise ValueError(f"{part[:200]!r}{where} is no name of a group: it would lead out of its folder")
    return part


def absolute(path: str) -> str:
    """`path` if it is absolute and has no component that leads elsewhere; ValueError otherwise."""
    if not path.startswith("/"):
        raise ValueError(f"{path[:200]!r} is no absolute path")
    _check(path[1:])
    return path


def open_to_write(path: str) -> int:
    """A descriptor to write an existing file. OSError when there is none, EXDEV when a link leads out of the file
    system the path is in; ValueError as of `absolute`."""
    absolute(path)
    flags = os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC
    root = next((root for root in _ROOTS if path.startswith(f"{root}/")), "")
    if not root or not _has_openat2():
        return os.open(path, flags | os.O_NOFOLLOW)
    folder = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return _openat2(folder, path[len(root) + 1 :], flags)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
    finally:
        os.close(folder)


@functools.cache
def _has_openat2() -> bool:
    """Asked once: an old kernel answers ENOSYS, a sandbox that does not know the call EPERM or ENOSYS."""
    folder = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.close(_openat2(folder, ".", os.O_PATH | os.O_CLOEXEC))
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EPERM):
            return False
        raise
    finally:
        os.close(folder)
    return True


def _openat2(folder: int, path: str, flags: int) -> int:
    how = _How(flags, 0, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS)
    fd = _SYSCALL(
        ctypes.c_long(_OPENAT2),
        ctypes.c_int(folder),
        ctypes.c_char_p(os.fsencode(path)),
        ctypes.byref(how),
        ctypes.c_size_t(ctypes.sizeof(how)),
    )
    if fd < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(fd)
