"""CPUs of pods by Crane's annotations, as it stands when the picture is taken."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from koordlite.model.cpuset import EMPTY, CPUSet, union


class CranePromise(msgspec.Struct, frozen=True):
    """The CPUs of one pod."""

    policy: str
    """exclusive, immovable or numa."""
    nodes: tuple[int, ...]
    """NUMA nodes of its topology result."""
    containers: Mapping[str, CPUSet]
    """CPUs by container name; under numa the shared ones of the NUMA nodes at present, or of others when there are
    none."""

    @property
    def cpus(self) -> CPUSet:
        """CPUs of all containers."""
        return union(self.containers.values())


class CraneState(msgspec.Struct, frozen=True, kw_only=True):
    """Promises of `craneCPUManager`: nothing while that strategy is off. `reserved` and `taken` hold all the same."""

    enforced: bool = False
    """The promises hold: other strategies keep their pods off exclusive CPUs."""
    why_not: str = ""
    """Reason why no CPU is promised on this node: `static` or `unknown`, kubelet's CPU manager policy."""
    promises: Mapping[str, CranePromise] = msgspec.field(default_factory=dict)
    """Promises by pod uid."""
    refused: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Reason why a pod with a topology result gets no CPUs by it, by uid."""
    excluding: frozenset[str] = frozenset()
    """Uids of pods that are to be kept off reserved CPUs."""
    exclusive: CPUSet = EMPTY
    immovable: CPUSet = EMPTY
    taken: CPUSet = EMPTY
    """CPUs that pods have alone by other protocols."""
    default: CPUSet = EMPTY
    """CPUs of pods that have none of their own; reserved ones are part of it."""
    reserved: CPUSet = EMPTY
    """Kubelet's reservedSystemCPUs, those of the node's reservation, and those of SYSTEM pods alone."""
    placed_by_others: frozenset[str] = frozenset()
    """The strategies that are enforced and write CPU sets as well: `cpusetPools`, `cpuSuppress`."""

    def owns(self, uid: str) -> bool:
        """Tell whether `craneCPUManager` writes the CPU sets of this pod."""
        return self.enforced and (uid in self.promises or uid in self.excluding)

    def explains(self, uid: str, placer: str) -> bool:
        """Tell whether `craneCPUManager` alone says where this pod runs: it writes its sets, or would, and the strategy
        `placer` does not write them either."""
        return self.owns(uid) or (uid in self.promises and placer not in self.placed_by_others)

    @property
    def owned(self) -> CPUSet:
        """CPUs that nobody but the pods that have them may use."""
        return self.exclusive if self.enforced else EMPTY
