"""Requests, refusals and answers that never come, over real HTTP."""

from __future__ import annotations

import concurrent.futures
import contextlib
import errno
import inspect
import itertools
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cyaml
import msgspec
import pytest
from apiserver import ApiServer
from apiserver.users import ADMIN
from hypothesis import given
from hypothesis import strategies as st
from tinyapi import Reply, Request, client, kubeconfig, serving, status

from koordlite.kube.client import access, credentials, paging
from koordlite.kube.client.access import ApiError, ApiUnreachable
from koordlite.kube.client.answers import Answer, refusal, refusal_in_stream, retry_after
from koordlite.model.errors import ConfigError


def test_the_client_library_has_the_two_calls_we_use() -> None:
    from kubernetes.client.configuration import Configuration
    from kubernetes.client.rest import RESTClientObject

    call = inspect.signature(RESTClientObject.request).parameters
    assert list(call) == ["self", "method", "url", "headers", "body", "post_params", "_request_timeout"]
    settings = Configuration(api_key={"BearerToken": "secret"}).auth_settings()["BearerToken"]  # type: ignore[typeddict-item]
    assert (settings["in"], settings["key"], settings["value"]) == ("header", "authorization", "secret")


def test_the_client_library_is_not_imported_before_it_is_needed() -> None:
    code = "import sys, koordlite.kube.cluster, koordlite.cli.machine; print('kubernetes' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"


def test_models_of_the_library_are_never_imported(tmp_path: Path) -> None:
    code = (
        "import sys; from koordlite.kube.client import access; "
        f"access.connect({str(kubeconfig(tmp_path / 'k', 'http://127.0.0.1:1'))!r}, None, user_agent='x'); "
        "print(sum(m.startswith('kubernetes.client.models') or m.startswith('kubernetes.client.api.') "
        "for m in sys.modules))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(answer.stdout) < 5


def test_a_patch_goes_out_as_it_was_given(serve: Any) -> None:
    server, api = serve(lambda request: Reply(body={"ok": 1}))
    answer = api.request("PATCH", "/x", body={"a": None}, content_type="application/merge-patch+json")
    assert answer.body == b'{"ok": 1}'
    (asked,) = server.requests
    assert asked.body == {"a": None}
    assert asked.headers["content-type"] == "application/merge-patch+json"
    assert (asked.headers["authorization"], asked.headers["user-agent"]) == ("Bearer secret", "test/1")


def test_a_refusal_keeps_the_words_of_the_server(serve: Any) -> None:
    causes = [{"reason": "DisruptionBudget", "message": "needs 2 and has 2"}]
    _, api = serve(lambda request: status(429, "TooManyRequests", "Cannot evict", causes=causes, retryAfterSeconds=7))
    with pytest.raises(ApiError) as caught:
        api.request("POST", "/x", body={})
    error = caught.value
    assert (error.status, error.reason, error.message) == (429, "TooManyRequests", "Cannot evict")
    assert error.retry_after_seconds == 7
    assert error.causes[0].reason == "DisruptionBudget"


@pytest.mark.parametrize(
    ("reply", "unknown"),
    [
        pytest.param(status(404, "NotFound", "gone", name="p", kind="pods"), False, id="an-object-is-missing"),
        pytest.param(status(404, "NotFound", "could not find"), True, id="a-resource-is-missing"),
        pytest.param(Reply(404, b"404 page not found\n"), True, id="a-group-is-missing-and-that-is-plain-text"),
    ],
)
def test_a_404_says_whether_the_kind_is_unknown(serve: Any, reply: Reply, unknown: bool) -> None:
    _, api = serve(lambda request: reply)
    with pytest.raises(ApiError) as caught:
        api.request("GET", "/x")
    assert caught.value.unknown_resource is unknown


def test_nothing_is_retried_behind_our_back(serve: Any) -> None:
    server, api = serve(lambda request: Reply(503, b"busy", {"Retry-After": "1"}))
    started = time.monotonic()
    with pytest.raises(ApiError) as caught:
        api.request("GET", "/x")
    assert caught.value.retry_after_seconds == 1
    assert len(server.requests) == 1
    assert time.monotonic() - started < 0.9


def test_nobody_listening_keeps_the_errno_of_the_kernel(tmp_path: Path) -> None:
    with serving(lambda request: Reply()) as server:
        api = client(tmp_path / "k", server.url)
    with pytest.raises(ApiUnreachable) as caught:
        api.request("GET", "/x")
    assert caught.value.errno == errno.ECONNREFUSED
    assert caught.value.filename == f"{server.url}/x"


def test_a_failed_handshake_has_no_errno_of_the_kernel(tmp_path: Path) -> None:
    """The number of an SSLError is the TLS library's: 8 is no ENOEXEC."""
    with serving(lambda request: Reply()) as server:
        api = client(tmp_path / "k", server.url.replace("http://", "https://"))
        with pytest.raises(ApiUnreachable) as caught:
            api.request("GET", "/x")
    assert caught.value.errno == errno.EPROTO
    assert "SSL" in caught.value.strerror


def test_a_hung_answer_times_out(serve: Any) -> None:
    release = threading.Event()

    def hang(request: Request) -> Reply:
        release.wait(5)
        return Reply()

    _, api = serve(hang)
    with pytest.raises(ApiUnreachable) as caught:
        api.request("PUT", "/x", body={}, timeout=(1, 0.1))
    release.set()
    assert caught.value.errno == errno.ETIMEDOUT


def test_a_stream_gives_lines_as_they_come(serve: Any) -> None:
    gate = threading.Event()

    def lines() -> Iterator[bytes]:
        yield b'{"a":1}\n{"b"'
        gate.wait(5)
        yield b":2}\n\n"

    _, api = serve(lambda request: Reply(lines=lines()))
    with api.stream("/x") as stream:
        got = iter(stream)
        assert next(got) == b'{"a":1}'
        gate.set()
        assert list(got) == [b'{"b":2}']


def test_a_cut_stream_is_told_apart_from_one_that_ended(serve: Any) -> None:
    _, api = serve(lambda request: Reply(lines=[b"1\n"], cut=True))
    with api.stream("/x") as stream, pytest.raises(ApiUnreachable):
        list(stream)


def test_a_stream_can_be_ended_from_another_thread(serve: Any) -> None:
    gate = threading.Event()

    def lines() -> Iterator[bytes]:
        yield b"1\n"
        gate.wait(10)

    _, api = serve(lambda request: Reply(lines=lines()))
    with api.stream("/x", timeout=(1, 10)) as stream:
        got = iter(stream)
        next(got)
        threading.Timer(0.05, stream.cancel).start()
        started = time.monotonic()
        with pytest.raises(ApiUnreachable):
            list(got)
        assert time.monotonic() - started < 5
    gate.set()


def _page(version: str, names: str, token: str = "") -> Reply:
    meta = {"resourceVersion": version} | ({"continue": token} if token else {})
    return Reply(body={"metadata": meta, "items": [{"metadata": {"name": name}} for name in names]})


def test_pages_follow_the_token(serve: Any) -> None:
    server, api = serve(lambda r: _page("5", "cd") if "continue" in r.query else _page("5", "ab", "t"))
    page = api.collect("/pods", [("labelSelector", "a=b")], limit=2)
    assert (page.resource_version, len(page.items)) == ("5", 4)
    assert [r.query for r in server.requests] == [
        {"labelSelector": "a=b", "limit": "2"},
        {"labelSelector": "a=b", "limit": "2", "continue": "t"},
    ]


def test_the_next_page_is_asked_for_while_the_first_one_is_worked_on(serve: Any) -> None:
    asked = threading.Event()

    def answer(request: Request) -> Reply:
        if "continue" not in request.query:
            return _page("5", "ab", "t")
        asked.set()
        return _page("5", "cd")

    _, api = serve(answer)
    parts = api.pages("/pods")
    assert len(next(parts).items) == 2
    assert asked.wait(10)
    assert [len(part.items) for part in parts] == [2]


def test_a_list_that_nobody_reads_to_its_end_asks_for_nothing_more(serve: Any) -> None:
    server, api = serve(lambda request: _page("5", "ab", "t"))
    parts = api.pages("/pods")
    next(parts)
    parts.close()
    assert len(server.requests) <= 2


def test_a_list_whose_token_expired_begins_again_and_forgets_the_first_part(serve: Any) -> None:
    replies = itertools.chain([_page("5", "ab", "t"), status(410, "Expired"), _page("9", "x", "u"), _page("9", "y")])
    _, api = serve(lambda request: next(replies))
    page = api.collect("/pods")
    assert page.resource_version == "9"
    assert [bytes(item) for item in page.items] == [b'{"metadata": {"name": "x"}}', b'{"metadata": {"name": "y"}}']


def test_a_list_that_expires_again_and_again_is_asked_for_in_one_part(serve: Any) -> None:
    def answer(request: Request) -> Reply:
        if "continue" in request.query:
            return status(410, "Expired")
        return _page("5", "ab", "t") if "limit" in request.query else _page("6", "abcd")

    server, api = serve(answer)
    assert len(api.collect("/pods").items) == 4
    assert len(server.requests) == 7


def _event(kind: str, name: str = "", version: str = "1", **notes: str) -> bytes:
    meta = {"resourceVersion": version} | ({"name": name} if name else {}) | ({"annotations": notes} if notes else {})
    return json.dumps({"type": kind, "object": {"metadata": meta}}).encode() + b"\n"


END = _event("BOOKMARK", version="9", **{"k8s.io/initial-events-end": "true"})


def test_a_list_comes_as_a_stream_where_the_server_streams_lists(serve: Any) -> None:
    lines = [_event("ADDED", "a"), _event("ADDED", "b"), END]
    server, api = serve(lambda request: Reply(lines=lines))
    pages = list(api.listed("/pods"))
    assert [(page.resource_version, len(page.items), page.restarted) for page in pages] == [("9", 2, False)]
    assert [r.query["sendInitialEvents"] for r in server.requests] == ["true"]


def test_a_long_streamed_list_comes_in_parts(serve: Any) -> None:
    lines = [*(_event("ADDED", f"p{n}") for n in range(paging.LIMIT + 1)), END]
    _, api = serve(lambda request: Reply(lines=lines))
    pages = [(page.resource_version, len(page.items)) for page in api.listed("/pods")]
    assert pages == [("", paging.LIMIT), ("9", 1)]


@pytest.mark.parametrize(
    "streamed",
    [
        pytest.param(status(422, "Invalid"), id="a server without WatchList"),
        pytest.param(Reply(lines=[_event("ADDED", "a")]), id="it ends before the list"),
        pytest.param(Reply(lines=[_event("MODIFIED", "a")]), id="it tells of changes"),
    ],
)
def test_without_streams_the_list_is_read_page_by_page_and_from_then_on(serve: Any, streamed: Reply) -> None:
    server, api = serve(lambda request: streamed if "watch" in request.query else _page("5", "ab"))
    for _ in range(2):
        assert [(page.resource_version, len(page.items)) for page in api.listed("/pods")] == [("5", 2)]
    assert ["watch" in request.query for request in server.requests] == [True, False, False]


def test_what_came_of_a_stream_that_broke_off_is_forgotten(serve: Any) -> None:
    lines = [_event("ADDED", f"p{n}") for n in range(paging.LIMIT)]
    _, api = serve(lambda request: Reply(lines=lines) if "watch" in request.query else _page("5", "ab"))
    assert [page.restarted for page in api.listed("/pods")] == [False, True]


def test_one_list_that_may_not_be_watched_costs_no_other_its_stream(serve: Any) -> None:
    def answer(request: Request) -> Reply:
        if "watch" not in request.query:
            return _page("5", "ab")
        return status(403, "Forbidden") if request.path == "/secrets" else Reply(lines=[END])

    server, api = serve(answer)
    for path in ("/secrets", "/pods"):
        list(api.listed(path))
    assert [(r.path, "watch" in r.query) for r in server.requests] == [
        ("/secrets", True),
        ("/secrets", False),
        ("/pods", True),
    ]


def test_a_streamed_list_that_is_refused_or_cut_is_an_error_as_of_a_list(serve: Any) -> None:
    replies = iter([status(429, "TooManyRequests"), Reply(lines=[_event("ADDED", "a")], cut=True)])
    _, api = serve(lambda request: next(replies))
    with pytest.raises(ApiError, match="429"):
        list(api.listed("/pods"))
    with pytest.raises(ApiUnreachable):
        list(api.listed("/pods"))


def test_a_silence_may_be_longer_once_the_list_is_whole(serve: Any) -> None:
    gate = threading.Event()

    def lines() -> Iterator[bytes]:
        yield b"1\n"
        gate.wait(0.5)
        yield b"2\n"

    _, api = serve(lambda request: Reply(lines=lines()))
    with api.stream("/x", timeout=(1, 0.1)) as stream:
        got = iter(stream)
        next(got)
        assert stream.extend(10.0)
        assert list(got) == [b"2"]


def test_null_items_are_no_items(serve: Any) -> None:
    _, api = serve(lambda request: Reply(body={"metadata": {}, "items": None}))
    assert api.collect("/pods").items == []


@pytest.mark.parametrize("body", [b"<html>", b"null", {}, {"error": "log in first"}, {"kind": "Status", "code": 500}])
def test_an_answer_that_is_no_list_is_no_answer(serve: Any, body: Any) -> None:
    _, api = serve(lambda request: Reply(body=body))
    with pytest.raises(ApiUnreachable, match="no list"):
        api.collect("/pods")


@pytest.mark.parametrize("body", [b"", b"[1]", b'{"a": "1"}', b'{"b": ' + b"[" * 100_000])
def test_an_answer_that_is_not_what_was_asked_for_is_an_error_of_the_server(body: bytes) -> None:
    class Asked(msgspec.Struct):
        a: int = 0

    assert Answer(200, {}, b'{"a": 1, "b": 2}').read(Asked) == Asked(1)
    with pytest.raises(ApiError, match=r"^the answer cannot be read: ") as caught:
        Answer(200, {}, body).read(Asked)
    assert (caught.value.status, caught.value.reason) == (0, "Unreadable")


def test_the_page_of_a_proxy_is_no_success_whatever_was_asked(serve: Any) -> None:
    page = Reply(body=b"<html>log in</html>", headers={"Content-Type": "text/html; charset=utf-8"})
    _, api = serve(lambda request: page)
    with pytest.raises(ApiUnreachable, match=r"web page.*proxy"):
        api.request("POST", "/api/v1/namespaces/d/pods/p/eviction", body={})
    with pytest.raises(ApiUnreachable, match=r"web page.*proxy"), api.stream("/pods") as lines:
        list(lines)


def test_without_any_credentials_the_error_says_what_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match=r"service account.*KUBECONFIG: not set.*--kubeconfig"):
        access.connect(None, None, user_agent="x")


def test_kubeconfig_of_the_environment_is_used_outside_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path / "k", "http://127.0.0.1:7")))
    assert access.connect(None, None, user_agent="x").url == "http://127.0.0.1:7"


@pytest.mark.parametrize(
    ("text", "context"),
    [
        pytest.param("", None, id="empty"),
        pytest.param("[1, 2", None, id="no-yaml"),
        pytest.param("kind: Config\ncontexts: []\n", "other", id="no-such-context"),
        pytest.param("- 1\n", None, id="no-mapping"),
    ],
)
def test_a_broken_kubeconfig_is_named(tmp_path: Path, text: str, context: str | None) -> None:
    path = tmp_path / "k"
    path.write_text(text)
    with pytest.raises(ConfigError, match="kubectl can use"):
        access.connect(str(path), context, user_agent="x")


@pytest.mark.parametrize(
    ("script", "works"),
    [
        pytest.param("printf %s '{}'", True, id="a token"),
        pytest.param("echo no token today >&2; exit 3", False, id="a failure"),
        pytest.param("echo hello", False, id="no credential"),
    ],
)
def test_an_exec_plugin_without_credentials_is_named_and_nobody_asks_without(
    tmp_path: Path, script: str, works: bool
) -> None:
    version = "client.authentication.k8s.io/v1"
    granted = json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": {"token": "t"}})
    path = kubeconfig(tmp_path / "k", "http://127.0.0.1:7")
    document = cyaml.safe_load(path.read_text())
    plugin = {"apiVersion": version, "command": "/bin/sh", "args": ["-c", script.replace("{}", granted)]}
    document["users"][0]["user"] = {"exec": plugin | {"interactiveMode": "Never"}}
    path.write_text(cyaml.safe_dump(document))
    expected = contextlib.nullcontext() if works else pytest.raises(ConfigError, match="exec plugin = '/bin/sh'")
    with expected:
        access.connect(str(path), None, user_agent="x")


@given(st.integers(300, 599), st.binary(max_size=200), st.text(max_size=20))
def test_any_refusal_can_be_told(code: int, body: bytes, header: str) -> None:
    error = refusal(Answer(code, {"retry-after": header}, body))
    assert error.status == code
    assert error.message
    assert refusal_in_stream(body).message


@given(st.text())
def test_any_retry_after_is_seconds_or_nothing(text: str) -> None:
    seconds = retry_after({"retry-after": text})
    assert seconds is None or seconds >= 0


@pytest.mark.parametrize("named", ["token", "below/token"], ids=["beside the kubeconfig", "in a folder below"])
def test_a_token_file_is_read_again_when_its_token_may_have_been_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.setattr(credentials, "TOKEN_SECONDS", 0.0)
    token, path = tmp_path / named, tmp_path / "kubeconfig"
    token.parent.mkdir(exist_ok=True)
    token.write_text("old\n")
    with ApiServer(tokens={"old": ADMIN, "new": ADMIN}) as server:
        document = cyaml.safe_load(server.kubeconfig("old"))
        document["users"][0]["user"] = {"tokenFile": named}
        path.write_text(cyaml.safe_dump(document))
        api = access.connect(str(path), None, user_agent="test")
        assert api.request("GET", "/api/v1/nodes").status == 200
        del server._tokens["old"]
        with pytest.raises(ApiError, match="401"):
            api.request("GET", "/api/v1/nodes")
        token.write_text("new\n")
        assert api.request("GET", "/api/v1/nodes").status == 200
        token.unlink()
        with pytest.raises(ApiUnreachable, match="No such file"):
            api.request("GET", "/api/v1/nodes")


def test_within_a_minute_a_token_file_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first")
    clock = [0.0]
    token = credentials.token_reader(str(tmp_path / "token"), now=lambda: clock[0])
    assert token() == "first"
    (tmp_path / "token").write_text("second")
    clock[0] = credentials.TOKEN_SECONDS - 1
    assert token() == "first"
    clock[0] += 1
    assert token() == "second"


def test_the_token_of_a_service_account_is_refreshed_by_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kubernetes.config import incluster_config

    for name, content in (("SERVICE_TOKEN_FILENAME", "t"), ("SERVICE_CERT_FILENAME", "certificate")):
        (tmp_path / name).write_text(content)
        monkeypatch.setattr(incluster_config, name, str(tmp_path / name))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "1")
    monkeypatch.setattr(credentials, "_client", lambda settings, user_agent: settings)
    settings = credentials.load(None, None, user_agent="test")
    assert settings.refresh_api_key_hook is not None


def test_twenty_bindings_at_once_beside_a_dozen_watches_keep_their_connections(
    serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    together = threading.Barrier(32, timeout=20)

    def answer(request: Request) -> Reply:
        together.wait()
        return Reply(body={})

    _, api = serve(answer)
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        for _ in pool.map(lambda _: api.request("GET", "/x"), range(32)):
            pass
    assert "pool is full" not in caplog.text
