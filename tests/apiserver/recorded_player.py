"""Plays recorded exchanges with a Kubernetes 1.36 API server against ours, in order, and says what differs.

Uids and resource versions are bound as answers show them: what the recording calls `8127` is whatever ours said in that
place. Times, versions of the list and the words of Go's decoders are not compared.
"""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from apiserver import ApiServer, ManualClock, User

RESTRICTED = "system:serviceaccount:rec-api:restricted"
TOKENS = {
    "admin": User("admin", ("system:masters",), "admin"),
    "restricted": User(RESTRICTED, ("system:serviceaccounts",)),
}
CRD = Path(__file__).parents[2] / "manifests/crds/noderesourcetopologies.yaml"
_BOUND = frozenset({"uid", "resourceVersion", "continue"})
_IGNORED = frozenset(
    {
        *("creationTimestamp", "deletionTimestamp", "lastTransitionTime", "disruptedPods"),
        *("serviceAccount", "serviceAccountName", "generation", "audiences"),
    }
)
"""Times; what the service account of a pod and the audience are; and the generation of pods, which is new."""
_GO_TEXT = (
    r"(as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse ).*",
    r"(patch: Invalid value: ).*",
    r"(Invalid value: )\"?\{.*",
    r"(continue key is not valid).*",
    r"(json: cannot unmarshal \w+).*",
    r"(couldn't get version/kind; json parse error).*",
    r"(converting \(v1.Pod\) to ).*",
    r"(Object 'Kind' is missing in ).*",
    r"(pod updates may not change fields other than).*",
    r"(Too large resource version: \d+, current: ).*",
    r"(too old resource version: \d+ ).*",
)
_STEP_SECONDS = 0.5


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """One exchange, and what ours answered differently."""

    rule: str
    name: str
    differences: tuple[str, ...]


class Player:
    """One file of exchanges against one fresh server."""

    def __init__(self, setup: Callable[[Player, str], None], **options: bool) -> None:
        """`setup` is asked before each exchange by its name, and once with an empty one before the first. `options` are
        those of the server."""
        self._clock = ManualClock()
        self.server = ApiServer(tokens=TOKENS, clock=self._clock, seed=1, **options)
        self._setup = setup
        self._ours: dict[str, str] = {}

    def bind(self, recorded: str, ours: object) -> None:
        """Say what a word of the recording stands for."""
        self._ours[recorded] = str(ours)

    def play(self, exchanges: list[Any]) -> Iterator[Outcome]:
        """Every exchange with its differences."""
        with self.server:
            self._setup(self, "")
            for exchange in exchanges:
                self._setup(self, exchange["name"])
                self._make_what_is_read(exchange)
                yield Outcome(exchange["rule"], exchange["name"], tuple(self._judged(exchange)))

    def _make_what_is_read(self, exchange: Any) -> None:
        """An object that the recording finds was made by somebody else, when ours has none of that name."""
        body = exchange["response"].get("body")
        good = exchange["response"]["status"] == 200 and exchange["request"]["method"] in ("GET", "PATCH")
        if not good or not isinstance(body, dict) or "name" not in body.get("metadata", {}):
            return
        meta = body["metadata"]
        known = self.server.objects.get(
            body["kind"], meta["name"], meta.get("namespace", ""), api_version=body["apiVersion"]
        )
        if known is None:
            self.server.objects.load(body)

    def _judged(self, exchange: Any) -> Iterator[str]:
        wanted = exchange["response"]
        found = self._watched(exchange) if "stream" in wanted else self._asked(exchange["request"])
        if found["status"] != wanted["status"]:
            yield f"status {found['status']} where {wanted['status']} was recorded: {str(found['body'])[:200]}"
            return
        for name in ("Retry-After", "Warning", "Content-Type"):
            ours, theirs = found["headers"].get(name), wanted["headers"].get(name)
            if ours != theirs:
                yield f"header {name}: {ours!r} where {theirs!r} was recorded"
        if "stream" in wanted:
            events = [each["event"] for each in wanted["stream"]]
            yield from self._value(events, found["events"], "stream")
        else:
            yield from self._value(wanted["body"], found["body"], "")

    def _value(self, wanted: Any, found: Any, path: str) -> Iterator[str]:
        if isinstance(wanted, dict) and isinstance(found, dict):
            for key in sorted((wanted.keys() | found.keys()) - _IGNORED):
                if key == "causes":
                    yield from self._value(_distinct(wanted.get(key)), _distinct(found.get(key)), f"{path}.causes")
                elif key in _BOUND and isinstance(wanted.get(key), str) and isinstance(found.get(key), str):
                    yield from self._bound(wanted[key], found[key], f"{path}.{key}")
                elif key not in wanted:
                    yield f"{path}.{key} is more: {str(found[key])[:80]!r}"
                elif key not in found:
                    yield f"{path}.{key} is missing: {str(wanted[key])[:80]!r}"
                else:
                    yield from self._value(wanted[key], found[key], f"{path}.{key}")
        elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
            for place, (one, other) in enumerate(zip(wanted, found, strict=True)):
                yield from self._value(one, other, f"{path}[{place}]")
        elif isinstance(wanted, str) and isinstance(found, str):
            self._bind_uids(wanted, found)
            if _neutral(self._translated(wanted)) != _neutral(_UNKNOWN.sub("N", found)):
                yield f"{path}: {found[:300]!r} where {wanted[:300]!r} was recorded"
        elif wanted != found:
            yield f"{path}: {str(found)[:200]!r} where {str(wanted)[:200]!r} was recorded"

    def _bind_uids(self, wanted: str, found: str) -> None:
        """Uids in the words of a refusal."""
        pairs = list(zip(_UID.finditer(wanted), _UID.finditer(found), strict=False))
        for one, other in pairs:
            if one[0] != other[0]:
                self._ours.setdefault(one[0], other[0])

    def _bound(self, wanted: str, found: str, path: str) -> Iterator[str]:
        if self._ours.setdefault(wanted, found) != found:
            yield f"{path}: {found} where it was {self._ours[wanted]} before"

    def _translated(self, value: Any) -> Any:
        """A part of a recorded request in the words of our server."""
        if isinstance(value, dict):
            return {key: self._translated(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self._translated(each) for each in value]
        if not isinstance(value, str):
            return value
        if value in self._ours:
            return self._ours[value]
        length = re.fullmatch(r"<(\d+) bytes>", value)
        if length:
            return "x" * int(length[1])
        value = _UID.sub(lambda match: self._ours.get(match[0], match[0]), value)
        return _UNKNOWN.sub("N", value)

    def _path(self, path: str) -> str:
        return re.sub(
            r"(resourceVersion|continue)=(\w+)", lambda match: f"{match[1]}={self._ours.get(match[2], match[2])}", path
        )

    @contextlib.contextmanager
    def _open(self, request: Any) -> Iterator[http.client.HTTPResponse]:
        connection = http.client.HTTPConnection(self.server.url.removeprefix("http://"), timeout=20)
        headers = dict(request.get("headers") or {})
        if request.get("content_type"):
            headers["Content-Type"] = request["content_type"]
        if request["identity"] != "anonymous":
            headers["Authorization"] = f"Bearer {request['identity']}"
        body = self._translated(request.get("body"))
        sent = None if body is None else body.encode() if isinstance(body, str) else json.dumps(body).encode()
        connection.request(request["method"], self._path(request["path"]), sent, headers)
        try:
            yield connection.getresponse()
        finally:
            connection.close()

    def _asked(self, request: Any) -> dict[str, Any]:
        with self._open(request) as answer:
            text = answer.read().decode()
        return {"status": answer.status, "headers": dict(answer.getheaders()), "body": _parsed(text)}

    def _watched(self, exchange: Any) -> dict[str, Any]:
        found: dict[str, Any] = {"events": []}

        def read() -> None:
            with self._open(exchange["request"]) as answer:
                found.update(status=answer.status, headers=dict(answer.getheaders()), body="")
                found["events"] += map(json.loads, answer)

        thread = threading.Thread(target=read, daemon=True)
        seen = len(self.server.requests)
        thread.start()
        while len(self.server.requests) == seen and thread.is_alive():
            time.sleep(0.001)
        for write in exchange.get("meanwhile") or ():
            media = "application/merge-patch+json" if write["method"] == "PATCH" else "application/json"
            self._asked({"identity": "admin", "content_type": media, **write})
        while thread.is_alive():
            self._clock.advance(_STEP_SECONDS)
            looks = self._clock.looks
            while thread.is_alive() and self._clock.looks < looks + 2:
                thread.join(0.002)
        return found


_UNKNOWN = re.compile(r"(?<=in record \()\d+|(?<=in object meta: )\d+$")
"""Resource versions in the words of a precondition."""
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def _distinct(causes: Any) -> Any:
    """A server that validates an object twice or thrice says so; it is one cause."""
    return [cause for place, cause in enumerate(causes) if cause not in causes[:place]] if causes else causes


def _neutral(text: str) -> str:
    for pattern in _GO_TEXT:
        text = re.sub(pattern, lambda match: match[1], text, flags=re.DOTALL)
    return text


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
