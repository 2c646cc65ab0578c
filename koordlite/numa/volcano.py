"""Volcano's numa-aware plugin: which nodes a pod may go to, what it would get there, and how they are scored.

It counts the CPUs of app containers only, and merges hints as kubelet did up to 1.25, so it can choose a node that
today's kubelet refuses. CPUs are taken as kubelet takes them. Volcano compares core and socket numbers with CPU
numbers by mistake, so that it may write down other CPUs of the same NUMA nodes; kubelet takes its own anyway. Source:
volcano.sh/volcano v1.12, `pkg/scheduler/plugins/numaaware`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.numa.kubelet import merge
from koordlite.numa.kubelet.cpu_manager import CPUState, StaticPolicy
from koordlite.numa.kubelet.merge import Hint
from koordlite.numa.kubelet.requests import ContainerAsk, PodAsk
from koordlite.numa.machine import Machine, nodes_of

_NOTHING_ASKED = ("", "none")
MAX_SCORE = 100


class Reported(msgspec.Struct, frozen=True):
    """Contents of a node's Numatopology. `free`: CPUs that no container has to itself; `reserved`: how many are
    kept."""

    machine: Machine
    free: CPUSet
    cpu_policy: str = ""
    topology_policy: str = ""
    reserved: int = 0


class VolcanoVerdict(msgspec.Struct, frozen=True):
    """`why_not` is Volcano's text, empty where the pod fits; `cpus` is what its containers would get together."""

    why_not: str = ""
    cpus: CPUSet = EMPTY
    applies: bool = True
    """False where the plugin does not look at the node, or the pod, at all."""


def predicate(
    policy: str, containers: Sequence[ContainerAsk], node: Reported | None, *, guaranteed: bool
) -> VolcanoVerdict:
    """Judge whether a pod with annotation `volcano.sh/numa-topology-policy` of `policy` (or empty) may go to the node.

    `containers` are its app containers in order. A node without a Numatopology is None.
    """
    if not guaranteed:
        return VolcanoVerdict(applies=False)
    why_not = policy_mismatch(policy, node.cpu_policy if node else None, node.topology_policy if node else "")
    if not why_not and node is not None and policy not in _NOTHING_ASKED and not node.free:
        why_not = "cpu allocatable map is empty" if node.machine.cpus else "no topo information"
    if why_not or node is None or not applies(policy, node):
        return VolcanoVerdict(why_not, applies=bool(why_not))
    free = node.free
    for container in containers:
        wanted = container.cpus
        own = [{"cpu": cpu_hints(node.machine, free - _reserved(node), wanted)}] if wanted else [None]
        best, admitted = _merged(node, own)
        if not admitted:
            return VolcanoVerdict(f"container {container.name} cannot be assigned by numa")
        free -= allocate(node.machine, free - _reserved(node), wanted, best.mask)
    return VolcanoVerdict(cpus=node.free - free)


def policy_mismatch(policy: str, cpu_policy: str | None, topology_policy: str) -> str:
    """Reason why a pod that asks for `policy` cannot go to a node with these policies of kubelet, None where nothing is
    reported; empty where nothing speaks against it."""
    if policy in _NOTHING_ASKED:
        return ""
    if cpu_policy is None:
        return "numa info is empty"
    if cpu_policy != "static":
        return "cpu manager policy isn't static"
    same = policy == topology_policy
    return "" if same else f"task topology policy[{policy}] is different with node[{topology_policy}]"


def applies(policy: str, node: Reported) -> bool:
    """Tell whether the plugin looks at the node. A pod that asks for nothing is checked where kubelet aligns."""
    return policy not in _NOTHING_ASKED or (node.cpu_policy == "static" and node.topology_policy not in _NOTHING_ASKED)


def cpu_hints(machine: Machine, available: CPUSet, count: int) -> list[Hint]:
    """One hint for every set of NUMA nodes with enough free CPUs, as kubelet merge."""
    state = CPUState(available)
    found = StaticPolicy(machine).hints(state, PodAsk("", (ContainerAsk("", cpus=count),))) or {}
    return list(found.get("cpu") or ())


def allocate(machine: Machine, available: CPUSet, count: int, affinity: int | None) -> CPUSet:
    """`count` of the available CPUs, those of the affinity first; empty when there are too few."""
    inside = EMPTY if affinity is None else CPUSet(available.ids & machine.in_nodes(nodes_of(affinity)))
    policy = StaticPolicy(machine)
    try:
        cpus = policy.take(inside, min(len(inside), count))
        return cpus | policy.take(available - cpus, count - len(cpus))
    except ValueError:
        return EMPTY


def scores(nodes_used: Mapping[str, int], weight: int = 1) -> dict[str, int]:
    """node name → weight × (100 − 100 × NUMA nodes used / most used on any node), in whole numbers."""
    most = max(nodes_used.values(), default=0)
    shares = {name: MAX_SCORE * used // most if most else 0 for name, used in nodes_used.items()}
    return {name: weight * (MAX_SCORE - share) for name, share in shares.items()}


def _reserved(node: Reported) -> CPUSet:
    return StaticPolicy(node.machine).take(node.machine.all, node.reserved) if node.reserved else EMPTY


def _merged(node: Reported, own: Sequence[merge.Hints | None]) -> tuple[Hint, bool]:
    policy: merge.Policy = next((policy for policy in merge.POLICIES if policy == node.topology_policy), "none")
    return merge.merge(policy, own, merge.Rules(tuple(node.machine.nodes), equal_masks=False))
