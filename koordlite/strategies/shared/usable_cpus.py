"""CPUs that pods may be given at all."""

from __future__ import annotations

from koordlite.model.cpuset import CPUSet
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
