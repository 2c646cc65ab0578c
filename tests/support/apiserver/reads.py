"""Get and list: consistency by resourceVersion, pages, selectors (Kubernetes "API Concepts")."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import json
from typing import Any

from apiserver import selectors, status
from apiserver.cluster import Cluster, name_of
from apiserver.requests import Request, Target
from apiserver.resources import Resource
from apiserver.store import Compacted, Object

_TOKEN = "meta.k8s.io/v1"
_MATCHES = ("Exact", "NotOlderThan")
_OLD_LIST = "The resourceVersion for the provided list is too old."
_OLD_TOKEN = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


@dataclasses.dataclass(frozen=True, slots=True)
class Page:
    """A list, or one page of it."""

    items: list[Object]
    revision: int
    token: str = ""
    remaining: int | None = None


def get(cluster: Cluster, resource: Resource, at: Target, request: Request) -> Object:
    """One object; a selector in the query does not matter."""
    asked = request.query.get("resourceVersion", "")
    if asked and revision_of(asked) > cluster.store.revision:
        raise status.too_new(revision_of(asked), cluster.store.revision)
    return cluster.require(resource, (at.namespace, at.name))


def chosen(cluster: Cluster, resource: Resource, at: Target, request: Request) -> selectors.Matches:
    """Whether an object is among those asked for: namespace, labels, fields."""
    labels = selectors.labels(request.query.get("labelSelector", ""))
    fields = selectors.fields(request.query.get("fieldSelector", ""), resource)

    def test(item: Any) -> bool:
        meta = item["metadata"]
        here = not at.namespace or meta.get("namespace", "") == at.namespace
        return here and (not at.name or meta["name"] == at.name) and labels(meta.get("labels") or {}) and fields(item)

    return test


def listed(cluster: Cluster, resource: Resource, at: Target, request: Request) -> Page:
    """The list a request asks for."""
    query = request.query
    check_match(query)
    matches = chosen(cluster, resource, at, request)
    limit = max(0, number(query.get("limit", "")))
    asked, token = query.get("resourceVersion", ""), query.get("continue", "")
    if token:
        if asked not in ("", "0"):
            raise status.bad_request("specifying resource version is not allowed when using continue")
        return _continued(cluster, resource, (at, matches, limit), token, plain=_is_plain(query))
    revision = revision_of(asked) if asked else 0
    match = query.get("resourceVersionMatch", "")
    if asked and resource.cached and (not limit or revision == 0) and match != "Exact":
        return _from_cache(cluster, resource, matches, revision)
    if revision > cluster.store.revision:
        raise status.too_new(revision, cluster.store.revision)
    exact = revision and (match == "Exact" or (not match and limit))
    at_revision = revision if exact else cluster.store.revision
    items = [each for each in _state(cluster, resource, at_revision) if matches(each)]
    return _cut(items, at, limit, at_revision, plain=_is_plain(query))


def check_match(query: Any, *, streams: bool = True) -> None:
    """Refused 422 for a resourceVersionMatch or sendInitialEvents that does not go with the rest of the query."""
    match, asked = query.get("resourceVersionMatch", ""), query.get("resourceVersion", "")
    is_watch, initial = query.get("watch", "") in ("true", "1"), query.get("sendInitialEvents", "")
    if not match and not initial:
        return
    field = "resourceVersionMatch"
    if initial and not is_watch:
        field, why = "sendInitialEvents", "sendInitialEvents is forbidden for list"
        cause = status.forbidden_field(field, why)
    elif is_watch and initial and match != "NotOlderThan":
        cause = status.forbidden_field(field, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
    elif is_watch and initial and not streams:
        why = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
        cause = status.forbidden_field("sendInitialEvents", why)
    elif is_watch and initial:
        return
    elif is_watch:
        # The words of servers with WatchList, and of those before it.
        unless = " unless sendInitialEvents is provided" if streams else ""
        cause = status.forbidden_field(field, f"resourceVersionMatch is forbidden for watch{unless}")
    elif not asked:
        cause = status.forbidden_field(field, "resourceVersionMatch is forbidden unless resourceVersion is provided")
    elif query.get("continue"):
        cause = status.forbidden_field(field, "resourceVersionMatch is forbidden when continue is provided")
    elif match not in _MATCHES:
        cause = status.unsupported(field, match, [*_MATCHES, ""])
    elif match == "Exact" and asked == "0":
        cause = status.forbidden_field(field, 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"')
    else:
        return
    raise status.invalid_options("ListOptions", cause)


def number(text: str) -> int:
    """A number of the query; Refused 400."""
    try:
        return int(text or "0")
    except ValueError as error:
        raise status.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from error


def revision_of(text: str) -> int:
    """A resourceVersion of a list or get; Refused 400."""
    if not (text.isascii() and text.isdecimal()):
        raise status.bad_request(f"invalid resource version: {_no_number(text)}")
    return int(text)


def watched_revision_of(text: str) -> int:
    """The same of a watch; Refused 500, as a real server does."""
    if not (text.isascii() and text.isdecimal()):
        raise status.internal(_no_number(text))
    return int(text)


def _no_number(text: str) -> str:
    return f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'


def _is_plain(query: Any) -> bool:
    return not query.get("labelSelector") and not query.get("fieldSelector")


def _from_cache(cluster: Cluster, resource: Resource, matches: selectors.Matches, revision: int) -> Page:
    """The newest state, in no order; the limit does not matter."""
    if revision > cluster.store.revision:
        raise status.too_new(revision, cluster.store.seen(resource.key))
    items = [each for each in cluster.store.listed(resource.key) if matches(each)]
    return Page(cluster.shuffled(items), cluster.store.seen(resource.key))


def _state(cluster: Cluster, resource: Resource, revision: int) -> list[Object]:
    if revision == cluster.store.revision:
        return cluster.store.listed(resource.key)
    try:
        return cluster.store.at(resource.key, revision)
    except Compacted as error:
        raise status.expired(_OLD_LIST) from error


def _cut(items: list[Object], at: Target, limit: int, revision: int, *, plain: bool) -> Page:
    if not limit or len(items) <= limit:
        return Page(items, revision)
    token = _token(revision, _start(items[limit - 1], at))
    return Page(items[:limit], revision, token, len(items) - limit if plain else None)


def _start(item: Object, at: Target) -> str:
    namespace, name = name_of(item)
    return f"{namespace}/{name}\0" if namespace and not at.namespace else f"{name}\0"


def _token(revision: int, start: str) -> str:
    text = json.dumps({"v": _TOKEN, "rv": revision, "start": start}, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _read_token(token: str) -> tuple[int, str]:
    try:
        found = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        return int(found["rv"]), str(found["start"])
    except (ValueError, KeyError, TypeError, binascii.Error) as error:
        raise status.bad_request(f"invalid continue token: continue key is not valid: {error}") from error


def _continued(
    cluster: Cluster, resource: Resource, wanted: tuple[Target, Any, int], token: str, *, plain: bool
) -> Page:
    at, matches, limit = wanted
    revision, start = _read_token(token)
    if revision < 0:
        items = cluster.store.listed(resource.key)
        revision = cluster.store.revision
    else:
        try:
            items = cluster.store.at(resource.key, revision)
        except Compacted as error:
            raise status.expired(_OLD_TOKEN, **{"continue": _token(-1, start)}) from error
    rest = [each for each in items if matches(each) and _start(each, at) > start]
    return _cut(rest, at, limit, revision, plain=plain)
