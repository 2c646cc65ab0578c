"""Deletion: options, preconditions, finalizers, and the grace period of pods."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping
from typing import Any

from koordlite.sandbox.apiserver import conversion, definitions, pods, status
from koordlite.sandbox.apiserver.clocks import stamp
from koordlite.sandbox.apiserver.cluster import NAMESPACES, Cluster, Writing, name_of
from koordlite.sandbox.apiserver.resources import Resource
from koordlite.sandbox.apiserver.store import Object

_POLICIES = ("Foreground", "Background", "Orphan")
_HELD = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """metav1.DeleteOptions."""

    grace_seconds: int | None = None
    uid: str = ""
    version: str = ""
    policy: str = ""
    dry: bool = False


def options(body: Mapping[str, Any], query: Mapping[str, str]) -> Options:
    """The options of a request; Refused 422 for those that contradict or do not exist."""
    dry = body.get("dryRun") or ([query["dryRun"]] if query.get("dryRun") else [])
    if dry and dry != ["All"]:
        raise status.invalid_options("DeleteOptions", status.unsupported("dryRun", dry, ["All"]))
    policy = body.get("propagationPolicy") or query.get("propagationPolicy", "")
    if policy and policy not in _POLICIES:
        cause = status.unsupported("propagationPolicy", policy, [*_POLICIES, "nil"])
        raise status.invalid_options("DeleteOptions", cause)
    if policy and body.get("orphanDependents") is not None:
        why = "orphanDependents and deletionPropagation cannot be both set"
        raise status.invalid_options("DeleteOptions", status.wrong("propagationPolicy", policy, why))
    grace = body.get("gracePeriodSeconds")
    if grace is None and query.get("gracePeriodSeconds"):
        grace = _number(query["gracePeriodSeconds"])
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
    finalizers = list(item["metadata"].get("finalizers") or ())
    if how.policy in _HELD and _HELD[how.policy] not in finalizers:
        finalizers.append(_HELD[how.policy])
    if finalizers:
        return _hold(cluster, resource, item, finalizers, how)
    if not how.dry:
        cluster.store.write(resource.key, name, None)
    return status.success(resource, name[1], item["metadata"]["uid"])


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
    held = _marked(cluster, item, deletionGracePeriodSeconds=0)
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
    finalizers = (sent.get("spec") or {}).get("finalizers") or []
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
    if deleted and (how.grace_seconds is None or (known is not None and grace >= known)) and grace != 0:
        return pod
    moment = cluster.clock.now() + datetime.timedelta(seconds=grace)
    meta = pod["metadata"] | {"deletionTimestamp": stamp(moment), "deletionGracePeriodSeconds": grace}
    ending = pod | {"metadata": meta}
    if how.dry:
        return ending
    ending = cluster.store.write(resource.key, name_of(pod), ending)
    if grace == 0 and not meta.get("finalizers"):
        cluster.store.write(resource.key, name_of(pod), None)
    return ending
