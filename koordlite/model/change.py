"""A change: one value for one place. The kinds of changes are in `koordlite.changes`."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

import msgspec

from koordlite.model.picture.groups import Cgroup
from koordlite.model.place import Place, PlaceKind
from koordlite.model.snapshot import Snapshot
from koordlite.model.status import ForeignWrite
from koordlite.model.wire.objects import NodeObject, NRTObject


class Standing(enum.Enum):
    """State, in a picture, of a value of ours that nobody else has changed."""

    OURS = enum.auto()
    """It is ours, or this picture does not tell."""
    UNSEEN = enum.auto()
    """Nobody looks there any more: what is there later cannot be compared."""
    GONE = enum.auto()
    """The owner of the value is gone."""


class Change:
    """One value that a strategy wants in one place."""

    __slots__ = ()
    __struct_fields__: ClassVar[tuple[str, ...]]
    place_kind: ClassVar[PlaceKind]
    """The kind of its place. The first fields of the change are the parts of the place."""
    rank: ClassVar[int]
    """Changes of a lower rank are made first; those of one rank in the order of `in_order`."""
    watched: ClassVar[bool] = False
    """True where `compare` tells who else writes there."""
    all_or_none: ClassVar[bool] = False
    """True where changes of this sort that one strategy wants wait for each other while another writer fights over
    one."""

    @classmethod
    def in_order(cls, changes: Sequence[Change], cgroups: Mapping[str, Cgroup]) -> Iterable[Change]:
        """Steps that come to `changes`, all of this kind's rank, so that every state on the way is legal; `cgroups`
        are the present values."""
        return changes

    @property
    def value(self) -> object:
        """Target value; None where that is no single value."""
        return None

    def describe(self) -> str:
        """The value in one line."""
        return str(self.value)

    @property
    def place(self) -> Place:
        """Place that is changed, for messages and for finding two writers of one file."""
        names = self.__struct_fields__[: self.place_kind.pattern.groups]
        return self.place_kind.place(*(str(getattr(self, name)) for name in names))

    @classmethod
    def source(cls, snapshot: Snapshot) -> object:
        """The part of the picture that `compare` reads: as long as it is the same object, so is the answer."""
        return snapshot

    def compare(self, snapshot: Snapshot) -> ForeignWrite | Standing:
        """State of this value, which we wrote last, by the picture."""
        return Standing.OURS

    @property
    def gives_back(self) -> bool:
        """Tell whether what was found, or what its owner wants, stands there again: the place is not ours from then
        on."""
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

    def before(self, snapshot: Snapshot, strategy: str) -> Entry | None:
        """Entry of what the cluster shows at its place, for the strategy that wants the change; None of a description,
        which is not undone."""
        return None


class NodeChange(ClusterChange):
    """A change of the Node. Koordinator's manager writes these fields too."""

    __slots__ = ()
    watched: ClassVar[bool] = True
    # An annotation that follows an amount would else be written on its own at each tick of a fight.
    all_or_none: ClassVar[bool] = True

    @property
    def amounts(self) -> Mapping[str, int | None]:
        """Target amounts in capacity and allocatable, by resource; None removes it."""
        return {}

    @property
    def annotations(self) -> Mapping[str, str | None]:
        """Target texts of the annotations, by key; None removes it."""
        return {}

    @property
    def conditions(self) -> Sequence[Mapping[str, str]]:
        """Conditions of the status, as a strategic merge patch has them."""
        return ()

    @property
    def value(self) -> int | str | None:
        """Target value; None removes it."""
        raise NotImplementedError

    def present(self, snapshot: Snapshot) -> int | str | None:
        """Present value on the Node in the picture."""
        raise NotImplementedError

    def compare(self, snapshot: Snapshot) -> ForeignWrite | Standing:
        """A Node that is gone takes its fields along."""
        if snapshot.node is None:
            return Standing.UNSEEN
        present = self.present(snapshot)
        if present == self.value:
            return Standing.OURS
        ours, theirs = ("(absent)" if each is None else str(each) for each in (self.value, present))
        return ForeignWrite(self.place, ours, theirs)

    def stands(self, node: NodeObject) -> bool:
        """Tell whether the Node holds it already."""
        raise NotImplementedError


class TopologyPart(ClusterChange):
    """A change of the node's NodeResourceTopology."""

    __slots__ = ()

    def onto(self, topology: NRTObject) -> NRTObject:
        """`topology` after the change."""
        raise NotImplementedError


class Entry(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """An entry of the undo journal: the value in one place before our first write.
    A kind of change has its own form of it in its module in `koordlite.changes`; kinds that write files of the kernel
    share `host.journal.file.FileEntry`. The tag of a class is its name in the file, for ever."""

    dies_with_boot: ClassVar[bool] = True
    """True where it means nothing after a reboot."""

    @property
    def strategy(self) -> str:
        """Strategy that wrote first; empty where that is not known."""
        return ""

    @property
    def groups(self) -> tuple[str, ...]:
        """Groups that it names, below their root. An entry that names others counts as damaged."""
        return ()

    @property
    def place(self) -> Place:
        """The place as the change of its kind names it."""
        return self.undoing().place

    def describe(self) -> str:
        """Value that comes back, in one line."""
        value = self.undoing().value
        return "(removed)" if value is None else str(value)

    def undoing(self) -> Change:
        """The change that puts it back, where one change does."""
        raise NotImplementedError
