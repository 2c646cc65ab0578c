"""Jobs, reservations and pods of migration, read from an API server and written back as patches of what changed.

Also the workloads of pods: how many replicas are wanted, and which pods they are.

Source of the workloads: Koordinator's controller finder. A ReplicaSet of a Deployment counts as the Deployment.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from http import HTTPStatus
from typing import Any, Protocol, TypeVar

import msgspec

from descheduler.framework import PodView
from descheduler.migration import objects
from descheduler.migration.filters import Workload
from descheduler.migration.objects import CREATED_BY_LABEL, CREATOR, MigrationJob, Reservation
from koordlite.kube.client.answers import Answer, ApiError
from koordlite.kube.client.paging import Page
from koordlite.kube.publish import evictions
from koordlite.kube.publish.evictions import EvictionClient
from koordlite.model import merge_patch
from koordlite.model.errors import UNREADABLE
from koordlite.model.wire import objects as wire
from koordlite.model.wire.reservation import ObjectReference

T = TypeVar("T")
MERGE = "application/merge-patch+json"
_ONE_BY_ONE = 20
"""More pods of one namespace are read as a list: a round must not take a request for each waiting job."""


class Api(Protocol):
    """The part of `koordlite.kube.client.access.Api` that is needed."""

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Any = ...,
        body: object = None,
        content_type: str = "application/json",
    ) -> Answer:
        """Ask once; ApiError for a refusal, ApiUnreachable when there is no answer."""

    def collect(self, path: str, query: Any = ...) -> Page:
        """A whole list."""


class _Name(msgspec.Struct):
    name: str = ""


class _Named(msgspec.Struct):
    metadata: _Name


class Cluster(msgspec.Struct, frozen=True, dict=True):
    """The objects that migration reads and writes. Every method raises ApiError or ApiUnreachable,
    ApiError also for an object that is not what its kind says."""

    api: Api

    @functools.cached_property
    def _evictions(self) -> EvictionClient:
        return EvictionClient(self.api)

    def jobs(self) -> list[MigrationJob]:
        """All jobs."""
        items = self.api.collect(objects.JOBS).items
        return [_read(item, MigrationJob) for item in items]

    def reservations(self) -> dict[str, Reservation]:
        """Reservations that were made for jobs, by name."""
        items = self.api.collect(objects.RESERVATIONS, [("labelSelector", f"{CREATED_BY_LABEL}={CREATOR}")]).items
        return {one.metadata.name: one for one in (_read(item, Reservation) for item in items)}

    def reservation(self, name: str) -> Reservation | None:
        """A reservation; None when it is not there."""
        return _get(self.api, f"{objects.RESERVATIONS}/{name}", Reservation)

    def pod(self, ref: ObjectReference) -> wire.PodObject | None:
        """The pod that has the name, whichever it is; None when there is none."""
        return _get(self.api, _pod(ref), wire.PodObject) if ref.namespace and ref.name else None

    def pods(self, namespace: str, refs: Collection[ObjectReference]) -> list[wire.PodObject]:
        """The pods of a namespace with these names, as far as they are there."""
        if len(refs) <= _ONE_BY_ONE:
            return [pod for ref in refs if (pod := self.pod(ref)) is not None]
        items = self.api.collect(f"/api/v1/namespaces/{namespace}/pods").items
        names = {ref.name for ref in refs}
        return [pod for pod in (_read(item, wire.PodObject) for item in items) if pod.metadata.name in names]

    def whole_pod(self, ref: ObjectReference) -> dict[str, Any] | None:
        """The same with all its fields."""
        return _get(self.api, _pod(ref), dict)

    def priority_classes(self) -> dict[str, int]:
        """Priority by the name of its class."""
        items = self.api.collect("/apis/scheduling.k8s.io/v1/priorityclasses").items
        return {one.metadata.name: one.value for one in (_read(item, wire.PriorityClassObject) for item in items)}

    def create_job(self, job: Mapping[str, Any]) -> None:
        """Make a job."""
        self.api.request("POST", objects.JOBS, body=job)

    def write_job(self, before: MigrationJob, after: MigrationJob) -> MigrationJob:
        """Write what changed, spec and annotations first; the job as it is then. ApiError 409 when someone else wrote
        it meanwhile."""
        notes = merge_patch.between(before.metadata, after.metadata)
        spec = merge_patch.between(before.spec, after.spec)
        written = before
        if notes or spec:
            written = self._patch(before, {"metadata": notes, "spec": spec}, "")
        status = merge_patch.between(before.status, after.status)
        return self._patch(written, {"status": status}, "/status") if status else written

    def _patch(self, job: MigrationJob, changes: dict[str, Any], subresource: str) -> MigrationJob:
        meta = {**changes.get("metadata", {}), "resourceVersion": job.metadata.resource_version}
        path = f"{objects.JOBS}/{job.name}{subresource}"
        answer = self.api.request("PATCH", path, body={**changes, "metadata": meta}, content_type=MERGE)
        return _read(answer.body, MigrationJob)

    def create_reservation(self, reservation: Mapping[str, Any]) -> None:
        """Make a reservation. One of that name is the same one, made before a restart."""
        try:
            self.api.request("POST", objects.RESERVATIONS, body=reservation)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise

    def delete_reservation(self, name: str) -> None:
        """Remove a reservation; good when it is gone already."""
        self._delete(f"{objects.RESERVATIONS}/{name}")

    def delete_job(self, job: MigrationJob) -> None:
        """Remove a job, this very one; good when it is gone already."""
        preconditions = {"preconditions": {"uid": job.metadata.uid}}
        self._delete(f"{objects.JOBS}/{job.name}", preconditions)

    def _delete(self, path: str, options: Mapping[str, Any] | None = None) -> None:
        try:
            self.api.request("DELETE", path, body=options)
        except ApiError as error:
            if error.status not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                raise

    def evict(self, ref: ObjectReference, options: Mapping[str, Any]) -> None:
        """Ask the Eviction API; budgets are kept by the server. Good when the pod is gone, or is another one, already:
        the next round sees it."""
        self._evictions.send(evictions.eviction(ref.namespace, ref.name, _options(ref, options)))

    def delete_pod(self, ref: ObjectReference, options: Mapping[str, Any]) -> None:
        """Delete a pod, whatever its budgets say."""
        self.api.request("DELETE", _pod(ref), body=_options(ref, options))

    def annotate_pod(self, ref: ObjectReference, annotations: Mapping[str, str]) -> None:
        """Annotate this very pod."""
        body = {"metadata": {"uid": ref.uid, "annotations": dict(annotations)}}
        self.api.request("PATCH", _pod(ref), body=body, content_type=MERGE)


def _get(api: Api, path: str, shape: type[T]) -> T | None:
    """The object at `path`; None when the server has none there."""
    try:
        return _read(api.request("GET", path).body, shape)
    except ApiError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return None
        raise


def _read(raw: bytes | msgspec.Raw, shape: type[T]) -> T:
    """An object as ours; ApiError names the one that cannot be read."""
    try:
        return msgspec.json.decode(raw, type=shape)
    except UNREADABLE as error:
        raise ApiError(0, "", f"{shape.__name__} {_name(raw)} cannot be read: {error}: fix or delete it") from error


def _name(raw: bytes | msgspec.Raw) -> str:
    try:
        named = msgspec.json.decode(raw, type=_Named)
    except UNREADABLE:
        return "without a name"
    return named.metadata.name


def _pod(ref: ObjectReference) -> str:
    return f"/api/v1/namespaces/{ref.namespace}/pods/{ref.name}"


def _options(ref: ObjectReference, options: Mapping[str, Any]) -> dict[str, Any]:
    """Delete options with the uid as a precondition: a new pod of the name is never the victim."""
    return {**options, "preconditions": {**(options.get("preconditions") or {}), "uid": ref.uid}}


Find = Callable[[PodView], Workload | None]
"""The workload of a pod; None for a bare pod, and when it is unknown how many pods it wants."""


class _Spec(msgspec.Struct, frozen=True):
    replicas: int | None = None
    selector: dict[str, Any] | None = None


class _Controller(msgspec.Struct, frozen=True):
    metadata: wire.ObjectMeta = wire.ObjectMeta()
    spec: _Spec = _Spec()


class _Resource(msgspec.Struct, frozen=True):
    name: str = ""
    kind: str = ""


class _Resources(msgspec.Struct, frozen=True):
    resources: tuple[_Resource, ...] = ()


class Finder(msgspec.Struct):
    """Asks an API server about workloads, each once. Make one a round: what it knows does not get younger."""

    api: Api
    known: dict[str, Workload | None] = msgspec.field(default_factory=dict)
    plurals: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)
    """Names of kinds in paths, by API version and kind."""

    def __call__(self, pod: PodView) -> Workload | None:
        """The workload of a pod. ApiError and ApiUnreachable when the server does not say."""
        owner = objects.controller(pod)
        if owner is None:
            return None
        if owner.uid not in self.known:
            self.known[owner.uid] = self._find(pod.pod.namespace, owner)
        return self.known[owner.uid]

    def _find(self, namespace: str, owner: wire.OwnerReference) -> Workload | None:
        controller = self._controller(namespace, owner)
        owners = (controller.metadata.owner_references if controller is not None else None) or ()
        above = next((one for one in owners if one.controller and one.kind == "Deployment"), None)
        if above is not None:  # A ReplicaSet of a Deployment.
            controller = self._controller(namespace, above)
        if controller is None or controller.spec.replicas is None:
            return None
        uid, query = controller.metadata.uid, _query(controller)
        uids = {uid}
        if above is not None:  # Its pods are those of its ReplicaSets.
            items = self.api.collect(f"/apis/apps/v1/namespaces/{namespace}/replicasets", query).items
            sets = [_read(item, _Controller).metadata for item in items]
            uids = {one.uid for one in sets if any(o.controller and o.uid == uid for o in one.owner_references or ())}
        items = self.api.collect(f"/api/v1/namespaces/{namespace}/pods", query).items
        pods = (objects.pod_view(_read(item, wire.PodObject)) for item in items)
        return Workload(controller.spec.replicas, tuple(pod for pod in pods if objects.controller_uid(pod) in uids))

    def _controller(self, namespace: str, owner: wire.OwnerReference) -> _Controller | None:
        """The owner itself; None when another one has its name by now, or it is gone."""
        plural = self._plural(owner.api_version, owner.kind)
        if not plural:
            return None
        path = f"{_root(owner.api_version)}/namespaces/{namespace}/{plural}/{owner.name}"
        controller = _get(self.api, path, _Controller)
        return controller if controller is not None and controller.metadata.uid == owner.uid else None

    def _plural(self, api_version: str, kind: str) -> str:
        """Name of the kind in paths; empty when the server does not serve it."""
        if api_version not in self.plurals:
            served = _get(self.api, _root(api_version), _Resources)
            if served is None:
                return ""
            self.plurals[api_version] = {one.kind: one.name for one in served.resources if "/" not in one.name}
        return self.plurals[api_version].get(kind, "")


def _root(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def _query(controller: _Controller) -> list[tuple[str, str]]:
    """A label selector for a list; their controllers tell pods apart afterwards."""
    selector = controller.spec.selector or {}
    labels = selector.get("matchLabels") if "matchLabels" in selector or "matchExpressions" in selector else selector
    text = ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items()))
    return [("labelSelector", text)] if text else []
