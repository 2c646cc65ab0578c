"""The extender of the product as the scheduler's side of the simulated cluster: by calls, without HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from koordlite.model.wire import objects
from koordlite.reservation.pods import ClusterPod
from koordlite.scheduler.cluster import Cluster
from koordlite.scheduler.extender import BindError, Extender
from koordlite.scheduler.judgement.nodes import JudgeSettings
from tests.support.topocluster.store import Store


class Product:
    """The extender, what it knows of the cluster, and its way to bind pods."""

    def __init__(self, clock: Callable[[], float], store: Store) -> None:
        self.watcher = Cluster(JudgeSettings(), monotonic=clock)
        self.watcher.synced()
        self.verbs = Extender(self.watcher, wall=clock, binder=_Binder(store))

    def reserved(self, node: str) -> bool:
        """Whether it counts a pod there that the report does not, because it was reserved or bound, or has gone."""
        state = self.watcher.nodes.get(node)
        is_dirty = state is not None and state.dirty_since is not None
        return is_dirty or any(True for _ in self.watcher.assumed.of_node(node))


class _Binder:
    def __init__(self, store: Store) -> None:
        self._store = store

    def bind(self, pod: ClusterPod, node: str, annotations: Mapping[str, str]) -> None:
        error = self._store.bind(pod.key, pod.uid, node, dict(annotations))
        if error:
            raise BindError(error, is_certain=True)

    def pod(self, namespace: str, name: str) -> objects.PodObject:
        found = self._store.pods.get(f"{namespace}/{name}")
        if found is None:
            raise BindError(f'pods "{name}" not found', is_certain=True)
        return found
