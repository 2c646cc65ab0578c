"""Containers that begin between two ticks, on the real kernel: they have their values long before the next tick."""

from __future__ import annotations

import contextlib
import pathlib
import subprocess
from collections.abc import Callable, Iterator

import pytest
from realnode import beginning
from realnode.command import Command, report
from realnode.manifests import Manifests, threshold
from realnode.pods import SANDBOX, Pod
from realnode.tree import Tree
from realnode.waiting import for_a_while, until

MiB = 2**20
TICK_SECONDS = 60
"""Longer than any of these tests waits: what is written came between ticks."""
BATCH = Pod("batch", containers=("main", "side", "third"), batch=(400, 64 * MiB))
WANTED = (400, 64 * MiB)
Start = Callable[..., Command]


@pytest.fixture
def run(enforce: list[str]) -> list[str]:
    """Arguments of a run that ticks so seldom that no test sees its second tick."""
    return [*enforce, "--interval", str(TICK_SECONDS), "--on-stop", "restore"]


@pytest.fixture
def node(kubepods: Tree, manifests: Manifests) -> Iterator[Tree]:
    """A node with a batch pod of which kubelet has made no more than the pod's own group and the sandbox."""
    manifests.node()
    manifests.config(threshold=threshold(enable=False))
    manifests.pod(BATCH)
    beginning.make(kubepods, kubepods.pod(BATCH))
    beginning.make(kubepods, kubepods.container(BATCH, SANDBOX))
    yield kubepods


def started(node: Tree, agent: Command) -> None:
    """The first tick is over: the pod's own group has its values."""
    pod = {name: value for name, value in beginning.batch_values(node, 1200, 192 * MiB).items() if name == "memory"}
    until(lambda: beginning.values(node, node.pod(BATCH)).items() >= pod.items() or not agent.alive(), "the first tick")
    assert agent.alive(), agent.said()


def test_containers_have_their_values_long_before_the_tick(
    node: Tree, run: list[str], start: Start, tmp_path: pathlib.Path
) -> None:
    agent = start(*run)
    started(node, agent)
    wanted = beginning.batch_values(node, *WANTED)
    taken = [beginning.begin(node, BATCH, name, wanted) for name in BATCH.containers]
    print("cgroup v1,", beginning.told(taken))
    best_effort = beginning.values(node, node.qos("BestEffort"))["cpus"]
    assert {beginning.values(node, node.container(BATCH, name))["cpus"] for name in BATCH.containers} == {best_effort}
    assert agent.stop() == 0
    assert beginning.values(node, node.container(BATCH, "main"))["shares"] == "2", "what kubelet had written"
    state = report(tmp_path / "report")["last"]["reaction"]["beginning"]
    assert state["rounds"] >= 3 and state["watched"] == 4 and not state["overflows"], state


def test_a_pod_that_begins_has_its_values_long_before_the_tick(
    node: Tree, manifests: Manifests, run: list[str], start: Start
) -> None:
    agent = start(*run)
    started(node, agent)
    late = Pod("late", batch=(200, 32 * MiB))
    manifests.pod(late)
    for_a_while(agent.alive, "the agent runs until it may look at the folder again", seconds=1.2)
    group, wanted = node.pod(late), beginning.batch_values(node, 200, 32 * MiB)
    taken = [beginning.until(node, group, wanted, since=beginning.make(node, group))]
    taken.append(beginning.begin(node, late, "main", wanted))
    print("cgroup v1, a pod and its container,", beginning.told(taken))
    assert agent.stop() == 0


def test_a_pinned_pod_that_begins_has_its_cpus_long_before_the_tick(
    node: Tree, manifests: Manifests, run: list[str], start: Start
) -> None:
    agent = start(*run)
    started(node, agent)
    pinned = Pod("pinned", "Guaranteed", "LSR", pinned="1")
    manifests.pod(pinned)
    for_a_while(agent.alive, "the agent runs until it may look at the folder again", seconds=1.2)
    beginning.make(node, node.pod(pinned))
    taken = beginning.begin(node, pinned, "main", {"cpus": "1"})
    print("cgroup v1, pinned,", beginning.told([taken]))
    assert agent.stop() == 0


@contextlib.contextmanager
def process_of(tree: Tree, pod: Pod, container: str, scratch: pathlib.Path) -> Iterator[None]:
    """A process in the group of a container, with the mount that kubelet gives every container."""
    log = scratch / "pods" / pod.uid / "containers" / container / "0a1b2c3d"
    log.parent.mkdir(parents=True)
    log.touch()
    target = scratch / f"termination-log-{container}"
    target.touch()
    script = f"mount --bind {log} {target} && echo ready && exec sleep 600"
    command = ["unshare", "-m", "--propagation", "private", "sh", "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
            group = tree.container(pod, container)
            for point in set(tree.points.values()):
                (point / group / "cgroup.procs").write_text(str(process.pid))
            yield
        finally:
            process.kill()


def test_a_container_that_its_pod_does_not_name_yet_is_recognized_by_its_mounts(
    node: Tree, manifests: Manifests, run: list[str], start: Start, tmp_path: pathlib.Path
) -> None:
    manifests.pod(BATCH, named=False)
    agent = start(*run)
    started(node, agent)
    wanted, group = beginning.batch_values(node, *WANTED), node.container(BATCH, "side")
    beginning.make(node, group)
    with process_of(node, BATCH, "side", tmp_path):
        until(lambda: beginning.values(node, group).items() >= wanted.items(), "its values")
        assert agent.stop() == 0
