"""The real command as a process: it lists, answers over two listeners, and ends when it is asked to."""

from __future__ import annotations

import http.client
import json
import pathlib
import subprocess
import sys
import time

import cyaml
from apibench import CRD, until
from apiserver import ApiServer
from control_plane import free_port

from koordlite.model import times
from tests.scheduler.builders import pod

SETTINGS = pathlib.Path(__file__).parents[2] / "manifests/settings/slo-controller-config.yaml"


def test_the_command_answers_until_it_is_stopped(tmp_path: pathlib.Path) -> None:
    node = {"metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "110"}}}
    ports = free_port(), free_port()
    with ApiServer(seed=1) as server:
        server.objects.load(cyaml.safe_load(CRD.read_text()), {"apiVersion": "v1", "kind": "Node", **node})
        (tmp_path / "kubeconfig").write_text(server.kubeconfig("admin"))
        command = [sys.executable, "-m", "koordlite", "scheduler-extender", f"--kubeconfig={tmp_path / 'kubeconfig'}"]
        command += [f"--listen=127.0.0.1:{ports[0]}", f"--health-listen=127.0.0.1:{ports[1]}"]
        command += ["--reservation-controller", "--lease-namespace=default"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            try:
                until(lambda: _asked(ports[1], "GET", "/readyz")[0] == 200, 60.0)
                body = json.dumps({"Pod": pod("p"), "Nodes": None, "NodeNames": ["a"]})
                status, text = _asked(ports[0], "POST", "/filter", body)
                assert (status, json.loads(text)["NodeNames"]) == (200, ["a"])
                assert _asked(ports[1], "POST", "/filter", body)[0] == 405, "nobody asks beside the listener for it"
                assert _asked(ports[1], "GET", "/debug/state")[0] == 404
                until(lambda: server.objects.get("Lease", "koordlite-reservation-controller", "default"))
            finally:
                process.terminate()
            assert process.wait(20) == 0
            assert process.stderr is not None
            assert "listening on" in process.stderr.read()


def test_measured_load_is_watched_and_refuses(tmp_path: pathlib.Path) -> None:
    crds = pathlib.Path(__file__).parents[2] / "manifests/crds/koordinator/nodemetrics.yaml"
    nodes = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name},
            "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "110"}},
        }
        for name in ("busy", "idle")
    ]
    measured = [
        {
            "apiVersion": "slo.koordinator.sh/v1alpha1",
            "kind": "NodeMetric",
            "metadata": {"name": name},
            "status": {
                "updateTime": times.show(time.time()),
                "nodeMetric": {"nodeUsage": {"resources": {"cpu": cpu, "memory": "1Gi"}}},
            },
        }
        for name, cpu in (("busy", "7"), ("idle", "1"))
    ]
    port, file = free_port(), tmp_path / "load.yaml"
    file.write_text("usageThresholds: {cpu: 70}\nnodeMetricExpirationSeconds: 36000\n")
    with ApiServer(seed=1) as server:
        server.objects.load(cyaml.safe_load(CRD.read_text()), cyaml.safe_load(crds.read_text()), *nodes, *measured)
        (tmp_path / "kubeconfig").write_text(server.kubeconfig("admin"))
        command = [sys.executable, "-m", "koordlite", "scheduler-extender", f"--kubeconfig={tmp_path / 'kubeconfig'}"]
        command += [f"--listen=127.0.0.1:{port}", f"--load-aware={file}"]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            try:
                until(lambda: _asked(port, "GET", "/readyz")[0] == 200, 60.0)
                body = json.dumps({"Pod": pod("p", cpu="1"), "Nodes": None, "NodeNames": ["busy", "idle"]})
                answer = json.loads(_asked(port, "POST", "/filter", body)[1])
                assert answer["NodeNames"] == ["idle"]
                assert answer["FailedAndUnresolvableNodes"] == {"busy": "node(s) cpu usage exceed threshold"}
                assert "98 % of at most 70 %" in _asked(port, "GET", "/explain/ns/p")[1]
            finally:
                process.terminate()
            assert process.wait(20) == 0


def test_the_numa_page_is_served_and_a_policy_switched_by_who_reads_the_state_folder(tmp_path: pathlib.Path) -> None:
    node = {"metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "110"}}}
    settings = cyaml.safe_load(SETTINGS.read_text())
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": settings["metadata"]["namespace"]}}
    port, state = free_port(), tmp_path / "state"
    state.mkdir(mode=0o700)
    with ApiServer(seed=1) as server:
        node = {"apiVersion": "v1", "kind": "Node", **node}
        server.objects.load(cyaml.safe_load(CRD.read_text()), node, namespace, settings)
        (tmp_path / "kubeconfig").write_text(server.kubeconfig("admin"))
        command = [sys.executable, "-m", "koordlite", "numa-api", f"--kubeconfig={tmp_path / 'kubeconfig'}"]
        command += [f"--listen=127.0.0.1:{port}", "--allow-policy-changes", f"--state-dir={state}"]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            try:
                until(lambda: _asked(port, "GET", "/readyz")[0] == 200, 60.0)
                (token,) = state.iterdir()
                path, body = "/rest/scheduling/v1/numadistance", '{"status": "open"}'
                assert _asked(port, "PUT", path, body)[0] == 401
                assert _asked(port, "PUT", path, body, token.read_text().strip())[0] == 200
                louder = '{"level": "debug", "forSeconds": 600}'
                assert _asked(port, "PUT", "/loglevel", louder)[0] == 401
                status, text = _asked(port, "PUT", "/loglevel", louder, token.read_text().strip())
                assert (status, json.loads(text)["default"]) == (200, "debug")
                assert json.loads(_asked(port, "GET", "/loglevel")[1])["default"] == "debug"
                assert _asked(port, "PUT", "/loglevel", '{"level": "loud"}', token.read_text().strip())[0] == 400
                badge = 'optimal NUMA distance: <span class="badge good">open</span>'
                until(lambda: badge in _asked(port, "GET", "/numa")[1])
                assert "no NUMA exporter runs there" in _asked(port, "GET", "/numa/nodes/a")[1]
            finally:
                process.terminate()
            assert process.wait(20) == 0
    assert list(state.iterdir()) == [], "the token goes with the process"


def _asked(port: int, method: str, path: str, body: str = "", token: str = "") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request(method, path, body, {"Authorization": f"Bearer {token}"} if token else {})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except ConnectionError:
        return 0, ""
    finally:
        connection.close()
