"""`koordlite scheduler`: what people ask a running extender."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from koordlite import cli
from koordlite.cli import scheduler_extender
from koordlite.http.guard import Guard
from koordlite.report.log_levels import LogLevels
from koordlite.scheduler.service import Service
from tests.scheduler.builders import Scene, pod

FREE, TAKEN = {"cpu": "8", "memory": "32Gi"}, {"cpu": "0", "memory": "32Gi"}


@pytest.fixture
def url() -> Iterator[str]:
    scene = Scene()
    scene.node("a", FREE, signed=[])
    scene.node("b", TAKEN, signed=[])
    scene.put(pod("p", "4"))
    scene.filter(pod("p", "4"), "a", "b")
    scene.bind(pod("p", "4"), "a")
    service = Service(scene.extender, LogLevels(now=lambda: scene.clock.now))
    server = scheduler_extender._server("127.0.0.1", 0, service, Guard(exposed=False, local_token="t"), None)
    server.start()
    yield server.url
    server.close()


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.main(["scheduler", *words]) == 0
    return capsys.readouterr().out


def test_explain_says_why_not_with_numbers(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "explain", "ns/p", "--url", url)
    assert "pod ns/p: Guaranteed; aligned: c cpu 4, memory 1Gi" in text
    assert "1 of 2 nodes pass\n  1 cannot align container" in text
    assert "bound to a, NUMA nodes 0" in text
    assert "b: no, cannot align container (container c asks cpu 4; NUMA node 0 has 0)" in text
    assert json.loads(said(capsys, "explain", "ns/p", "--url", url, "-o", "json"))["chosen"] == "a"


def test_state_shows_the_report_and_what_is_on_top(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "state", "a", "--url", url)
    assert "NUMA node 0: cpu 8 of 68719476736, judged 4" in text
    assert "reserved 0 s ago for ns/p (bound): cpu 4, memory 1Gi" in text
    assert "clean: the report counts these pods" in text
    assert json.loads(said(capsys, "state", "--url", url))["reservations"] == 1


def test_log_levels_are_shown_and_changed_with_the_token_only(
    url: str, capsys: pytest.CaptureFixture[str], tmp_path: object
) -> None:
    assert said(capsys, "log-level", "--url", url) == "everything else: info\n"
    assert (
        cli.main(["scheduler", "log-level", "debug", "--flow", "bind", "--url", url, "--state-dir", str(tmp_path)]) == 2
    )
    assert "bearer token is needed" in capsys.readouterr().err
    with open(f"{tmp_path}/http-token", "w", encoding="ascii") as file:
        file.write("t\n")
    text = said(capsys, "log-level", "debug", "--flow", "bind", "--url", url, "--state-dir", str(tmp_path))
    assert text == "everything else: info\nflow bind: debug\n"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["explain", "p"], "no namespace and name"),
        (["explain", "ns/never"], "no scheduler has asked about pod ns/never"),
        (["state", "nowhere"], "node nowhere is unknown here"),
    ],
)
def test_questions_without_an_answer(url: str, capsys: pytest.CaptureFixture[str], words: list[str], why: str) -> None:
    assert cli.main(["scheduler", *words, "--url", url]) == 2
    assert why in capsys.readouterr().err
