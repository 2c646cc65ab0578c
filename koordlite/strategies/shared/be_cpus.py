"""Which CPUs best-effort pods may have at most, and which are never theirs."""

from __future__ import annotations

from koordlite.formulas.cpu import cpu_select
from koordlite.model import cpuset
from koordlite.model.cpuset import CPUSet
from koordlite.model.pod.qos import QoSClass
from koordlite.model.snapshot import Snapshot
from koordlite.strategies.shared import usable_cpus


def forbidden(seen: Snapshot) -> CPUSet:
    """Reserved CPUs, CPUs of SYSTEM pods alone, of LSE pods, and those a pod has alone from kubelet or by Crane's
    annotations."""
    return cpuset.union([_owned(seen), seen.system_qos.exclusive_cpus, seen.reserved.cpus])


def _owned(seen: Snapshot) -> CPUSet:
    lse = [pod.resource_status.cpuset for pod in seen.pods if pod.raw_qos is QoSClass.LSE]
    return cpuset.union([*lse, seen.crane.owned, *(held.cpus for held in seen.kubelet.pod_cpus)])


def allowed(seen: Snapshot) -> CPUSet:
    """What best effort gets when nothing limits it."""
    return cpu_select.be_full_set(
        cpus=usable_cpus.pod_cpus(seen),
        reserved=seen.reserved.cpus,
        system_exclusive=seen.system_qos.exclusive_cpus,
        lse=_owned(seen),
    )


def above_containers(seen: Snapshot) -> CPUSet:
    """The set of pods and of their QoS group under kubelet's static policy.

    Kubelet writes its default set into each new container, reserved CPUs and all. On v1 the kernel refuses that where a
    group above has fewer CPUs, and the container does not start; so these groups keep what kubelet's top group has.
    """
    return usable_cpus.pod_cpuset(seen) if seen.layout.version == 1 else allowed(seen)
