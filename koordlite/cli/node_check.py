"""What a machine offers the agent, question by question: yes, no or partly, and what to do."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator

from koordlite.cli import machine as machines
from koordlite.config import Settings
from koordlite.host import procfs, sysfs
from koordlite.host.bundle import Host
from koordlite.model.errors import HardwareAbsent
from koordlite.model.picture.kubelet import Kubelet
from koordlite.ports import Files


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One answer. NO in capitals: the agent cannot work without it."""

    what: str
    answer: str
    """yes, no, part or NO."""
    detail: str
    do: str = ""


def findings(args: argparse.Namespace, settings: Settings) -> Iterator[Finding]:
    """Every answer about the machine that the options name. Reads only."""
    try:
        machine = machines.machine(args, settings)
    except HardwareAbsent as absent:
        yield Finding(absent.feature, "NO", absent.why, "mount cgroups, or name kubelet's group with --kubepods")
        return
    host = machine.host
    yield _cgroups(host)
    yield from _machine(host.files)
    yield _resctrl(host)
    yield _pressure(host.files)
    yield from _writable(host)
    view = machine.cluster.view()
    yield _node_object(view.node is not None)
    yield from _kubelet(view.kubelet)
    yield from (Finding("input", "no", str(problem)) for problem in view.problems)


def _cgroups(host: Host) -> Finding:
    layout = host.cgroups.layout
    return Finding(
        "cgroups", "yes", f"v{layout.version}, {layout.driver} driver, kubelet's groups in {layout.kubepods}"
    )


def _machine(files: Files) -> Iterator[Finding]:
    topology, cpu = sysfs.topology(files), procfs.processor(files)
    cores = len({c.core for c in topology.cpus})
    sockets = len({c.socket for c in topology.cpus})
    threads = "hyperthreads" if cores < len(topology.cpus) else "no hyperthreads"
    detail = f"{len(topology.cpus)} CPUs, {cores} cores, {sockets} sockets, {threads}; {cpu.model or 'model unknown'}"
    yield Finding("processors", "yes", detail)
    sizes = ", ".join(f"{node.id}: {node.cpus or 'no CPUs'}" for node in topology.nodes)
    yield Finding("NUMA nodes", "yes" if len(topology.nodes) > 1 else "no", sizes)


def _resctrl(host: Host) -> Finding:
    found = host.resctrl.read()
    if found.absent:
        return Finding("resctrl", "no", found.absent, "the resctrl strategy is skipped; everything else works")
    parts = [f"{name} {cap.cbm_mask.bit_length()} ways" for name, cap in found.caches.items()]
    parts += [f"{name} up to {cap.maximum}{'' if cap.absolute else ' %'}" for name, cap in found.bandwidths.items()]
    return Finding("resctrl", "yes" if "MB" in found.bandwidths else "part", ", ".join(parts))


def _pressure(files: Files) -> Finding:
    try:
        files.read("/proc/pressure/cpu")
    except OSError as error:
        return Finding("pressure (PSI)", "no", error.strerror or "", "boot with psi=1 for quicker reactions")
    return Finding("pressure (PSI)", "yes", "/proc/pressure/cpu")


def _writable(host: Host) -> Iterator[Finding]:
    """Whether limits could be written: asked of the mount options, never by a write."""
    points = {mount.point: mount for mount in procfs.mounts(host.files) if mount.type in ("cgroup", "cgroup2")}
    read_only = sorted(point for point, mount in points.items() if "ro" in mount.options)
    if read_only:
        yield Finding("writable cgroups", "no", f"read-only: {', '.join(read_only)}", "mount them rw to enforce")
    elif points:
        yield Finding("writable cgroups", "yes", ", ".join(sorted(points)))


def _node_object(known: bool) -> Finding:
    do = "" if known else "check --node and the folder named by --cluster"
    return Finding("Node object", "yes" if known else "NO", "found" if known else "not found", do)


def _kubelet(kubelet: Kubelet) -> Iterator[Finding]:
    if not kubelet.cpu_manager_policy:
        yield Finding("kubelet's policies", "part", "not known", "pods are treated as under cpuManagerPolicy none")
        return
    detail = f"cpuManagerPolicy {kubelet.cpu_manager_policy}, topologyManagerPolicy {kubelet.topology_manager_policy}"
    yield Finding("kubelet's policies", "yes", detail)
    if kubelet.cpu_manager_policy == "static":
        owned = f"{len(kubelet.pod_cpus)} pods hold CPUs exclusively; kubelet's reserved CPUs: {kubelet.reserved_cpus}"
        yield Finding("other writer of cpusets", "yes", owned, "containers outside besteffort are left to kubelet")
