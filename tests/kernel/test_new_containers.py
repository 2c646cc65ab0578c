"""Containers that begin between two ticks, on the real kernel: they have their values long before the next tick."""

from __future__ import annotations

import contextlib
import json
import pathlib
import shutil
import subprocess
import time
from collections.abc import Iterator

import pytest
from realnode import beginning
from realnode.command import Command, report
from realnode.manifests import threshold
from realnode.pods import SANDBOX, Pod
from realnode.tree import Tree
from realnode.waiting import for_a_while, until

from tests.kernel.conftest import Rig

MiB = 2**20
TICK_SECONDS = 60
"""Longer than any of these tests waits: what is written came between ticks."""
BATCH = Pod("batch", containers=("main", "side", "third"), batch=(400, 64 * MiB))
WANTED = (400, 64 * MiB)


@pytest.fixture
def run(rig: Rig) -> list[str]:
    """Arguments of a run that ticks so seldom that no test sees its second tick."""
    return [*rig.enforcing, "--interval", str(TICK_SECONDS), "--on-stop", "restore"]


@pytest.fixture
def node(rig: Rig) -> Iterator[Tree]:
    """A node with a batch pod of which kubelet has made no more than the pod's own group and the sandbox."""
    rig.manifests.node()
    rig.manifests.config(threshold=threshold(enable=False))
    rig.manifests.pod(BATCH)
    beginning.make(rig.tree, rig.tree.pod(BATCH))
    beginning.make(rig.tree, rig.tree.container(BATCH, SANDBOX))
    yield rig.tree


def started(node: Tree, agent: Command) -> None:
    """The first tick is over: the pod's own group has its values."""
    pod = {name: value for name, value in beginning.batch_values(node, 1200, 192 * MiB).items() if name == "memory"}
    until(lambda: beginning.values(node, node.pod(BATCH)).items() >= pod.items() or not agent.alive(), "the first tick")
    assert agent.alive(), agent.said()


def test_containers_have_their_values_long_before_the_tick(rig: Rig, node: Tree, run: list[str]) -> None:
    agent = rig.start(*run)
    started(node, agent)
    wanted = beginning.batch_values(node, *WANTED)
    taken = [beginning.begin(node, BATCH, name, wanted) for name in BATCH.containers]
    print("cgroup v1,", beginning.told(taken))
    best_effort = beginning.values(node, node.qos("BestEffort"))["cpus"]
    assert {beginning.values(node, node.container(BATCH, name))["cpus"] for name in BATCH.containers} == {best_effort}
    assert agent.stop() == 0
    assert beginning.values(node, node.container(BATCH, "main"))["shares"] == "2", "what kubelet had written"
    state = report(rig.folder / "report")["last"]["reaction"]["beginning"]
    assert state["rounds"] >= 3 and state["watched"] == 4 and not state["overflows"], state


def test_a_pod_that_begins_has_its_values_long_before_the_tick(rig: Rig, node: Tree, run: list[str]) -> None:
    agent = rig.start(*run)
    started(node, agent)
    late = Pod("late", batch=(200, 32 * MiB))
    rig.manifests.pod(late)
    for_a_while(agent.alive, "the agent runs until it may look at the folder again", seconds=1.2)
    group, wanted = node.pod(late), beginning.batch_values(node, 200, 32 * MiB)
    taken = [beginning.until(node, group, wanted, since=beginning.make(node, group))]
    taken.append(beginning.begin(node, late, "main", wanted))
    print("cgroup v1, a pod and its container,", beginning.told(taken))
    assert agent.stop() == 0


def test_a_pinned_pod_that_begins_has_its_cpus_long_before_the_tick(rig: Rig, node: Tree, run: list[str]) -> None:
    agent = rig.start(*run)
    started(node, agent)
    pinned = Pod("pinned", "Guaranteed", "LSR", pinned="1")
    rig.manifests.pod(pinned)
    for_a_while(agent.alive, "the agent runs until it may look at the folder again", seconds=1.2)
    beginning.make(node, node.pod(pinned))
    taken = beginning.begin(node, pinned, "main", {"cpus": "1"})
    print("cgroup v1, pinned,", beginning.told([taken]))
    assert agent.stop() == 0


@contextlib.contextmanager
def first_process(tree: Tree, pod: Pod, scratch: pathlib.Path, *, mounts_after: float | None) -> Iterator[None]:
    """A process in a new group, as the runtime's own first process, with the mount that kubelet gives every container:
    so many seconds after it entered the group, or before."""
    log = _log(pod, scratch)
    target = scratch / "termination-log"
    target.touch()
    mount, rest = f"mount --bind {log} {target}", "echo mounted && exec sleep 600"
    late = f"echo ready; sleep {mounts_after}; {mount} && {rest}"
    script = f"{mount} && echo ready && {rest}" if mounts_after is None else late
    group = tree.container(pod, "main")
    beginning.make(tree, group)
    command = ["unshare", "-m", "--propagation", "private", "sh", "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
            for point in set(tree.points.values()):
                (point / group / "cgroup.procs").write_text(str(process.pid))
            assert process.stdout.readline() == b"mounted\n"
            yield
        finally:
            process.kill()


@pytest.mark.parametrize(
    "mounts_after",
    [pytest.param(None, id="mounted before"), pytest.param(0.3, id="0.3 s"), pytest.param(0.9, id="0.9 s")],
)
def test_values_follow_the_mounts_of_a_container_that_its_pod_does_not_name_yet(
    rig: Rig, node: Tree, run: list[str], mounts_after: float | None
) -> None:
    """A runtime makes the group first; mounts and program come up to a second later."""
    rig.manifests.pod(BATCH, named=False)
    agent = rig.start(*run)
    started(node, agent)
    with first_process(node, BATCH, rig.folder, mounts_after=mounts_after):
        wanted, group = beginning.batch_values(node, *WANTED), node.container(BATCH, "main")
        taken = beginning.until(node, group, wanted, since=time.monotonic(), seconds=5.0)
        print(f"{1000 * taken:.0f} ms after the mounts")
        assert agent.stop() == 0


@pytest.mark.skipif(shutil.which("runc") is None, reason="needs runc")
def test_a_container_of_runc_has_its_values_before_its_program_runs(rig: Rig, node: Tree, run: list[str]) -> None:
    rig.manifests.pod(BATCH, named=False)
    agent = rig.start(*run)
    started(node, agent)
    group = node.container(BATCH, "main")
    name, bundle = f"koordlite-test-{time.monotonic_ns()}", _bundle(rig.folder, group)
    runc = ["runc", "--root", str(rig.folder / "runc")]
    subprocess.run([*runc, "create", "--bundle", str(bundle), name], check=True, stdin=subprocess.DEVNULL, timeout=30)
    try:
        wanted = beginning.batch_values(node, *WANTED)
        taken = beginning.until(node, group, wanted, since=time.monotonic(), seconds=5.0)
        print(f"{1000 * taken:.0f} ms after runc create returned, before runc start")
    finally:
        subprocess.run([*runc, "delete", "--force", name], check=False, timeout=30)
    assert agent.stop() == 0


def _bundle(folder: pathlib.Path, group: str) -> pathlib.Path:
    """An OCI bundle that runs `sleep` of this machine, with kubelet's mount, in the cgroup `group`."""
    log = _log(BATCH, folder)
    bundle = folder / "bundle"
    root = bundle / "rootfs"
    for each in ("proc", "dev", "usr", "lib", "lib64", "bin"):
        (root / each).mkdir(parents=True)
    binds = [
        {"destination": f"/{each}", "source": f"/{each}", "type": "bind", "options": ["rbind", "ro"]}
        for each in ("usr", "lib", "lib64", "bin")
        if pathlib.Path(f"/{each}").exists()
    ]
    mounts = [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
        *binds,
        {"destination": "/dev/termination-log", "source": str(log), "type": "bind", "options": ["bind", "rw"]},
    ]
    spec = {
        "ociVersion": "1.0.2",
        "process": {
            "cwd": "/",
            "args": ["sleep", "60"],
            "env": ["PATH=/usr/bin:/bin"],
            "user": {"uid": 0, "gid": 0},
        },
        "root": {"path": "rootfs"},
        "mounts": mounts,
        "linux": {
            "namespaces": [{"type": "mount"}, {"type": "pid"}],
            "cgroupsPath": f"/{group}",
            "resources": {"cpu": {"shares": 2}},
        },
    }
    (bundle / "config.json").write_text(json.dumps(spec))
    return bundle


def _log(pod: Pod, folder: pathlib.Path) -> pathlib.Path:
    """The file that kubelet mounts as a container's termination log: its path names pod and container."""
    log = folder / "pods" / pod.uid / "containers" / "main" / "0a1b2c3d"
    log.parent.mkdir(parents=True)
    log.touch()
    return log
