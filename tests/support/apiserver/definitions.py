"""CustomResourceDefinitions: when their kinds begin and cease to be served."""

from __future__ import annotations

from apiserver import resources
from apiserver.cluster import DEFINITIONS, Cluster, name_of
from apiserver.store import Object

_APPROVAL = "api-approved.kubernetes.io"


def follow(cluster: Cluster, *, after_seconds: float) -> None:
    """Establish definitions that are new and end those that are deleted, `after_seconds` from now."""
    for definition in cluster.store.listed(DEFINITIONS):
        name = name_of(definition)
        if definition["metadata"].get("deletionTimestamp"):
            _end(cluster, definition)
        elif definition["status"].get("conditions") is None and after_seconds > 0:
            cluster.later(after_seconds, lambda name=name: establish(cluster, name))  # type: ignore[misc]
        else:
            establish(cluster, name)


def establish(cluster: Cluster, name: tuple[str, str]) -> None:
    """Serve the kind, and say so in the definition's status."""
    definition = cluster.store.get(DEFINITIONS, name)
    if definition is None or definition["metadata"].get("deletionTimestamp"):
        return
    kind = resources.of_definition(definition)
    cluster.catalog.custom[kind.group, kind.plural] = kind
    status = definition["status"]
    names = {key: value for key, value in definition["spec"]["names"].items() if value}
    wanted = status | {"conditions": _conditions(cluster, definition), "acceptedNames": names}
    if status.get("conditions") is None or status.get("acceptedNames") != names:
        cluster.store.write(DEFINITIONS, name, definition | {"status": wanted})
    cluster.store.begin(kind.key)


def _conditions(cluster: Cluster, definition: Object) -> list[Object]:
    known = definition["status"].get("conditions")
    if known is not None:
        return list(known)
    now = cluster.now()
    found = [
        _true("NamesAccepted", "NoConflicts", "no conflicts found", now),
        _true("Established", "InitialNamesAccepted", "the initial names have been accepted", now),
    ]
    approved = (definition["metadata"].get("annotations") or {}).get(_APPROVAL)
    if approved:
        word = "KubernetesAPIApprovalPolicyConformant"
        found.append(_true(word, "ApprovedAnnotation", f"approved in {approved}", now))
    return found


def terminating(definition: Object, now: str) -> Object:
    """The definition as a deletion answers it: its objects go next."""
    message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
    status = definition["status"]
    condition = _true("Terminating", "InstanceDeletionPending", message, now)
    return definition | {"status": status | {"conditions": [*(status.get("conditions") or ()), condition]}}


def _true(word: str, reason: str, message: str, now: str) -> Object:
    return {"type": word, "status": "True", "lastTransitionTime": now, "reason": reason, "message": message}


def _end(cluster: Cluster, definition: Object) -> None:
    spec = definition["spec"]
    key = (spec["group"], spec["names"]["plural"])
    for item in cluster.store.listed(key):
        cluster.store.write(key, name_of(item), None)
    cluster.catalog.custom.pop(key, None)
    cluster.store.write(DEFINITIONS, name_of(definition), None)
