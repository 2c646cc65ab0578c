"""Whether the cluster vouches for a token: against the tests' API server with its roles switched on."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
from collections.abc import Iterator

import pytest
from apiserver import ApiServer, Fault
from apiserver.users import ADMIN, User

from koordlite.kube.client import access
from koordlite.kube.client.reviews import ASKED_PER_SECOND, HELD, NO_SECONDS, YES_SECONDS, Reviewer

ROLE = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "scraper"},
    "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
}
BINDING = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "scraper"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "scraper"},
    "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "prometheus"}],
}


@dataclasses.dataclass
class Gate:
    """A reviewer with the server it asks, and a clock for the test to turn."""

    server: ApiServer
    reviewer: Reviewer
    clock: list[float]

    def permission(self, token: str = "scrape", verb: str = "get", path: str = "/metrics") -> str:
        return self.reviewer.verdict(token, verb, path).permission

    @property
    def asked(self) -> int:
        return len(self.server.requests)


@pytest.fixture
def gate(tmp_path: pathlib.Path) -> Iterator[Gate]:
    clock = [100.0]
    tokens = {"agent": ADMIN, "scrape": User("prometheus"), "idle": User("nobody")}
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(ApiServer(tokens=tokens))
        server.objects.load(ROLE, BINDING)
        (tmp_path / "kubeconfig").write_text(server.kubeconfig("agent"))
        api = access.connect(str(tmp_path / "kubeconfig"), None, user_agent="test")
        yield Gate(server, Reviewer(api, monotonic=lambda: clock[0]), clock)


@pytest.mark.parametrize(
    ("token", "verb", "path", "permission"),
    [
        pytest.param("scrape", "get", "/metrics", "allowed", id="a role for the path lets in"),
        pytest.param("scrape", "get", "/state", "forbidden", id="another path is another permission"),
        pytest.param("scrape", "put", "/metrics", "forbidden", id="another verb, too"),
        pytest.param("idle", "get", "/metrics", "forbidden", id="a known token without the role may not"),
        pytest.param("invented", "get", "/metrics", "unknown", id="an invented token is nobody's"),
        pytest.param("agent", "put", "/loglevel", "allowed", id="an administrator may all"),
    ],
)
def test_who_is_let_in(gate: Gate, token: str, verb: str, path: str, permission: str) -> None:
    assert gate.permission(token, verb, path) == permission


def test_a_refusal_says_what_to_allow(gate: Gate) -> None:
    why = gate.reviewer.verdict("idle", "get", "/metrics").why
    assert why == "nobody may not get /metrics: allow it for nonResourceURLs in a role"


def test_a_yes_is_believed_for_a_minute_and_a_no_for_ten_seconds(gate: Gate) -> None:
    for _ in range(5):
        gate.permission("scrape")
        gate.permission("invented")
    assert gate.asked == 3, "two questions for the one, one for the other"
    gate.clock[0] += NO_SECONDS
    gate.permission("scrape")
    gate.permission("invented")
    assert gate.asked == 4
    gate.server.objects.remove("ClusterRoleBinding", "scraper", api_version="rbac.authorization.k8s.io/v1")
    gate.clock[0] += YES_SECONDS
    assert gate.permission("scrape") == "forbidden"


def test_an_api_server_that_fails_lets_nobody_in_and_is_asked_again(gate: Gate) -> None:
    gate.server.faults.add(Fault(resource="subjectaccessreviews", status=500))
    found = gate.reviewer.verdict("scrape", "get", "/metrics")
    assert found.permission == "unanswered"
    assert "the API server could not be asked" in found.why
    assert gate.permission("scrape") == "allowed"


def test_an_api_server_that_is_away_lets_nobody_in(gate: Gate) -> None:
    gate.server.stop()
    assert gate.permission("scrape") == "unanswered"


def test_a_flood_of_invented_tokens_is_no_flood_of_requests(gate: Gate) -> None:
    ask = gate.reviewer.verdict
    found = [ask(f"invented-{number}", "get", "/metrics", f"10.0.0.{number}").permission for number in range(100)]
    assert found.count("busy") == 100 - ASKED_PER_SECOND
    assert gate.asked == ASKED_PER_SECOND
    gate.clock[0] += 1.0
    assert gate.permission("scrape") == "allowed"


def test_what_is_remembered_is_bounded(gate: Gate) -> None:
    for number in range(30):
        gate.clock[0] += 1.0
        gate.permission(f"invented-{number}")
    assert len(gate.reviewer._verdicts) <= min(30, HELD)
