"""Upstream's manifest and probe as they are, and what is said of options that change nothing."""

from __future__ import annotations

import argparse
import pathlib
import re
import shlex
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from typing import Any

import pytest
from apiserver import ApiServer
from hypothesis import given
from hypothesis import strategies as st

from descheduler import cli
from descheduler.cli import run
from koordlite.model.errors import InputError

UPSTREAM = "--policy-config-file {policy} --descheduling-interval 5m --v 3"
"""The arguments of upstream's own Deployment."""
POLICY = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
  - {name: p, plugins: {balance: {enabled: [RemoveDuplicates]}}}
"""


@pytest.fixture
def policy(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    return path


def ask(port: int, path: str) -> tuple[int, str]:
    """As kubelet probes: over HTTPS, whoever signed."""
    try:
        url = f"https://127.0.0.1:{port}{path}"
        with urllib.request.urlopen(url, timeout=5, context=ssl._create_unverified_context()) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""


def test_upstreams_arguments_and_probe_work_as_they_are(policy: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with ApiServer() as server:
        server.objects.load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}})
        (tmp_path / "kubeconfig").write_text(server.kubeconfig())
        words = shlex.split(UPSTREAM.format(policy=policy))
        words += ["--client-connection-kubeconfig", str(tmp_path / "kubeconfig"), "--secure-port", str(free_port())]
        words += [
            "--client-connection-qps",
            "50",
            "--feature-gates=EvictionsInBackground=true",
            "--logging-format=text",
        ]
        command = [sys.executable, "-m", "descheduler", *words]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            said, found = "", None
            while found is None and (line := process.stderr.readline()):
                said += line
                found = re.search(r"listening on https://0\.0\.0\.0:(\d+)", line)
            assert found, said
            port = int(found[1])
            while ask(port, "/readyz")[0] != 200:
                assert process.poll() is None
            assert ask(port, "/healthz")[0] == 200
            assert ask(port, "/metrics")[0] in (401, 403), "all but health needs a token"
            assert "dry run" in ask(port, "/readyz")[1], "nothing is evicted until told so"
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
    assert "--client-connection-qps has no effect" in said


def free_port() -> int:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.mark.parametrize(
    ("argv", "meant"),
    [
        (["--v", "3"], ["run", "--secure-port", "10258", "--v", "3"]),
        (["--secure-port", "0"], ["run", "--secure-port", "10258", "--secure-port", "0"]),
        (["run", "--v", "3"], ["run", "--v", "3"]),
        (["--help"], ["--help"]),
        (["--version"], ["--version"]),
        ([], []),
    ],
)
def test_options_without_a_command_are_those_of_run(argv: list[str], meant: list[str]) -> None:
    assert run.as_run(argv) == meant


def parsed(*words: str) -> argparse.Namespace:
    return cli.parser().parse_args(["run", *words])


@pytest.mark.parametrize(
    ("words", "place"),
    [
        ([], None),
        (["--secure-port", "10259"], ("0.0.0.0", 10259)),
        (["--bind-address", "127.0.0.1"], ("127.0.0.1", 10258)),
        (["--secure-port", "0"], ("0.0.0.0", 0)),
    ],
)
def test_where_https_is_served(words: list[str], place: Any) -> None:
    assert run.address(parsed(*words)) == place


def test_what_changes_nothing_is_named_with_its_reason() -> None:
    words = ["--otel-collector-endpoint=x:4317", "--enable-http2", "--tls-min-version", "VersionTLS12"]
    said = list(run.notices(parsed(*words, "--feature-gates", "EvictionsInBackground=false,AllBeta=true")))
    assert [line.split(" has no effect")[0] for line in said] == [
        "--tls-min-version",
        "--otel-collector-endpoint",
        "--enable-http2",
        "--feature-gates EvictionsInBackground=false",
        "--feature-gates AllBeta",
    ]
    assert list(run.notices(parsed())) == []


@pytest.mark.parametrize("text", ["Nonsense=true", "EvictionsInBackground=yes", "EvictionsInBackground", "=true"])
def test_a_gate_that_is_none_is_refused_with_the_list(text: str) -> None:
    with pytest.raises(InputError, match="DisablePVCReservation"):
        run.gates(text)


@given(st.text())
def test_gates_are_read_or_refused_in_words(text: str) -> None:
    try:
        assert set(run.gates(text)) <= {"AllAlpha", "AllBeta", "EvictionsInBackground", "DisablePVCReservation"}
    except InputError as error:
        assert "--feature-gates" in str(error)


@pytest.mark.parametrize(
    ("words", "verbose"), [(["-v"], True), (["-v", "4"], True), (["--v=3"], False), (["--v", "10"], True)]
)
def test_klog_levels(words: list[str], *, verbose: bool) -> None:
    assert (parsed(*words).v >= run.VERBOSE) is verbose


def test_the_version_is_a_command_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["version"]) == 0
    assert capsys.readouterr().out.startswith("descheduler ")


def test_a_leader_that_died_is_replaced_after_fifteen_seconds() -> None:
    """The times of client-go, as of every other component."""
    found = run.LEASE
    assert (found.lease_duration, found.renew_deadline, found.retry_period) == ("15s", "10s", "2s")
