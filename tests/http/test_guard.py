"""Who may look, and who may change something."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.http.answers import Answer, plain
from koordlite.http.guard import Guard
from koordlite.http.local_token import is_loopback


def vouches(token: str, verb: str, path: str, address: str) -> Answer | None:
    """A cluster that knows one token, which may read metrics only."""
    if token != "scraper":
        return plain(401, "unknown")
    return None if (verb, path) == ("get", "/metrics") else plain(403, "not that")


LOCAL = Guard(exposed=False, local_token="root")
EXPOSED = Guard(exposed=True, local_token="root", review=vouches)
LONELY = Guard(exposed=True)


@pytest.mark.parametrize(
    ("guard", "verb", "path", "header", "status"),
    [
        pytest.param(LOCAL, "get", "/state", "", None, id="on loopback everybody may look"),
        pytest.param(LOCAL, "put", "/loglevel", "", 401, id="on loopback nobody changes anything without a token"),
        pytest.param(LOCAL, "put", "/loglevel", "Bearer root", None, id="the local token may change"),
        pytest.param(LOCAL, "put", "/loglevel", "Bearer rooT", 401, id="a token that nearly fits is none"),
        pytest.param(LOCAL, "put", "/loglevel", "Basic root", 401, id="another scheme is none"),
        pytest.param(LOCAL, "put", "/loglevel", "Bearer ", 401, id="an empty token is none"),
        pytest.param(
            Guard(exposed=False), "put", "/x", "Bearer ", 401, id="no local token does not match an empty one"
        ),
        pytest.param(LOCAL, "put", "/healthz", "", 401, id="health is open for reading only"),
        pytest.param(EXPOSED, "get", "/healthz", "", None, id="probes need no token"),
        pytest.param(EXPOSED, "get", "/readyz", "", None, id="nor do those of readiness"),
        pytest.param(EXPOSED, "get", "/metrics", "", 401, id="exposed metrics want a token"),
        pytest.param(EXPOSED, "get", "/metrics", "Bearer scraper", None, id="the cluster vouches for the scraper"),
        pytest.param(EXPOSED, "get", "/metrics", "bearer scraper", None, id="the scheme is in any case"),
        pytest.param(EXPOSED, "get", "/state", "Bearer scraper", 403, id="who may scrape may not see pods"),
        pytest.param(EXPOSED, "put", "/loglevel", "Bearer scraper", 403, id="nor change levels"),
        pytest.param(EXPOSED, "get", "/state", "Bearer root", None, id="the local token may look, too"),
        pytest.param(EXPOSED, "get", "/state", "Bearer \xff\xfe", 401, id="a token may hold any bytes"),
        pytest.param(LONELY, "get", "/state", "Bearer any", 401, id="without anybody to ask no token is known"),
    ],
)
def test_who_may_ask(guard: Guard, verb: str, path: str, header: str, status: int | None) -> None:
    found = guard.refusal(verb, path, header)
    assert (found and found.status) == status


def test_a_refusal_says_which_tokens_are_accepted() -> None:
    found = EXPOSED.refusal("get", "/state", "")
    assert found is not None
    why = found.body.decode()
    assert why.startswith("a bearer token is needed; accepted: the one in the agent's token file, or that of a")
    assert found.headers["WWW-Authenticate"].startswith("Bearer")


@given(st.text(), st.text())
def test_no_header_that_was_made_up_changes_anything(path: str, header: str) -> None:
    guard = Guard(exposed=False, local_token="a-token-nobody-guesses")
    assert guard.refusal("put", path, header) is not None


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.9.10", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.example.org", False),
        ("", False),
    ],
)
def test_only_loopback_is_this_machine(address: str, expected: bool) -> None:
    assert is_loopback(address) is expected
