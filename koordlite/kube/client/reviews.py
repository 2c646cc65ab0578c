"""TokenReview and SubjectAccessReview: permission of a token's bearer to ask us.

The permission is that for a non-resource URL, as kube-rbac-proxy and the API server's own /metrics ask for it:
`nonResourceURLs: ["/metrics"], verbs: ["get"]`.
"""

from __future__ import annotations

import collections
import hashlib
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, Literal, TypeVar

import msgspec

from koordlite.kube.client.access import Api
from koordlite.kube.client.answers import ApiError, ApiUnreachable

YES_SECONDS = 60.0
"""Time for which a yes is believed: a withdrawn permission holds so long."""
NO_SECONDS = 10.0
HELD = 1000
"""Verdicts remembered at most."""
ASKED_PER_SECOND = 10
"""A flood of invented tokens must not become a flood of requests to the API server. Tokens that were good before have
as many for themselves."""
STRANGERS = 3
"""Unknown tokens of one address that pass for mistakes; for each further one it waits twice as long."""
STRANGER_SECONDS = (0.1, 10.0)
"""The first and the longest such pause."""
_TIMEOUT = (2.0, 5.0)
_TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

_Key = TypeVar("_Key")
S = TypeVar("S")
_Question = tuple[bytes, str, str]
"""Digest of a token, verb and path."""
Permission = Literal["allowed", "unknown", "forbidden", "unanswered", "busy"]


class Verdict(msgspec.Struct, frozen=True):
    """The cluster's answer about one request."""

    permission: Permission
    """unknown: no such token; forbidden: an identity without the permission; unanswered: the API server did not say;
    busy: too many questions at once, nothing was asked."""
    why: str = ""


class Reviewer:
    """Asks the API server and remembers its answers for a while. Safe to use from several threads."""

    def __init__(self, api: Api, *, audience: str = "", monotonic: Callable[[], float] = time.monotonic) -> None:
        """Only tokens bound to `audience` are accepted; empty: those for the API server itself."""
        self._api, self._audience, self._now = api, audience, monotonic
        self._verdicts: collections.OrderedDict[tuple[bytes, str, str], tuple[float, Verdict]] = (
            collections.OrderedDict()
        )
        self._recent: collections.deque[float] = collections.deque(maxlen=ASKED_PER_SECOND)
        self._recent_good: collections.deque[float] = collections.deque(maxlen=ASKED_PER_SECOND)
        self._good: collections.OrderedDict[bytes, None] = collections.OrderedDict()
        """Tokens that were allowed something, by their digest."""
        self._strangers: collections.OrderedDict[str, tuple[float, int]] = collections.OrderedDict()
        """Time from which on another token is reviewed, and number of unknown ones in a row, by address."""
        self._lock = threading.Lock()

    def verdict(self, token: str, verb: str, path: str, address: str = "") -> Verdict:
        """Tell if the bearer of `token`, who asks from `address`, may `verb` (`get`, `put`) the URL `path` of ours."""
        key = hashlib.sha256(token.encode(errors="replace")).digest(), verb, path
        with self._lock:
            now = self._now()
            until, cached = self._verdicts.get(key, (now, Verdict("busy")))
            if until > now:
                return cached
            if not self._may_ask(key[0], address, now):
                return Verdict("busy", "too many tokens to ask the API server about; try again in a second")
        verdict = self._ask(token, verb, path)
        if verdict.permission != "unanswered":
            self._remember(key, address, verdict)
        return verdict

    def _may_ask(self, token: bytes, address: str, now: float) -> bool:
        """Tokens that were good come first: they do not wait for what strangers may have asked about. An address
        that keeps sending tokens that nobody knows waits longer and longer."""
        recent = self._recent_good if token in self._good else self._recent
        not_before, _ = self._strangers.get(address, (now, 0))
        if (recent is self._recent and now < not_before) or (len(recent) == recent.maxlen and now - recent[0] < 1.0):
            return False
        recent.append(now)
        return True

    def _remember(self, key: _Question, address: str, verdict: Verdict) -> None:
        with self._lock:
            now = self._now()
            self._verdicts[key] = now + (YES_SECONDS if verdict.permission == "allowed" else NO_SECONDS), verdict
            _bound(self._verdicts, key)
            if verdict.permission == "allowed":
                self._good[key[0]] = None
                _bound(self._good, key[0])
                self._strangers.pop(address, None)
            elif verdict.permission == "unknown":
                _, invented = self._strangers.get(address, (now, 0))
                doubled = min(max(invented - STRANGERS, -1), 10)
                pause = min(STRANGER_SECONDS[0] * 2**doubled, STRANGER_SECONDS[1]) if doubled >= 0 else 0.0
                self._strangers[address] = now + pause, invented + 1
                _bound(self._strangers, address)

    def _ask(self, token: str, verb: str, path: str) -> Verdict:
        try:
            audiences = [self._audience] if self._audience else []
            question = {"token": token, **({"audiences": audiences} if audiences else {})}
            who = self._post(_TOKENS, question, _Review[_Who])
            # A server that knows no audiences names none: such an answer is about tokens for the server itself.
            if not who.authenticated or who.user is None or not set(audiences) <= set(who.audiences or ()):
                bound = f" with audience {self._audience}" if audiences else ""
                return Verdict("unknown", who.error or f"the API server does not know this token{bound}")
            user = who.user
            subject = {"user": user.username, "uid": user.uid, "groups": user.groups or [], "extra": user.extra or {}}
            spec = {**subject, "nonResourceAttributes": {"path": path, "verb": verb}}
            if self._post(_ACCESS, spec, _Review[_May]).allowed:
                return Verdict("allowed")
            why = f"{user.username} may not {verb} {path}: allow it for nonResourceURLs in a role"
            return Verdict("forbidden", why)
        except (ApiError, ApiUnreachable) as error:
            return Verdict("unanswered", f"the API server could not be asked about the token: {error}")

    def _post(self, path: str, spec: dict[str, Any], shape: type[_Review[S]]) -> S:
        head, _, plural = path.removeprefix("/apis/").rpartition("/")
        kind = "TokenReview" if plural == "tokenreviews" else "SubjectAccessReview"
        body = {"apiVersion": head, "kind": kind, "spec": spec}
        return self._api.request("POST", path, body=body, timeout=_TIMEOUT).read(shape).status


def _bound(entries: collections.OrderedDict[_Key, Any], newest: _Key) -> None:
    entries.move_to_end(newest)
    if len(entries) > HELD:
        entries.popitem(last=False)


class _User(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class _Who(msgspec.Struct):
    authenticated: bool = False
    user: _User | None = None
    audiences: list[str] | None = None
    error: str = ""


class _May(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct, Generic[S]):
    status: S
