"""The log of every program as JSON, from its start to its end: each line is an object with the same keys."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import cyaml
import pytest
from apibench import CRD
from apiserver import ApiServer

from tests.cli.conftest import Answer

EMULATED = ("--sandbox", "small", "--cluster")


def _entries(text: str) -> list[dict[str, object]]:
    entries = [json.loads(line) for line in text.splitlines()]
    assert entries, "nothing was logged"
    for entry in entries:
        assert list(entry)[:4] == ["ts", "level", "logger", "msg"]
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", str(entry["ts"]))
        assert entry["level"] in ("debug", "info", "warning", "error", "critical")
    return entries


def _until(command: Sequence[str], last: str, lines: int = 1) -> list[dict[str, object]]:
    """The log of a program that is stopped when so many lines begin with this message."""
    with subprocess.Popen(
        [sys.executable, "-m", *command, "--log-format=json"],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stderr is not None
        text = ""
        try:
            while lines and (line := process.stderr.readline()):
                text += line
                lines -= f'"msg": "{last}' in line
        finally:
            process.terminate()
        text += process.stderr.read()
        assert (process.wait(30), lines) == (0, 0), text
    return _entries(text)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """The option for an API server with one node."""
    with ApiServer(seed=1) as server:
        node = {"metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "110"}}}
        namespaces = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in ("default", "kube-system")
        ]
        objects = [{"apiVersion": "v1", "kind": "Node", **node}, *namespaces]
        server.objects.load(cyaml.safe_load(CRD.read_text()), *objects)
        (tmp_path / "kubeconfig").write_text(server.kubeconfig("admin"))
        yield f"--kubeconfig={tmp_path / 'kubeconfig'}"


@pytest.mark.parametrize(
    ("command", "last"),
    [
        ("run --quiet --port 0 --speed 10", "listening on"),
        ("numa-exporter --listen 127.0.0.1:0", "NUMA exporter: listening on"),
    ],
)
def test_of_the_programs_of_a_node(command: str, last: str, manifests: Path) -> None:
    first, *_ = _until(["koordlite", *command.split(), *EMULATED, str(manifests)], last)
    assert str(first["logger"]).startswith("koordlite.")


@pytest.mark.parametrize(
    ("command", "last", "lines"),
    [
        pytest.param("koordlite scheduler-extender --listen 127.0.0.1:0", "ready", 1, id="extender"),
        pytest.param("koordlite scheduler-extender --replicas=2 --listen 127.0.0.1:0", "ready", 2, id="front"),
        pytest.param("koordlite numa-api --listen 127.0.0.1:0", "ready", 1, id="numa-api"),
        pytest.param(
            "koordlite reservation-controller --lease-namespace=default --health-listen 127.0.0.1:0",
            "health on", 1, id="reservation controller",
        ),
        pytest.param(
            "descheduler run --descheduling-interval 1m --listen 127.0.0.1:0", "cycle", 1, id="descheduler"
        ),
    ],
)  # fmt: skip
def test_of_the_programs_of_a_cluster(command: str, last: str, lines: int, cluster: str) -> None:
    _until([*command.split(), cluster], last, lines)


def test_the_agents_file_chooses_the_form_and_the_option_goes_before_it(
    own_process: Callable[..., Answer], manifests: Path, tmp_path: Path
) -> None:
    (tmp_path / "koordlite.yaml").write_text("agent: {logFormat: json}\npublish: {nodeResources: manager}\n")
    words = (
        "run",
        *EMULATED,
        manifests,
        "--config",
        tmp_path / "koordlite.yaml",
        "--for",
        "2s",
        "--quiet",
        "--port",
        "0",
    )
    answer = own_process(*words)
    assert answer.code == 0
    assert str(_entries(answer.err)[-1]["logger"]).startswith("koordlite.")
    text = own_process(*words, "--log-format", "text")
    assert "listening on" in text.err
    assert "{" not in text.err


def test_why_it_cannot_start_is_an_entry_too(own_process: Callable[..., Answer], tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    answer = own_process("run", "--config", missing, "--log-format", "json")
    assert answer.code == 2
    (entry,) = _entries(answer.err)
    assert (entry["level"], entry["logger"]) == ("error", "koordlite")
    assert str(missing) in str(entry["msg"])
