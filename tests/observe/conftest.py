"""An emulated node to look at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from emulated import Emulated

from koordlite.observe import Observer


@pytest.fixture
def node(tmp_path: Path) -> Emulated:
    """Four CPUs, a service and best-effort work."""
    made = Emulated("small", tmp_path)
    made.pod("web", "LS", "1")
    made.pod("crunch", "BE", "greedy")
    return made


@pytest.fixture
def observer(node: Emulated) -> Observer:
    """Looks at `node`."""
    return Observer(node.host(), node.cluster, tasks_seconds=5.0)


@pytest.fixture
def observe_shape(tmp_path: Path) -> Callable[[str], tuple[Emulated, Observer]]:
    """A machine of another shape, and who looks at it."""

    def make(shape: str) -> tuple[Emulated, Observer]:
        made = Emulated(shape, tmp_path)
        made.pod("web", "LS", "1")
        made.pod("crunch", "BE", "greedy")
        return made, Observer(made.host(), made.cluster, tasks_seconds=5.0)

    return make
