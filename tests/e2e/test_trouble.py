"""The agent against an API server that goes away, forgets, refuses: the sandbox's, which can; and who may ask it."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import json
import pathlib
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import cyaml
import pytest
import slices
from apiserver import ApiServer, Fault
from apiserver.users import ADMIN, User
from control_plane import free_port

ROOT = pathlib.Path(__file__).parents[2]
SECONDS = 30.0
AWAY_SECONDS = slices.amount(65, 3)
"""Of an outage: the log has one line a minute."""
BATCH = "kubernetes.io/batch-cpu"


@dataclasses.dataclass
class Running:
    """An agent as a process, its server, and what it says about itself."""

    server: ApiServer
    process: subprocess.Popen[str]
    url: str
    kubeconfig: pathlib.Path
    state: pathlib.Path

    def ask(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"{self.url}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def seen(self) -> Any:
        return json.loads(self.ask("/state?picture=true")[1])

    def pods(self) -> set[str]:
        return {pod["name"] for pod in (self.seen()["picture"] or {}).get("pods", ())}

    def until(self, holds: Callable[[], object]) -> None:
        end = time.monotonic() + SECONDS
        while True:
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                if holds():
                    return
            assert time.monotonic() < end, self.ask("/status")[1]
            time.sleep(0.1)

    def log(self) -> list[str]:
        return (self.kubeconfig.parent / "agent.log").read_text().splitlines()

    def node(self) -> Any:
        return self.server.objects.get("Node", "tour-a", api_version="v1")


def _documents(folder: str) -> Iterator[dict[str, Any]]:
    for path in sorted((ROOT / folder).glob("*.yaml")):
        yield from (item for item in cyaml.safe_load_all(path.read_text()) if item)


def _pod(name: str) -> dict[str, Any]:
    spec = {"nodeName": "tour-a", "containers": [{"name": "main", "image": "x"}]}
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": {"phase": "Running"}}


@contextlib.contextmanager
def _agent(folder: pathlib.Path, server: ApiServer, token: str, *options: str) -> Iterator[Running]:
    kubeconfig, port, state = folder / "kubeconfig", free_port(), folder / "state"
    kubeconfig.write_text(server.kubeconfig(token))
    command = [sys.executable, "-m", "koordlite", "run", "--sandbox", "intel-2s-ht", "--node-name", "tour-a", "--quiet"]
    command += ["--kubeconfig", str(kubeconfig), "--mode", "enforce", "--speed", "10", "--port", str(port)]
    command += ["--state-dir", str(state), *options]
    with (folder / "agent.log").open("w") as log:
        process = subprocess.Popen(command, stderr=log, text=True, cwd=ROOT)
        running = Running(server, process, f"http://127.0.0.1:{port}", kubeconfig, state)
        try:
            yield running
        finally:
            process.terminate()
            process.wait(60)


@pytest.fixture
def server() -> Iterator[ApiServer]:
    """The tour's cluster."""
    with ApiServer() as made:
        others = ("NodeResourceTopology", "KubeletConfiguration")
        made.objects.load(*(item for item in _documents("configs/tour") if item["kind"] not in others))
        made.objects.load(*(item for item in _documents("manifests/crds") if item["kind"] != "Kustomization"))
        yield made


@pytest.fixture
def agent(server: ApiServer, tmp_path: pathlib.Path) -> Iterator[Running]:
    """An agent that is ready and has published."""
    with _agent(tmp_path, server, "") as running:
        running.until(lambda: running.ask("/readyz")[0] == 200)
        running.until(lambda: BATCH in running.node()["status"]["allocatable"])
        yield running


@pytest.mark.sliced
@pytest.mark.timeout(240)
def test_while_the_server_is_away_the_last_state_holds_and_then_it_catches_up(agent: Running) -> None:
    before = agent.pods()
    agent.server.stop()
    agent.server.objects.load(_pod("fresh"))
    agent.until(lambda: any(watch["error"] for watch in agent.seen()["watches"]))
    assert agent.pods() == before
    assert agent.ask("/healthz")[0] == 200, "a restart would not bring the server back"
    words = " ".join(str(problem) for problem in agent.seen()["problems"])
    assert "what is known stays" in words
    time.sleep(AWAY_SECONDS)
    agent.server.start()
    back = time.monotonic()
    agent.until(lambda: "fresh" in agent.pods())
    agent.until(lambda: not any(watch["error"] for watch in agent.seen()["watches"]))
    assert time.monotonic() - back < 7.0, "all try again within five seconds"
    lines = [line for line in agent.log() if "cannot be reached" in line]
    assert 1 <= len(lines) <= 1 + AWAY_SECONDS // 60 + 1, lines


def test_a_server_that_forgot_everything_is_listed_anew(agent: Running) -> None:
    agent.server.faults.add(Fault(verb="watch", resource="pods", gone=True))
    agent.server.forget_events()
    agent.server.cut_connections()
    agent.server.objects.load(_pod("fresh"))
    agent.until(lambda: "fresh" in agent.pods())
    watch = next(watch for watch in agent.seen()["watches"] if watch["name"] == "pods")
    assert watch["relists"] >= 1


def test_what_rbac_refuses_is_said_with_what_to_allow_and_the_rest_goes_on(agent: Running) -> None:
    agent.server.faults.add(Fault(verb="patch", resource="nodes/status", status=403, times=None))
    # Somebody takes the amount away, so that there is something to write.
    taken = agent.node()
    for amounts in (taken["status"]["allocatable"], taken["status"]["capacity"]):
        amounts.pop(BATCH, None)
    agent.server.objects.load(taken)
    agent.until(lambda: "allow this identity to patch nodes/status" in agent.ask("/status")[1] + str(agent.seen()))
    agent.server.objects.load(_pod("fresh"))
    agent.until(lambda: "fresh" in agent.pods())
    agent.server.faults.clear()


def test_what_was_promised_is_taken_back_when_the_cluster_switches_it_off(agent: Running) -> None:
    settings = agent.server.objects.get("ConfigMap", "slo-controller-config", "koordinator-system", api_version="v1")
    assert settings is not None
    colocation = json.loads(settings["data"]["colocation-config"]) | {"enable": False}
    data = settings["data"] | {"colocation-config": json.dumps(colocation)}
    agent.server.objects.load(settings | {"data": data})
    agent.until(lambda: BATCH not in agent.node()["status"]["allocatable"])
    assert BATCH not in agent.node()["status"]["capacity"]


def test_settings_that_cannot_be_read_are_told_in_an_event_and_the_last_good_ones_hold(agent: Running) -> None:
    settings = agent.server.objects.get("ConfigMap", "slo-controller-config", "koordinator-system", api_version="v1")
    assert settings is not None
    agent.server.objects.load(settings | {"data": settings["data"] | {"colocation-config": "{"}})

    def told() -> bool:
        events = agent.server.objects.all("Event", api_version="events.k8s.io/v1")
        return any(event["reason"] == "ConfigurationRefused" and "colocation" in str(event) for event in events)

    agent.until(told)
    assert BATCH in agent.node()["status"]["allocatable"]


@pytest.mark.sliced
def test_a_steady_node_is_patched_at_most_once_a_minute(server: ApiServer, tmp_path: pathlib.Path) -> None:
    """The tour's services wave; here each uses the same all the time."""
    for name in ("web-1", "db-0"):
        pod = copy.deepcopy(server.objects.get("Pod", name, "shop", api_version="v1"))
        assert pod is not None
        pod["metadata"]["annotations"]["sandbox.koordlite.io/cpu"] = "1"
        server.objects.load(pod)
    with _agent(tmp_path, server, "") as agent:
        agent.until(lambda: BATCH in agent.node()["status"]["allocatable"])
        first = agent.seen()["time"]
        agent.until(lambda: agent.seen()["time"] - first > slices.amount(120, 15))
        patches = sum(asked.verb == "patch" and asked.resource == "nodes/status" for asked in server.requests)
    assert patches <= 1 + slices.amount(2, 1), "the first, and one a minute"


def test_exposed_it_answers_tokens_of_the_cluster_and_changes_levels_for_root(
    server: ApiServer, tmp_path: pathlib.Path
) -> None:
    server._tokens |= {"agent": ADMIN, "idle": User("nobody")}
    with _agent(tmp_path, server, "agent", "--http-address", "0.0.0.0") as running:
        running.until(lambda: running.ask("/healthz")[0] == 200)
        assert running.ask("/state")[0] == 401
        assert _status(running, "/state", "idle") == 403
        assert _status(running, "/state", "agent") == 200
        command = [sys.executable, "-m", "koordlite", "log-level", "info", "--strategy", "cpuSuppress", "--for", "60"]
        command += ["--url", running.url, "--state-dir", str(running.state)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, cwd=ROOT)
        assert (done.returncode, done.stdout.splitlines()[1]) == (0, "strategy cpuSuppress: info for 60 s more")
        (running.state / "http-token").unlink()
        refused = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, cwd=ROOT)
        assert refused.returncode == 2
        assert "a bearer token is needed" in refused.stderr


def _status(running: Running, path: str, token: str) -> int:
    request = urllib.request.Request(f"{running.url}{path}", headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
