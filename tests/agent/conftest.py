"""Emulated nodes of every shape, with a service and best-effort work on them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import slices
from emulated import SHAPES, Emulated

Make = Callable[[str], Emulated]


@pytest.fixture
def emulate(tmp_path: Path) -> Make:
    """A machine of a shape; its service wants a quarter of it, best-effort all."""

    def make(shape: str) -> Emulated:
        node = Emulated(shape, tmp_path)
        node.pod("web", "LS", f"{node.cpus * 250}m")
        node.pod("crunch", "BE", "greedy")
        return node

    return make


@pytest.fixture(params=slices.first(SHAPES, 2))
def node(request: pytest.FixtureRequest, emulate: Make) -> Emulated:
    """A machine of each shape in turn."""
    return emulate(request.param)
