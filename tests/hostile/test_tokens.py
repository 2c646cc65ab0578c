"""Tokens that open more than the program that is asked are not accepted, where an audience is named."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator

import pytest
from apiserver import ApiServer
from apiserver.users import ADMIN, MASTERS, User

from koordlite.kube.client import access
from koordlite.kube.client.reviews import Reviewer

TOKENS = {
    "agent": ADMIN,
    "wide": User("reader", (MASTERS,)),
    "bound": User("reader", (MASTERS,), audiences=("koordlite",)),
    "elsewhere": User("reader", (MASTERS,), audiences=("vault",)),
}


@pytest.fixture
def api(tmp_path: pathlib.Path) -> Iterator[access.Api]:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(ApiServer(tokens=TOKENS))
        (tmp_path / "kubeconfig").write_text(server.kubeconfig("agent"))
        yield access.connect(str(tmp_path / "kubeconfig"), None, user_agent="test")


@pytest.mark.parametrize(
    ("audience", "accepted"), [("koordlite", {"bound"}), ("", {"wide"}), ("other", set())], ids=["bound", "any", "none"]
)
def test_only_tokens_of_the_audience_are_accepted(api: access.Api, audience: str, accepted: set[str]) -> None:
    reviewer = Reviewer(api, audience=audience)
    found = {name: reviewer.verdict(name, "get", "/state").permission for name in ("wide", "bound", "elsewhere")}
    assert {name for name, standing in found.items() if standing == "allowed"} == accepted
    assert {standing for standing in found.values() if standing != "allowed"} == {"unknown"}


class Deaf:
    """An API server that knows no audiences: it judges the token as its own, and names none."""

    def request(self, _verb: str, _path: str, **_: object) -> access.Answer:
        body = b'{"status": {"authenticated": true, "user": {"username": "reader"}, "allowed": true}}'
        return access.Answer(200, {}, body)


def test_a_server_that_knows_no_audiences_lets_nobody_in() -> None:
    deaf = Deaf()
    assert Reviewer(deaf, audience="koordlite").verdict("t", "get", "/state").permission == "unknown"  # type: ignore[arg-type]
    assert Reviewer(deaf).verdict("t", "get", "/state").permission == "allowed"  # type: ignore[arg-type]
