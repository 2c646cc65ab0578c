"""`cpuManagerPolicyOptions` of the static policy.

Source: kubelet 1.36, `cm/cpumanager/policy_options.go`.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from koordlite.model.reading.go_words import STRICT_RESERVATION, parse_bool
from koordlite.numa.machine import Machine

NAMES = {
    "full-pcpus-only": "full_cores",
    "distribute-cpus-across-numa": "across_numa",
    "align-by-socket": "by_socket",
    "distribute-cpus-across-cores": "across_cores",
    STRICT_RESERVATION: "strict_reservation",
    "prefer-align-cpus-by-uncorecache": "by_uncore",
}
_NOT_TOGETHER = (
    ("full-pcpus-only", "distribute-cpus-across-cores"),
    ("distribute-cpus-across-numa", "distribute-cpus-across-cores"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-cores"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"),
)


class CPUOptions(msgspec.Struct, frozen=True):
    """The options by what they do; all are off by default."""

    full_cores: bool = False
    """full-pcpus-only: whole cores or a refusal."""
    across_numa: bool = False
    """distribute-cpus-across-numa: as many from each NUMA node where one is not enough."""
    by_socket: bool = False
    """align-by-socket: CPUs of one socket are as good as those of one NUMA node."""
    across_cores: bool = False
    """distribute-cpus-across-cores: no whole cores are taken."""
    strict_reservation: bool = False
    """strict-cpu-reservation: shared containers do not run on reserved CPUs."""
    by_uncore: bool = False
    """prefer-align-cpus-by-uncorecache: CPUs of one last-level cache if possible."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> CPUOptions:
        """The options as kubelet reads them; ValueError for what kubelet refuses to start with."""
        unknown = [name for name in options if name not in NAMES]
        if unknown:
            raise ValueError(f"unknown CPU Manager Policy option: {unknown[0]!r}")
        try:
            values = {name: parse_bool(text) for name, text in options.items()}
        except ValueError as error:
            raise ValueError(f"bad value for a CPU Manager Policy option: {error}") from None
        for one, other in _NOT_TOGETHER:
            if values.get(one) and values.get(other):
                raise ValueError(f"static policy options {one} and {other} can not be used at the same time")
        return cls(**{NAMES[name]: value for name, value in values.items()})

    def check(self, machine: Machine, topology_policy: str) -> None:
        """ValueError where kubelet does not start with these options on this machine."""
        if not self.by_socket:
            return
        if topology_policy == "single-numa-node":
            raise ValueError("Topology manager policy single-numa-node is incompatible with option align-by-socket")
        if len(machine.sockets) > len(machine.nodes):
            raise ValueError("align-by-socket is not compatible with more sockets than NUMA nodes")


DEFAULT = CPUOptions()
