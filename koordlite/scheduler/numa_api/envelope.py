"""The envelope of every REST answer: `{"code": 200, "msg": "success", "data": ...}`, empty fields left out.

Codes and messages are those of openFuyao's console service; the HTTP status is the code.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from typing import Any

from koordlite.http.answers import Plain
from koordlite.http.guard import Guard
from koordlite.model import printable
from koordlite.report.html import page
from koordlite.report.html.page import el
from koordlite.report.json.answer import Answer

PREFIX = "/rest/"
_JSON, _HTML = "application/json", "text/html; charset=utf-8"
_MESSAGES = {200: "success", 400: "bad request", 404: "parameters not found", 500: "remote server busy"}


def answer(code: int, data: Any = None) -> Answer:
    """`data` in the envelope."""
    return Answer(code, _JSON, _encoded(code, _MESSAGES.get(code, "refused"), data))


def refused(code: int, why: str) -> Answer:
    """An error with its reason."""
    return answer(code, {"reason": printable.one_line(why)})


def _encoded(code: int, message: str, data: Any) -> bytes:
    empty = data is None or data in ("", [], {})
    return json.dumps({"code": code, "msg": message, **({} if empty else {"data": data})}).encode()


@dataclasses.dataclass(frozen=True, slots=True)
class _Enveloped(Plain):
    """A refusal of the guard under REST paths."""

    @property
    def content_type(self) -> str:
        """JSON."""
        return _JSON

    @property
    def body(self) -> bytes:
        """The reason in the envelope."""
        return _encoded(self.status, "refused", {"reason": printable.one_line(self.text)})


@dataclasses.dataclass(frozen=True, slots=True)
class _Shown(Plain):
    """A refusal of the guard in place of a page."""

    @property
    def content_type(self) -> str:
        """A page without scripts and forms."""
        return _HTML

    @property
    def body(self) -> bytes:
        """The reason, and what to do."""
        do = (
            "Ask with a bearer token that may get this path: a browser sends one only through a proxy that adds it. "
            "koordlite numa-api on your machine, with your own kubeconfig, shows the same without."
        )
        shown = page.page("Not allowed", page.section(f"{self.status}", el("p", self.text), el("p", do)))
        return page.strict(shown).text.encode(errors="replace")


class RestGuard(Guard):
    """A guard that refuses in the form of what was asked for."""

    def refusal(
        self,
        verb: str,
        path: str,
        authorization: str,
        *,
        hosts: Iterable[str] = (),
        client: str | None = None,
        address: str = "",
    ) -> Plain | None:
        """Same as `Guard`; in the envelope under `/rest/`, as a page under `/numa`."""
        found = super().refusal(verb, path, authorization, hosts=hosts, client=client, address=address)
        if found is None:
            return None
        if path.startswith(PREFIX):
            return _Enveloped(found.status, found.text, found.headers)
        if path == "/numa" or path.startswith("/numa/"):
            policy = page.strict(page.page("")).headers
            return _Shown(found.status, found.text, {**found.headers, **policy})
        return found
