"""A reservation as a pod. `pod` holds its place on a stock scheduler: the template's requests and placement rules, and
nothing that runs, that another controller would count, or that gives rights. `reserve_pod` is what Koordinator's own
scheduler counts in its stead.

Source: Koordinator v1.9 `NewReservePod` (pkg/util/reservation).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from koordlite.model import keys
from koordlite.model.pod import pod_reader, qos
from koordlite.model.quantity import Quantity, parse_resources
from koordlite.model.wire.objects import ObjectMeta, PodObject, PodSpec
from koordlite.model.wire.reservation import AVAILABLE, FAILED, SUCCEEDED, ReservationObject
from koordlite.reservation import lifecycle
from koordlite.reservation.lifecycle import pod_requests, template_requests

Amounts = Mapping[str, Quantity]
Raw = Mapping[str, Any]
_SHARED = ("cpu", "memory", "ephemeral-storage")
_PLACEMENT = ("nodeSelector", "affinity", "tolerations", "topologySpreadConstraints", "runtimeClassName", "resources")
_LABELS = (keys.QOS_CLASS, keys.PRIORITY_CLASS, keys.PRIORITY)
_NOTES = (
    *(keys.RESOURCE_SPEC, keys.NUMA_TOPOLOGY_SPEC, keys.VOLCANO_NUMA_POLICY),
    *(*keys.CRANE_REQUEST, keys.CRANE_EXCLUDE_RESERVED),
)
_RIGHTS = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


WITHHELD = frozenset({"kube-system", "kube-public", "kube-node-lease", "koordlite-system"})
"""Namespaces of the cluster's own programs."""


class PlaceholderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs of placeholders."""

    image: str = "registry.k8s.io/pause:3.10"
    priority_class: str = "koordlite-reservation"
    """Empty: the cluster's default."""
    scheduler: str = "default-scheduler"
    """Scheduler of templates that name none."""
    guarded: frozenset[str] = frozenset({"koordlite-scheduler"})
    """Schedulers that ask our extender: it keeps their pods off what is being handed over."""
    namespaces: frozenset[str] = frozenset()
    """Namespaces in which placeholders may be made; empty: all but those of `WITHHELD`."""

    def refused_namespace(self, name: str) -> str:
        """Reason why no placeholder may be made there; empty when one may."""
        if name in self.namespaces or (not self.namespaces and name not in WITHHELD):
            return ""
        return f"no placeholder may be made in namespace {name} (--placeholder-namespace of the reservation controller)"


def resources(reservation: ReservationObject) -> dict[str, Quantity]:
    """Resources of the whole place: the status of an available reservation, else template and resize annotation.
    InputError when that cannot be read."""
    return lifecycle.requests(reservation) if lifecycle.is_available(reservation) else lifecycle.resized(reservation)


def namespace(reservation: ReservationObject) -> str:
    """Namespace of placeholders: rules about other pods mean those of a namespace."""
    return str(_meta(reservation).get("namespace") or "default")


def name(reservation: ReservationObject, number: int) -> str:
    """The same number is the same pod, so that asking twice makes one."""
    return f"reservation-{reservation.metadata.uid}-{number}"


def pod(
    reservation: ReservationObject, amounts: Amounts, number: int, settings: PlaceholderSettings, *, node: str = ""
) -> dict[str, Any]:
    """Placeholder `number`, holding `amounts`; with `node` only there. The template has to be readable."""
    template = reservation.spec.template or {}
    spec: dict[str, Any] = {key: value for key, value in (template.get("spec") or {}).items() if value is not None}
    copied = {key: spec[key] for key in _PLACEMENT if spec.get(key)}
    if node := node or str(spec.get("nodeName") or ""):
        copied["affinity"] = _pinned(copied.get("affinity") or {}, node)
    claims = [volume for volume in spec.get("volumes") or () if volume.get("persistentVolumeClaim")]
    whole = amounts == template_requests(reservation) and not spec.get("initContainers")
    if not whole:
        copied.pop("resources", None)
        copied.pop("runtimeClassName", None)  # Its overhead is in the amounts, and would be added again.
    containers = [_container(one, settings.image) for one in spec.get("containers") or ()] if whole else []
    body = {
        **copied,
        **({"volumes": claims} if claims else {}),
        **({"priorityClassName": settings.priority_class} if settings.priority_class else {}),
        "schedulerName": spec.get("schedulerName") or settings.scheduler,
        "containers": containers or [_remainder(amounts, spec, settings.image)],
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 0,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65535,
            "runAsGroup": 65535,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": _metadata(reservation, number), "spec": body}


def _metadata(reservation: ReservationObject, number: int) -> dict[str, Any]:
    meta, own = _meta(reservation), reservation.metadata
    labels, notes = {**(meta.get("labels") or {}), **(own.labels or {})}, meta.get("annotations") or {}
    template = as_pod(reservation)
    label = (template.metadata.labels or {}).get(keys.PRIORITY_CLASS)
    # The template's Koordinator priority class, which its own priority number would not give.
    band = str(qos.raw_priority_class(label, template.spec.priority).value or "")
    owner = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "name": own.name,
        "uid": own.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }
    return {
        "name": name(reservation, number),
        "namespace": namespace(reservation),
        "labels": {
            **{key: labels[key] for key in _LABELS if key in labels},
            **({keys.PRIORITY_CLASS: band} if band else {}),
            keys.RESERVATION_UID: own.uid,
        },
        "annotations": {
            **{key: notes[key] for key in _NOTES if key in notes},
            keys.RESERVE_POD: "true",
            keys.RESERVATION_NAME: own.name,
        },
        "ownerReferences": [owner],
    }


def as_pod(reservation: ReservationObject) -> PodObject:
    """The template as a pod; msgspec.ValidationError when it is none."""
    template = reservation.spec.template or {}
    meta = msgspec.convert(template.get("metadata") or {}, ObjectMeta, strict=False)
    return PodObject(metadata=meta, spec=msgspec.convert(template.get("spec") or {}, PodSpec, strict=False))


def _meta(reservation: ReservationObject) -> Raw:
    meta = (reservation.spec.template or {}).get("metadata")
    return meta if isinstance(meta, dict) else {}  # `validity.problems` names what is none.


def _container(one: Raw, image: str) -> dict[str, Any]:
    """A container of the template with nothing but its amounts and host ports."""
    ports = [_port(port) for port in one.get("ports") or () if port.get("hostPort")]
    resources = {key: value for key, value in (one.get("resources") or {}).items() if key in ("requests", "limits")}
    copy = {"name": one.get("name"), "image": image, "resources": resources, "securityContext": _RIGHTS}
    return {**copy, **({"ports": ports} if ports else {})}


def _port(port: Raw) -> dict[str, Any]:
    return {key: port[key] for key in ("containerPort", "hostPort", "protocol", "hostIP") if port.get(key)}


def _remainder(amounts: Amounts, spec: Raw, image: str) -> dict[str, Any]:
    """One container for amounts that are not those of the template's containers."""
    listed = {key: str(amount) for key, amount in sorted(amounts.items()) if amount.nano > 0 and key != "pods"}
    bare = msgspec.convert({"containers": spec.get("containers") or []}, PodSpec, strict=False)
    guaranteed = pod_reader.kube_qos(PodObject(spec=bare)) is qos.KubeQoS.GUARANTEED
    limits = listed if guaranteed else {key: text for key, text in listed.items() if key not in _SHARED}
    ports = [
        _port(port)
        for one in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
        for port in one.get("ports") or ()
        if port.get("hostPort")
    ]
    return {
        "name": "rest",
        "image": image,
        "resources": {"requests": listed, **({"limits": limits} if limits else {})},
        **({"ports": ports} if ports else {}),
        "securityContext": _RIGHTS,
    }


def _pinned(affinity: Raw, node: str) -> dict[str, Any]:
    """Required node affinity for this node alone; terms are alternatives, so each of them gets it."""
    line = {"key": "metadata.name", "operator": "In", "values": [node]}
    of_nodes: Raw = affinity.get("nodeAffinity") or {}
    rule = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = (of_nodes.get(rule) or {}).get("nodeSelectorTerms") or [{}]
    bound = [{**term, "matchFields": [*(term.get("matchFields") or ()), line]} for term in terms]
    return {**affinity, "nodeAffinity": {**of_nodes, rule: {"nodeSelectorTerms": bound}}}


NEVER_PREEMPTED = 2**31 - 1
_DECIMAL = re.compile(r"[+-]?[0-9]{1,10}\Z", re.ASCII)
_INSIDE = "__internal_fake_container__"


def reserve_pod(reservation: ReservationObject) -> dict[str, Any]:
    """The pod as JSON: the template's, named and annotated after the reservation, on its node.

    Once the reservation is available and holds other amounts than the template, one container more asks for these, and
    the others for nothing.
    """
    template = reservation.spec.template or {}
    spec = dict(template.get("spec") or {})
    meta = dict(template.get("metadata") or {})
    notes = {**(meta.get("annotations") or {}), **(reservation.metadata.annotations or {})}
    notes |= {keys.RESERVE_POD: "true", keys.RESERVATION_NAME: reservation.metadata.name}
    if reservation.spec.pre_allocation:
        notes[keys.IS_PRE_ALLOCATION] = "true"
    if node := spec.pop("nodeName", None):
        notes[keys.RESERVATION_NODE] = node
    if reservation.status.node_name:
        spec["nodeName"] = reservation.status.node_name
    if spec.get("priority") is None:
        spec["priority"] = _priority(reservation)
    spec["schedulerName"] = spec.get("schedulerName") or "default-scheduler"
    meta.update(
        name=reservation.metadata.uid,
        uid=reservation.metadata.uid,
        namespace=meta.get("namespace") or "default",
        labels={**(meta.get("labels") or {}), **(reservation.metadata.labels or {})},
        annotations=notes,
    )
    pod = {"metadata": meta, "spec": _with_allocatable(reservation, spec)}
    phase = {SUCCEEDED: "Succeeded", FAILED: "Failed"}.get(reservation.status.phase)
    return {**pod, "status": {"phase": phase}} if phase else pod


def _priority(reservation: ReservationObject) -> int:
    """The label's, else one that no pod preempts."""
    text = (reservation.metadata.labels or {}).get(keys.PRIORITY, "")
    number = int(text) if _DECIMAL.match(text) else NEVER_PREEMPTED
    return number if -(2**31) <= number < 2**31 else NEVER_PREEMPTED


def _with_allocatable(reservation: ReservationObject, spec: dict[str, Any]) -> dict[str, Any]:
    status = reservation.status
    if status.phase != AVAILABLE or not status.node_name:
        return spec
    requests, allocatable = pod_requests(spec), parse_resources(status.allocatable, "", "", [])
    if requests == allocatable:
        return spec
    amounts = {name: str(amount) for name, amount in {**requests, **allocatable}.items()}
    bare = {name: [_bare(one) for one in spec[name]] for name in ("initContainers", "containers") if spec.get(name)}
    inside = {"name": _INSIDE, "resources": {"limits": amounts, "requests": dict(amounts)}}
    spec = {name: value for name, value in spec.items() if name != "overhead"}
    return {**spec, **bare, "containers": [*bare.get("containers", []), inside]}


def _bare(container: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in container.items() if name != "resources"}
