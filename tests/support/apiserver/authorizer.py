"""Who may do what: roles and bindings from the store, and the few rules every cluster starts with (Kubernetes RBAC)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from apiserver.requests import Target
from apiserver.status import Refused
from apiserver.store import Store
from apiserver.users import AUTHENTICATED, MASTERS, UNAUTHENTICATED, User

_RBAC = "rbac.authorization.k8s.io"
_PUBLIC = ("/healthz", "/livez", "/readyz", "/version", "/version/")
_DISCOVERY = (
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/healthz",
    "/livez",
    "/openapi",
    "/openapi/*",
    "/readyz",
    "/version",
    "/version/",
)
_BASIC = {
    "verbs": ["create"],
    "apiGroups": ["authorization.k8s.io"],
    "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
}
_NODES = "system:nodes"
_NODE_RULES: tuple[tuple[str, frozenset[str]], ...] = (
    ("nodes", frozenset({"create", "get", "list", "watch", "patch", "update"})),
    ("nodes/status", frozenset({"patch", "update", "get"})),
    ("pods", frozenset({"get", "list", "watch", "create", "delete"})),
    ("pods/status", frozenset({"patch", "update"})),
    ("pods/eviction", frozenset({"create"})),
    ("services", frozenset({"get", "list", "watch"})),
    ("events", frozenset({"create", "patch", "update"})),
)
_RELATED = ("configmaps", "secrets", "persistentvolumeclaims", "persistentvolumes")


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """Allowed or not, and what the rules say about it."""

    allowed: bool
    reason: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Grant:
    """One rule that applies to a user, and where it comes from."""

    rule: dict[str, Any]
    namespace: str
    """Empty: everywhere."""
    reason: str


class Authorizer:
    """Judges requests by the roles and bindings in the store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def judge(self, user: User, target: Target) -> Verdict:
        """Whether `user` may do that with a resource."""
        if MASTERS in user.groups:
            return Verdict(True)
        if _NODES in user.groups and _node_may(target):
            return Verdict(True)
        for grant in self.grants(user):
            if grant.namespace in ("", target.namespace) and _covers(grant.rule, target):
                return Verdict(True, grant.reason)
        return Verdict(False, _unrelated(user, target))

    def judge_path(self, user: User, path: str, verb: str) -> Verdict:
        """Whether `user` may ask for a path outside the resources."""
        if MASTERS in user.groups:
            return Verdict(True)
        # Of several rules that allow a path, the broadest of the initial ones is told: it comes last.
        for grant in reversed(list(self.grants(user))):
            urls, verbs = grant.rule.get("nonResourceURLs") or (), grant.rule["verbs"]
            if not grant.namespace and (verb in verbs or "*" in verbs) and any(_fits(url, path) for url in urls):
                return Verdict(True, grant.reason)
        return Verdict(False)

    def grants(self, user: User) -> Iterator[Grant]:
        """Every rule that applies to the user."""
        yield from _initial(user)
        for binding in self._store.listed((_RBAC, "clusterrolebindings")):
            yield from self._bound(user, binding, "")
        for binding in self._store.listed((_RBAC, "rolebindings")):
            yield from self._bound(user, binding, binding["metadata"]["namespace"])

    def _bound(self, user: User, binding: dict[str, Any], namespace: str) -> Iterator[Grant]:
        subject = next((each for each in binding.get("subjects") or () if _is(user, each)), None)
        if subject is None:
            return
        ref = binding["roleRef"]
        key = (_RBAC, "roles" if ref["kind"] == "Role" else "clusterroles")
        role = self._store.get(key, (namespace if ref["kind"] == "Role" else "", ref["name"]))
        name = binding["metadata"]["name"]
        where = f'RoleBinding "{name}/{namespace}"' if namespace else f'ClusterRoleBinding "{name}"'
        reason = f'RBAC: allowed by {where} of {ref["kind"]} "{ref["name"]}" to {_shown(subject)}'
        for rule in (role or {}).get("rules") or ():
            yield Grant(rule, namespace, reason)


def denied(user: User, target: Target, why: str = "") -> Refused:
    """403 for a resource, with the words a real server uses."""
    shown = f"{target.resource}.{target.group}" if target.group else target.resource
    subject = f'{shown} "{target.name}" is forbidden' if target.name else f"{shown} is forbidden"
    scope = f'in the namespace "{target.namespace}"' if target.namespace else "at the cluster scope"
    action = f'User "{user.name}" cannot {target.verb} resource "{target.full}" in API group "{target.group}" {scope}'
    details = {"name": target.name, "group": target.group, "kind": target.resource}
    details = {key: value for key, value in details.items() if value}
    message = f"{subject}: {action}" + (f": {why}" if why else "")
    return Refused(403, message, reason="Forbidden", details=details)


def denied_path(user: User, path: str, verb: str) -> Refused:
    """403 for a path outside the resources."""
    message = f'forbidden: User "{user.name}" cannot {verb} path "{path}"'
    return Refused(403, message, reason="Forbidden", details={})


def _initial(user: User) -> Iterator[Grant]:
    for group in (AUTHENTICATED, UNAUTHENTICATED):
        if group in user.groups:
            yield _bootstrap("system:public-info-viewer", {"verbs": ["get"], "nonResourceURLs": list(_PUBLIC)}, group)
    if AUTHENTICATED in user.groups:
        yield _bootstrap("system:basic-user", _BASIC, AUTHENTICATED)
        yield _bootstrap("system:discovery", {"verbs": ["get"], "nonResourceURLs": list(_DISCOVERY)}, AUTHENTICATED)


def _bootstrap(name: str, rule: dict[str, Any], group: str) -> Grant:
    reason = f'RBAC: allowed by ClusterRoleBinding "{name}" of ClusterRole "{name}" to Group "{group}"'
    return Grant(rule, "", reason)


def _covers(rule: dict[str, Any], target: Target) -> bool:
    groups, resources = rule.get("apiGroups") or (), rule.get("resources") or ()
    names = rule.get("resourceNames") or ()
    wanted = {target.full, "*", f"*/{target.subresource}" if target.subresource else "*"}
    return (
        (target.verb in rule["verbs"] or "*" in rule["verbs"])
        and (target.group in groups or "*" in groups)
        and not wanted.isdisjoint(resources)
        and (not names or target.name in names)
    )


def _is(user: User, subject: dict[str, Any]) -> bool:
    if subject["kind"] == "ServiceAccount":
        return user.name == f"system:serviceaccount:{subject.get('namespace', '')}:{subject['name']}"
    return bool(subject["name"] == user.name if subject["kind"] == "User" else subject["name"] in user.groups)


def _shown(subject: dict[str, Any]) -> str:
    if subject["kind"] == "ServiceAccount":
        return f'ServiceAccount "{subject["name"]}/{subject.get("namespace", "")}"'
    return f'{subject["kind"]} "{subject["name"]}"'


def _fits(pattern: str, path: str) -> bool:
    return path.startswith(pattern[:-1]) if pattern.endswith("*") else path == pattern


def _node_may(target: Target) -> bool:
    if target.group == "coordination.k8s.io":
        return target.resource == "leases"
    return target.group == "" and any(target.full == full and target.verb in verbs for full, verbs in _NODE_RULES)


def _unrelated(user: User, target: Target) -> str:
    if _NODES not in user.groups or target.group or target.resource not in _RELATED:
        return ""
    node = user.name.removeprefix("system:node:")
    return f"no relationship found between node '{node}' and this object"
