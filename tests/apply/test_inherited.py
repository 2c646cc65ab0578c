"""A pod that was born while best-effort work was narrowed is put back like the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from emulated import Emulated


def sets_below_besteffort(node: Emulated) -> dict[str, str]:
    files = node.sandbox.files
    paths = files.paths("/sys/fs/cgroup/cpuset/kubepods/besteffort")
    return {path: files.read(path).decode().strip() for path in paths if path.endswith("/cpuset.cpus")}


@pytest.mark.parametrize("ticks_after_birth", [0, 1, 3], ids=lambda count: f"seen for {count} ticks")
def test_a_pod_born_under_a_narrow_set_gets_the_whole_machine_back(tmp_path: Path, ticks_after_birth: int) -> None:
    node = Emulated("small", tmp_path)
    node.pod("web", "LS", "2500m", request="1")
    node.pod("batch", "BE", "greedy")
    with node.journal() as journal:
        agent = node.agent(journal)
        node.ticks(agent, 4)
        assert node.best_effort_cpus() != "0-3"
        node.pod("late", "BE", "greedy")
        node.sandbox.advance(1.0)
        node.cluster.view()
        node.ticks(agent, ticks_after_birth)
        assert len(set(sets_below_besteffort(node).values())) == 1, "the late pod should have copied the narrow set"
        agent.put_back()
    assert set(sets_below_besteffort(node).values()) == {"0-3"}


def test_a_set_that_differs_from_ours_is_left_as_it_is(tmp_path: Path) -> None:
    node = Emulated("small", tmp_path)
    node.pod("web", "LS", "2500m", request="1")
    node.pod("batch", "BE", "greedy")
    with node.journal() as journal:
        agent = node.agent(journal)
        node.ticks(agent, 4)
        node.pod("late", "BE", "greedy")
        node.sandbox.advance(1.0)
        node.cluster.view()
        own = next(path for path in sets_below_besteffort(node) if "uid-late" in path and path.count("/") > 8)
        narrower = node.best_effort_cpus()[0]
        node.sandbox.files.write(own, narrower.encode())
        agent.put_back()
    assert sets_below_besteffort(node)[own] == narrower
