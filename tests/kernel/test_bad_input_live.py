"""Inputs that go bad while the agent runs: what holds instead, and that it says so."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import pytest
from realnode import command
from realnode.command import Command
from realnode.manifests import Manifests, threshold
from realnode.pods import Pod
from realnode.tree import Tree
from realnode.waiting import for_a_while, until

BATCH = Pod("batch")
Start = Callable[..., Command]


@pytest.fixture
def batch(kubepods: Tree, manifests: Manifests) -> str:
    """The container of a best-effort pod, CPU 0 being reserved and suppression being on."""
    manifests.node(reservation={"reservedCPUs": "0"})
    manifests.config(threshold=threshold("cpuset", percent=90))
    manifests.pod(BATCH)
    kubepods.add(BATCH)
    return kubepods.container(BATCH, "main")


def problems(folder: pathlib.Path) -> str:
    """All problems of a run in one text."""
    return "\n".join(" ".join(map(str, one.values())) for one in command.report(folder / "report")["problems"])


@pytest.mark.parametrize(
    ("annotation", "cpus", "words"),
    [
        pytest.param("{broken", {1}, "node.koordinator.sh/reservation", id="broken-JSON-keeps-the-last-good-one"),
        pytest.param({"reservedCPUs": "1-x"}, {1}, "1-x", id="a-broken-list-keeps-the-last-good-one"),
        pytest.param({"reservedCPUs": "0-999"}, {1}, "0-999", id="a-list-past-the-machine-leaves-one-CPU"),
        pytest.param({"resources": {"cpu": "64"}}, None, "64 CPUs are asked for", id="more-than-the-node-leaves-one"),
    ],
)
def test_a_bad_reservation_after_a_good_one(
    *,
    annotation: object,
    cpus: set[int] | None,
    words: str,
    batch: str,
    kubepods: Tree,
    manifests: Manifests,
    start: Start,
    enforce: list[str],
    tmp_path: pathlib.Path,
) -> None:
    agent = start(*enforce)
    until(lambda: kubepods.cpus(batch) == {1}, "the good reservation holds")
    manifests.node(reservation=annotation)
    wanted = (lambda: kubepods.cpus(batch) == cpus) if cpus else (lambda: len(kubepods.cpus(batch)) == 1)
    for_a_while(wanted, "one CPU for best-effort", seconds=1.5)
    assert agent.stop() == 0
    assert words in problems(tmp_path)
    assert not command.refusals(command.report(tmp_path / "report"))


def test_a_broken_config_after_a_good_one_keeps_the_good_one(
    *, batch: str, kubepods: Tree, manifests: Manifests, start: Start, enforce: list[str], tmp_path: pathlib.Path
) -> None:
    manifests.config(threshold=threshold("cfsQuota", percent=90))
    agent = start(*enforce)
    group = kubepods.qos("BestEffort")
    until(lambda: kubepods.quota_us(group) > 0, "the good policy holds")
    manifests.config(threshold='{"clusterStrategy": ')
    for_a_while(lambda: kubepods.quota_us(group) > 0, "the quota stays", seconds=1.5)
    assert agent.stop() == 0
    assert "resource-threshold-config" in problems(tmp_path)
    assert "last good" in problems(tmp_path)


def test_a_folder_without_pods_is_no_problem(
    kubepods: Tree, manifests: Manifests, start: Start, enforce: list[str], tmp_path: pathlib.Path
) -> None:
    manifests.node(reservation={"reservedCPUs": "0"})
    manifests.config(threshold=threshold("cpuset", percent=90))
    agent = start(*enforce)
    until(lambda: kubepods.cpus(kubepods.qos("BestEffort")) == {1}, "the empty best-effort group leaves CPU 0")
    assert agent.stop() == 0
    assert not problems(tmp_path)


def test_a_group_that_vanishes_under_a_pod_that_stays_is_no_problem(
    *, batch: str, kubepods: Tree, manifests: Manifests, start: Start, enforce: list[str], tmp_path: pathlib.Path
) -> None:
    agent = start(*enforce)
    until(lambda: kubepods.cpus(batch) == {1}, "the reservation holds")
    kubepods.remove(BATCH)
    manifests.node(reservation={"reservedCPUs": "1"})
    until(lambda: kubepods.cpus(kubepods.qos("BestEffort")) == {0}, "the rest follows")
    assert agent.stop() == 0
    assert not command.refusals(command.report(tmp_path / "report"))
