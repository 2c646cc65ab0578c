"""Questions of the command line to a running agent, with the token that lies in its folder on this machine."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from koordlite import config
from koordlite.http import guard, local_token
from koordlite.model.errors import KoordliteError

TIMEOUT_SECONDS = 5.0


def default_url() -> str:
    """Where an agent with the default settings listens."""
    return f"http://127.0.0.1:{config.Http().port}"


def get(url: str, folder: str = "") -> str:
    """The answer as text. KoordliteError with the agent's words, or with what to do when none answers."""
    return _asked(urllib.request.Request(url), folder)


def put(url: str, body: Any, folder: str = "") -> str:
    """The answer to a change; errors as of `get`."""
    return _asked(urllib.request.Request(url, data=json.dumps(body).encode(), method="PUT"), folder)


def _asked(request: urllib.request.Request, folder: str) -> str:
    token = _token(request.full_url, folder or config.Agent().state_dir)
    if token:
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        raise KoordliteError(error.read().decode(errors="replace").strip() or str(error)) from error
    except urllib.error.URLError as error:
        do = "start `koordlite run`, give its --url, or name a machine to look at (--cluster, --sandbox)"
        raise KoordliteError(f"no agent answers at {request.full_url}: {error.reason}; {do}") from error


def _token(url: str, folder: str) -> str:
    """The agent's token; never for another machine, which has no use for it."""
    if not guard.is_loopback(urllib.parse.urlsplit(url).hostname or ""):
        return ""
    try:
        return local_token.read(folder)
    except (OSError, UnicodeDecodeError):
        return ""  # It is not ours to read; looking works without, and a change is answered in words.
