"""The API server's verdicts on tokens, as answers of the HTTP server."""

from __future__ import annotations

from koordlite.http.answers import Plain
from koordlite.http.guard import Review
from koordlite.kube.client.access import Api
from koordlite.kube.client.reviews import Reviewer

_STATUS = {"unknown": 401, "forbidden": 403, "unanswered": 503, "busy": 429}


def by_cluster(api: Api, audience: str = "") -> Review:
    """Asks the API server about each token. Permissions are for the first part of a path: /explain for all below it.
    `audience` is what tokens must be bound to; empty: the API server."""
    reviewer = Reviewer(api, audience=audience)

    def review(token: str, verb: str, path: str, address: str) -> Plain | None:
        found = reviewer.verdict(token, verb, "/" + path.lstrip("/").partition("/")[0], address)
        return None if found.standing == "allowed" else Plain(_STATUS[found.standing], found.why)

    return review
