"""Giving pods their nodes: pods/binding and the older bindings (Kubernetes BindingREST)."""

from __future__ import annotations

import dataclasses

from apiserver import kinds, negotiation, pods, shapes, status
from apiserver.cluster import PODS, Cluster, name_of
from apiserver.requests import Request, Target
from apiserver.resources import Resource
from apiserver.store import Object

_BINDING = Resource("", ("v1",), "bindings", "Binding")
_SHAPE = shapes.Struct(
    {
        "metadata": kinds.META,
        "target": shapes.Struct(dict.fromkeys(("kind", "namespace", "name", "uid", "apiVersion"), shapes.STRING)),
    },
    {"target": {}},
    is_open=True,
)
_TARGETS = ("", "Node")


def bind(cluster: Cluster, resource: Resource, at: Target, request: Request) -> Object:
    """Give a pod its node, once. Below bindings the body names the pod."""
    sent = _sent(request)
    meta = sent["metadata"]
    if resource.kind == "Binding":
        at = dataclasses.replace(at, name=meta.get("name", ""))
    if meta.get("name", "") != at.name:
        raise status.bad_request("name in URL does not match name in Binding object")
    _check_target(sent["target"])
    served = cluster.catalog.of("", "v1", "pods")
    assert served is not None, "pods are built in"
    pod = cluster.require(served, (at.namespace, at.name))
    _check_preconditions(meta, pod)
    _check_free(pod)
    if request.query.get("dryRun") != "All":
        bound = pods.bound(pod, sent["target"]["name"], cluster.now())
        both = {key: {**(pod["metadata"].get(key) or {}), **(meta.get(key) or {})} for key in ("annotations", "labels")}
        copied = {key: each for key, each in both.items() if each}
        cluster.store.write(PODS, name_of(pod), bound | {"metadata": bound["metadata"] | copied})
    return status.created()


def _sent(request: Request) -> Object:
    sent = negotiation.checked_kind(negotiation.decoded(request, _BINDING), _BINDING, "v1")
    try:
        cast: Object = _SHAPE.cast(sent, "Binding")
    except shapes.Mistyped as error:
        raise negotiation.unfit(_BINDING, "v1", str(error)) from error
    return cast


def _check_target(target: Object) -> None:
    """Refused 500 without a reason: these errors are no Status in a real server either."""
    if target.get("kind", "") not in _TARGETS:
        cause = status.unsupported("target.kind", target["kind"], ["Node", "<empty>"])
    elif not target.get("name"):
        cause = status.required("target.name")
    else:
        return
    raise status.internal(f"{cause.field}: {cause.message}")


def _check_preconditions(meta: Object, pod: Object) -> None:
    known = pod["metadata"]
    for key, word in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        if meta.get(key) and meta[key] != known[key]:
            path = f"/registry/pods/{known['namespace']}/{known['name']}, ResourceVersion: 0"
            failed = f"{word} in precondition: {meta[key]}, {word} in object meta: {known[key]}"
            why = (
                f"StorageError: invalid object, Code: 4, Key: {path}, AdditionalErrorMsg: Precondition failed: {failed}"
            )
            message = f'Operation cannot be fulfilled on pods "{known["name"]}": {why}'
            raise status.Refused(409, message, reason="Conflict", details={"name": known["name"], "kind": "pods"})


def _check_free(pod: Object) -> None:
    name, node = pod["metadata"]["name"], pod["spec"].get("nodeName")
    if pod["metadata"].get("deletionTimestamp"):
        why = f"pod {name} is being deleted, cannot be assigned to a host"
    elif node:
        why = f'pod {name} is already assigned to node "{node}"'
    else:
        return
    message = f'Operation cannot be fulfilled on pods/binding "{name}": {why}'
    raise status.Refused(409, message, reason="Conflict", details={"name": name, "kind": "pods/binding"})
