"""What a request asks for, from its method, path and query alone (Kubernetes RequestInfoFactory)."""

from __future__ import annotations

import dataclasses
import urllib.parse
from collections.abc import Mapping

from apiserver.users import ADMIN, User

_VERBS = {"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_NAMESPACE_PARTS = frozenset({"status", "finalize"})


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes = b""
    user: User = ADMIN

    @classmethod
    def of(cls, method: str, target: str, headers: Mapping[str, str], body: bytes = b"") -> Request:
        """The request for `target`, path and query together."""
        url = urllib.parse.urlsplit(target)
        query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        lowered = {name.lower(): value for name, value in headers.items()}
        return cls(method, urllib.parse.unquote(url.path), query, lowered, body)

    @property
    def bearer(self) -> str:
        """The bearer token; empty without one, also where another scheme of authentication is named."""
        scheme, _, token = self.headers.get("authorization", "").strip().partition(" ")
        return token.strip() if scheme.lower() == "bearer" else ""

    @property
    def watches(self) -> bool:
        """Whether the query asks for a watch."""
        return self.query.get("watch", "") in ("true", "1")


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """What the path names. `resource` is empty for a path outside the API's resources."""

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    extra: str = ""
    """What follows a subresource."""

    @property
    def full(self) -> str:
        """Resource and subresource, as rules of access name them."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def target(request: Request) -> Target:
    """The target of a request; authorization looks at it before anybody knows whether it exists."""
    parts = [part for part in request.path.split("/") if part]
    if parts[:1] == ["api"] and len(parts) >= 3:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[:1] == ["apis"] and len(parts) >= 4:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return Target(request.method.lower())
    verb = _VERBS.get(request.method, request.method.lower())
    if rest[0] == "watch" and len(rest) > 1:
        verb, rest = "watch", rest[1:]
    found = _named(rest)
    return dataclasses.replace(found, verb=_collective(verb, found, request), group=group, version=version)


def judged(at: Target, request: Request) -> Target:
    """The target as authorization sees it: a list or watch of one name is one of that name (RequestInfoFactory)."""
    if at.name or at.verb not in ("list", "watch", "deletecollection"):
        return at
    parts = [part.partition("=") for part in request.query.get("fieldSelector", "").split(",")]
    names = [value.removeprefix("=") for field, _, value in parts if field == "metadata.name"]
    return dataclasses.replace(at, name=names[0]) if names else at


def _named(rest: list[str]) -> Target:
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in _NAMESPACE_PARTS:
        namespace, rest = rest[1], rest[2:]
    padded = [*rest, "", "", ""]
    if rest[0] == "namespaces" and not namespace:
        namespace = ""
    return Target(
        "", resource=padded[0], name=padded[1], subresource=padded[2], namespace=namespace, extra="/".join(rest[3:])
    )


def _collective(verb: str, found: Target, request: Request) -> str:
    if found.name:
        return verb
    if verb == "get":
        return "watch" if request.watches else "list"
    return "deletecollection" if verb == "delete" else verb
