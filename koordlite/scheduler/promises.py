"""Bindings over the API server: the pod's uid, and what was allocated as annotations of the Binding itself; and
promises for pods that were bound without one, since their scheduler had passed the extender over.

A server copies the Binding's annotations to the pod in the same write, so no pod is ever bound without its promise.
Source: Kubernetes `assignPod`; kube-scheduler and API server 1.36, recorded.

kube-scheduler binds a pod itself when an ignorable extender does not answer, or refuses. Such a pod has no CPUs by
Koordinator's protocol, and no NUMA nodes by Crane's, though it asks for them. What it would have been promised is
written to it afterwards, as far as its node still has it; the agent of the node checks it like any other.

Several extenders may do this at a time: each takes a node's pods one after the other, the first bound first, and the
version of the pod decides who was first. So they never promise one CPU to two pods.

A pod whose request was changed in place may have its promise follow: it keeps what it has as far as it may, and grows
on the NUMA nodes that it is on.
"""

from __future__ import annotations

import collections
import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus

from koordlite.kube.client import backoff
from koordlite.kube.client.access import Api
from koordlite.kube.client.answers import ApiError, ApiUnreachable
from koordlite.kube.publish.events import Event
from koordlite.model import keys
from koordlite.model.wire import objects
from koordlite.model.wire.reservation import ObjectReference
from koordlite.reservation.pods import ClusterPod
from koordlite.scheduler.extender import Binder, BindError, Extender
from koordlite.scheduler.judgement import judge, koordinator, victims
from koordlite.threads import Periodic

LOG = logging.getLogger(__name__)
LOOK_SECONDS = 0.5
RETRY_SECONDS = 5.0
"""Pause after a promise that could not be made or written."""


class Promises:
    """Looks for such pods while `worker` runs."""

    def __init__(
        self,
        extender: Extender,
        writer: Binder,
        *,
        follows_resizes: bool = False,
        tell: Callable[[Event], None] = lambda event: None,
        uniform: backoff.Uniform = backoff.uniform,
    ) -> None:
        """`tell` writes an Event of a pod that is resized."""
        # Not all extenders look at the same moment.
        self.worker = Periodic("promises", self.look, lambda: uniform(LOOK_SECONDS, 2 * LOOK_SECONDS))
        self._extender, self._cluster, self._writer = extender, extender.cluster, writer
        self._follows_resizes, self._tell = follows_resizes, tell
        self._not_before: dict[str, float] = {}
        """Time of the next look at a pod, by uid."""
        self.results: collections.Counter[str] = collections.Counter()
        """written, refused (the node has no room for it), resized, cannot_grow, failed (the API server refused)."""
        self._cannot_grow: dict[str, float] = {}
        """Time of the next look at a pod that cannot grow, by uid."""
        self._last_failure = ""

    @property
    def missing(self) -> int:
        """Pods that need a promise and have none."""
        return len(self._not_before)

    def look(self) -> None:
        """Make the promises that are missing: on each node that of the pod which was bound first."""
        if self._extender.not_ready():
            return
        nodes: set[str] = set()
        for uid in self._due():
            self.worker.beat()
            pod = self._cluster.pods.get(uid)
            if pod is not None and pod.node not in nodes:
                nodes.add(pod.node)
                self._make(pod)
        if self._follows_resizes:
            self._follow()

    def _follow(self) -> None:
        """Have promises follow requests that were changed in place."""
        cluster, now = self._cluster, self._cluster.now()
        with cluster.lock:
            uids, cluster.resized = list(cluster.resized), {}
        retries = {uid: at for uid, at in self._cannot_grow.items() if uid in cluster.pods}
        self._cannot_grow = {uid: at for uid, at in retries.items() if at > now and uid not in uids}
        for uid in dict.fromkeys((*uids, *(uid for uid, at in retries.items() if at <= now))):
            self.worker.beat()
            self._resize(uid)

    def _resize(self, uid: str) -> None:
        cluster = self._cluster
        with cluster.lock:
            pod = cluster.pods.get(uid)
            row = cluster.row(pod.node) if pod is not None else None
        promise = koordinator.resized(pod, row) if pod is not None and row is not None else None
        if pod is None or promise is None:
            return
        self._cannot_grow[uid] = cluster.now() + RETRY_SECONDS
        if promise.refusal:
            text = f"its CPUs on {pod.node} cannot follow its resize: {promise.refusal}"
            self._report(pod, "cannot_grow", text)
            about = ObjectReference(kind="Pod", name=pod.name, namespace=pod.namespace, uid=pod.uid)
            self._tell(Event(regarding=about, reason="CannotGrow", note=text, action="Resize", type="Warning"))
            return
        obj = self._unchanged(pod)
        if obj is None:
            return
        with cluster.lock:
            if cluster.row(pod.node) is not row:
                cluster.resized[uid] = None  # Something changed meanwhile: at the next look.
                return
            # It counts from now on, as in `_make`.
            cluster.put_cluster_pod(pod.bound(pod.node, promise.annotations))
        if not self._write(pod, obj, promise.annotations):
            return
        del self._cannot_grow[uid]
        self.results["resized"] += 1
        text = f"its CPUs on {pod.node} follow its resize: {promise.annotations[keys.RESOURCE_STATUS]}"
        self._extender.note(pod, text)
        LOG.info("pod %s: %s", pod.key, text, extra=_about(pod))

    def _due(self) -> list[str]:
        """Pods without the promise that they need, in the order in which they were bound."""
        cluster, now = self._cluster, self._cluster.now()
        with cluster.lock:
            for uid in list(cluster.unpromised):
                pod = cluster.pods.get(uid)
                row = cluster.row(pod.node) if pod is not None else None
                if pod is None or row is None or not judge.allocators(pod.shape, row):
                    del cluster.unpromised[uid]
                    self._not_before.pop(uid, None)
            for uid in [uid for uid in self._not_before if uid not in cluster.unpromised]:
                del self._not_before[uid]
            for uid in cluster.unpromised:
                self._not_before.setdefault(uid, 0.0)
            return [uid for uid in cluster.unpromised if self._not_before[uid] <= now]

    def _make(self, pod: ClusterPod) -> None:
        """Promise what the node has left for the pod, and write it."""
        cluster = self._cluster
        self._not_before[pod.uid] = cluster.now() + RETRY_SECONDS
        obj = self._unchanged(pod)
        if obj is None:
            return
        with cluster.lock:
            row = cluster.row(pod.node)
            if row is None:
                return
            promise = judge.promise(pod.shape, victims.without(row, [pod], {}), cluster.settings, pod.uid)
            if not promise.annotations and not promise.refusal:
                cluster.unpromised.pop(pod.uid, None)
                return
            if not promise.annotations:
                why = f"bound to {pod.node} without its promise, which cannot be made there: {promise.refusal}"
                self._report(pod, "refused", why)
                return
            # It counts from now on: a bind of this moment must not get the same CPUs.
            cluster.put_cluster_pod(pod.bound(pod.node, promise.annotations))
        if not self._write(pod, obj, promise.annotations):
            return
        self.results["written"] += 1
        self._extender.note(pod, f"promised on {pod.node} after it was bound without it")
        LOG.info("pod %s was bound to %s without its promise, and has it now", pod.key, pod.node, extra=_about(pod))

    def _unchanged(self, pod: ClusterPod) -> objects.PodObject | None:
        """The pod as the API server has it; None where it cannot be read, or has another promise meanwhile."""
        try:
            obj = self._writer.pod(pod.namespace, pod.name)
        except BindError as error:
            self._failed(pod, error)
            return None
        with self._cluster.lock:
            current = self._cluster.shapes.pod(obj)
        promise = pod.uid, pod.resource_status, pod.crane_result
        if (current.uid, current.resource_status, current.crane_result) == promise:
            return obj
        self._cluster.put_cluster_pod(current)
        return None

    def _write(self, pod: ClusterPod, obj: objects.PodObject, annotations: Mapping[str, str]) -> bool:
        """Write a promise that counts already; False when the API server refuses it, and it counts no longer."""
        try:
            self._writer.promise(obj, annotations)
        except BindError as error:
            self._cluster.put_cluster_pod(pod)
            self._failed(pod, error)
            return False
        return True

    def _report(self, pod: ClusterPod, result: str, text: str) -> None:
        self.results[result] += 1
        self._extender.note(pod, text)
        LOG.warning("pod %s: %s", pod.key, text, extra=_about(pod))

    def _failed(self, pod: ClusterPod, error: BindError) -> None:
        self.results["failed"] += 1
        if str(error) != self._last_failure:
            self._last_failure = str(error)
            LOG.warning("promise of pod %s cannot be written: %s", pod.key, error, extra=_about(pod))


def _about(pod: ClusterPod) -> dict[str, str]:
    return {"pod": pod.key, "flow": "promise"}


TIMEOUT = (0.3, 0.5)
"""Seconds to connect, and to wait for the answer: it stays below the second that the scheduler waits."""


class ApiBinder:
    """Safe to use from several threads at once."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def bind(self, pod: ClusterPod, node: str, annotations: Mapping[str, str]) -> None:
        """Bind the pod; returns also when it is bound to `node` already. BindError says why it is not."""
        meta: dict[str, object] = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
        if annotations:
            meta["annotations"] = dict(annotations)
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
        try:
            self._api.request("POST", f"{_path(pod.namespace, pod.name)}/binding", body=body, timeout=TIMEOUT)
        except ApiError as error:
            if error.status == HTTPStatus.CONFLICT and self._is_bound(pod, node):
                return
            raise BindError(error.message, is_certain=error.status < HTTPStatus.INTERNAL_SERVER_ERROR) from error
        except ApiUnreachable as error:
            # It may have been written all the same: an error here would leave a bound pod that says it is not.
            if self._is_bound(pod, node):
                return
            raise BindError(f"the API server did not answer the binding: {error.strerror}", is_certain=False) from error

    def pod(self, namespace: str, name: str) -> objects.PodObject:
        """The pod as the API server has it; BindError when there is none."""
        try:
            return self._api.request("GET", _path(namespace, name), timeout=TIMEOUT).read(objects.PodObject)
        except ApiError as error:
            raise BindError(error.message, is_certain=True) from error
        except ApiUnreachable as error:
            raise BindError(f"the API server did not answer: {error}", is_certain=True) from error

    def promise(self, obj: objects.PodObject, annotations: Mapping[str, str]) -> None:
        """Write annotations to this version of a bound pod; BindError when it has changed meanwhile, or is refused.

        By way of its status, since no more than that right is needed: a server takes metadata there, too.
        """
        meta = {"uid": obj.metadata.uid, "resourceVersion": obj.metadata.resource_version, "annotations": annotations}
        self._annotate(obj.metadata.namespace, obj.metadata.name, meta)

    def annotate(self, pod: ClusterPod, annotations: Mapping[str, str]) -> None:
        """Write annotations to the pod, whichever version it has; BindError as in `promise`."""
        self._annotate(pod.namespace, pod.name, {"uid": pod.uid, "annotations": annotations})

    def _annotate(self, namespace: str, name: str, meta: Mapping[str, object]) -> None:
        try:
            self._api.request("PATCH", f"{_path(namespace, name)}/status", body={"metadata": meta}, timeout=TIMEOUT)
        except ApiError as error:
            raise BindError(error.message, is_certain=True) from error
        except ApiUnreachable as error:
            raise BindError(f"the API server did not answer: {error.strerror}", is_certain=False) from error

    def _is_bound(self, pod: ClusterPod, node: str) -> bool:
        try:
            current = self.pod(pod.namespace, pod.name)
        except BindError:
            return False
        return current.metadata.uid == pod.uid and current.spec.node_name == node


def _path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods/{name}"
