"""Charts of a node without Prometheus: asked of the exporter that runs there, found by its pod."""

from __future__ import annotations

import json
import pathlib
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from apibench import until
from apiserver import ApiServer
from hypothesis import given
from hypothesis import strategies as st
from tinyapi import Reply, client, serving

from koordlite.cli.serving import exported
from koordlite.config import NumaExporter
from koordlite.host.files import RealFiles
from koordlite.kube.client import access
from koordlite.report.web import numa_history
from koordlite.scheduler.numa_api import charts, node_page, view
from koordlite.scheduler.numa_api.charts import Agents, Charts, Series
from koordlite.scheduler.numa_api.service import NumaService
from tests.scheduler import numa_scene


def exporter(name: str, namespace: str = "koordlite-system", phase: str = "Running", ip: str = "127.0.0.1") -> Any:
    meta = {"name": name, "namespace": namespace, "labels": {"app.kubernetes.io/name": "koordlite"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"nodeName": "good", "containers": [{"name": "c", "image": "x"}]},
        "status": {"phase": phase, "podIP": ip},
    }


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(seed=1) as api_server:
        for name in ("koordlite-system", "volcano-system", "shop"):
            api_server.objects.load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        yield api_server


def agents(server: ApiServer, folder: pathlib.Path, port: int) -> Agents:
    (folder / "kubeconfig").write_text(server.kubeconfig("admin"))
    return Agents(access.connect(str(folder / "kubeconfig"), None, user_agent="test"), port=port)


def test_a_running_exporter_fills_both_charts_of_the_page(
    server: ApiServer, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(numa_history, "EVERY_SECONDS", 0.02)
    with socket.socket() as holding:
        holding.bind(("127.0.0.1", 0))
        port = int(holding.getsockname()[1])
    server.objects.load(exporter("agent"), exporter("gone", phase="Failed", ip="127.0.0.9"))
    document = agents(server, tmp_path, port)
    assert "cannot be asked" in document.charts("good").why, "it does not listen yet"
    with exported(RealFiles(), NumaExporter(listen=f"127.0.0.1:{port}"), node="good"):
        until(lambda: (holding := document.charts("good")).cpu is not None and len(holding.cpu.times) > 2)
        charts = document.charts("good")
        assert charts.memory is not None and charts.cpu is not None
        assert charts.memory.by_zone["0"][-1] and charts.memory.times == charts.cpu.times
        scene = numa_scene.scene()
        api = NumaService(scene.cluster, wall=lambda: scene.clock.wall, not_ready=lambda: "", agents=document)
        page = api.answer("/numa/nodes/good", {}, "").body.decode()
    assert page.count('class="series"') >= 2 and "From the NUMA exporter of the node." in page


def test_only_pods_of_our_namespaces_are_asked(server: ApiServer, tmp_path: pathlib.Path):
    with serving(lambda request: Reply(body={"times": [1, 2], "zones": {}})) as tiny:
        document = agents(server, tmp_path, int(tiny.url.rpartition(":")[2]))
        server.objects.load(exporter("fake", namespace="shop"))
        assert "no NUMA exporter runs there" in document.charts("good").why and tiny.requests == []
        server.objects.load(exporter("numa-exporter", namespace="volcano-system"))
        assert document.charts("good").cpu is not None and document.charts("other").cpu is None
        assert [request.path for request in tiny.requests] == ["/history"]


def test_without_the_right_to_list_pods_it_says_so(tmp_path: pathlib.Path):
    forbidden = Reply(status=403, body={"kind": "Status", "message": "may not list pods"})
    with serving(lambda request: forbidden) as tiny:
        assert "may not list pods" in Agents(client(tmp_path / "kubeconfig", tiny.url)).charts("good").why


@pytest.mark.parametrize(
    "reply", [Reply(status=404), Reply(body=[]), Reply(body={"times": [2, 1], "zones": {}}), Reply(body=b"\xff")]
)
def test_an_answer_that_is_no_history_is_said(server: ApiServer, tmp_path: pathlib.Path, reply: Reply):
    server.objects.load(exporter("agent"))
    with serving(lambda request: reply) as tiny:
        why = agents(server, tmp_path, int(tiny.url.rpartition(":")[2])).charts("good").why
    assert why.startswith("the NUMA exporter at 127.0.0.1:")


VALUES = st.lists(st.none() | st.floats() | st.integers(-5, 5), max_size=4)
ZONES = st.dictionaries(st.text(max_size=2), st.fixed_dictionaries({"cpuCores": VALUES, "memoryUsedBytes": VALUES}))


@given(st.binary() | st.fixed_dictionaries({"times": st.lists(st.floats(), max_size=4), "zones": ZONES}))
def test_any_history_is_read_or_refused(body: Any):
    try:
        result = charts.read(body if isinstance(body, bytes) else json.dumps(body).encode())
    except ValueError:
        return
    for series in (result.cpu, result.memory):
        assert series is not None and list(series.times) == sorted(set(series.times))
        for values in series.by_zone.values():
            assert len(values) == len(series.times) and all(v is None or 0 <= v < float("inf") for v in values)


@pytest.mark.parametrize(
    ("seconds_ago", "body"),
    [(30.0, ("3.5 cores", "2.0 GiB")), (600.0, ("not measured", "not measured"))],
)
def test_what_is_in_use_stands_beside_what_is_not_allocated(seconds_ago: float, body: tuple[str, str]):
    scene = numa_scene.scene()
    at = scene.clock.wall - seconds_ago
    charts = Charts(Series([at - 30, at], {"0": [9.0, 3.5]}), Series([at], {"0": [2 * 2**30]}))
    row = scene.cluster.row("good")
    assert row is not None
    page = node_page.document(view.of_row(row), scene.clock.wall, charts)
    zones = page.split("NUMA 0", 1)[1].split("NUMA 1", 1)
    for name, value in zip(("CPU in use", "memory in use"), body, strict=True):
        assert value in zones[0].split(name, 1)[1][:80]
        assert "not measured" in zones[1].split(name, 1)[1][:80]
