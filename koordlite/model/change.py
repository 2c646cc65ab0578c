"""What every change is: one value for one place. The kinds of changes are in `koordlite.changes`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from koordlite.model.picture.groups import Cgroup
from koordlite.model.place import Place
from koordlite.model.snapshot import Snapshot
from koordlite.model.wire.objects import NodeObject, NRTObject


class Change:
    """One value that a strategy wants in one place."""

    __slots__ = ()
    rank: ClassVar[int]
    """Changes of a lower rank are made first; those of one rank in the order of `in_order`."""

    @classmethod
    def in_order(cls, changes: Sequence[Change], cgroups: Mapping[str, Cgroup]) -> Iterable[Change]:
        """Steps that come to `changes`, all of this kind's rank, so that every state on the way is legal; `cgroups`
        are the present values."""
        return changes

    def describe(self) -> str:
        """The value in one line."""
        raise NotImplementedError

    @property
    def place(self) -> Place:
        """What is changed, for messages and for finding two writers of one file."""
        raise NotImplementedError

    @property
    def gives_back(self) -> bool:
        """Whether what was found, or what its owner wants, stands there again: the place is not ours from then on."""
        return False


class KernelChange(Change):
    """A change of this machine's files."""

    __slots__ = ()


class ResctrlChange(KernelChange):
    """A change of the resctrl file system."""

    __slots__ = ()


class ClusterChange(Change):
    """A change of what the cluster knows about this node."""

    __slots__ = ()


class NodeChange(ClusterChange):
    """A change of the Node."""

    __slots__ = ()

    @property
    def amounts(self) -> Mapping[str, int | None]:
        """What is to be in capacity and allocatable, by resource; None removes it."""
        return {}

    @property
    def annotations(self) -> Mapping[str, str | None]:
        """What is to be in the annotations, by key; None removes it."""
        return {}

    @property
    def value(self) -> int | str | None:
        """What is to stand there; None removes it."""
        raise NotImplementedError

    def held(self, seen: Snapshot) -> int | str | None:
        """What the Node in the picture holds there."""
        raise NotImplementedError

    def stands(self, node: NodeObject) -> bool:
        """Whether the Node holds it already."""
        raise NotImplementedError


class TopologyPart(ClusterChange):
    """A change of the node's NodeResourceTopology."""

    __slots__ = ()

    def onto(self, topology: NRTObject) -> NRTObject:
        """`topology` after the change."""
        raise NotImplementedError
