"""The disks of the emulated node, and their place in /sys."""

from __future__ import annotations

from collections.abc import Mapping

from koordlite.sandbox.machine.tree import Tree, constant

NUMBERS: Mapping[str, str] = {"vda": "254:0", "vdb": "254:16"}
"""Every machine has two disks; the first has two partitions."""
PARTITIONS: Mapping[str, tuple[str, str]] = {"vda1": ("vda", "254:1"), "vda2": ("vda", "254:2")}
SPEED = 400 * 2**20
"""Bytes a second the first disk can read."""


def plant(tree: Tree) -> None:
    """Put the disks into /sys."""
    for name, number in NUMBERS.items():
        tree.place(f"/sys/block/{name}/dev", constant(f"{number}\n"))
    for name, (disk, number) in PARTITIONS.items():
        tree.place(f"/sys/block/{disk}/{name}/dev", constant(f"{number}\n"))
        tree.place(f"/sys/block/{disk}/{name}/partition", constant(f"{name[-1]}\n"))
