"""Objectives of services: what is asked of a Prometheus, and what comes of its answers and of tenants' annotations."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tinyprometheus import Server, serving, vector

from koordlite.kube.settings import ObjectiveQuery, ObjectiveSettings
from koordlite.model import keys
from koordlite.model.errors import ConfigError
from koordlite.model.picture.usage import Objective
from koordlite.model.pod.qos import KubeQoS
from koordlite.model.pod.values import Pod
from koordlite.model.reading import strict
from koordlite.observe import objectives
from koordlite.observe.objectives import ObjectiveReader

QUERY = 'max by (namespace, pod) (p99{node="$node", pod=~"$pods"}[30s])'


@pytest.fixture
def prometheus() -> Iterator[Server]:
    with serving(lambda: vector({("ns", "web"): 41.5, ("ns", "db"): 7})) as server:
        yield server


@pytest.fixture
def reader(prometheus: Server) -> Callable[..., ObjectiveReader]:
    """A reader whose rounds run at once."""

    def make(**settings: Any) -> ObjectiveReader:
        query = ObjectiveQuery(query=QUERY, most=50.0, least=20.0, unit="ms", window_seconds=30)
        given = {"prometheus_url": prometheus.url, "queries": {"p99": query}, **settings}

        return ObjectiveReader(ObjectiveSettings(**given), objectives.at_once)

    return make


def asking(text: str = "p99", name: str = "web", kube_qos: KubeQoS = KubeQoS.BURSTABLE) -> Pod:
    notes = {keys.OBJECTIVE: text} if text else {}
    return Pod(uid=name, namespace="ns", name=name, kube_qos=kube_qos, phase="Running", annotations=notes)


def one(reader: ObjectiveReader, pod: Pod, now: float = 100.0) -> Objective:
    (objective,) = reader.read(now, [pod], "node-a").values()
    return objective


def test_the_answer_is_about_the_window_before_the_question(reader: Any) -> None:
    goal = one(reader(), asking())
    assert (goal.value, goal.most, goal.unit, goal.why) == (41.5, 50.0, "ms", "")
    assert (goal.since, goal.until, goal.expires) == (70.0, 100.0, 130.0)
    assert [goal.is_current(now) for now in (99.9, 100, 129.9, 130)] == [False, True, True, False]


@pytest.mark.parametrize(
    ("text", "most", "asked"),
    [
        pytest.param("p99", 50.0, 50.0, id="the operator's"),
        pytest.param("p99 <= 30", 30.0, 30.0, id="a tighter one"),
        pytest.param("p99<=30.5", 30.5, 30.5, id="without spaces"),
        pytest.param("p99 <= 1", 20.0, 1.0, id="no tighter than the operator allows"),
        pytest.param("p99 <= 5000", 50.0, 5000.0, id="never a looser one"),
    ],
)
def test_a_tenant_tightens_within_the_operators_bounds(reader: Any, text: str, most: float, asked: float) -> None:
    goal = one(reader(), asking(text))
    assert (goal.most, goal.asked) == (most, asked)


def test_only_names_of_pods_and_of_the_node_come_into_the_query(
    reader: Any, prometheus: Server, tmp_path: pathlib.Path
) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    pods = [asking("p99 <= 40"), asking("p99", "db.1"), asking("p99", '"} or up{a="')]
    reader(token_file=str(token)).read(100.0, pods, "node-a")
    query = 'max by (namespace, pod) (p99{node="node-a", pod=~"db[.]1|web"}[30s])'
    assert prometheus.asked == [(query, "Bearer secret")]


def test_a_round_begins_when_it_is_time_and_while_somebody_asks(reader: Any, prometheus: Server) -> None:
    asker = reader()
    for now in (100.0, 104.9, 105.0, 3.0):  # At last the clock has started again.
        asker.read(now, [asking()], "node-a")
    assert len(prometheus.asked) == 3
    assert asker.read(200.0, [asking("")], "node-a") == {}
    assert asker.read(210.0, [asking("p99", "web", KubeQoS.BEST_EFFORT)], "node-a") == {}
    assert len(prometheus.asked) == 3


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("up", "no query of this name (objectives.queries: p99)", id="a query nobody defined"),
        pytest.param("p99", "gives no number for this pod", id="a pod without samples"),
    ],
)
def test_what_has_no_number_says_why(reader: Any, text: str, why: str) -> None:
    goal = one(reader(), asking(text, "other"))
    assert goal.value is None
    assert why in goal.why


def test_without_a_server_nothing_is_asked(reader: Any, prometheus: Server) -> None:
    goal = one(reader(prometheus_url="", queries={}), asking())
    assert (goal.value, prometheus.asked) == (None, [])
    assert "objectives.queries: none" in goal.why


SUCCESS = {"status": "success", "data": {"resultType": "vector", "result": []}}
SAMPLE = {"metric": {"namespace": "ns", "pod": "web"}}


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        pytest.param(500, b"boom\x1b[2J", "Prometheus answers 500", id="an error"),
        pytest.param(200, b"", "not an answer of Prometheus", id="nothing"),
        pytest.param(200, b"[" * 100_000, "not an answer of Prometheus", id="endless brackets"),
        pytest.param(200, b"{" + b" " * objectives.LARGEST_ANSWER + b"}", "is longer than", id="too much"),
        pytest.param(
            200,
            json.dumps({"status": "error", "errorType": "bad_data", "error": "parse error"}).encode(),
            "refuses the query: bad_data parse error",
            id="a refusal",
        ),
        pytest.param(200, json.dumps(SUCCESS).replace("vector", "matrix").encode(), "not a vector", id="a matrix"),
        pytest.param(200, vector({("ns", "web"): "many"}), "'many', not a number", id="no number"),
        pytest.param(200, vector({("ns", "web"): "NaN"}), "no number for this pod", id="a percentile of nothing"),
        pytest.param(200, vector({("ns", "web"): -1}), "no number for this pod", id="less than nothing"),
        pytest.param(200, vector({("other", "web"): 1}), "no number for this pod", id="another namespace"),
        pytest.param(302, b"", "Prometheus answers 302", id="a redirection"),
    ],
)
def test_a_bad_answer_is_none(reader: Any, prometheus: Server, status: int, body: bytes, why: str) -> None:
    prometheus.status, prometheus.body = status, lambda: body
    prometheus.headers = {"Location": "http://127.0.0.1:1/elsewhere"}
    goal = one(reader(), asking())
    assert goal.value is None
    assert why in goal.why


def test_a_url_with_a_user_is_refused() -> None:
    with pytest.raises(ConfigError, match="put a token into tokenFile"):
        strict.load("prometheusUrl: http://me:s3cret@prometheus", ObjectiveSettings, "koordlite.yaml")


def test_infinity_misses_every_objective(reader: Any, prometheus: Server) -> None:
    prometheus.body = lambda: vector({("ns", "web"): "+Inf", ("ns", "db"): 3e9})
    (most,) = (field.metadata["le"] for field in dataclasses.fields(ObjectiveQuery) if field.name == "most")
    query = ObjectiveQuery(query=QUERY, most=most, unit="ns")
    web, db = reader(queries={"p99": query}).read(100.0, [asking(), asking(name="db")], "node-a").values()
    assert web.value == objectives.LARGEST_VALUE > web.most
    assert db.value == 3e9, "nanoseconds"


def test_the_last_answer_stays_until_it_is_stale(reader: Any, prometheus: Server) -> None:
    asker = reader()
    one(asker, asking())
    prometheus.status = 503
    goal = one(asker, asking(), 110.0)
    assert (goal.value, goal.until) == (41.5, 100.0)
    assert "Prometheus answers 503" in goal.why
    assert not goal.is_current(130.0)


def test_a_token_that_cannot_be_read_is_a_reason_and_not_shown(
    reader: Any, prometheus: Server, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    goal = one(reader(token_file=str(tmp_path / "none")), asking())
    assert "No such file" in goal.why
    token = tmp_path / "token"
    token.write_text("s3cret-token")
    prometheus.status = 403
    assert "403" in one(reader(token_file=str(token)), asking()).why
    assert prometheus.asked[-1][1] == "Bearer s3cret-token"
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize("text", ["s3cret-\ntoken", "s3cret- token", "s3cret-\x7ftoken"])
def test_a_token_that_no_header_may_have_is_shown_nowhere(
    reader: Any, prometheus: Server, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    token = tmp_path / "token"
    token.write_text(text)
    goal = one(reader(token_file=str(token)), asking())
    assert "the bearer token has" in goal.why
    assert "s3cret" not in goal.why + caplog.text
    assert not prometheus.asked


def test_a_server_that_does_not_answer_holds_up_no_tick(prometheus: Server) -> None:
    let_go = threading.Event()

    def body() -> bytes:
        let_go.wait(20)
        return vector({("ns", "web"): 1})

    prometheus.body = body
    query = ObjectiveQuery(query=QUERY, most=50.0)
    asker = ObjectiveReader(ObjectiveSettings(prometheus_url=prometheus.url, queries={"p99": query}))
    assert one(asker, asking()).why == "it has not been measured yet"
    assert "has not ended its answer for 60 s" in one(asker, asking(), 161.0).why
    assert len(prometheus.asked) <= 1, "no other round begins meanwhile"
    let_go.set()
    worker = asker._worker
    assert worker
    worker.join(20)
    assert not worker.is_alive()


def test_a_thread_that_cannot_be_had_costs_no_tick(prometheus: Server) -> None:
    def begin(_work: Callable[[], None]) -> None:
        raise RuntimeError("can't start new thread")

    query = ObjectiveQuery(query=QUERY, most=50.0)
    asker = ObjectiveReader(ObjectiveSettings(prometheus_url=prometheus.url, queries={"p99": query}), begin)
    assert one(asker, asking()).why == "Prometheus cannot be asked: can't start new thread"


@pytest.mark.parametrize(
    "text",
    [
        "p99 <= -1",
        "p99 <= 0",
        "p99 <= 0.00",
        "p99 <= 1e3",
        "p99 >= 5",
        "<= 5",
        'p99{pod="x"}',
        "p" * 64,
        "p99 <= 50\n",
        "p99 <= ٥",
        "p99 <=",
    ],
)
def test_an_annotation_that_cannot_be_read_asks_for_nothing(reader: Any, prometheus: Server, text: str) -> None:
    assert reader().read(100.0, [asking(text)], "node-a") == {}
    assert prometheus.asked == []
