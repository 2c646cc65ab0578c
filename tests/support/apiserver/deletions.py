"""Deletion: options, preconditions, finalizers, and the grace period of pods."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping
from typing import Any

from apiserver import conversion, pods, shapes, status
from apiserver.clocks import stamp
from apiserver.cluster import NAMESPACES, Cluster, name_of
from apiserver.resources import Resource
from apiserver.store import Object

_SENT = shapes.Struct(
    {
        "gracePeriodSeconds": shapes.INTEGER,
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
    dry_run: tuple[str, ...] = ()

    @property
    def dry(self) -> bool:
        """Whether nothing is to be stored."""
        return bool(self.dry_run)

    def check(self) -> None:
        """Refused 422 for a dry run that does not exist."""
        if self.dry_run not in ((), ("All",)):
            raise status.invalid_options("DeleteOptions", status.unsupported("dryRun", self.dry_run, ["All"]))


def options(body: Mapping[str, Any], query: Mapping[str, str]) -> Options:
    """The options of a request; Refused 400 for wrong types, 422 for those that do not exist."""
    try:
        body = _SENT.cast(body, "DeleteOptions")
    except shapes.Mistyped as error:
        raise status.bad_request(str(error)) from error
    dry = body.get("dryRun") or ([query["dryRun"]] if query.get("dryRun") else [])
    grace = body.get("gracePeriodSeconds")
    if grace is None and query.get("gracePeriodSeconds"):
        grace = _number(query["gracePeriodSeconds"])
    wanted = body.get("preconditions") or {}
    return Options(grace, wanted.get("uid") or "", wanted.get("resourceVersion") or "", tuple(dry))


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise status.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from error


def delete(cluster: Cluster, resource: Resource, name: tuple[str, str], how: Options) -> Object:
    """Delete one object as far as it may be at once: the Status or, where something is left, the object."""
    how.check()
    item = cluster.require(resource, name)
    _check(item, resource, how)
    if resource.key == ("", "pods"):
        return _delete_pod(cluster, resource, item, how)
    if resource.key == NAMESPACES:
        return _terminate(cluster, resource, item, how)
    if item["metadata"].get("finalizers"):
        return _hold(cluster, resource, item, how)
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


def _hold(cluster: Cluster, resource: Resource, item: Object, how: Options) -> Object:
    # The mark is a change that controllers wait for: where generations are counted, it counts as one.
    known = item["metadata"].get("generation")
    counted = {} if known is None else {"generation": known + 1}
    held = _marked(cluster, item, deletionGracePeriodSeconds=0, **counted)
    if how.dry or conversion.bare(item) == conversion.bare(held):
        return held
    return cluster.store.write(resource.key, name_of(item), held)


def _terminate(cluster: Cluster, resource: Resource, item: Object, how: Options) -> Object:
    """A namespace stays until somebody takes it away; nobody empties it here."""
    ending = _marked(cluster, item) | {"status": item["status"] | {"phase": "Terminating"}}
    return ending if how.dry else cluster.store.write(resource.key, name_of(item), ending)


def _delete_pod(cluster: Cluster, resource: Resource, pod: Object, how: Options) -> Object:
    known = pod["metadata"].get("deletionGracePeriodSeconds")
    deleted = pod["metadata"].get("deletionTimestamp")
    grace = pods.grace_seconds(pod, how.grace_seconds)
    held = bool(pod["metadata"].get("finalizers"))
    if deleted and (how.grace_seconds is None or (known is not None and grace >= known)) and (grace != 0 or held):
        return pod
    moment = cluster.clock.now() + datetime.timedelta(seconds=grace)
    meta = pod["metadata"] | {"deletionTimestamp": stamp(moment), "deletionGracePeriodSeconds": grace}
    ending = pod | {"metadata": meta}
    if how.dry:
        return ending
    ending = cluster.store.write(resource.key, name_of(pod), ending)
    if grace == 0 and not held:
        cluster.store.write(resource.key, name_of(pod), None)
    return ending
