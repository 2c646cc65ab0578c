"""The C library's heap: how soon freed memory goes back to the kernel."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENAS = -1, -3, -8
"""Names of mallopt(3)."""
_BLOCK_BYTES = 65_536


def keep_small() -> None:
    """Give freed memory back in pieces of 64 KiB, and let threads share one heap, where the library has mallopt(3).
    By default glibc raises these thresholds to megabytes once something large was freed, and makes a heap for each
    thread. What an agent needs for its first pictures then stays resident for good."""
    change = getattr(ctypes.CDLL(None), "mallopt", None)
    if change is not None:
        change(_TRIM_THRESHOLD, _BLOCK_BYTES)
        change(_MMAP_THRESHOLD, _BLOCK_BYTES)
        change(_ARENAS, 1)
