"""Crane's annotations of a pod: its CPU policy, the NUMA nodes its scheduler chose, reserved CPUs; and our spelling of
the policy exclusive, which names containers.

Source of Crane's: gocrane/api `topology/v1alpha1`, crane-agent `cpumanager/util.go`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

import msgspec

from koordlite.model import keys
from koordlite.model.errors import Problem, noting, refusing
from koordlite.model.quantity import Quantity
from koordlite.model.reading import go_words
from koordlite.model.wire.crane import Zone, ZoneResources, node_of

CPUPolicy = Literal["none", "exclusive", "numa", "immovable"]
EXCLUSIVE: CPUPolicy = "exclusive"
POLICIES: tuple[CPUPolicy, ...] = get_args(CPUPolicy)
_MOST_CPUS = 1 << 20


class CraneSpec(msgspec.Struct, frozen=True):
    """The annotations of one pod."""

    policy: str = ""
    """One of `POLICIES`; empty when the pod does not say, or says another word."""
    zones: tuple[tuple[int, int], ...] = ()
    """NUMA nodes of the topology result with the CPUs on each, in the order of their ids."""
    nodes: tuple[int, ...] = ()
    """NUMA nodes that the topology result names, with or without CPUs."""
    aware: bool | None = None
    """True where all CPUs are to be of one NUMA node; None when the pod does not say."""
    excludes_reserved: bool = False
    containers: tuple[str, ...] = ()
    """The only containers that are to have CPUs; empty: all that request whole ones."""

    @property
    def cpus(self) -> int:
        """CPUs on all NUMA nodes of the result."""
        return sum(count for _, count in self.zones)


NOTHING = CraneSpec()


def parse(notes: Mapping[str, str], owner: str, problems: list[Problem]) -> CraneSpec:
    """The annotations of `owner`; what cannot be read counts as not set and becomes a problem.
    A policy of another word counts as none given, a topology-awareness that is no boolean too, as in Crane."""
    if not any(key in notes for key in keys.CRANE_NOTES):
        return NOTHING
    containers = exclusive_containers(notes.get(keys.EXCLUSIVE_CONTAINERS, ""))
    policy = notes.get(keys.CRANE_CPU_POLICY, "")
    if policy and policy not in POLICIES:
        do = f"write one of {', '.join(POLICIES)}; the default policy of the node holds"
        problems.append(Problem(owner, keys.CRANE_CPU_POLICY, policy, "not a CPU policy of Crane", do))
        policy = ""
    if containers and policy not in ("", EXCLUSIVE):
        do = f"remove one of the two: {keys.EXCLUSIVE_CONTAINERS} holds"
        why = f"{keys.EXCLUSIVE_CONTAINERS} asks for the policy {EXCLUSIVE}"
        problems.append(Problem(owner, keys.CRANE_CPU_POLICY, policy, why, do))
    result, counts = notes.get(keys.CRANE_TOPOLOGY_RESULT, ""), dict[int, int]()
    do = "let Crane's scheduler write it, or `koordlite crane assign`; the pod runs in the shared pool"
    with noting(problems), refusing(owner, keys.CRANE_TOPOLOGY_RESULT, result, do):
        counts = decode_result(result) if result else {}
    return CraneSpec(
        policy=EXCLUSIVE if containers else policy,
        containers=containers,
        zones=tuple((node, count) for node, count in sorted(counts.items()) if count),
        nodes=tuple(sorted(counts)),
        aware=go_words.boolean(notes.get(keys.CRANE_TOPOLOGY_AWARENESS)),
        excludes_reserved=notes.get(keys.CRANE_EXCLUDE_RESERVED) == "true",
    )


def exclusive_containers(text: str) -> tuple[str, ...]:
    """The names in `cpus.koordlite.io/exclusive`, each once; none where it names none."""
    return tuple(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))


def decode_result(text: str) -> dict[int, int]:
    """CPUs by NUMA node of a topology result, 0 where it names none; one of `errors.UNREADABLE` when it cannot be read.
    Zones of other types do not count; amounts round up to whole CPUs; of two entries for one NUMA node the last one
    with CPUs counts. Source: crane-agent `fromZoneListToTopologyResult`."""
    counts: dict[int, int] = {}
    for zone in msgspec.json.decode(text, type=tuple[Zone, ...] | None) or ():
        if zone.type not in ("", "Node"):
            continue
        amounts = (zone.resources.capacity if zone.resources else None) or {}
        count = max(Quantity.parse(amounts.get("cpu", "0")).value, 0)
        if count > _MOST_CPUS:
            raise ValueError(f"{count} CPUs on {zone.name}: no machine has so many")
        node = node_of(zone.name)
        counts[node] = count or counts.get(node, 0)
    return counts


def encode_result(zones: Mapping[str, Mapping[str, Quantity]]) -> str:
    """The annotation for amounts by name of a zone, in the order of the names."""
    listed = [
        Zone(name=name, type="Node", resources=ZoneResources(capacity={n: str(q) for n, q in zones[name].items()}))
        for name in sorted(zones)
    ]
    return msgspec.json.encode(listed).decode()
