"""`koordlite scheduler`: what people ask a running extender."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator

import cyaml
import pytest
from apibench import CRD
from apiserver import ApiServer

from koordlite import cli
from koordlite.cli import services
from koordlite.report.log_levels import LogLevels
from koordlite.scheduler.service import Service
from tests.scheduler import test_making_room
from tests.scheduler.builders import Scene, pod

LOOPBACK = cli.parser().parse_args(["scheduler-extender", "--listen", "127.0.0.1:0"])
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
    server = services.extender_listener(LOOPBACK, service, "t")
    server.start()
    yield server.url
    server.close()


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.main(["scheduler", *words]) == 0
    return capsys.readouterr().out


def test_explain_says_why_not_with_numbers(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "explain", "ns/p", "--url", url)
    assert "pod ns/p: Guaranteed; aligned: c cpu 4, memory 1Gi" in text
    assert "1 of 2 nodes pass\n  1 cannot align container" in text
    assert "bound to a, NUMA nodes 0" in text
    assert "b: no, cannot align container (container c asks cpu 4; NUMA node 0 has 0)" in text
    assert json.loads(printed(capsys, "explain", "ns/p", "--url", url, "-o", "json"))["chosen"] == "a"


def test_state_shows_the_report_and_what_is_on_top(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "state", "a", "--url", url)
    assert "NUMA node 0: cpu 8 of 68719476736, judged 4" in text
    assert "reserved 0 s ago for ns/p (bound): cpu 4, memory 1Gi" in text
    assert "clean: the report counts these pods" in text
    assert json.loads(printed(capsys, "state", "--url", url))["reservations"] == 1


def test_log_levels_are_shown_and_changed_with_the_token_only(
    url: str, capsys: pytest.CaptureFixture[str], tmp_path: object
) -> None:
    assert printed(capsys, "log-level", "--url", url) == "everything else: info\n"
    assert (
        cli.main(["scheduler", "log-level", "debug", "--flow", "bind", "--url", url, "--state-dir", str(tmp_path)]) == 2
    )
    assert "bearer token is needed" in capsys.readouterr().err
    with open(f"{tmp_path}/http-token", "w", encoding="ascii") as file:
        file.write("t\n")
    text = printed(capsys, "log-level", "debug", "--flow", "bind", "--url", url, "--state-dir", str(tmp_path))
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


@pytest.fixture
def full() -> Iterator[str]:
    """An extender with two nodes on which a pod has to move, so that `ns/w` fits; its address."""
    placed = {"x": ("a", 0), "y": ("a", 1), "z": ("b", 0)}
    scene = test_making_room.world(("a", "b"), placed, dict.fromkeys(placed, 4))
    scene.put(pod("w", "8"))
    scene.filter(pod("w", "8"), "a")
    service = Service(scene.extender, LogLevels(now=lambda: scene.clock.now))
    server = services.extender_listener(LOOPBACK, service, "")
    server.start()
    yield server.url
    server.close()


@pytest.mark.parametrize(
    "words", [("scheduler", "explain", "ns/w", "--make-room"), ("explain", "--why-pending", "ns/w")], ids=" ".join
)
def test_a_running_extender_says_why_a_pod_waits_and_what_would_make_room(
    full: str, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    assert cli.main([*words, "--url", full]) == 0
    text = capsys.readouterr().out
    assert "last asked" in text
    assert "1 node: cannot align container: a: container c asks cpu 8; NUMA node 0 has 4, NUMA node 1 has 4" in text
    assert "room on    a, after 1 move" in text and "move   ns/x from a to b (Guaranteed, NUMA node 0)" in text
    assert cli.main([*words, "--url", full, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["waiting"]["makeRoom"]["exact"] is True


def test_a_pod_that_nobody_knows_and_an_extender_that_is_not_there(
    full: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["explain", "--why-pending", "ns/never", "--url", full]) == 2
    assert "no scheduler has asked about pod ns/never" in capsys.readouterr().err
    assert cli.main(["explain", "--why-pending", "ns/w", "--url", "http://127.0.0.1:1"]) == 2
    assert "no scheduler extender answers" in capsys.readouterr().err


def test_manifests_say_why_a_pod_waits(capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(pathlib.Path(__file__).parents[2] / "configs/tour-scheduling")
    assert cli.main(["explain", "--why-pending", "shop/report", "--cluster", folder]) == 0
    text = capsys.readouterr().out
    assert text.startswith("pod shop/report waits for a node; it asks cpu 12, memory 8Gi; priority 0\n")
    assert "2 nodes: too little cpu in all: most on sched-a, which has cpu 10 left" in text
    assert "move   shop/cache from sched-b to sched-a (Guaranteed, NUMA node 0)" in text
    assert "shop/report has NUMA node 1 of sched-b" in text
    assert cli.main(["scheduler", "try", folder, "shop/solver", "--make-room"]) == 0
    assert "it fits now, without a move: sched-b" in capsys.readouterr().out


def test_a_cluster_is_listed_once_and_says_why_a_pod_waits(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = {"metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}}
    with ApiServer(seed=1) as server:
        server.objects.load(cyaml.safe_load(CRD.read_text()), {"apiVersion": "v1", "kind": "Node", **node})
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}}
        server.objects.load(namespace, {"apiVersion": "v1", "kind": "Pod", **pod("w", "8")})
        (tmp_path / "kubeconfig").write_text(server.kubeconfig("admin"))
        assert cli.main(["explain", "--why-pending", "ns/w", f"--kubeconfig={tmp_path / 'kubeconfig'}"]) == 0
    assert "1 node: too little cpu in all: most on a, which has cpu 4 left" in capsys.readouterr().out
