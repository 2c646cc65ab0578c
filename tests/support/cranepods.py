"""Pods with Crane's annotations in the folder of manifests of an emulated node."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping

import cyaml
import msgspec
from emulated import Emulated

from koordlite import config
from koordlite.agent import Agent
from koordlite.host.journal.journal import Journal
from koordlite.lab.machine import shapes
from koordlite.lab.machine.machine import LogicalCPU, Machine
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.ports import Files

ONLY_CRANE = frozenset({"craneCPUManager"})
WITH_POOLS = frozenset({"craneCPUManager", "cpusetPools", "cpuSuppress"})


def kubelet(node: Emulated, policy: str = "none", reserved: str = "") -> None:
    """What kubelet is configured to do."""
    content = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cpuManagerPolicy": policy,
        **({"reservedSystemCPUs": reserved} if reserved else {}),
    }
    (node.folder / "kubelet.yaml").write_text(cyaml.safe_dump(content))


def result(zones: Mapping[int, int]) -> str:
    """A topology result, as Crane's scheduler writes it."""
    capacity = {node: {"cpu": str(count)} for node, count in zones.items()}
    return json.dumps(
        [{"name": f"node{n}", "type": "Node", "resources": {"capacity": amounts}} for n, amounts in capacity.items()]
    )


def pod(
    node: Emulated,
    name: str,
    cpus: int | Mapping[str, int] = 0,
    zones: Mapping[int, int] | None = None,
    *,
    policy: str = "",
    excludes: bool = False,
    uses: str = "200m",
    **notes: str,
) -> None:
    """A pod with whole CPUs by container, on the NUMA nodes of `zones`; without CPUs a burstable one."""
    annotations = {"sandbox.koordlite.io/cpu": uses, **notes}
    annotations |= {"topology.crane.io/cpu-policy": policy} if policy else {}
    annotations |= {"topology.crane.io/topology-result": result(zones)} if zones else {}
    annotations |= {"topology.crane.io/exclude-reserved-cpus": "true"} if excludes else {}
    counts = {"main": cpus} if isinstance(cpus, int) else dict(cpus)
    amounts = {each: {"cpu": str(count or "100m"), "memory": "64Mi"} for each, count in counts.items()}
    containers = [
        {"name": each, "resources": {"requests": amounts[each], **({"limits": amounts[each]} if count else {})}}
        for each, count in counts.items()
    ]
    content = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", "annotations": annotations},
        "spec": {"nodeName": "node-a", "containers": containers},
        "status": {"phase": "Running"},
    }
    (node.folder / f"pod-{name}.yaml").write_text(cyaml.safe_dump(content))


def agent(
    node: Emulated,
    journal: Journal | None,
    enforced: frozenset[str] = ONLY_CRANE,
    files: Files | None = None,
    *,
    off: frozenset[str] = frozenset(),
) -> Agent:
    """An agent that enforces these strategies and observes the others but for those that are off."""
    settings = config.with_modes(node.settings("observe"), "enforce", enforced)
    settings = config.with_modes(settings, "off", off) if off else settings
    return Agent(node.host(files), node.cluster, settings, journal)


@contextlib.contextmanager
def at_work(node: Emulated, enforced: frozenset[str] = ONLY_CRANE, files: Files | None = None) -> Iterator[Agent]:
    """Such an agent, whose journal is held while the block runs."""
    with node.journal() as journal:
        yield agent(node, journal, enforced, files)


def machine(threads: int, version: int = 2) -> Machine:
    """Two sockets, each a NUMA node; the second thread of core i is CPU i + threads / 2."""
    cores = threads // 2
    cpus = tuple(
        LogicalCPU(
            id=cpu, package=cpu % cores * 2 // cores, core=cpu % (cores // 2), node=cpu % cores * 2 // cores, l3=None
        )
        for cpu in range(threads)
    )
    driver = "systemd" if version == 2 else "cgroupfs"
    whole = shapes.machine("intel-2s-ht")
    return msgspec.structs.replace(
        whole, name=f"{threads}-cpus", cpus=cpus, cgroup_version=version, driver=driver, rdt=None
    )


def sets(node: Emulated, running: Agent) -> dict[str, CPUSet]:
    """The CPUs that every container may use now, by `pod/container`, of the pods in the agent's last picture."""
    host, seen = node.host(), running.snapshot
    assert seen is not None
    names = {pod.uid: pod.name for pod in seen.pods}
    return {
        f"{names[uid]}/{container}": host.cgroups.state(group).effective or EMPTY
        for uid, place in seen.places.items()
        for container, group in place.containers.items()
    }


def cpus(node: Emulated, running: Agent, name: str, container: str = "main") -> str:
    """The CPUs that one container may use now."""
    return str(sets(node, running)[f"{name}/{container}"])


def mems(node: Emulated, running: Agent, name: str) -> str:
    """The NUMA nodes that a pod's container may take memory from now."""
    assert running.snapshot is not None
    group = running.snapshot.places[f"uid-{name}"].containers["main"]
    return node.host().cgroups.read_raw(group, "cpuset.mems.effective").decode().strip()
