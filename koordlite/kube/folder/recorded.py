"""A cluster from a folder: what kubelet and the API server reported at one moment, read-only.

The folder holds `pods.json` (kubelet's /pods), `apiserver_node.json`, `configz.json` and
`var_lib_kubelet/cpu_manager_state`; each may be missing, and then counts as not known.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from koordlite.changes.eviction import EvictPod
from koordlite.kube.kubelet import configz
from koordlite.model.change import ClusterChange
from koordlite.model.errors import refusing
from koordlite.model.picture.kubelet import Kubelet
from koordlite.model.topology import Topology
from koordlite.model.wire import objects
from koordlite.ports import ClusterView

T = TypeVar("T")


class FixedCluster:
    """`ports.Cluster` with one view, and nothing can be changed: EROFS."""

    def __init__(self, view: ClusterView, kind: str, path: Path) -> None:
        """`kind` of cluster, and `path` it was read from, for messages."""
        self._view, self._kind, self._path = view, kind, path

    def view(self) -> ClusterView:
        """Always the same."""
        return self._view

    def publish(self, changes: Sequence[ClusterChange]) -> None:
        """Always refused."""
        raise self._refusal

    def evict(self, pod: EvictPod) -> None:
        """Always refused."""
        raise self._refusal

    @property
    def _refusal(self) -> OSError:
        return OSError(errno.EROFS, f"a {self._kind} cluster cannot be changed", str(self._path))


class RecordedCluster(FixedCluster):
    """A captured folder. Its only view is the recorded moment."""

    def __init__(self, folder: Path, topology: Topology, *, config: Mapping[str, str] | None = None) -> None:
        """`topology` is the recorded machine's; `config` is the data of slo-controller-config to judge it by.
        InputError when a file is there but cannot be read: a recording does not get better by waiting."""
        self._folder = folder
        settings = self._file("configz.json", configz.parse_configz) or Kubelet(
            topology_manager_policy="none", topology_manager_scope="container"
        )
        state = self._file("var_lib_kubelet/cpu_manager_state", configz.parse_cpu_manager_state)
        snapshot, problems = configz.combine(settings, state or configz.CPUManagerState(), topology)
        pods = self._file("pods.json", msgspec.json.Decoder(_PodList).decode)
        view = ClusterView(
            node=self._file("apiserver_node.json", msgspec.json.Decoder(objects.NodeObject).decode),
            pods=pods.items or () if pods else (),
            config=config,
            topology=None,
            kubelet=snapshot,
            problems=problems,
        )
        super().__init__(view, "recorded", folder)

    def _file(self, name: str, parse: Callable[[bytes], T]) -> T | None:
        path = self._folder / name
        with refusing(str(path), "content", "", "record it again, or remove the file"):
            return parse(path.read_bytes()) if path.exists() else None


class _PodList(msgspec.Struct, frozen=True):
    # kubelet prints `null` when it has no pod.
    items: tuple[objects.PodObject, ...] | None = None
