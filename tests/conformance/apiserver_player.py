"""Plays a recorded session with an API server against ours, over HTTP, in order.

Recordings leave out some of their set-up. An object, or a revision, that no recorded request can have made was made by
an unrecorded one: the player makes it, just before it is first needed.
"""

from __future__ import annotations

import copy
import dataclasses
import http.client
import json
import re
import threading
import time
from collections.abc import Iterator
from typing import Any

from apiserver import ApiServer, ManualClock, User

from tests.conformance import apiserver_rules, apiserver_scene
from tests.conformance.apiserver_match import Matcher
from tests.conformance.apiserver_symbols import Symbols

_TOKENS = {
    "token-admin": User("admin", ("system:masters",), "admin"),
    "token-node-a": User("system:node:node-a", ("system:nodes",), "kubelet"),
    "token-scheduler": User("system:kube-scheduler"),
}
_BEARERS = {"system:node:node-a": "token-node-a", "system:kube-scheduler": "token-scheduler", "admin": "token-admin"}
_STEP_SECONDS = 1.0
_PATIENCE_SECONDS = 1.0
"""What a line of a watch may take on a busy machine."""


def is_recording(document: Any) -> bool:
    """Whether a file holds a session with an API server."""
    return isinstance(document, list) and bool(document) and {"n", "request", "response"} <= set(document[0])


def of_recording(document: list[Any]) -> Iterator[tuple[str, str, Any, Any]]:
    """(function, source, input, expect) of each interaction; expected is no difference."""
    for interaction, differences in Player(document).play():
        source = f"#{interaction['n']} {interaction['title']}"
        yield apiserver_rules.INTERACTION, source, {"interaction": interaction, "differences": differences}, []


@dataclasses.dataclass
class _Open:
    """A watch that is under way."""

    interaction: Any
    thread: threading.Thread
    found: dict[str, Any]


class Player:
    """One recording against one fresh server."""

    def __init__(self, recording: list[Any]) -> None:
        self._recording = recording
        self._clock = ManualClock()
        controllers = any("the disruption controller" in each["title"] for each in recording)
        tokens = {**_TOKENS, **dict(map(_stand_in, filter(apiserver_rules.impersonates, recording)))}
        self.server = ApiServer(tokens=tokens, clock=self._clock, seed=1, controllers=controllers, streams=False)
        self.symbols = Symbols()
        self._matcher = Matcher(self.symbols)
        self.scene = apiserver_scene.Scene(
            self.server, self.symbols, recording, kept=("PodDisruptionBudget",) if controllers else ()
        )

    def play(self) -> list[tuple[Any, list[str]]]:
        """Every interaction with its differences."""
        outcomes = []
        with self.server:
            self.scene.begin()
            place = 0
            while place < len(self._recording):
                interaction = self._recording[place]
                last = self._during(place) if "stream" in interaction["response"] else place
                during = self._recording[place + 1 : last + 1]
                streams = "stream" in interaction["response"] and not apiserver_rules.rule(interaction)
                watch = self._begin(interaction, during) if streams else None
                inner = [self._judge(each) for each in during]
                outcomes.append(self._end(watch) if watch else self._judge(interaction))
                outcomes += inner
                place = last + 1
        return outcomes

    def _during(self, place: int) -> int:
        """The last interaction that happened while the watch was open."""
        last = place
        while last + 1 < len(self._recording) and self._recording[last + 1]["title"].startswith("during"):
            last += 1
        return last

    def _judge(self, interaction: Any) -> tuple[Any, list[str]]:
        try:
            self.scene.before(interaction)
            rule = apiserver_rules.rule(interaction)
            if rule:
                self.scene.adopt(interaction)
                return interaction, [f"{apiserver_rules.OUT} {rule}"]
            return interaction, self._matcher.differences(interaction, self._ask(interaction["request"], interaction))
        except (KeyError, ValueError, AssertionError, OSError) as error:
            return interaction, [f"broke: {type(error).__name__}: {error}"]

    def _begin(self, interaction: Any, during: list[Any]) -> _Open:
        self.scene.before_watch(during)
        self.scene.before(interaction)
        found: dict[str, Any] = {}

        def read() -> None:
            found.update(self._ask(interaction["request"], interaction, found.setdefault("lines", [])))

        thread = threading.Thread(target=read, daemon=True)
        seen = len(self.server.requests)
        thread.start()
        while len(self.server.requests) == seen and thread.is_alive():
            time.sleep(0.002)
        return _Open(interaction, thread, found)

    def _end(self, watch: _Open) -> tuple[Any, list[str]]:
        seen = _arrived(watch)
        for event in watch.interaction["response"]["stream"][seen:]:
            if isinstance(event, dict) and event.get("type") != "BOOKMARK" and "object" in event:
                self.scene.happened(event)
        while watch.thread.is_alive():
            self._clock.advance(_STEP_SECONDS)
            self._wait_for_server(watch.thread)
        try:
            return watch.interaction, self._matcher.differences(watch.interaction, watch.found)
        except (KeyError, ValueError, AssertionError) as error:
            return watch.interaction, [f"broke: {type(error).__name__}: {error}"]

    def _wait_for_server(self, watch: threading.Thread) -> None:
        """Until the server has looked at the clock, so that it sees each second even on a busy machine."""
        looks, until = self._clock.looks, time.monotonic() + _PATIENCE_SECONDS
        while self._clock.looks < looks + 2 and watch.is_alive() and time.monotonic() < until:
            watch.join(0.005)

    def _ask(self, request: Any, interaction: Any, lines: list[str] | None = None) -> dict[str, Any]:
        host = self.server.url.removeprefix("http://")
        connection = http.client.HTTPConnection(host, timeout=30)
        headers, body = self._headers(request), self._body(request, interaction)
        path = self.symbols.said(request["path"]).replace('"', "%22").replace(" ", "%20").replace("\0", "%00")
        connection.putrequest(request["method"], path, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name, value)
        if body or request["method"] in ("POST", "PUT", "PATCH"):
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body or None)
        answer = connection.getresponse()
        lines = [] if lines is None else lines
        for line in answer:
            lines.append(line.decode(errors="replace"))
        connection.close()
        return {
            "status": answer.status,
            "headers": {name.lower(): value for name, value in answer.getheaders()},
            "body": "".join(lines),
        }

    def _headers(self, request: Any) -> dict[str, str]:
        headers = {
            name: text for name, text in request["headers"].items() if not name.lower().startswith("impersonate-")
        }
        if len(headers) < len(request["headers"]):
            headers["authorization"] = f"Bearer {_stand_in({'request': request})[0]}"
            return headers
        who = headers.pop("authorization", "Bearer $token(admin)")
        if who != "absent":
            name = re.sub(r"Bearer \$token\((.*)\)", r"\1", who)
            headers["authorization"] = f"Bearer {_BEARERS.get(name, 'token-invalid')}"
        return headers

    def _body(self, request: Any, interaction: Any) -> bytes:
        body = self.scene.body(interaction)
        if body is None:
            return b""
        if isinstance(body, str):
            return self.symbols.said(body).encode()
        body = self.symbols.said(copy.deepcopy(body))
        if "tokenreviews" in request["path"] and body["spec"]["token"]:
            body["spec"]["token"] = self._reviewed(interaction, body)
        return json.dumps(body).encode()

    def _reviewed(self, interaction: Any, body: Any) -> str:
        user = interaction["response"]["body"]["status"].get("user", {}).get("username", "")
        wanted = user or ("admin" if body["spec"].get("audiences") else "")
        token = _BEARERS.get(wanted, "token-invalid")
        self.symbols.names["$token"] = token
        return token


def _stand_in(interaction: Any) -> tuple[str, User]:
    """A token of the user in whose name an administrator asked, and that user: nobody impersonates here."""
    headers = {name.lower(): text for name, text in interaction["request"]["headers"].items()}
    name, group = headers["impersonate-user"], headers.get("impersonate-group", "")
    return f"as-{name}-{group}", User(name, (group,) if group else ())


def _arrived(watch: _Open) -> int:
    """How many lines of a watch have come, when no more are on their way."""
    expected = sum(
        isinstance(each, dict) and each.get("type") != "BOOKMARK" for each in watch.interaction["response"]["stream"]
    )
    until = time.monotonic() + _PATIENCE_SECONDS
    seen = -1
    while seen != (count := len(watch.found.get("lines", ()))) or (count < expected and time.monotonic() < until):
        seen = count
        watch.thread.join(0.05)
    return seen
