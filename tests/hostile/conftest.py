"""What attacks start from: the emulated node, and where files are concerned a private tree of real cgroups."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from realnode import tree
from realnode.tree import Tree


@pytest.fixture
def kubepods() -> Iterator[Tree]:
    """A private tree with kubelet's three groups on this machine's cgroup v1; everything in it ends with the test."""
    version, points = tree.mounts()
    if os.geteuid() != 0 or version != 1 or not all(os.access(point, os.W_OK) for point in points.values()):
        pytest.skip("needs root and writable cgroup v1 controllers")
    built = Tree(f"{tree.PREFIX}hostile-{os.getpid()}")
    try:
        yield built.build()
    finally:
        built.close()
