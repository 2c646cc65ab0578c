"""Volcano's numa-aware plugin: whether a pod's policy goes with a node's, and the score of a node.

Where it would put the pod's CPUs is no matter: kubelet takes its own. Source: volcano.sh/volcano v1.12,
`pkg/scheduler/plugins/numaaware`.
"""

from __future__ import annotations

from collections.abc import Mapping

MAX_SCORE = 100


def policy_mismatch(policy: str, cpu_policy: str | None, topology_policy: str) -> str:
    """Reason why a pod that asks for `policy` cannot go to a node with these policies of kubelet, None where nothing is
    reported; empty where nothing speaks against it."""
    if policy in ("", "none"):
        return ""
    if cpu_policy is None:
        return "numa info is empty"
    if cpu_policy != "static":
        return "cpu manager policy isn't static"
    same = policy == topology_policy
    return "" if same else f"task topology policy[{policy}] is different with node[{topology_policy}]"


def scores(nodes_used: Mapping[str, int], weight: int = 1) -> dict[str, int]:
    """node name → weight × (100 − 100 × NUMA nodes used / most used on any node), in whole numbers."""
    most = max(nodes_used.values(), default=0)
    return {
        name: weight * (MAX_SCORE - MAX_SCORE * used // most if most else MAX_SCORE)
        for name, used in nodes_used.items()
    }
