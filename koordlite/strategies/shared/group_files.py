"""Groups of a picture: the CPUs that pods may be given at all, files that the kernel has, and what is given back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from koordlite.changes import cgroup
from koordlite.changes.cgroup import CgroupChange
from koordlite.model.cgroup_fields import CgroupField
from koordlite.model.cpuset import CPUSet
from koordlite.model.picture.groups import Cgroup
from koordlite.model.snapshot import Snapshot
from koordlite.model.topology import CPU


def pod_cpuset(snapshot: Snapshot) -> CPUSet:
    """The online CPUs that kubelet's top group has; all online CPUs where that group does not say.

    An operator may have taken some from it (kubelet's --cgroup-root, a slice of systemd, a container around kubelet).
    On v1 the kernel refuses a set with a CPU that the group above lacks, on v2 such a CPU means nothing.
    """
    top = snapshot.cgroups.get(snapshot.layout.kubepods)
    return snapshot.topology.cpuset & top.effective if top and top.effective else snapshot.topology.cpuset


def pod_cpus(snapshot: Snapshot) -> tuple[CPU, ...]:
    """Same as `pod_cpuset`, with their places in the machine."""
    allowed, machine = pod_cpuset(snapshot), snapshot.topology
    return machine.cpus if allowed == machine.cpuset else tuple(cpu for cpu in machine.cpus if cpu.id in allowed)


def has(snapshot: Snapshot, field: CgroupField) -> bool:
    """Tell whether this kernel has the file."""
    return field in snapshot.cgroups.get(snapshot.layout.kubepods, Cgroup()).values


def given_back(snapshot: Snapshot, strategy: str, fields: Sequence[CgroupField]) -> Iterator[CgroupChange]:
    """What a strategy found in these files, as changes, for the groups that are still there."""
    for place, found in snapshot.found.items():
        if found.strategy == strategy and place.kind is cgroup.PLACE and place.part("cgroup") in snapshot.cgroups:
            for field in fields:
                if field == place.part("field"):
                    yield CgroupChange(place.part("cgroup"), field, found.value, gives_back=True)
