"""The resctrl file system as a test reads it, and which class a CPU really ran in on the rig's kernel."""

from __future__ import annotations

import collections
import pathlib

ROOT = pathlib.Path("/sys/fs/resctrl")
_NOT_GROUPS = {"info", "mon_data", "mon_groups"}


def groups() -> set[str]:
    """Names of the control groups besides the root."""
    return {folder.name for folder in ROOT.iterdir() if folder.is_dir()} - _NOT_GROUPS if ROOT.exists() else set()


def schemata(group: str) -> dict[str, dict[int, int]]:
    """Values by resource and cache id: masks from hexadecimal, bandwidth from decimal."""
    found: dict[str, dict[int, int]] = {}
    for line in (ROOT / group / "schemata").read_text().splitlines():
        resource, _, values = line.strip().partition(":")
        base = 10 if resource in ("MB", "SMBA") else 16
        pairs = (pair.split("=") for pair in values.split(";"))
        found[resource] = {int(cache): int(value, base) for cache, value in pairs}
    return found


def tasks(group: str) -> set[int]:
    """Threads of a control group."""
    return set(map(int, (ROOT / group / "tasks").read_text().split()))


def class_with_mask(mask: int) -> int:
    """The hardware class (CLOSID) that has this L3 mask in the first cache."""
    line = next(line for line in _registers() if " cbm " in line)
    return [int(text, 16) for text in line.partition(" cbm ")[2].split()].index(mask)


def run_ns() -> collections.Counter[int]:
    """Time spent in each class over all CPUs, idle time counted as well."""
    spent: collections.Counter[int] = collections.Counter()
    for line in _registers():
        words = line.split()
        if words[0] == "cpu" and words[2] == "closid" and words[4] == "ns":
            spent[int(words[3])] += int(words[5])
    return spent


def _registers() -> list[str]:
    return pathlib.Path("/proc/fake_rdt").read_text().splitlines()
