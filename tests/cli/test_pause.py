"""`koordlite pause` and `koordlite resume`."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apibench import BATCH, opened, until
from reported import tick_of

from koordlite.cli import acting
from koordlite.host import pause_file
from koordlite.host.journal.journal import Journal
from koordlite.model.status import Pause
from koordlite.report import view
from koordlite.report.metrics.collector import Metrics


def test_a_pause_is_written_replaced_and_taken_back(ask: Any, tmp_path: Path) -> None:
    folder = tmp_path / "state"
    before = time.time()
    said = ask("pause", "2h", "--because", "kernel upgrade", "--state-dir", folder, "--before-start")
    assert "leaves what is in force" in said.out
    assert f"no agent holds {folder} now; one that starts before then begins paused" in said.out
    held = pause_file.read(folder)
    assert held is not None
    assert held.until - before == pytest.approx(7200, abs=5)
    assert (held.because, held.release) == ("kernel upgrade", False)
    ask("pause", "45m", "--because", "x", "--release", "--state-dir", folder, "--before-start")
    held = pause_file.read(folder)
    assert held is not None and held.release
    assert ask("resume", "--state-dir", folder).code == 0
    assert ask("resume", "--state-dir", folder).code == 1


def test_without_an_agent_nothing_is_paused(ask: Any, tmp_path: Path) -> None:
    said = ask("pause", "2h", "--because", "x", "--state-dir", tmp_path / "state")
    assert (said.code, said.out) == (1, "")
    assert f"not paused: no agent that writes holds {tmp_path / 'state'}" in said.err
    assert "--before-start" in said.err
    assert pause_file.read(tmp_path / "state") is None


def test_the_target_comes_first_and_an_agent_that_does_not_hear_is_told_of(
    ask: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acting, "CONFIRMATION_SECONDS", 0.1)
    with Journal.open(tmp_path):
        said = ask("pause", "2h", "--because", "x", "--state-dir", tmp_path)
        pause_file.acknowledge(tmp_path, pause_file.read(tmp_path))
        ended = ask("resume", "--state-dir", tmp_path)
    target = f"this machine ({socket.gethostname()}); agent: process {os.getpid()}; state: {tmp_path}\n"
    assert said.out == ended.out == target
    assert said.code == ended.code == 1
    assert said.err == ended.err
    assert said.err.startswith("not confirmed: the agent has not read it within ")


@pytest.mark.parametrize(
    ("words", "about"),
    [
        (("2 hours", "--because", "x"), "DURATION"),
        (("0s", "--because", "x"), "DURATION"),
        (("721h", "--because", "x"), "DURATION"),
        (("-2h", "--because", "x"), "DURATION"),
        (("2h", "--because", "  "), "--because"),
        (("2h",), "--because"),
    ],
)
def test_a_pause_needs_an_end_and_a_reason(ask: Any, tmp_path: Path, words: tuple[str, ...], about: str) -> None:
    said = ask("pause", "--state-dir", tmp_path, *words[1:], "--", words[0])
    assert said.code == 2
    assert about in said.err
    assert not (tmp_path / pause_file.NAME).exists()


def test_a_folder_that_cannot_be_written_is_named(ask: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = ask("pause", "2h", "--because", "x", "--state-dir", tmp_path / "file" / "state", "--before-start")
    assert said.code == 2
    assert str(tmp_path / "file" / "state") in said.err


def test_words_and_metrics_of_a_pause() -> None:
    pause = Pause(until=1_767_229_200.0, because="kernel upgrade")
    assert view.pause(pause, wall=1_767_225_600.0) == (
        "until 2026-01-01 01:00:00 UTC (1:00:00 left) by koordlite pause: kernel upgrade; what is in force stays"
    )
    metrics = Metrics()
    value = metrics.registry.get_sample_value
    metrics.observe_tick(tick_of(time=0.0, pause=pause))
    assert value("koordlite_paused", {"by": "command"}) == 1
    assert value("koordlite_pause_end_seconds") == 1_767_229_200.0
    metrics.observe_tick(tick_of(time=0.0))
    assert value("koordlite_paused", {"by": ""}) == 0
    assert value("koordlite_pause_end_seconds") is None


@contextlib.contextmanager
def agent(manifests: Path, state: Path) -> Iterator[str]:
    """An agent on an emulated node that enforces, at ten times the pace of life, and its address."""
    words = ["--sandbox", "small", "--cluster", str(manifests), "--mode", "enforce", "--speed", "10"]
    command = [sys.executable, "-m", "koordlite", "run", *words, "--state-dir", str(state), "--port", "0", "--quiet"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stderr is not None
            found = None
            while found is None and (line := process.stderr.readline()):
                found = re.search(r"http://[0-9.:]+", line)
            assert found, "the agent never said where it listens"
            yield found[0]
        finally:
            process.send_signal(signal.SIGKILL)


def status(url: str) -> str:
    """The agent's one word; nothing before its first tick."""
    try:
        with urllib.request.urlopen(f"{url}/state", timeout=10) as answer:
            return str(json.loads(answer.read())["status"])
    except urllib.error.HTTPError:
        return ""


def test_a_running_agent_pauses_says_so_survives_a_kill_and_resumes(ask: Any, manifests: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    with agent(manifests, state) as url:
        until(lambda: status(url) == "enforcing")
        said = ask("pause", "2h", "--because", "kernel upgrade", "--state-dir", state)
        assert (said.code, said.out.splitlines()[1].partition(" ")[0]) == (0, "paused"), said.err
        until(lambda: status(url) == "paused")
        assert "kernel upgrade" in " ".join(ask("status", "--url", url).out.split())
        with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
            assert re.search(rb'koordlite_paused\{[^}]*by="command"[^}]*\} 1\.0', answer.read())
    with agent(manifests, state) as url:
        until(lambda: status(url) == "paused")
        said = ask("resume", "--state-dir", state)
        assert (said.code, said.out.splitlines()[1]) == (0, "the pause has ended"), said.err
        until(lambda: status(url) == "enforcing")


def test_the_annotation_of_a_node_pauses_before_anything_is_written_and_is_an_event(tmp_path: Path) -> None:
    wish = {"until": "2099-01-01T00:00:00Z", "because": "kernel upgrade"}
    with opened(tmp_path) as bench:
        node = bench.node()
        node["metadata"].setdefault("annotations", {})["agent.koordlite.io/pause"] = json.dumps(wish)
        bench.server.objects.load(node)
        data = {"colocation-config": json.dumps({"enable": True})}
        metadata = {"name": "slo-controller-config", "namespace": "koordinator-system"}
        bench.server.objects.load({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
        (tmp_path / "kubeconfig").write_text(bench.server.kubeconfig())
        words = ["--sandbox", "small", "--kubeconfig", str(tmp_path / "kubeconfig"), "--mode", "enforce"]
        command = [sys.executable, "-m", "koordlite", "run", "--node-name", "n1", "--quiet", "--no-http", *words]
        kept = {name: text for name, text in os.environ.items() if not name.startswith(("KUBE", "NODE_NAME"))}
        done = subprocess.run(
            [*command, "--for", "10", "--speed", "10"], capture_output=True, text=True, env=kept, check=False
        )
        assert done.returncode == 0, done.stderr
        assert BATCH not in bench.node()["status"]["allocatable"]
        events = bench.server.objects.all("Event", api_version="events.k8s.io/v1")
        notes = [event["message"] for event in events if event["reason"] == "Paused"]
        assert len(notes) == 1
        assert "kernel upgrade" in notes[0]
