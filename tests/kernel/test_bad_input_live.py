"""Inputs that go bad while the agent runs: what holds instead, and that it says so."""

from __future__ import annotations

import pathlib

import pytest
from realnode import command
from realnode.manifests import threshold
from realnode.pods import Pod
from realnode.waiting import for_a_while, until

from tests.kernel.conftest import Rig

BATCH = Pod("batch")


@pytest.fixture
def batch(rig: Rig) -> str:
    """The container of a best-effort pod, CPU 0 being reserved and suppression being on."""
    rig.populate(BATCH, reservation={"reservedCPUs": "0"}, threshold=threshold("cpuset", percent=90))
    return rig.tree.container(BATCH, "main")


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
    rig: Rig, annotation: object, cpus: set[int] | None, words: str, batch: str
) -> None:
    agent = rig.enforce()
    until(lambda: rig.tree.cpus(batch) == {1}, "the good reservation holds")
    rig.manifests.node(reservation=annotation)
    wanted = (lambda: rig.tree.cpus(batch) == cpus) if cpus else (lambda: len(rig.tree.cpus(batch)) == 1)
    for_a_while(wanted, "one CPU for best-effort", seconds=1.5)
    assert agent.stop() == 0
    assert words in problems(rig.folder)
    assert not command.refusals(command.report(rig.folder / "report"))


def test_a_broken_config_after_a_good_one_keeps_the_good_one(rig: Rig, batch: str) -> None:
    rig.manifests.config(threshold=threshold("cfsQuota", percent=90))
    agent = rig.enforce()
    group = rig.tree.qos("BestEffort")
    until(lambda: rig.tree.quota_us(group) > 0, "the good policy holds")
    rig.manifests.config(threshold='{"clusterStrategy": ')
    for_a_while(lambda: rig.tree.quota_us(group) > 0, "the quota stays", seconds=1.5)
    assert agent.stop() == 0
    assert "resource-threshold-config" in problems(rig.folder)
    assert "last good" in problems(rig.folder)


def test_a_folder_without_pods_is_no_problem(rig: Rig) -> None:
    rig.manifests.node(reservation={"reservedCPUs": "0"})
    rig.manifests.config(threshold=threshold("cpuset", percent=90))
    agent = rig.enforce()
    until(lambda: rig.tree.cpus(rig.tree.qos("BestEffort")) == {1}, "the empty best-effort group leaves CPU 0")
    assert agent.stop() == 0
    assert not problems(rig.folder)


def test_a_group_that_vanishes_under_a_pod_that_stays_is_no_problem(rig: Rig, batch: str) -> None:
    agent = rig.enforce()
    until(lambda: rig.tree.cpus(batch) == {1}, "the reservation holds")
    rig.tree.remove(BATCH)
    rig.manifests.node(reservation={"reservedCPUs": "1"})
    until(lambda: rig.tree.cpus(rig.tree.qos("BestEffort")) == {0}, "the rest follows")
    rig.end(agent)
