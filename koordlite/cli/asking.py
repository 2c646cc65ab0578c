"""Questions of the command line to a running agent, with the token that lies in its folder on this machine."""

from __future__ import annotations

import argparse
import dataclasses
import http.client
import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from koordlite.cli.options import SANDBOX_FOLDER, URL_VARIABLE
from koordlite.http import local_token
from koordlite.model.defaults import PORT, STATE_DIR
from koordlite.model.errors import InputError, KoordliteError, reason, refusing

ANSWER_BYTES = 64 << 20
"""No agent answers more."""
WHOLE_SECONDS = 60.0
"""Nor does one take longer from the first byte to the last."""
_LONGEST_REFUSAL = 65_536
TIMEOUT_SECONDS = 5.0
_DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Opener for this machine: a proxy of the environment could not reach it, and has no business with the token."""


@dataclasses.dataclass(frozen=True, slots=True)
class Folders:
    """Paths of a running agent, on its own machine."""

    machine: str
    """`sandbox intel-2s-ht`, or the host name."""
    emulated: bool
    state: str
    record: str
    """Empty: it keeps no flight record."""
    node: str = ""
    """Name of its Node; empty before its first tick."""


def of_machine(args: argparse.Namespace) -> bool:
    """Tell whether the options name a machine or a cluster, instead of a running agent to ask."""
    return not args.url and bool(args.sandbox or args.recorded or args.cluster or args.kubeconfig)


def default_url() -> str:
    """The agent of the environment, or where one with the default settings listens."""
    return os.environ.get(URL_VARIABLE) or f"http://127.0.0.1:{PORT}"


def folders(url: str = "") -> Folders | None:
    """Paths of the running agent's record and state; None when no agent answers, or one of an older version."""
    try:
        document = json.loads(get(f"{(url or default_url()).rstrip('/')}/folders"))
    except InputError:
        raise
    except (KoordliteError, ValueError, RecursionError):
        return None
    types = {"machine": str, "emulated": bool, "state": str, "record": str}
    if not isinstance(document, dict) or not all(isinstance(document.get(name), type) for name, type in types.items()):
        return None
    return Folders(**{name: document[name] for name in types}, node=str(document.get("node", "")))


def record_folder(default: str, url: str = "") -> str:
    """The record of the running agent, else `default`. KoordliteError when the agent keeps none."""
    agent = folders(url)
    if agent is None:
        return default
    if not agent.record:
        do = "set record.mode in its koordlite.yaml, or start it with --record DIR"
        raise KoordliteError(f"the agent at {url or default_url()} keeps no flight record; {do}")
    return agent.record


def emulated_node(url: str = "") -> Folders | None:
    """The running agent, if its node is emulated and its state folder is this user's own; else None.

    Any program may listen on a port of this machine, so the folder of a real agent is never taken from an answer.
    """
    agent = folders(url)
    if agent is None or not agent.emulated or not _is_here(url or default_url()):
        return None
    folder = Path(agent.state)
    try:
        mine = folder.name.startswith(SANDBOX_FOLDER) and folder.lstat().st_uid == os.geteuid()
    except OSError:
        return None
    return agent if mine else None


def screen(url: str, **query: str | int) -> tuple[str, str]:
    """Status of an agent in one word (enforcing, observing, paused, degraded), and its screen for a terminal of this
    size. KoordliteError when no agent of this version answers."""
    parameters = urllib.parse.urlencode({"output": "json", **query})
    try:
        document = json.loads(get(f"{url.rstrip('/')}/status?{parameters}"))
        return str(document["status"]), str(document["text"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise KoordliteError(f"what answers at {url} is no agent of this version: {error}") from error


@dataclasses.dataclass(frozen=True, slots=True)
class Server:
    """Name of what should answer, and what to do when nobody does."""

    name: str
    do: str


AGENT = Server("agent", "start `koordlite run`, give its --url, or name a machine (--cluster, --sandbox)")


def get(url: str, folder: str = "", server: Server = AGENT) -> str:
    """The answer as text. KoordliteError with the server's words, or with what to do when none answers."""
    return _asked(_request(url), folder, server)


def put(url: str, body: Any, folder: str = "") -> str:
    """The answer to a change; errors as of `get`."""
    return _asked(_request(url, data=json.dumps(body).encode(), method="PUT"), folder, AGENT)


def _request(url: str, *, data: bytes | None = None, method: str = "GET") -> urllib.request.Request:
    """InputError when `url` is none of an agent."""
    with refusing("command line", "--url", url, f"write it like {default_url()}"):
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
            raise ValueError("it is no address of an HTTP server")
    return urllib.request.Request(url, data=data, method=method)


def _asked(request: urllib.request.Request, folder: str, server: Server) -> str:
    open_url = _DIRECTLY.open if _is_here(request.full_url) else urllib.request.urlopen
    token = _token(request.full_url, folder or STATE_DIR)
    if token:
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    try:
        with open_url(request, timeout=TIMEOUT_SECONDS) as answer:
            return _whole(answer, request.full_url).decode(errors="replace")
    except urllib.error.HTTPError as error:
        with error:
            text = error.read(_LONGEST_REFUSAL).decode(errors="replace").strip()
        # An agent refuses in plain words; a page of markup is another server's.
        strange = not text or text.startswith("<")
        raise KoordliteError(f"{request.full_url.partition('?')[0]} answers {error}" if strange else text) from error
    except (OSError, http.client.HTTPException) as error:
        cause = getattr(error, "reason", error)
        why = reason(cause) if isinstance(cause, BaseException) else str(cause)
        where = request.full_url.partition("?")[0]
        raise KoordliteError(f"no {server.name} answers at {where}: {why}; {server.do}") from error


def _whole(answer: Any, url: str) -> bytes:
    """The content. Any program may listen where an agent should: one that sends without end is none."""
    parts, size, until = list[bytes](), 0, time.monotonic() + WHOLE_SECONDS
    while part := answer.read1(1 << 16):
        parts.append(part)
        size += len(part)
        if size > ANSWER_BYTES or time.monotonic() > until:
            raise KoordliteError(f"what answers at {url} is no agent: its answer does not end")
    if answer.length:
        raise http.client.IncompleteRead(b"", answer.length)
    return b"".join(parts)


def _is_here(url: str) -> bool:
    """Tell whether it is an address of this machine."""
    return local_token.is_loopback(urllib.parse.urlsplit(url).hostname or "")


def _token(url: str, folder: str) -> str:
    """The agent's token; never for another machine, which has no use for it."""
    if not _is_here(url):
        return ""
    try:
        return local_token.read(folder)
    except (OSError, UnicodeDecodeError):
        return ""  # Not ours to read: questions work without it, and a change is refused in words.
