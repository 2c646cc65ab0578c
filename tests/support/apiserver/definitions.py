"""CustomResourceDefinitions: their kinds are served as soon as they are there, and as long."""

from __future__ import annotations

from apiserver import resources
from apiserver.cluster import DEFINITIONS, Cluster, name_of
from apiserver.store import Object

_APPROVAL = "api-approved.kubernetes.io"


def follow(cluster: Cluster) -> None:
    """Serve the kinds of all definitions that there are; objects of those that are gone go too."""
    known = cluster.store.listed(DEFINITIONS)
    for definition in known:
        establish(cluster, name_of(definition))
    for key in cluster.catalog.custom.keys() - {
        (each["spec"]["group"], each["spec"]["names"]["plural"]) for each in known
    }:
        for item in cluster.store.listed(key):
            cluster.store.write(key, name_of(item), None)
        del cluster.catalog.custom[key]


def establish(cluster: Cluster, name: tuple[str, str]) -> None:
    """Serve the kind, and say so in the definition's status."""
    definition = cluster.store.get(DEFINITIONS, name)
    if definition is None:
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


def _true(word: str, reason: str, message: str, now: str) -> Object:
    return {"type": word, "status": "True", "lastTransitionTime": now, "reason": reason, "message": message}
