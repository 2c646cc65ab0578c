"""An answer of a strategy, and the changes it asks for."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal

from koordlite.model.cpuset import CPUSet
from koordlite.model.wire import Zone

Verdict = Literal["set", "shrink", "grow", "hold", "release", "skip", "refuse"]
"""set: a value; shrink/grow: a limit tighter/looser; hold: nothing to do; release: give back; skip: cannot judge, with
the reason; refuse: the input is wrong, the last good state stays."""

CgroupField = Literal["cpuset.cpus", "cpu.quota"]
"""Logical cgroup values, the same for v1 and v2: a CPUSet, and µs of CPU per period (-1 unlimited)."""


@dataclasses.dataclass(frozen=True, slots=True)
class CgroupChange:
    """Give `field` of the cgroup `group` (path below the cgroup root, `kubepods/besteffort`) the `value`."""

    group: str
    field: CgroupField
    value: CPUSet | int

    @property
    def place(self) -> str:
        """What is changed, for messages and for finding two writers of one file."""
        return f"{self.group}/{self.field}"


@dataclasses.dataclass(frozen=True, slots=True)
class ResctrlGroupChange:
    """Make the control group `group` if it is absent."""

    group: str

    @property
    def place(self) -> str:
        """What is changed."""
        return f"resctrl/{self.group}"


@dataclasses.dataclass(frozen=True, slots=True)
class SchemataChange:
    """Give `resource` (L3, L3CODE, L3DATA, L2, MB, SMBA) of resctrl group `group` these values by cache id."""

    group: str
    resource: str
    values: Mapping[int, int]

    @property
    def place(self) -> str:
        """What is changed."""
        return f"resctrl/{self.group}/{self.resource}"


@dataclasses.dataclass(frozen=True, slots=True)
class TasksChange:
    """Move these threads into resctrl group `group` (empty: the root group)."""

    group: str
    tids: tuple[int, ...]

    @property
    def place(self) -> str:
        """What is changed."""
        return f"resctrl/{self.group}/tasks"


@dataclasses.dataclass(frozen=True, slots=True)
class NodeResourceChange:
    """Give the extended resource `resource` of the Node this amount in capacity and allocatable; None removes it."""

    resource: str
    value: int | None

    @property
    def place(self) -> str:
        """What is changed."""
        return f"node/{self.resource}"


@dataclasses.dataclass(frozen=True, slots=True)
class TopologyChange:
    """Give the annotation `key` of the node's NodeResourceTopology the JSON text `value`."""

    key: str
    value: str

    @property
    def place(self) -> str:
        """What is changed."""
        return f"noderesourcetopology/{self.key}"


@dataclasses.dataclass(frozen=True, slots=True)
class ZonesChange:
    """Give the node's NodeResourceTopology these zones and policies; resources of other owners in a zone stay."""

    zones: tuple[Zone, ...]
    policies: tuple[str, ...]

    @property
    def place(self) -> str:
        """What is changed."""
        return "noderesourcetopology/zones"


ClusterChange = NodeResourceChange | TopologyChange | ZonesChange
Change = CgroupChange | ResctrlGroupChange | SchemataChange | TasksChange | ClusterChange

Evidence = Mapping[str, int | float | str]


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """What a strategy answers for one subject it owns. It always answers: silence is not an answer."""

    subject: str
    """`node`, `besteffort`, `pod/ns/name`, `resctrl/BE`."""
    verdict: Verdict
    reason: str
    """A stable CamelCase word; docs/decisions.md explains each."""
    evidence: Evidence = dataclasses.field(default_factory=dict)
    """The numbers, in the formula's own names; units are in the names or in docs/formulas.md."""
    changes: tuple[Change, ...] = ()
    strategy: str = ""
    """Filled in by `strategies.decide_all`."""
