"""The extender over HTTP: who may ask, bodies that are none, and answers while the API server is away."""

from __future__ import annotations

import http.client
import json
import pathlib
import ssl
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite import cli
from koordlite.cli import services
from koordlite.http.server import Server
from koordlite.model.errors import InputError
from koordlite.report.html import page
from koordlite.report.log_levels import LogLevels
from koordlite.scheduler.judgement import judge
from koordlite.scheduler.service import Service
from tests.scheduler.builders import Scene, bound, pod

LOOPBACK = cli.parser().parse_args(["scheduler-extender", "--listen", "127.0.0.1:0"])
FREE, TAKEN = {"cpu": "8", "memory": "32Gi"}, {"cpu": "0", "memory": "0"}


class World(Scene):
    """An extender that listens on loopback."""

    def listen(self) -> World:
        self.levels = LogLevels(now=lambda: self.clock.now)
        self.service = Service(self.extender, self.levels)
        self.server = services.extender_listener(LOOPBACK, self.service, "")
        self.server.start()
        return self

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=5)
        connection.request(method, path, body, {"Content-Type": "application/json", **headers})
        answer = connection.getresponse()
        result = answer.status, answer.read().decode()
        connection.close()
        return result


@pytest.fixture
def world() -> Iterator[World]:
    opened = World().listen()
    opened.node("a", FREE, FREE, signed=[])
    opened.node("b", TAKEN, TAKEN, signed=[])
    yield opened
    opened.server.close()


def question(obj: Any, *names: str) -> bytes:
    return json.dumps({"Pod": obj, "Nodes": None, "NodeNames": list(names)}).encode()


def test_a_pod_from_filter_to_bind_and_explain(world: World) -> None:
    obj = pod("p", "4")
    world.put(obj)
    status, text = world.ask("POST", "/filter", question(obj, "b", "a", "new"))
    refused = {"b": "cannot align container"}
    assert (status, json.loads(text)) == (200, {"NodeNames": ["a", "new"], "FailedAndUnresolvableNodes": refused})
    status, text = world.ask("POST", "/prioritize", question(obj, "a", "new"))
    assert {each["Host"]: each["Score"] for each in json.loads(text)} == {"a": 10, "new": 0}
    request = {"PodName": "p", "PodNamespace": "ns", "PodUID": "uid-p", "Node": "a"}
    assert world.ask("POST", "/bind", json.dumps(request).encode()) == (200, "{}")
    assert world.ask("POST", "/bind", json.dumps(request).encode()) == (200, "{}")
    world.put(bound(obj, "a"))
    status, text = world.ask("GET", "/explain/ns/p")
    document = json.loads(text)
    assert (document["chosen"], document["numaNodes"], document["refused"]) == ("a", [0], {"cannot align container": 1})
    nodes = {each["node"]: each for each in document["nodes"]}
    assert (
        nodes["b"]["why"] == "container c asks cpu 4; NUMA node 0 has 0, NUMA node 1 has 0; "
        "container c asks memory 1Gi; NUMA node 0 has 0, NUMA node 1 has 0"
    )
    assert nodes["a"]["placed"] == {"c": [0]}
    assert document["unknownNodes"] == ["new"]


def test_a_fault_of_ours_about_one_node_is_on_the_page_beside_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.filter(pod("p", "4"), "a", "b")
    real = judge.verdict

    def faulty(shape: Any, row: Any, settings: Any) -> Any:
        if row.name == "b":
            raise RuntimeError("broken")
        return real(shape, row, settings)

    monkeypatch.setattr(judge, "verdict", faulty)
    status, text = world.ask("GET", "/explain/ns/p", Accept="text/html")
    assert status == 200
    assert "NUMA 0: 8 of " in text
    assert "a fault of the program itself: RuntimeError" in text


def test_the_node_state_names_what_is_on_top_of_the_report(world: World) -> None:
    obj = pod("p", "4")
    world.put(obj)
    world.bind(obj, "a")
    world.clock.pass_(3)
    document = json.loads(world.ask("GET", "/state/a")[1])
    assert document["judged"]["numaNodes"]["0"]["cpu"] == "4"
    assert document["report"]["available"]["0"]["cpu"] == "8"
    assert document["reserved"] == [
        {"pod": "ns/p", "stage": "bound", "seconds": 3.0, "takes": {"cpu": "4", "memory": "1Gi"}}
    ]
    world.put(bound(obj, "a"))
    world.clock.pass_(7)
    document = json.loads(world.ask("GET", "/state/a")[1])
    assert document["dirty"] == {"isDirty": True, "seconds": 7.0, "why": "not counted yet: ns/p"}
    assert document["ended"][0]["why"] == "seen bound"


def test_whole_node_objects_come_back_as_they_were(world: World) -> None:
    items = [{"metadata": {"name": name, "labels": {"x": "y"}}, "future": [1]} for name in ("b", "a")]
    body = {"Pod": pod("p", "4"), "Nodes": {"metadata": {}, "items": items}, "NodeNames": None}
    document = json.loads(world.ask("POST", "/filter", json.dumps(body).encode())[1])
    assert document["Nodes"]["items"] == [items[1]]
    assert "NodeNames" not in document


@pytest.mark.parametrize(
    ("path", "body", "status", "output"),
    [
        pytest.param("/filter", b"no json", 400, "JSON is malformed", id="no JSON"),
        pytest.param("/filter", b"", 400, "Input data was truncated", id="nothing"),
        pytest.param("/filter", b"{}", 400, "missing required field `Pod`", id="no pod"),
        pytest.param("/filter", b'{"Pod":{},"NodeNames":"a"}', 400, "$.NodeNames", id="a list that is a text"),
        pytest.param("/filter", b'{"Pod":{},"Nodes":{"items":[{}]}}', 400, "a node without a name", id="nameless node"),
        pytest.param("/filter", b"[" * 100_000, 400, "", id="nested too deep"),
        pytest.param("/filter", b'{"Pod":{"metadata":{"name":"\xff"}}}', 400, "", id="no UTF-8"),
        pytest.param("/bind", b'{"PodName":"p"}', 400, "missing required field `PodNamespace`", id="half a binding"),
        pytest.param("/preempt", b'{"Pod":{},"NodeNameToMetaVictims":{"a":{"Pods":[{}]}}}', 400, "`UID`", id="no uid"),
        pytest.param("/evict", b"{}", 404, "there is no verb /evict", id="no verb of ours"),
    ],
)
def test_bad_bodies_are_answered_with_what_is_wrong(
    world: World, path: str, body: bytes, status: int, output: str
) -> None:
    result = world.ask("POST", path, body)
    assert result[0] == status
    assert output in result[1]
    assert world.ask("POST", "/filter", question(pod("p", "4"), "a"))[0] == 200, "and it goes on"


def test_a_body_of_more_than_ten_megabytes_is_not_read(world: World) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", world.server.port, timeout=5)
    connection.putrequest("POST", "/filter")
    connection.putheader("Content-Length", str(services.MOST_BYTES + 1))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()


def test_a_body_of_almost_ten_megabytes_is(world: World) -> None:
    names = [f"{number:07}{'n' * 240}" for number in range(37_000)]
    body = question(pod("p", "4"), *names)
    assert 9_000_000 < len(body) < services.MOST_BYTES
    status, text = world.ask("POST", "/filter", body)
    assert status == 200
    assert len(json.loads(text)["NodeNames"]) == len(names), "unknown nodes pass: nobody says no"


@given(
    st.binary(max_size=60)
    | st.recursive(st.none() | st.integers() | st.text(max_size=5), st.lists, max_leaves=5).map(
        lambda value: json.dumps({"Pod": value, "NodeNames": value}).encode()
    )
)
def test_no_body_breaks_it(body: bytes) -> None:
    scene = Scene()
    service = Service(scene.extender, LogLevels(now=time.monotonic))
    for verb in ("filter", "prioritize", "preempt", "bind"):
        assert service.post(f"/{verb}", body).status in (200, 400)


def test_while_the_api_server_is_away_it_answers_and_then_says_that_it_cannot(world: World) -> None:
    request = question(pod("p", "4"), "a")
    world.age = 299.0
    assert json.loads(world.ask("POST", "/filter", request)[1])["NodeNames"] == ["a"]
    assert world.ask("GET", "/readyz")[0] == 200
    texts = set()
    for world.age in (301.0, 400.0, 5000.0):
        texts.add(world.ask("POST", "/filter", request)[1])
    assert [json.loads(text) for text in texts] == [
        {
            "Error": "koordlite scheduler-extender: what is known of the cluster is older than 300 s; "
            "the API server does not answer"
        }
    ], "one text, which does not wake the pod again and again"
    assert world.ask("GET", "/readyz")[0] == 503
    world.age = None
    assert "has not been listed yet" in world.ask("POST", "/prioritize", request)[1]
    assert world.ask("GET", "/healthz") == (200, "ok\n")


def test_a_web_page_elsewhere_cannot_have_a_browser_ask(world: World) -> None:
    assert world.ask("POST", "/bind", b"{}", Host="evil.example.com")[0] == 421
    assert world.ask("PUT", "/loglevel", b'{"level":"debug"}')[0] == 401, "changes want the local token"
    assert world.ask("DELETE", "/filter")[0] == 405


def test_log_levels_by_flow_and_pod(world: World, caplog: pytest.LogCaptureFixture) -> None:
    levels = world.levels
    caplog.handler.addFilter(levels)
    levels.put(b'{"level":"debug","pod":"ns/p","forSeconds":10}')
    levels.put(b'{"level":"off","flow":"bind"}')
    for name in ("p", "q"):
        world.filter(pod(name, "4"), "a")
        world.bind(pod(name, "4"), "nowhere")
    assert [record.getMessage() for record in caplog.records if record.name.startswith("koordlite.scheduler")] == [
        "filter of pod ns/p: 1 of 1 nodes pass"
    ]
    world.clock.pass_(11)
    assert levels.document() == {"default": "info", "flows": {"bind": "off"}, "pods": {}}
    caplog.handler.removeFilter(levels)
    for wrong in (
        b"{}",
        b'{"level":"loud"}',
        b'{"level":"info","flow":"x"}',
        b'{"level":"info","pod":"a","flow":"bind"}',
    ):
        with pytest.raises(ValueError, match=r".+"):
            levels.put(wrong)


def test_metrics_name_verbs_reasons_and_how_wrong_it_was(world: World) -> None:
    world.ask("POST", "/filter", question(pod("p", "4"), "a", "b"))
    world.ask("POST", "/filter", b"no json")
    text = world.ask("GET", "/metrics")[1]
    for line in (
        'koordlite_scheduler_requests_total{result="ok",verb="filter"} 1.0',
        'koordlite_scheduler_requests_total{result="bad_request",verb="filter"} 1.0',
        'koordlite_scheduler_refused_nodes_total{reason="cannot align container"} 1.0',
        "koordlite_scheduler_predicted_wrong_total 0.0",
        "koordlite_scheduler_reported_nodes 2.0",
    ):
        assert line in text.splitlines()


def test_pages_show_what_people_wrote_as_text(world: World) -> None:
    evil = pod("p", "4", annotations={"scheduling.koordinator.sh/resource-spec": "<script>alert(1)</script>"})
    world.filter(evil, "a", "<img src=x>")
    for path in ("/", "/state/a", "/explain/ns/p"):
        status, text = world.ask("GET", path, Accept="text/html")
        assert status == 200
        assert text.count("<script") == 1 and f"<script>{page.LIVE_SCRIPT}</script>" in text
        assert "<img" not in text
    assert world.ask("GET", "/explain/ns/never")[0] == 404
    assert world.ask("GET", "/state/nowhere")[0] == 404


def test_only_certificates_of_the_ca_and_of_these_names_may_ask(tmp_path: pathlib.Path) -> None:
    server = _made(tmp_path, "server")
    scheduler, other, stranger = (_made(tmp_path, name) for name in ("scheduler", "other", "stranger"))
    pod_object = tmp_path / "ca.crt"
    pod_object.write_bytes(pathlib.Path(scheduler[0]).read_bytes() + pathlib.Path(other[0]).read_bytes())
    options = ["--listen", "0.0.0.0:0", "--tls-cert-file", server[0], "--tls-private-key-file", server[1]]
    options += ["--client-ca-file", str(pod_object), "--client-name", "scheduler"]
    args = cli.parser().parse_args(["scheduler-extender", *options])
    scene = Scene()
    scene.node("a", FREE, signed=[])
    service = Service(scene.extender, LogLevels(now=time.monotonic))
    running: Server = services.extender_listener(args, service, "")
    running.start()
    try:
        request = question(pod("p", "4"), "a")
        assert _ask_tls(running.port, server[0], scheduler, request) == 200
        assert _ask_tls(running.port, server[0], other, request) == 403
        for nobody in (None, stranger):
            with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
                _ask_tls(running.port, server[0], nobody, request)
    finally:
        running.close()


def test_beyond_loopback_it_does_not_listen_without_client_certificates() -> None:
    for options in (["--listen", "0.0.0.0:9318"], ["--listen", "9318"], ["--listen", "127.0.0.1:x"]):
        args = cli.parser().parse_args(["scheduler-extender", *options])
        with pytest.raises(InputError, match="--listen"):
            services.extender_listener(args, Service(Scene().extender, LogLevels(now=time.monotonic)), "")


def _made(folder: pathlib.Path, name: str) -> tuple[str, str]:
    cert, key = str(folder / f"{name}.crt"), str(folder / f"{name}.key")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", key, "-out", cert, "-days", "2", "-subj", f"/CN={name}"]
    subprocess.run([*command, "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    return cert, key


def _ask_tls(port: int, trusted: str, client: tuple[str, str] | None, body: bytes) -> int:
    context = ssl.create_default_context(cafile=trusted)
    if client:
        context.load_cert_chain(*client)
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=5)
    try:
        connection.request("POST", "/filter", body)
        return connection.getresponse().status
    finally:
        connection.close()
