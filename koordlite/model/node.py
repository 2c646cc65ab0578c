"""A node as the rules see it, made once from the wire shape."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from koordlite.model import keys
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.errors import Problem, refusing
from koordlite.model.quantity import Quantity, parse_resources
from koordlite.model.reading import declared
from koordlite.model.wire import objects


class Reservation(msgspec.Struct, frozen=True):
    """Annotation `node.koordinator.sh/reservation` as written: what is kept for processes outside Kubernetes."""

    resources: Mapping[str, Quantity] = msgspec.field(default_factory=dict)
    reserved_cpus: CPUSet | None = None
    """Given by number list; wins over resources.cpu. None when only a quantity was given."""
    apply_policy: str = ""
    ignored: tuple[str, ...] = ()
    """A sentence for each name in it that means nothing, so that a misspelt one does not reserve nothing unseen."""


class ResolvedReservation(msgspec.Struct, frozen=True):
    """The reservation as it takes effect on this machine."""

    cpus: CPUSet = EMPTY
    """Concrete CPU ids, all of them on this machine."""
    resources: Mapping[str, Quantity] = msgspec.field(default_factory=dict)
    """Amounts for sums over capacity: cpu is the number of ids when a list was given, else the quantity as written."""
    written: Reservation | None = None
    source: str = "none"
    """`list`, `quantity` or `none`."""
    fallback: str = ""
    """Sentence about what holds instead, when the annotation cannot be honoured as written."""


class SystemQoS(msgspec.Struct, frozen=True):
    """Annotation `node.koordinator.sh/system-qos-resource`: CPUs of SYSTEM pods."""

    cpuset: CPUSet = EMPTY
    exclusive: bool = True

    @property
    def exclusive_cpus(self) -> CPUSet:
        """CPUs that only SYSTEM pods may use."""
        return self.cpuset if self.exclusive else EMPTY


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """Identity, size and annotations of the node the agent runs on."""

    name: str
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    capacity: Mapping[str, Quantity] = msgspec.field(default_factory=dict)
    allocatable: Mapping[str, Quantity] = msgspec.field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    conditions: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Status by type, of the conditions that the agent itself writes."""

    @property
    def capacity_milli(self) -> int:
        """CPU capacity in millicores, 0 when unknown."""
        return self.capacity["cpu"].milli if "cpu" in self.capacity else 0

    @property
    def capacity_memory(self) -> int:
        """Memory capacity in bytes, 0 when unknown."""
        return self.capacity["memory"].value if "memory" in self.capacity else 0


def from_wire(obj: objects.NodeObject) -> Node:
    """The node `obj` describes; quantities that cannot be read become its `problems`."""
    problems: list[Problem] = []
    owner = f"node/{obj.metadata.name}"
    return Node(
        name=obj.metadata.name,
        labels=obj.metadata.labels or {},
        annotations=obj.metadata.annotations or {},
        capacity=parse_resources(obj.status.capacity, owner, "status.capacity", problems),
        allocatable=parse_resources(obj.status.allocatable, owner, "status.allocatable", problems),
        conditions={c.type: c.status for c in obj.status.conditions or () if c.type == keys.CPU_CONTENTION},
        problems=tuple(problems),
    )


def parse_reservation(text: str, owner: str) -> Reservation | None:
    """Decode the reservation annotation of object `owner`; None when empty, InputError when it cannot be read. Source:
    `GetNodeReservation` of Koordinator; a list that does not parse is an error here, never "nothing reserved"."""
    if not text:
        return None
    with refusing(owner, keys.RESERVATION, text, _RESERVATION_HELP):
        written = declared.decode(_ReservationText, text)
        cpus = CPUSet.parse(written.reserved_cpus) if written.reserved_cpus else None
    reservation = Reservation(
        written.resources, cpus, written.apply_policy, tuple(declared.ignored(_ReservationText, text))
    )
    return None if text.strip() == "null" else reservation


def parse_system_qos(text: str | None, owner: str) -> SystemQoS:
    """Decode the system QoS annotation of object `owner`; InputError when it cannot be read."""
    if not text:
        return SystemQoS()
    do = 'write {"cpuset":"0-1","cpusetExclusive":true}; the last good value stays in force'
    with refusing(owner, keys.SYSTEM_QOS, text, do):
        written = declared.decode(_SystemQoSText, text)
        return SystemQoS(CPUSet.parse(written.cpuset), written.cpuset_exclusive)


_RESERVATION_HELP = (
    'write {"resources":{"cpu":"2","memory":"4Gi"}} or {"reservedCPUs":"0-1"}; the last good value stays in force'
)


class _ReservationText(msgspec.Struct, frozen=True):
    resources: Mapping[str, Quantity] = msgspec.field(default_factory=dict)
    reserved_cpus: str = ""
    apply_policy: str = ""


class _SystemQoSText(msgspec.Struct, frozen=True):
    cpuset: str = ""
    cpuset_exclusive: bool = True
