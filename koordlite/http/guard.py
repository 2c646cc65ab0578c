"""Access to the pages: everyone on this machine may read, others need a token, and every change needs one.

On this machine the request must also name it: a web page elsewhere can have its own name resolve to 127.0.0.1 and let a
browser here read for it (DNS rebinding), but the browser then sends that name. Source: RFC 9110, 7.4.

A token is the local one, which root finds in a file (`local_token`), or one that the cluster's API server vouches for
(`Review`). Health is open to everyone: kubelet's probes have no token.
"""

from __future__ import annotations

import hmac
import urllib.parse
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from koordlite.http.answers import HEALTH, Answer, plain
from koordlite.http.local_token import is_loopback

if TYPE_CHECKING:
    from koordlite.kube.client.access import Api

Review = Callable[[str, str, str, str], Answer | None]
"""Token, verb (`get`, `put`), path and the client's address to a refusal, or None for yes."""


def by_cluster(api: Api, audience: str = "") -> Review:
    """Ask the API server about each token. Permissions are for the first part of a path: /explain for all below it.
    `audience` is what tokens must be bound to; empty: the API server."""
    from koordlite.kube.client.reviews import Reviewer  # For servers that have an API server to ask.

    reviewer = Reviewer(api, audience=audience)
    status = {"unknown": 401, "forbidden": 403, "unanswered": 503, "busy": 429}

    def review(token: str, verb: str, path: str, address: str) -> Answer | None:
        verdict = reviewer.verdict(token, verb, "/" + path.lstrip("/").partition("/")[0], address)
        return None if verdict.permission == "allowed" else plain(status[verdict.permission], verdict.why)

    return review


class Guard:
    """Judges requests; called from many threads."""

    def __init__(
        self,
        *,
        exposed: bool,
        local_token: str = "",
        review: Review | None = None,
        token_to_read: bool = False,
        token_to_post: bool = False,
        all_read: bool = False,
        clients: Collection[str] | None = None,
    ) -> None:
        """`exposed`: other machines can connect. Without token and review every request from them is refused.
        `token_to_read`: on this machine, too, all but health wants a token; `token_to_post`: so does POST. `all_read`:
        other machines, too, may read without one. `clients`: certificates may POST and read from elsewhere, those with
        one of these common names, or any that was verified when it is empty."""
        self.exposed, self._local, self._review, self.clients = exposed, local_token, review, clients
        self._open_to_read = all_read or (not exposed and not token_to_read)
        self._open_to_post = not token_to_post

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
        """The refusal of this request; None when it may be answered. `authorization` is the header or empty; `hosts`
        are the Host headers: none comes from no browser. `client` is the common name of a verified certificate,
        `address` where the connection comes from."""
        if verb == "get" and path in HEALTH:
            return None
        strange = [] if self.exposed else [host for host in hosts if not _names_this_machine(host)]
        if strange:
            return plain(421, f"Host {strange[0]!r} is not this machine; ask for 127.0.0.1, [::1] or localhost")
        if verb == "get" and self._open_to_read:
            return None
        if self._certified(client) and verb in ("get", "post"):
            return None
        if verb == "post" and self._open_to_post:
            return self._not_posted(client) if self.exposed else None
        return self._judged(verb, path, authorization, address)

    def _certified(self, client: str | None) -> bool:
        return client is not None and self.clients is not None and (not self.clients or client in self.clients)

    def _not_posted(self, client: str | None) -> Answer:
        if client is None:
            return plain(401, "a client certificate is needed")
        return plain(403, f"the client certificate of {client!r} is verified and may not ask here")

    def _judged(self, verb: str, path: str, authorization: str, address: str) -> Answer | None:
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return self._unknown("a bearer token is needed")
        # Compared as bytes: a token from outside may hold anything.
        if self._local and hmac.compare_digest(token.encode(errors="replace"), self._local.encode()):
            return None
        if self._review is None:
            return self._unknown("this is not the local token, and there is no API server to ask about others")
        return self._review(token, verb, path, address)

    def _unknown(self, why: str) -> Answer:
        kinds = ["the one in the agent's token file"] if self._local else []
        kinds += ["that of a service account of the cluster"] if self._review else []
        accepted = f"; accepted: {', or '.join(kinds)}" if kinds else "; none is accepted here"
        return plain(401, why + accepted, {"WWW-Authenticate": 'Bearer realm="koordlite"'})


def _names_this_machine(host: str) -> bool:
    try:
        return is_loopback((urllib.parse.urlsplit(f"//{host.strip()}").hostname or "").removesuffix("."))
    except ValueError:
        return False
