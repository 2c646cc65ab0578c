"""One object as an API server keeps it, for writers that look at it before they change it."""

from __future__ import annotations

import json
from typing import Any

from apiserver import patches

from koordlite.kube.client.access import Answer, ApiError


class OneObject:
    """`Api.request` for an object that is absent until it is made."""

    def __init__(self) -> None:
        self.held: dict[str, Any] | None = None
        self.asked: list[str] = []
        """Methods of the requests."""
        self.paths: list[str] = []

    def request(self, method: str, path: str, body: Any = None, **_: Any) -> Any:
        """Answer GET; take over the whole body of POST and PUT, and a merge patch."""
        self.asked.append(method)
        self.paths.append(path)
        if method == "GET" and self.held is None:
            raise ApiError(404, "NotFound", "not found", named="n1")
        if method != "GET":
            sent = json.loads(json.dumps(body))
            made = patches.merged(self.held, sent) if method == "PATCH" else sent
            self.held = {**made, "metadata": {**made["metadata"], "resourceVersion": str(len(self.asked))}}
        return Answer(200, {}, json.dumps(self.held).encode())
