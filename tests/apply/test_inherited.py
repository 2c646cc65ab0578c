"""A pod that was born while best-effort work was narrowed is put back like the others."""

from __future__ import annotations

import contextlib
import errno
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from emulated import Emulated

from koordlite.agent import Agent


def sets_below_besteffort(node: Emulated) -> dict[str, str]:
    files = node.sandbox.files
    paths = files.paths("/sys/fs/cgroup/cpuset/kubepods/besteffort")
    return {path: files.read(path).decode().strip() for path in paths if path.endswith("/cpuset.cpus")}


@contextlib.contextmanager
def at_work(folder: Path, use: str, **slo: int) -> Iterator[tuple[Emulated, Agent]]:
    """A node with a service that uses so much and a best-effort pod, after four ticks."""
    node = Emulated("small", folder)
    node.pod("web", "LS", use, request="1")
    node.pod("batch", "BE", "greedy")
    if slo:
        node.slo(**slo)
    with node.at_work() as agent:
        node.ticks(agent, 4)
        yield node, agent


def born(node: Emulated) -> None:
    """Another best-effort pod begins."""
    node.pod("late", "BE", "greedy")
    node.sandbox.advance(1.0)
    node.cluster.view()


@pytest.mark.parametrize("ticks_after_birth", [0, 1, 3], ids=lambda count: f"seen for {count} ticks")
def test_a_pod_born_under_a_narrow_set_gets_the_whole_machine_back(tmp_path: Path, ticks_after_birth: int) -> None:
    with at_work(tmp_path, "2500m") as (node, agent):
        assert node.best_effort_cpus() != "0-3"
        born(node)
        node.ticks(agent, ticks_after_birth)
        assert len(set(sets_below_besteffort(node).values())) == 1, "the late pod should have copied the narrow set"
        agent.put_back()
    assert set(sets_below_besteffort(node).values()) == {"0-3"}


def test_a_set_that_differs_from_ours_is_left_as_it_is(tmp_path: Path) -> None:
    with at_work(tmp_path, "2500m") as (node, agent):
        born(node)
        own = next(path for path in sets_below_besteffort(node) if "uid-late" in path and path.count("/") > 8)
        narrower = node.best_effort_cpus()[0]
        node.sandbox.files.write(own, narrower.encode())
        agent.put_back()
    assert sets_below_besteffort(node)[own] == narrower


def test_a_pod_whose_first_tick_moves_the_set_gets_the_whole_machine_back(tmp_path: Path) -> None:
    with at_work(tmp_path, "500m") as (node, agent):
        narrow = node.best_effort_cpus()
        node.slo(percent=30)
        born(node)
        node.ticks(agent, 1)
        moved = {cpus for path, cpus in sets_below_besteffort(node).items() if "uid-late" in path}
        assert len(moved) == 1 and narrow not in moved, "the tick that saw the pod first should have moved it"
        agent.put_back()
    assert set(sets_below_besteffort(node).values()) == {"0-3"}


def test_a_pod_that_could_not_be_read_while_the_set_moved_on_gets_the_whole_machine_back(tmp_path: Path) -> None:
    with at_work(tmp_path, "500m", percent=30) as (node, agent):
        narrow = node.best_effort_cpus()
        node.slo(percent=90)
        born(node)
        node.sandbox.files.trouble = lambda verb, path: (
            errno.EIO if verb == "read" and path.endswith("uid-late/cpuset.cpus") else None
        )
        node.ticks(agent, 1)
        node.sandbox.files.trouble = None
        stuck = next(
            cpus for path, cpus in sets_below_besteffort(node).items() if path.endswith("uid-late/cpuset.cpus")
        )
        assert stuck == narrow != node.best_effort_cpus(), "the pod should still hold what the class had before"
        node.ticks(agent, 2)
        agent.put_back()
    assert set(sets_below_besteffort(node).values()) == {"0-3"}


def test_containers_that_keep_a_copied_set_while_their_pod_goes_on_get_the_whole_machine_back(tmp_path: Path) -> None:
    with at_work(tmp_path, "2500m") as (node, agent):
        narrow = node.best_effort_cpus()
        born(node)
        kubelet = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
        text = json.dumps({**kubelet, "cpuManagerPolicy": "static", "reservedSystemCPUs": "0"})
        (node.folder / "kubelet.json").write_text(text)
        node.ticks(agent, 2)
        late = {path.count("/"): cpus for path, cpus in sets_below_besteffort(node).items() if "uid-late" in path}
        assert late[max(late)] == narrow != late[min(late)], (
            "under the static policy the pod widens, its containers not"
        )
        agent.put_back()
    assert set(sets_below_besteffort(node).values()) == {"0-3"}
