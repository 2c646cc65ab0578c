"""Memory that was needed once goes back to the kernel."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

LARGE_ONCE = """
import pathlib, sys
from koordlite.host import heap

def resident():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096 // 1024

if sys.argv[1] == "small":
    heap.keep_small()
bytearray(16 << 20)
before = resident()
held = [bytearray(b"x" * 50_000) for _ in range(200)]
del held
print(resident() - before)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="this C library has no mallopt(3)")
def test_what_many_small_buffers_took_is_given_back() -> None:
    left = {
        heap: int(subprocess.run([sys.executable, "-c", LARGE_ONCE, heap], capture_output=True, check=True).stdout)
        for heap in ("default", "small")
    }
    assert left["default"] > 8 << 10
    assert left["small"] < 2 << 10
