"""A folder that plays a machine's root, and real cgroups of this machine."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from planted import Rooted

V1_ROOT = Path("/sys/fs/cgroup")
V1_CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory")
_serial = itertools.count()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Rooted]:
    """An empty machine to plant files in."""
    rooted = Rooted(tmp_path)
    yield rooted
    rooted.real.close()


class RealGroups:
    """A private subtree in the v1 controllers of this machine."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.made: list[str] = []

    def make(self, group: str = "") -> str:
        """Make a group in every controller, with the CPUs and memory nodes of its parent."""
        path = f"{self.name}/{group}" if group else self.name
        for controller in V1_CONTROLLERS:
            (V1_ROOT / controller / path).mkdir()
        self.made.append(path)
        for file in ("cpuset.cpus", "cpuset.mems"):
            own = V1_ROOT / "cpuset" / path / file
            own.write_text((own.parent.parent / file).read_text())
        return path

    def remove(self, path: str) -> None:
        """Remove a group from every controller; those that are gone already do not matter."""
        for controller in V1_CONTROLLERS:
            with contextlib.suppress(FileNotFoundError):
                (V1_ROOT / controller / path).rmdir()

    def clean(self) -> None:
        for path in reversed(self.made):
            self.remove(path)


def _why_not_v1() -> str:
    if os.geteuid() != 0:
        return "not root"
    missing = [name for name in V1_CONTROLLERS if not (V1_ROOT / name / "cgroup.procs").exists()]
    return f"no cgroup v1 {', '.join(missing)} here" if missing else ""


@pytest.fixture
def groups() -> Iterator[RealGroups]:
    """Real v1 groups, removed afterwards; skipped where this machine has none for us."""
    why = _why_not_v1()
    if why:
        pytest.skip(why)
    made = RealGroups(f"koordlite-test-{os.getpid()}-{next(_serial)}")
    try:
        made.make()
    except OSError as error:
        pytest.skip(f"cgroups cannot be made here: {error}")
    yield made
    made.clean()


_RESIDENT = """
import sys
sys.stdin.readline()
held = bytearray(32 << 20)
held[::4096] = bytes([1]) * len(held[::4096])
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def resident() -> Iterator[Callable[[str], int]]:
    """Start a process in a v1 group, where it touches 32 MiB and then waits; it ends with the test."""
    with contextlib.ExitStack() as stack:

        def start(group: str) -> int:
            process = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", _RESIDENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
                )
            )
            assert process.stdin is not None
            assert process.stdout is not None
            for controller in V1_CONTROLLERS:
                (V1_ROOT / controller / group / "cgroup.procs").write_text(str(process.pid))
            process.stdin.write(b"go\n")
            assert process.stdout.readline() == b"ready\n"
            return process.pid

        yield start
