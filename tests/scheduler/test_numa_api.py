"""REST and pages of NUMA nodes over real HTTP: what is said of nodes, pods and violations, and who may read it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tinyapi import Reply, TinyApi

from koordlite import cli
from koordlite.cli import services
from koordlite.http.answers import Answer, plain
from koordlite.http.server import Server
from koordlite.kube.client.prometheus import Prometheus
from koordlite.model import keys
from koordlite.model.errors import InputError
from koordlite.model.wire.objects import NRTObject
from koordlite.report.html import page
from koordlite.scheduler.numa_api import charts
from koordlite.scheduler.numa_api.rest import RestGuard
from koordlite.scheduler.numa_api.service import NumaService
from tests.scheduler import numa_scene
from tests.scheduler.builders import Scene, report

Get = Callable[..., tuple[int, Any]]


def service(scene: Scene, **fields: Any) -> NumaService:
    return NumaService(scene.cluster, wall=lambda: scene.clock.wall, not_ready=lambda: "", **fields)


@pytest.fixture
def get() -> Iterator[Get]:
    """Serve a service on loopback and ask it: status, and JSON or text."""
    servers: list[Server] = []

    def ask(api: NumaService, path: str, guard: RestGuard | None = None, **headers: str) -> tuple[int, Any]:
        server = Server("127.0.0.1", 0, api.answer, guard=guard or RestGuard(exposed=False))
        servers.append(server)
        server.start()
        request = urllib.request.Request(server.url + path, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, _content(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, _content(error)

    yield ask
    for server in servers:
        server.close()


def _content(answer: Any) -> Any:
    body = answer.read()
    return json.loads(body) if answer.headers["Content-Type"] == "application/json" else body.decode()


def test_nodes_are_listed_with_what_is_known_of_each(get: Get):
    code, body = get(service(numa_scene.scene()), "/rest/scheduling/v1/numa/nodes")
    assert (code, body["code"], body["msg"]) == (200, 200, "success")
    states = {node["name"]: node["state"] for node in body["data"]}
    assert states == {"good": "ok", "old": "stale", "broken": "unreadable", "bare": "no report"}
    good = next(node for node in body["data"] if node["name"] == "good")
    assert [zone["cpuTotalMilli"] for zone in good["zones"]] == [8000, 8000]
    assert good["violations"] == 4


def test_one_node_says_whose_its_cpus_are_and_how_far_its_numa_nodes_are_apart(get: Get):
    _, body = get(service(numa_scene.scene()), "/rest/scheduling/v1/numa/nodes/good")
    zero, one = body["data"]["zones"]
    assert zero["cpus"] == "0-3,8-11" and zero["reservedCPUs"] == [8]
    assert zero["exclusiveCPUs"] == [{"cpu": cpu, "pod": "shop/web"} for cpu in (0, 1, 2)]
    assert [holding["cpu"] for holding in one["exclusiveCPUs"]] == [4, 5]
    assert zero["distances"] == {"0": 10, "1": 21}
    astray = body["data"]["containers"][1]
    assert (astray["promisedCPUs"], astray["cpus"]) == ("4-5", "3-5")


def test_a_pod_shows_promise_fact_and_what_is_wrong(get: Get):
    api = service(numa_scene.scene())
    _, astray = get(api, "/rest/scheduling/v1/numa/pods/shop/astray")
    assert astray["data"]["node"] == "good"
    result = [wrong["code"] for wrong in astray["data"]["violations"]]
    assert result == ["CPUOutsideAssignment", "CPUSpansNUMA", "RemoteMemory", "MemsSpanNUMA"]
    assert get(api, "/rest/scheduling/v1/numa/pods/shop/web")[1]["data"]["violations"] == []


def test_violations_of_a_node_that_is_out_of_date_are_not_listed(get: Get):
    scene = numa_scene.scene()
    _, body = get(service(scene), "/rest/scheduling/v1/numa/violations")
    assert {wrong["node"] for wrong in body["data"]} == {"good"}
    scene.clock.pass_(3600)
    assert get(service(scene), "/rest/scheduling/v1/numa/violations") == (200, {"code": 200, "msg": "success"})


def test_a_container_whose_pod_is_gone_is_not_judged():
    scene = numa_scene.scene()
    scene.cluster.remove_pod("shop/astray")
    answer = service(scene).answer("/rest/scheduling/v1/numa/violations", {}, "")
    assert "data" not in json.loads(answer.body)


@pytest.mark.parametrize(
    "path", ["numa/nodes/none", "numa/pods/shop/none", "numa/other", "numa/nodes/good/more", "none", "query?query=up"]
)
def test_what_is_not_there_is_404_in_the_envelope(get: Get, path: str):
    code, body = get(service(numa_scene.scene()), f"/rest/scheduling/v1/{path}")
    assert code == body["code"] == 404
    assert body["msg"] == "parameters not found" and body["data"]["reason"]


def test_what_is_too_old_to_be_believed_is_not_answered(get: Get):
    scene = numa_scene.scene()
    api = NumaService(scene.cluster, wall=lambda: scene.clock.wall, not_ready=lambda: "older than 300 s")
    code, body = get(api, "/rest/scheduling/v1/numa/nodes")
    assert (code, body["msg"], body["data"]["reason"]) == (500, "remote server busy", "older than 300 s")
    assert "older than 300 s" in get(api, "/numa")[1]
    assert get(api, "/readyz")[0] == 503


def test_elsewhere_reading_wants_a_token_that_may(get: Get):
    question: list[tuple[str, str, str]] = []

    def review(token: str, verb: str, path: str, address: str) -> Answer | None:
        question.append((token, verb, path))
        return None if token == "may" else plain(403, "she may not get /rest")

    api, guard = service(numa_scene.scene()), RestGuard(exposed=True, review=review)
    path = "/rest/scheduling/v1/numa/nodes"
    assert get(api, path, guard, Authorization="Bearer may")[0] == 200
    code, body = get(api, path, guard, Authorization="Bearer other")
    assert (code, body["code"], body["data"]["reason"]) == (403, 403, "she may not get /rest")
    code, page = get(api, "/numa", guard)
    assert code == 401 and "<h1>Not allowed</h1>" in page
    assert question == [("may", "get", path), ("other", "get", path)]


def test_a_query_goes_to_prometheus_and_back_as_it_is(get: Get):
    reply = {"status": "success", "data": {"resultType": "vector", "result": []}}
    server = TinyApi(lambda request: Reply(body=reply))
    api = service(numa_scene.scene(), prometheus=Prometheus(server.url))
    for base in ("/rest/scheduling/v1", "/rest/scheduling/api/v1"):
        assert get(api, f"{base}/query?query=up%7Bnode%3D%22a%22%7D&time=1&evil=x") == (200, reply)
    (first, second) = server.requests
    assert first == second and first.path == "/api/v1/query"
    assert first.query == {"query": 'up{node="a"}', "time": "1"}
    assert get(api, "/rest/scheduling/v1/query")[0] == 400
    server.close()
    assert get(api, "/rest/scheduling/v1/query?query=up")[0] == 500


def used(node: str, zone: str, value: str) -> Any:
    return {"metric": {"node": node, "numa_node": zone}, "value": [1.8e9, value]}


def test_what_is_in_use_stands_beside_what_is_taken(get: Get):
    def answer(request: Any) -> Reply:
        is_cpu = "cpu" in request.query["query"]
        values = ("1.25", "0.5") if is_cpu else (str(3 * 2**30), "NaN")
        samples = [used("good", str(zone), value) for zone, value in enumerate(values)]
        return Reply(
            body={"status": "success", "data": {"resultType": "vector", "result": [*samples, used("x", "²", "1")]}}
        )

    server = TinyApi(answer)
    api = service(numa_scene.scene(), prometheus=Prometheus(server.url))
    _, body = get(api, "/rest/scheduling/v1/numa/nodes")
    zones = {node["name"]: [(z["cpuUsedMilli"], z["memoryUsedBytes"]) for z in node["zones"]] for node in body["data"]}
    assert zones["good"] == [(1250, 3 * 2**30), (500, None)]
    assert all(pair == (None, None) for name, pairs in zones.items() if name != "good" for pair in pairs)
    assert get(api, "/rest/scheduling/v1/numa/nodes/good")[1]["data"]["zones"][0]["cpuUsedMilli"] == 1250
    page = get(api, "/numa")[1]
    assert "1.2 cores, 3.0 GiB" in page and "what is in use" in page
    assert len(server.requests) == 2, "it is asked now and then"
    server.close()
    alone = get(service(numa_scene.scene(), prometheus=Prometheus(server.url)), "/numa")
    assert alone[0] == 200 and "what is in use" not in alone[1], "a Prometheus that is away costs the page nothing else"


def test_the_node_page_draws_what_prometheus_has_or_says_why_not(get: Get):
    points = [[1.8e9 - 60, "1.5"], [1.8e9, "2"]]
    series = [{"metric": {"numa_node": "1"}, "values": points}]
    server = TinyApi(
        lambda request: Reply(body={"status": "success", "data": {"resultType": "matrix", "result": series}})
    )
    api = service(numa_scene.scene(), prometheus=Prometheus(server.url))
    assert 'class="series"' in get(api, "/numa/nodes/good")[1]
    assert server.requests[0].query["query"].count('node="good"') == 1
    server.close()
    code, page = get(api, "/numa/nodes/good")
    assert code == 200 and "Prometheus cannot be asked" in page


@given(st.binary() | st.recursive(st.none() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)))
def test_any_answer_of_prometheus_is_read_or_refused(body: Any):
    try:
        result = charts.matrix(body if isinstance(body, bytes) else json.dumps({"data": body}).encode())
    except ValueError:
        return
    assert all(len(values) == len(result.times) for values in result.by_zone.values())


@given(
    st.sampled_from(
        [keys.PLACEMENT, keys.CPU_TOPOLOGY, keys.CPU_MANAGER_POLICY, keys.POD_CPU_ALLOCS, keys.RESERVATION]
    ),
    st.text() | st.sampled_from(["null", "{}", "[]", '{"detail": null}', '{"reservedCPUs": "x"}']),
)
def test_any_annotation_is_shown_or_named_as_unreadable(key: str, text: str):
    scene = Scene()
    scene.node("n")
    obj = report("n", {"cpu": "1"}, annotations={key: text})
    scene.cluster.put_report(msgspec.convert(obj, NRTObject))
    answer = service(scene).answer("/rest/scheduling/v1/numa/nodes/n", {}, "")
    data = json.loads(answer.body)["data"]
    assert data["state"] in ("ok", "stale") or key in data["problems"][0]
    assert service(scene).answer("/numa/nodes/n", {}, "").status == 200


def test_the_overview_filters_sorts_and_is_cut_into_pages(get: Get):
    scene = numa_scene.scene()
    for number in range(150):
        scene.node(f"w{number:03}", {"cpu": str(64 - number % 60), "memory": "1Gi"})
    api = service(scene)
    assert "w099" not in get(api, "/numa?sort=name")[1] and "w120" in get(api, "/numa?sort=name&page=2")[1]
    only = get(api, "/numa?q=shop/web")[1]
    assert 'href="numa/nodes/good"' in only and 'href="numa/nodes/old"' not in only
    bare = get(api, "/numa?show=no+report")[1]
    assert 'href="numa/nodes/bare"' in bare and 'href="numa/nodes/w000"' not in bare
    fullest = get(api, "/numa?sort=cpu&q=w")[1]
    assert fullest.index("nodes/w059") < fullest.index("nodes/w040")
    assert "no node matches" in get(api, "/numa?q=nothing")[1]
    assert "the API server knows no nodes" in get(service(Scene()), "/numa")[1]
    assert get(api, "/numa?page=99999999999&sort=x&show=y")[0] == 200


def test_names_of_the_cluster_stay_text(get: Get):
    _, body = get(service(numa_scene.scene()), "/numa?q=%3Cscript%3Ealert(1)%3C/script%3E")
    assert body.count("<script") == 1 and f"<script>{page.LIVE_SCRIPT}</script>" in body


@pytest.mark.parametrize(
    ("node", "output"), [("old", "not judged"), ("bare", "not judged"), ("fine", "every promise holds")]
)
def test_no_violations_are_no_praise_where_nothing_is_known(get: Get, node: str, output: str):
    scene = numa_scene.scene()
    scene.node("fine", {"cpu": "1"}, annotations=numa_scene.notes(wall=scene.clock.wall))
    assert output in get(service(scene), f"/numa/nodes/{node}")[1]


def test_the_command_does_not_take_tokens_in_the_clear():
    args = cli.parser().parse_args(["numa-api", "--listen", "0.0.0.0:0"])
    nobody: Any = None
    with pytest.raises(InputError, match="in the clear"), services.numa_page(args, nobody, nobody, str, ""):
        pass


@pytest.mark.parametrize(("command", "option"), [("numa-api", "--listen"), ("scheduler-extender", "--numa-listen")])
@pytest.mark.parametrize("allocated", ["9320", "0.0.0.0:0"])
def test_an_error_about_the_address_names_the_option_that_was_given(command: str, option: str, allocated: str):
    args = cli.parser().parse_args([command, option, allocated])
    nobody: Any = None
    with pytest.raises(InputError) as caught, services.numa_page(args, nobody, nobody, str, ""):
        pass
    assert caught.value.problems[0].field == option


def test_an_extender_without_an_address_for_it_serves_none():
    args = cli.parser().parse_args(["scheduler-extender"])
    nobody: Any = None
    with services.numa_page(args, nobody, nobody, str, ""):
        assert args.numa_listen == ""


def test_a_scrape_says_what_was_left_out(monkeypatch: pytest.MonkeyPatch):
    scene = numa_scene.scene()
    question = service(scene)

    def fails(row: Any) -> Any:
        raise OverflowError("int too large")

    monkeypatch.setattr("koordlite.scheduler.numa_api.view.of_row", fails)
    question.answer("/numa", {}, "")
    text = question.answer("/metrics", {}, "").body.decode()
    assert "koordlite_numa_api_ready 1.0" in text
    assert "koordlite_numa_api_nodes 4.0" in text and "koordlite_numa_api_faults_total 4.0" in text
