"""Kubelet's topology manager as a NodeResourceTopology tells it: attributes before the older list of policies.

Source: scheduler-plugins `nodeconfig.TopologyManager`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from koordlite.model import nrt

_POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
_SCOPES = ("container", "pod")
_MOST_NODES = 1024


class ReportedPolicy(msgspec.Struct, frozen=True):
    """What one source says; empty or None where it says nothing that can be read."""

    policy: str = ""
    scope: str = ""
    max_numa_nodes: int | None = None

    def over(self, other: ReportedPolicy) -> ReportedPolicy:
        """This, with what it leaves open from `other`."""
        return ReportedPolicy(
            self.policy or other.policy, self.scope or other.scope, self.max_numa_nodes or other.max_numa_nodes
        )


DEFAULT = ReportedPolicy("none", "container", 8)
"""Kubelet's own defaults."""


def by_attributes(attributes: Iterable[Mapping[str, str]]) -> ReportedPolicy:
    """What the attributes say; a word or number that kubelet does not know counts as not given."""
    values = {a.get("name", ""): a.get("value", "") for a in attributes}
    policy, scope = values.get("topologyManagerPolicy", ""), values.get("topologyManagerScope", "")
    return ReportedPolicy(
        policy if policy in _POLICIES else "",
        scope if scope in _SCOPES else "",
        _count(values.get("topologyManagerMaxNUMANodes", "")),
    )


def by_policies(words: Sequence[str]) -> ReportedPolicy:
    """What the first word of `topologyPolicies` says; the others are not looked at."""
    if not words or (words[0] not in _NOTHING and nrt.kubelet_topology_manager(words[0])[0] == "none"):
        return ReportedPolicy()
    return ReportedPolicy(*nrt.kubelet_topology_manager(words[0]))


_NOTHING = ("None",)


def _count(text: str) -> int | None:
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else 0
    return min(number, _MOST_NODES) if number > 1 else None
