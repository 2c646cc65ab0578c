"""Groups of a picture: the CPUs that pods may be given at all, files that the kernel has, and what is given back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from koordlite.changes import cgroup
from koordlite.changes.cgroup import CgroupChange
from koordlite.model import cpuset
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


def set_changes(snapshot: Snapshot, targets: Mapping[str, CPUSet]) -> Iterator[CgroupChange]:
    """The CPUs of each group that has others. On v2 an empty set means the parent's CPUs: where these are among the
    targets, nothing has to be written."""
    for group, cpus in targets.items():
        present = snapshot.cgroups.get(group)
        if not cpus or present is None or present.cpuset in (None, cpus):
            continue
        inherits = snapshot.layout.version == 2 and not present.cpuset and present.effective
        if not (inherits and inherits <= cpus):
            yield CgroupChange(group, "cpuset.cpus", cpus)


def change(snapshot: Snapshot, group: str, field: CgroupField, value: CPUSet | int) -> CgroupChange:
    """The change; a value that is back where it was found is not ours any more."""
    before = snapshot.found.get(cgroup.PLACE.place(group, field))
    return CgroupChange(group, field, value, gives_back=before is not None and before.value == value)


def original(snapshot: Snapshot, strategy: str, group: str, field: CgroupField) -> CPUSet | int | None:
    """The value that stood there before the first write of this strategy; None where it has not written."""
    before = snapshot.found.get(cgroup.PLACE.place(group, field))
    return before.value if before is not None and before.strategy == strategy else None


def releases(
    snapshot: Snapshot,
    strategy: str,
    fields: tuple[CgroupField, ...],
    *,
    uid: str = "",
    groups: Iterable[str] | None = None,
) -> Iterator[CgroupChange]:
    """Changes to what a strategy found in these files, for the groups that are still there; only for `groups` where
    they are named. Sets of the pod `uid` come without the CPUs that kubelet has given to other pods alone since."""
    exclusive = cpuset.union(pod.cpus for pod in snapshot.kubelet.pod_cpus if uid and pod.uid != uid)
    named = None if groups is None else [cgroup.PLACE.place(group, field) for group in groups for field in fields]
    for place in snapshot.found if named is None else named:
        before, group = snapshot.found.get(place), place.part("cgroup")
        if before is None or before.strategy != strategy or place.kind is not cgroup.PLACE:
            continue
        field = next((each for each in fields if each == place.part("field")), None)
        if field is not None and group in snapshot.cgroups:
            value = (before.value - exclusive or before.value) if isinstance(before.value, CPUSet) else before.value
            yield CgroupChange(group, field, value, gives_back=True)
