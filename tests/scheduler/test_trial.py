"""The second act of the tour: a pod that would fail its admission is placed by the extender, and it says why."""

from __future__ import annotations

import pathlib
import shutil

import pytest

from koordlite import cli
from koordlite.model.errors import InputError
from koordlite.scheduler import trial
from koordlite.scheduler.judgement.nodes import JudgeSettings

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / "configs/tour-scheduling"


def test_the_pod_of_the_tour_fails_by_sums_and_is_placed_by_numa_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["scheduler", "try", str(FOLDER), "shop/solver"]) == 0
    output = capsys.readouterr().out
    assert output.startswith(
        "without the extender: sched-a, which has most left in all\n"
        "  kubelet there: TopologyAffinityError: Resources cannot be allocated with Topology locality\n"
    )
    assert "with the extender: sched-b\n  kubelet there: admitted: container main on NUMA node 1, CPUs " in output
    assert (
        "sched-a: no, cannot align container (container main asks cpu 6; NUMA node 0 has 5, NUMA node 1 has 5)"
        in output
    )
    assert (
        f'"$bin/koordlite" scheduler try {FOLDER.relative_to(ROOT)} shop/solver' in (ROOT / "scripts/tour").read_text()
    )


def test_the_reports_of_the_tour_are_what_its_kubelets_would_give() -> None:
    case = trial.of_folder(str(FOLDER), "shop/solver", JudgeSettings())
    for row in case.feasible:
        state = case._state(row)
        assert state is not None
        assert state.managers.cpu is not None
        shared = [cpu.node for cpu in state.managers.cpu.machine.cpus if cpu.id in state.cpus.shared]
        assert {node: zone["cpu"] // 10**9 for node, zone in row.zones.items()} == {
            n: shared.count(n) for n in row.zones
        }


def test_a_pod_that_no_node_has_enough_for_and_pods_that_are_not_there(tmp_path: pathlib.Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "folder")
    path = tmp_path / "folder/3-solver.yaml"
    path.write_text(path.read_text().replace('cpu: "6"', 'cpu: "64"'))
    case = trial.of_folder(str(tmp_path / "folder"), "shop/solver", JudgeSettings())
    assert list(trial.lines(case)) == ["no node has enough in all: kube-scheduler asks no extender then"]
    for key, why in (("shop/index", "bound already"), ("shop/never", "no manifest")):
        with pytest.raises(InputError, match=why):
            trial.of_folder(str(FOLDER), key, JudgeSettings())
