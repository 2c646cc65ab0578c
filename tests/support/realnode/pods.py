"""Pods of a test: what the manifest and the cgroup tree have to agree on."""

from __future__ import annotations

import dataclasses
import hashlib

RUNTIME = "containerd"
SANDBOX = "sandbox"


@dataclasses.dataclass(frozen=True)
class Pod:
    """A pod with its Kubernetes class, its Koordinator class, and the names of its containers."""

    name: str
    kube_qos: str = "BestEffort"
    koord_qos: str = "BE"
    containers: tuple[str, ...] = ("main",)
    pinned: str = ""
    """CPU list promised by the resource-status annotation."""

    batch: tuple[int, int] | None = None
    """batch-cpu and batch-memory that each container requests and is limited to."""

    crane: tuple[tuple[int, int], ...] = ()
    """CPUs by NUMA node of Crane's topology result: each container requests and is limited to all of them."""

    notes: tuple[tuple[str, str], ...] = ()
    """Other annotations."""

    labels: tuple[tuple[str, str], ...] = ()
    """Other labels."""

    @property
    def uid(self) -> str:
        """A uid with dashes, as the API server makes them."""
        h = _hex(self.name)
        return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:32]}"

    def container_id(self, container: str) -> str:
        """The runtime's id of a container, or of the sandbox."""
        return _hex(f"{self.name}/{container}")


def _hex(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
