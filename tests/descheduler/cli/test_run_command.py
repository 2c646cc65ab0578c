"""`descheduler run` as a process: one cycle from files, options that contradict each other, and a loop that evicts,
serves, reloads and stops."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from apiserver import ApiServer
from realnode.waiting import until

from descheduler import cli
from tests.descheduler.conftest import RESTARTS as POLICY


@pytest.fixture
def policy(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    return path


def run(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "descheduler", "run", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_one_cycle_from_files_logs_every_decision_and_writes_the_report(
    cluster: Any, policy: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    cluster.node("a")
    cluster.node("b")
    cluster.pod("restless", "a", restarts=50)
    snapshot = tmp_path / "cluster.json"
    snapshot.write_text(cluster.json)
    done = run(
        "--snapshot", str(snapshot), "--policy", str(policy), "--report", str(tmp_path / "out"), "--log-format", "json"
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(text) for text in done.stderr.splitlines()]
    assert [(one["msg"], one.get("result")) for one in lines] == [("decision", "WouldEvict"), ("cycle", None)]
    assert json.loads((tmp_path / "out" / "plan.json").read_text())["evict"][0]["pod"] == "default/restless"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param(["--leader-elect"], "leaderElection must be used with deschedulingInterval", id="leader, once"),
        pytest.param(["--dry-run=false"], "files have no API server to ask", id="evict from files"),
        pytest.param(["--descheduling-interval", "soon"], "not a duration", id="interval"),
        pytest.param(["--descheduling-interval", "1m", "--listen", "here"], "no port", id="no port"),
    ],
)
def test_options_that_cannot_be_meant(
    cluster: Any, tmp_path: pathlib.Path, options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.node("a")
    (tmp_path / "cluster.json").write_text(cluster.json)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        assert cli.main(["run", "--snapshot", str(tmp_path / "cluster.json"), *options]) == 2
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert words in capsys.readouterr().err


def node(name: str) -> dict[str, Any]:
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


def pod() -> dict[str, Any]:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs-1", "controller": True}
    state = {"name": "main", "restartCount": 50, "ready": True, "image": "x", "imageID": "x", "state": {"running": {}}}
    meta = {"name": "restless", "namespace": "default", "ownerReferences": [owner]}
    spec = {"nodeName": "a", "containers": [{"name": "main", "image": "x"}]}
    status = {"phase": "Running", "containerStatuses": [state]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}


@contextlib.contextmanager
def running(*options: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """The process, and the lines it has logged so far."""
    command = [sys.executable, "-m", "descheduler", "run", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ})
    lines: list[str] = []
    assert process.stderr is not None
    reader = threading.Thread(target=lambda: lines.extend(iter(process.stderr.readline, "")), daemon=True)  # type: ignore[union-attr]
    reader.start()
    try:
        yield process, lines
    finally:
        process.terminate()
        process.wait(20)
        reader.join(5)
        process.stderr.close()


def ask(port: int, path: str) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return str(answer.read().decode())
    except urllib.error.URLError as error:
        return f"ERROR {error}"


def test_a_leader_evicts_serves_reloads_and_gives_the_lease_back(policy: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    with ApiServer() as server:
        server.objects.load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}})
        server.objects.load(node("a"), node("b"), pod())
        (tmp_path / "kubeconfig").write_text(server.kubeconfig())
        options = ["--kubeconfig", str(tmp_path / "kubeconfig"), "--policy", str(policy), "--dry-run=false"]
        options += ["--descheduling-interval", "1h", "--listen", f"127.0.0.1:{port}", "--leader-elect"]
        with running(*options) as (process, lines):
            until(lambda: "leader, evicting" in ask(port, "/readyz"))
            assert 'descheduler_pods_evicted_total{namespace="default",node="a"' in ask(port, "/metrics")
            assert "the last good cycle began" in ask(port, "/healthz")
            policy.write_text("kind: Nonsense")
            process.send_signal(signal.SIGHUP)
            until(lambda: any("result=rejected" in line for line in lines))
            assert any("verdict=evict" in line and "result=Evicted" in line for line in lines)
        assert process.returncode == 0
        assert [w for line in lines if "event=lease" in line for w in line.split() if w.startswith("result=")] == [
            "result=gained",
            'result="given',
        ]
        events = server.objects.all("Event", api_version="v1")
        assert [one["reason"] for one in events] == ["RemovePodsHavingTooManyRestarts"]
        (lease,) = server.objects.all("Lease", api_version="coordination.k8s.io/v1")
        assert lease["spec"]["holderIdentity"] == ""
        (evicted,) = server.objects.all("Pod", api_version="v1") or [{"metadata": {"deletionTimestamp": "gone"}}]
        assert evicted["metadata"]["deletionTimestamp"]


def test_a_policy_of_koordinator_names_its_own_lease(tmp_path: pathlib.Path) -> None:
    policy = tmp_path / "koordinator.yaml"
    policy.write_text(KOORDINATOR)
    with ApiServer() as server:
        server.objects.load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "koordinator-system"}})
        server.objects.load(node("a"), node("b"))
        (tmp_path / "kubeconfig").write_text(server.kubeconfig())
        options = ["--kubeconfig", str(tmp_path / "kubeconfig"), "--policy", str(policy), "--dry-run=false"]
        with running(*options, "--listen", "off", "--leader-elect-retry-period", "1s") as (_process, lines):
            until(lambda: any("result=gained" in line for line in lines))
            (lease,) = server.objects.all("Lease", api_version="coordination.k8s.io/v1")
            meta, seconds = lease["metadata"], lease["spec"]["leaseDurationSeconds"]
    assert (meta["namespace"], meta["name"], seconds) == ("koordinator-system", "koord-descheduler", 20)


def test_a_policy_of_koordinator_names_its_cluster_and_its_addresses(tmp_path: pathlib.Path) -> None:
    with socket.socket() as one, socket.socket() as other:
        for taken in (one, other):
            taken.bind(("127.0.0.1", 0))
        health, metrics = (taken.getsockname()[1] for taken in (one, other))
    policy = tmp_path / "koordinator.yaml"
    with ApiServer() as server:
        server.objects.load(node("a"), node("b"))
        (tmp_path / "kubeconfig").write_text(server.kubeconfig())
        policy.write_text(
            f"{KOORDINATOR}clientConnection: {{kubeconfig: {tmp_path / 'kubeconfig'}, qps: 7}}\n"
            f"healthzBindAddress: 127.0.0.1:{health}\nmetricsBindAddress: 127.0.0.1:{metrics}\n"
        )
        with running("--policy", str(policy)) as (_process, lines):
            until(lambda: "the last good cycle began" in ask(health, "/healthz"))
            assert "descheduler_" in ask(metrics, "/metrics")
            until(lambda: any("$.clientConnection.qps" in line and "no effect" in line for line in lines))


KOORDINATOR = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerConfiguration
deschedulingInterval: 1h
leaderElection: {leaseDuration: 20s}
profiles: [{name: koord-descheduler, plugins: {evict: {disabled: [{name: "*"}], enabled: [{name: DefaultEvictor}]}}}]
"""
