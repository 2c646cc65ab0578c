"""Emulated nodes, one of them with resctrl."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from emulated import BOOT, Emulated
from resctrlnode import Node

from koordlite.host.journal.journal import Journal

Make = Callable[..., Emulated]


@pytest.fixture
def emulate(tmp_path: Path) -> Make:
    """A machine of a shape with a pinned pod, a service and best-effort work, and a reserved CPU."""

    def make(shape: str, name: str = "one") -> Emulated:
        (tmp_path / name).mkdir()
        node = Emulated(shape, tmp_path / name)
        node.node(reservation='{"reservedCPUs":"0"}')
        node.pod("web", "LS", f"{node.cpus * 250}m")
        node.pod("pinned", "LSR", "500m", status='{"cpuset":"1"}')
        node.pod("crunch", "BE", "greedy")
        return node

    return make


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Node]:
    """A node with these fields of the machine changed."""
    return lambda **machine: Node(tmp_path, **machine)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal.open(tmp_path / "state", boot_id=BOOT) as held:
        yield held
