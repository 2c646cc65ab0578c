"""Deletion: options, preconditions, finalizers, and the grace period of pods."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping
from typing import Any

from apiserver import conversion, definitions, kinds, pods, shapes, status
from apiserver.clocks import stamp
from apiserver.cluster import NAMESPACES, Cluster, Writing, name_of
from apiserver.resources import Resource
from apiserver.store import Object

_POLICIES = ("Foreground", "Background", "Orphan")
_HELD = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
_SENT = shapes.Struct(
    {
        "gracePeriodSeconds": shapes.INTEGER,
        "orphanDependents": shapes.CHOICE,
        "propagationPolicy": shapes.STRING,
        "dryRun": shapes.ListOf(shapes.TEXT),
        "preconditions": shapes.Struct(dict.fromkeys(("uid", "resourceVersion"), shapes.STRING)),
    }
)


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """metav1.DeleteOptions."""

    grace_seconds: int | None = None
    uid: str = ""
    version: str = ""
    policy: str = ""
    dry: bool = False


def options(body: Mapping[str, Any], query: Mapping[str, str]) -> Options:
    """The options of a request; Refused 400 for wrong types, 422 for those that contradict or do not exist."""
    try:
        body = _SENT.cast(body, "DeleteOptions")
    except shapes.Mistyped as error:
        raise status.bad_request(str(error)) from error
    dry = body.get("dryRun") or ([query["dryRun"]] if query.get("dryRun") else [])
    if dry and dry != ["All"]:
        raise status.invalid_options("DeleteOptions", status.unsupported("dryRun", dry, ["All"]))
    policy, orphan = body.get("propagationPolicy") or query.get("propagationPolicy", ""), body.get("orphanDependents")
    if policy and policy not in _POLICIES:
        cause = status.unsupported("propagationPolicy", policy, [*_POLICIES, "nil"])
        raise status.invalid_options("DeleteOptions", cause)
    if policy and orphan is not None:
        why = "orphanDependents and deletionPropagation cannot be both set"
        raise status.invalid_options("DeleteOptions", status.wrong("propagationPolicy", policy, why))
    grace = body.get("gracePeriodSeconds")
    if grace is None and query.get("gracePeriodSeconds"):
        grace = _number(query["gracePeriodSeconds"])
    if orphan is not None:
        policy = "Orphan" if orphan else "Background"
    wanted = body.get("preconditions") or {}
    return Options(grace, wanted.get("uid") or "", wanted.get("resourceVersion") or "", policy, bool(dry))


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise status.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from error


def delete(cluster: Cluster, resource: Resource, name: tuple[str, str], how: Options) -> Object:
    """Delete one object as far as it may be at once: the Status or, where something is left, the object."""
    item = cluster.require(resource, name)
    _check(item, resource, how)
    if resource.key == ("", "pods"):
        return _delete_pod(cluster, resource, item, how)
    if resource.key == NAMESPACES:
        return _terminate(cluster, resource, item, how)
    if resource.kind == "CustomResourceDefinition":
        return _cleanup(cluster, resource, item, how)
    finalizers = _finalizers(item, how.policy)
    if finalizers:
        return _hold(cluster, resource, item, finalizers, how)
    if not how.dry:
        cluster.store.write(resource.key, name, None)
    return status.success(resource, name[1], item["metadata"]["uid"])


def _finalizers(item: Object, policy: str) -> list[str]:
    """What holds a deleted object: its finalizers, and what the policy asks of the garbage collector."""
    known = list(item["metadata"].get("finalizers") or ())
    if not policy:
        return known
    wanted = [_HELD[policy]] if policy in _HELD else []
    return [each for each in known if each not in _HELD.values()] + wanted


def _check(item: Object, resource: Resource, how: Options) -> None:
    meta = item["metadata"]
    if how.uid and how.uid != meta["uid"]:
        why = (
            f"the UID in the precondition ({how.uid}) does not match the UID in record ({meta['uid']}). "
            "The object might have been deleted and then recreated"
        )
        raise status.precondition(resource, meta["name"], why)
    if how.version and how.version != meta["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({how.version}) does not match the ResourceVersion in record "
            f"({meta['resourceVersion']}). The object might have been modified"
        )
        raise status.precondition(resource, meta["name"], why)


def _marked(cluster: Cluster, item: Object, **more: Any) -> Object:
    """The object with the time of its deletion, unless it has one."""
    meta = item["metadata"]
    deletion = {} if meta.get("deletionTimestamp") else {"deletionTimestamp": cluster.now(), **more}
    return item | {"metadata": meta | deletion}


def _hold(cluster: Cluster, resource: Resource, item: Object, finalizers: list[str], how: Options) -> Object:
    # The mark is a change that controllers wait for: where generations are counted, it counts as one.
    known = item["metadata"].get("generation")
    counted = {} if known is None else {"generation": known + 1}
    held = _marked(cluster, item, deletionGracePeriodSeconds=0, **counted)
    held["metadata"]["finalizers"] = finalizers
    return _written(cluster, resource, item, held, how)


def _written(cluster: Cluster, resource: Resource, old: Object, new: Object, how: Options) -> Object:
    if how.dry or conversion.bare(old) == conversion.bare(new):
        return new
    return cluster.store.write(resource.key, name_of(old), new)


def _terminate(cluster: Cluster, resource: Resource, item: Object, how: Options) -> Object:
    """A namespace stays until its finalizers are gone; nobody empties it here."""
    ending = _marked(cluster, item) | {"status": item["status"] | {"phase": "Terminating"}}
    return _written(cluster, resource, item, ending, how)


def finalize(cluster: Cluster, resource: Resource, item: Object, sent: Object, how: Writing) -> Object:
    """Take finalizers from a namespace; without any, a terminating one goes."""
    try:
        spec = kinds.shape(resource.kind).cast(sent, resource.kind)["spec"]
    except shapes.Mistyped as error:
        raise status.bad_request(str(error)) from error
    finalizers = spec.get("finalizers") or []
    new = item | {"spec": {"finalizers": finalizers} if finalizers else {}}
    if how.dry:
        return new
    if finalizers or not item["metadata"].get("deletionTimestamp"):
        return cluster.store.write(resource.key, name_of(item), new)
    cluster.store.write(resource.key, name_of(item), None)
    return new


def _cleanup(cluster: Cluster, resource: Resource, item: Object, how: Options) -> Object:
    """A definition takes its objects with it; `definitions` ends both."""
    ending = definitions.terminating(_marked(cluster, item), cluster.now())
    ending["metadata"]["finalizers"] = [CLEANUP]
    return _written(cluster, resource, item, ending, how)


def _delete_pod(cluster: Cluster, resource: Resource, pod: Object, how: Options) -> Object:
    known = pod["metadata"].get("deletionGracePeriodSeconds")
    deleted = pod["metadata"].get("deletionTimestamp")
    grace = pods.grace_seconds(pod, how.grace_seconds)
    finalizers = _finalizers(pod, how.policy)
    held = bool(finalizers) and finalizers == pod["metadata"].get("finalizers")
    if deleted and (how.grace_seconds is None or (known is not None and grace >= known)) and (grace != 0 or held):
        return pod
    moment = cluster.clock.now() + datetime.timedelta(seconds=grace)
    meta = pod["metadata"] | {"deletionTimestamp": stamp(moment), "deletionGracePeriodSeconds": grace}
    meta = {key: value for key, value in meta.items() if key != "finalizers"}
    meta |= {"finalizers": finalizers} if finalizers else {}
    ending = pod | {"metadata": meta}
    if how.dry:
        return ending
    ending = cluster.store.write(resource.key, name_of(pod), ending)
    if grace == 0 and not finalizers:
        cluster.store.write(resource.key, name_of(pod), None)
    return ending
