"""The real command as a process: it lists, answers over two listeners, and ends when it is asked to."""

from __future__ import annotations

import http.client
import json
import pathlib
import socket
import subprocess
import sys

import yaml
from apibench import CRD, until
from apiserver import ApiServer

from tests.scheduler.builders import pod


def test_the_command_answers_until_it_is_stopped(tmp_path: pathlib.Path) -> None:
    node = {"metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "110"}}}
    ports = _free(), _free()
    with ApiServer(seed=1) as server:
        server.objects.load(yaml.safe_load(CRD.read_text()), {"apiVersion": "v1", "kind": "Node", **node})
        (tmp_path / "kubeconfig").write_text(server.kubeconfig("admin"))
        command = [sys.executable, "-m", "koordlite", "scheduler-extender", f"--kubeconfig={tmp_path / 'kubeconfig'}"]
        command += [f"--listen=127.0.0.1:{ports[0]}", f"--health-listen=127.0.0.1:{ports[1]}"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            try:
                until(lambda: _asked(ports[1], "GET", "/readyz")[0] == 200, 60.0)
                body = json.dumps({"Pod": pod("p"), "Nodes": None, "NodeNames": ["a"]})
                status, text = _asked(ports[0], "POST", "/filter", body)
                assert (status, json.loads(text)["NodeNames"]) == (200, ["a"])
                assert _asked(ports[1], "POST", "/filter", body)[0] == 405, "nobody asks beside the listener for it"
                assert _asked(ports[1], "GET", "/debug/state")[0] == 404
            finally:
                process.terminate()
            assert process.wait(20) == 0
            assert process.stderr is not None
            assert "listening on" in process.stderr.read()


def _free() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


def _asked(port: int, method: str, path: str, body: str = "") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except ConnectionError:
        return 0, ""
    finally:
        connection.close()
