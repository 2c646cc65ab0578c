"""Kubelet's configuration: /configz and its CPU manager's checkpoint, as parts of `picture.kubelet.Kubelet`."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

import msgspec

from koordlite.model.cpuset import EMPTY, CPUSet, union
from koordlite.model.errors import InputError, Problem, noting, refusing
from koordlite.model.picture.kubelet import Kubelet, PodCPUs
from koordlite.model.quantity import Quantity, add_resources
from koordlite.model.topology import Topology
from koordlite.numa.kubelet.cpu_take import take_by_topology

STATIC = "static"


class CPUManagerState(msgspec.Struct, frozen=True):
    """Kubelet's checkpoint of exclusive CPUs; `policy` is empty when there is none."""

    policy: str = ""
    shared: CPUSet = EMPTY
    pod_cpus: tuple[PodCPUs, ...] = ()
    problems: tuple[Problem, ...] = ()
    """Containers whose CPUs cannot be read."""

    @property
    def as_config(self) -> Kubelet:
        """Kubelet that did not say its configuration: the checkpoint alone tells which policy wrote it."""
        return Kubelet(cpu_manager_policy=self.policy, topology_manager_scope="container")


def parse_configz(raw: bytes) -> Kubelet:
    """Decode the answer of /configz; InputError when it is none. `listed_reserved_cpus` is as written."""
    with understood("/configz", raw, "kubelet's policies count as unknown"):
        text = msgspec.json.decode(raw, type=_Configz).kubeletconfig
        cpus = CPUSet.parse(text.reserved_system_cpus) if text.reserved_system_cpus else EMPTY
        reserved: dict[str, Quantity] = {}
        for amounts in (text.system_reserved, text.kube_reserved):
            add_resources(reserved, {name: Quantity.parse(amount) for name, amount in (amounts or {}).items()})
    return Kubelet(
        cpu_manager_policy=text.cpu_manager_policy or "none",
        cpu_manager_options=text.cpu_manager_policy_options or {},
        topology_manager_policy=text.topology_manager_policy or "none",
        topology_manager_scope=text.topology_manager_scope or "container",
        topology_manager_options=text.topology_manager_policy_options or {},
        listed_reserved_cpus=cpus,
        reserved=reserved,
        cpu_cfs_quota=text.cpu_cfs_quota is not False,
        swap_behavior=(text.memory_swap and text.memory_swap.swap_behavior) or "",
    )


def parse_cpu_manager_state(raw: bytes) -> CPUManagerState:
    """The state in the file `cpu_manager_state`; an empty file is no state, InputError when it cannot be read.
    The checksum is not verified: it depends on Go's struct printing. A container whose CPUs cannot be read is left
    out and reported. Pods without a CPU are left out, the rest is sorted by uid."""
    if not raw.strip():
        return CPUManagerState()
    with understood("cpu_manager_state", raw, "kubelet's exclusive CPUs count as unknown"):
        text = msgspec.json.decode(raw, type=_StateText)
        shared = CPUSet.parse(text.default_cpu_set)
    problems: list[Problem] = []
    pods = [_pod_cpus(uid, sets, problems) for uid, sets in sorted((text.entries or {}).items())]
    return CPUManagerState(text.policy_name, shared, tuple(pod for pod in pods if pod.cpus), tuple(problems))


def reserved_cpus(config: Kubelet, topology: Topology) -> CPUSet:
    """The CPUs kubelet's static policy keeps for the system; empty under any other policy.
    ⌈system-reserved + kube-reserved⌉ CPUs by topology, unless they are listed. InputError when the listed ones are not
    all on this machine, or when it has too few. Source: Koordinator `GetStaticCPUManagerPolicyReservedCPUs`."""
    if config.cpu_manager_policy != STATIC:
        return EMPTY
    listed = config.listed_reserved_cpus
    if listed:
        if not listed <= topology.cpuset:
            why = f"this machine has only the CPUs {topology.cpuset}"
            raise InputError(Problem("kubelet", "reservedSystemCPUs", str(listed), why, _NONE_RESERVED))
        return listed
    milli = config.reserved_milli
    with refusing("kubelet", "systemReserved + kubeReserved", f"{milli}m", _NONE_RESERVED):
        return take_by_topology(cpus=topology.cpus, available=topology.cpuset, count=-(-milli // 1000))


def combine(config: Kubelet, state: CPUManagerState, topology: Topology) -> tuple[Kubelet, tuple[Problem, ...]]:
    """Combine the parts for the rules, with the problems they had. A state left by another policy is not counted."""
    problems = state.problems
    try:
        reserved = reserved_cpus(config, topology)
    except InputError as error:
        reserved, problems = EMPTY, (*problems, *error.problems)
    kubelet = msgspec.structs.replace(
        config,
        reserved_cpus=reserved,
        listed_reserved_cpus=config.listed_reserved_cpus & topology.cpuset,
        pod_cpus=state.pod_cpus if config.cpu_manager_policy == STATIC else (),
    )
    return kubelet, problems


_NONE_RESERVED = "fix kubelet's configuration; until then no CPU counts as reserved by kubelet"


class _MemorySwapText(msgspec.Struct, frozen=True, rename="camel"):
    swap_behavior: str | None = None


class _ConfigText(msgspec.Struct, frozen=True, rename="camel"):
    cpu_manager_policy: str | None = None
    cpu_manager_policy_options: dict[str, str] | None = None
    topology_manager_policy: str | None = None
    topology_manager_scope: str | None = None
    topology_manager_policy_options: dict[str, str] | None = None
    reserved_system_cpus: str | None = msgspec.field(default=None, name="reservedSystemCPUs")
    system_reserved: dict[str, str] | None = None
    kube_reserved: dict[str, str] | None = None
    cpu_cfs_quota: bool | None = msgspec.field(default=None, name="cpuCFSQuota")
    memory_swap: _MemorySwapText | None = None


class _Configz(msgspec.Struct, frozen=True):
    kubeletconfig: _ConfigText


class _StateText(msgspec.Struct, frozen=True, rename="camel"):
    policy_name: str = ""
    default_cpu_set: str = ""
    entries: dict[str, dict[str, str]] | None = None


def _pod_cpus(uid: str, texts: Mapping[str, str], problems: list[Problem]) -> PodCPUs:
    sets: dict[str, CPUSet] = {}
    for container, text in texts.items():
        do = "check what kubelet wrote there; these CPUs count as shared"
        with noting(problems), refusing("kubelet", f"cpu_manager_state.entries.{uid}.{container}", text, do):
            sets[container] = CPUSet.parse(text)
    return PodCPUs(uid, union(sets.values()), sets)


def understood(place: str, raw: bytes, meanwhile: str) -> contextlib.AbstractContextManager[None]:
    """Around the reading of what kubelet says at `place`; InputError when it cannot be read."""
    do = f"check what kubelet says there; {meanwhile}"
    return refusing("kubelet", place, raw[:200].decode(errors="replace"), do)
