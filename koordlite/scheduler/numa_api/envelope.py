"""The envelope of every REST answer: `{"code": 200, "msg": "success", "data": ...}`, empty fields left out.

Codes and messages are those of openFuyao's console service; the HTTP status is the code.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec

from koordlite.http.answers import HTML, JSON, Answer
from koordlite.http.guard import Guard
from koordlite.model import printable
from koordlite.report.html import page
from koordlite.report.html.page import el

PREFIX = "/rest/"
_MESSAGES = {200: "success", 400: "bad request", 404: "parameters not found", 500: "remote server busy"}


def answer(code: int, data: Any = None) -> Answer:
    """`data` in the envelope."""
    empty = data is None or data in ("", [], {})
    document = {"code": code, "msg": _MESSAGES.get(code, "refused"), **({} if empty else {"data": data})}
    return Answer(code, JSON, json.dumps(document).encode())


def refused(code: int, why: str) -> Answer:
    """An error with its reason."""
    return answer(code, {"reason": printable.one_line(why)})


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
    ) -> Answer | None:
        """Same as `Guard`; in the envelope under `/rest/`, as a page under `/numa`."""
        found = super().refusal(verb, path, authorization, hosts=hosts, client=client, address=address)
        if found is None:
            return None
        why = found.body.decode().strip()
        if path.startswith(PREFIX):
            return msgspec.structs.replace(refused(found.status, why), headers=found.headers)
        if path == "/numa" or path.startswith("/numa/"):
            do = (
                "Ask with a bearer token that may get this path: a browser sends one only through a proxy that adds "
                "it. koordlite numa-api on your machine, with your own kubeconfig, shows the same without."
            )
            shown = page.strict(page.page("Not allowed", page.section(f"{found.status}", el("p", why), el("p", do))))
            return Answer(found.status, HTML, shown.text.encode(errors="replace"), {**found.headers, **shown.headers})
        return found
