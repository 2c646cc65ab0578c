"""Group of a host application, and the CPUs on which it may run."""

from __future__ import annotations

from koordlite.formulas.cpu import pools
from koordlite.model.cpuset import CPUSet
from koordlite.model.picture.groups import Layout
from koordlite.model.pod.qos import QoSClass
from koordlite.model.slo.settings import HostApplication

_FOLDERS = {
    QoSClass.LSE: "host-latency-sensitive",
    QoSClass.LSR: "host-latency-sensitive",
    QoSClass.LS: "host-latency-sensitive",
    QoSClass.BE: "host-best-effort",
}


def group(app: HostApplication, layout: Layout) -> str:
    """base/parentDir/relativePath below the cgroup root, or the folder of its class and its name without a cgroupPath.

    Source: Koordinator `GetHostAppCgroupRelativePath`.
    """
    if not (app.base or app.parent_dir or app.relative_path):
        return "/".join(part for part in (_FOLDERS.get(app.qos, ""), app.name) if part)
    bases = {
        "Kubepods": layout.kubepods,
        "KubepodsBurstable": layout.burstable,
        "KubepodsBesteffort": layout.besteffort,
    }
    parts = [bases.get(app.base, ""), *app.parent_dir.split("/"), *app.relative_path.split("/")]
    return "/".join(part for part in parts if part not in ("", "."))


def is_own(group: str, layout: Layout) -> bool:
    """Tell whether the group may be an application's: it is not the root, and kubelet's groups are neither it nor in
    it."""
    kubelets = (layout.kubepods, layout.burstable, layout.besteffort)
    return bool(group) and not any(f"{each}/".startswith(f"{group}/") for each in kubelets)


def cpuset(qos: QoSClass, ls_pools: pools.Pools) -> CPUSet:
    """All CPUs of the LS pools for an application of class LS; ValueError for the other classes, which have no rule.

    Source: Koordinator `SetHostAppCPUSet`.
    """
    if qos is not QoSClass.LS:
        raise ValueError(f"host applications of class {qos or 'none'} have no CPUs by rule; only LS ones have")
    return pools.joined(ls_pools)
