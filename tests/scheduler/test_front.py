"""The front before several extenders: one that hangs or dies is left out at once, and started again."""

from __future__ import annotations

import http.client
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from apibench import until

from koordlite.scheduler import front as fronts
from koordlite.scheduler.front import ANSWER_SECONDS, Front

REPLICA = """
import http.server, json, os, socket, sys, threading
channel = socket.socket(fileno=0)
token = channel.makefile("r").readline().strip()
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *args): ...
    def do_GET(self):
        self.answer(200 if self.path != "/explain/ns/p" or sys.argv[1] == "1" else 404, {"path": self.path})
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if b"slow" in body:
            threading.Event().wait(5.0)
        self.answer(200, {"replica": sys.argv[1], "pid": os.getpid()})
    do_PUT = do_POST
    def answer(self, status, said):
        status = status if self.headers["Authorization"] == f"Bearer {token}" else 401
        text = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
http.server.ThreadingHTTPServer.request_queue_size = 64
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
channel.sendall(f"{server.server_port}\\n".encode())
channel.recv(1)
"""


@pytest.fixture
def front(tmp_path: pathlib.Path) -> Iterator[Front]:
    script = tmp_path / "replica.py"
    script.write_text(REPLICA)
    running = Front([[sys.executable, str(script), str(number)] for number in range(2)])
    running.start()
    until(lambda: all(replica.is_ready for replica in running.replicas))
    yield running
    running.stop()
    assert all(replica.has_ended for replica in running.replicas)


def ask(front: Front, body: bytes = b"{}") -> tuple[int, str, int, float]:
    """Status, who answered, its process, and the seconds that it took."""
    started = time.monotonic()
    answer = front.post("/filter", body)
    output = json.loads(answer.body) if answer.status == 200 else {"replica": "", "pid": 0}
    return answer.status, output["replica"], output["pid"], time.monotonic() - started


def stop(pid: int) -> None:
    """Stop a process, and wait until none of its threads runs: the signal reaches those that run a moment later."""
    os.kill(pid, signal.SIGSTOP)
    until(lambda: all(_is_stopped(task) for task in pathlib.Path(f"/proc/{pid}/task").iterdir()))


def _is_stopped(task: pathlib.Path) -> bool:
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0] == "T"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_one_extender_is_asked_as_long_as_it_answers(front: Front) -> None:
    assert {ask(front)[1] for _ in range(5)} == {"0"}


def test_one_that_hangs_is_left_out_and_the_other_answers_the_same_question(front: Front) -> None:
    _, _, pid, _ = ask(front)
    stop(pid)
    status, replica, _, seconds = ask(front)
    assert (status, replica) == (200, "1")
    assert seconds < ANSWER_SECONDS
    assert ask(front)[3] < 0.1, "the next question does not wait for it"
    os.kill(pid, signal.SIGCONT)
    until(lambda: front.replicas[0].is_ready)
    assert ask(front)[1] == "1", "what was reserved is with the one that answered last"


def test_where_all_hang_the_scheduler_is_refused_at_once(front: Front) -> None:
    for replica in front.replicas:
        assert replica._process is not None
        stop(replica._process.pid)
    assert ask(front)[0] in (503, 504)
    until(lambda: not any(replica.is_ready for replica in front.replicas))
    status, _, _, seconds = ask(front)
    assert status == 503
    assert seconds < 0.05
    assert front.answer("/readyz", {}, "").status == 503
    assert front.answer("/healthz", {}, "").status == 200, "the front itself lives"
    for replica in front.replicas:
        assert replica._process is not None
        os.kill(replica._process.pid, signal.SIGCONT)


def test_one_that_was_killed_is_started_again(front: Front) -> None:
    _, _, pid, _ = ask(front)
    os.kill(pid, signal.SIGKILL)
    assert ask(front)[1] == "1"
    until(lambda: front.replicas[0].restarts == 1 and front.replicas[0].is_ready)
    rows = front.answer("/metrics", {}, "").body.decode().splitlines()
    assert 'koordlite_scheduler_replica_restarts_total{replica="0"} 1' in rows
    assert 'koordlite_scheduler_replica_ready{replica="1"} 1' in rows


def test_one_that_hangs_for_long_is_killed_and_started_again(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fronts, "HUNG_SECONDS", 0.3)
    _, _, pid, _ = ask(front)
    stop(pid)
    until(lambda: front.replicas[0].restarts == 1 and front.replicas[0].is_ready)
    assert ask(front)[0] == 200


def test_one_that_lives_and_is_slow_is_waited_for_and_not_left_out(front: Front) -> None:
    status, _, _, seconds = ask(front, b'{"slow": 1}')
    assert status == 504
    assert ANSWER_SECONDS - 0.1 < seconds < 1.0, "less than the scheduler waits"
    assert front.replicas[0].is_ready


def test_what_one_does_not_know_the_other_may(front: Front) -> None:
    assert front.answer("/explain/ns/p", {}, "").status == 200
    assert front.put("/loglevel", b"{}").status == 200


def test_questions_from_many_connections_at_once(front: Front) -> None:
    answers: list[int] = []
    threads = [threading.Thread(target=lambda: answers.append(ask(front)[0])) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [200] * 40


def test_a_replica_answers_nobody_but_its_front_and_ends_with_it(tmp_path: pathlib.Path) -> None:
    (tmp_path / "kubeconfig").write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
                "users": [{"name": "u", "user": {}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )
    )
    command = [sys.executable, "-m", "koordlite", "scheduler-extender", f"--kubeconfig={tmp_path / 'kubeconfig'}"]
    command += ["--listen=127.0.0.1:0", "--replicas=2"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        ports = []
        for line in process.stderr:
            if "listening on" in line:
                ports.append(int(line.rsplit(":", 1)[1]))
            if len(ports) == 3:
                break
        front, *replicas = ports
        assert [_status(port, "/filter") for port in replicas] == [401, 401]
        assert _status(front, "/filter") == 503, "no API server, so no extender is ready"
        process.kill()
    until(lambda: not any(_status(port, "/filter") for port in replicas))


def _status(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("POST", path, b"{}")
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()
