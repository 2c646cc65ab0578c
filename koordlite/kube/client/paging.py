"""Long lists in parts: continue tokens, and the list begun again when the server forgot the state it was showing."""

from __future__ import annotations

import errno
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from http import HTTPStatus
from typing import NamedTuple

import msgspec

from koordlite.kube.client.answers import Answer, ApiError, ApiUnreachable, bookmark, watch_event
from koordlite.model.errors import UNREADABLE

LIMIT = 500
"""Objects in a part; the server's etcd reads about as many at once."""
EMPTY_PARTS = 20
"""Maximum number of parts in a row without an object: a server filters what it has read."""
TOKEN_CHARACTERS = 16_384
"""The longest continue token; one holds a key and a version."""
RESTARTS = 3
"""Number of restarts after which the list is requested in one part: it is changing faster than it can be read."""


class Page(NamedTuple):
    """One part of a list, or all of it: the version of the state it shows, and the objects in JSON."""

    resource_version: str
    """Empty while it is not known, in a list that comes as a stream."""
    items: list[msgspec.Raw]
    restarted: bool = False
    """The list began again: what came so far is of another state."""


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str | None = msgspec.field(default=None, name="continue")


class _List(msgspec.Struct):
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[msgspec.Raw] | msgspec.UnsetType | None = msgspec.UNSET

    @property
    def objects(self) -> list[msgspec.Raw]:
        """The items; none when there are none to tell of."""
        return self.items or []


def pages(
    ask: Callable[..., Answer], path: str, query: Sequence[tuple[str, str]], limit: int, *, most_bytes: int = 4 << 30
) -> Iterator[Page]:
    """The parts of one list; `ask` is `Api.request`. While one is worked on, the next one is on its way.
    A token expires after some minutes (410). Then the list begins again.
    ApiUnreachable when it does not end: it has more than `most_bytes`, or parts that bring it no further."""
    restarts, token, size, empty, version = 0, "", 0, 0, ""
    pool: ThreadPoolExecutor | None = None
    coming: Future[Answer] | None = None

    def request() -> Callable[[], Answer]:
        most = [("limit", str(limit))] if limit and restarts < RESTARTS else []
        parameters = [*query, *most, *([("continue", token)] if token else [])]
        return functools.partial(ask, "GET", path, query=parameters)

    try:
        while True:
            try:
                body = (coming.result() if coming else request()()).body
                page, size = decode(body, path), size + len(body)
            except ApiError as error:
                if error.status != HTTPStatus.GONE or not token:
                    raise
                restarts, token, size, empty, coming = restarts + 1, "", 0, 0, None
                continue
            before, token = token, page.metadata.continue_ or ""
            empty = 0 if page.objects else empty + 1
            if token and (token == before or empty > EMPTY_PARTS or size > most_bytes or len(token) > TOKEN_CHARACTERS):
                raise ApiUnreachable(errno.EMSGSIZE, "the list does not end: what answered is no API server", path)
            if token:
                pool = pool or ThreadPoolExecutor(max_workers=1, thread_name_prefix="list")
                coming = pool.submit(request())
            last, version = version, page.metadata.resource_version
            yield Page(version, page.objects, restarted=last not in ("", version))
            if not token:
                return
    finally:
        # Who leaves a list does not need the rest of it.
        if pool:
            pool.shutdown(wait=False, cancel_futures=True)


def collected(parts: Iterable[Page]) -> Page:
    """One list of all parts; parts of an earlier attempt are forgotten."""
    version, items = "", list[msgspec.Raw]()
    for part in parts:
        version = part.resource_version
        items = items if not part.restarted else []
        items += part.items
    return Page(version, items)


def streamed(lines: Iterable[bytes], path: str, *, most_bytes: int = 4 << 30) -> Iterator[Page]:
    """A list of the lines that a watch begins with, in parts; the last one has the resource version. ApiError for the
    server's refusal. NotStreamed when the lines end without an end of the list: what came is to be forgotten."""
    items, size = list[msgspec.Raw](), 0
    for line in lines:
        event, size = watch_event(line), size + len(line)
        if size > most_bytes:
            raise ApiUnreachable(errno.EMSGSIZE, "the list does not end: what answered is no API server", path)
        if event.type == "BOOKMARK":
            version, ends = bookmark(event.object)
            if ends and version:
                yield Page(version, items)
                return
        elif event.type != "ADDED":
            break  # A server that did not understand the question tells of changes.
        else:
            items.append(event.object)
        if len(items) >= LIMIT:
            yield Page("", items)
            items = []
    raise NotStreamed


class NotStreamed(Exception):
    """A server took the question for a list as a stream for one for a watch."""


def decode(body: bytes, path: str) -> _List:
    """A list; ApiUnreachable when the body is none. kubelet and some lists write `null` for no items.
    Every list says `items`. What does not, such as the answer of a proxy, must not pass for a list of nothing."""
    try:
        listing = msgspec.json.decode(body, type=_List)
    except UNREADABLE as error:
        raise ApiUnreachable(errno.EPROTO, f"the answer is no list: {error}", path) from error
    if listing.items is msgspec.UNSET:
        raise ApiUnreachable(errno.EPROTO, "the answer is no list: it has no items", path)
    return listing
