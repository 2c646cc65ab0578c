"""A container as runc starts it: its group first, its mounts and its program up to a second later."""

from __future__ import annotations

import contextlib
import json
import pathlib
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest
from realnode import beginning
from realnode.command import Command
from realnode.manifests import Manifests, threshold
from realnode.pods import SANDBOX, Pod
from realnode.tree import Tree
from realnode.waiting import until

MiB = 2**20
BATCH = Pod("batch", containers=("main",), batch=(400, 64 * MiB))
Start = Callable[..., Command]


@pytest.fixture
def node(kubepods: Tree, manifests: Manifests) -> Iterator[Tree]:
    """A node whose batch pod has its group and a sandbox, and whose status names no container yet."""
    manifests.node()
    manifests.config(threshold=threshold(enable=False))
    manifests.pod(BATCH, named=False)
    beginning.make(kubepods, kubepods.pod(BATCH))
    beginning.make(kubepods, kubepods.container(BATCH, SANDBOX))
    yield kubepods


@contextlib.contextmanager
def late_container(tree: Tree, scratch: pathlib.Path, *, mounts_after: float) -> Iterator[None]:
    """A process in a new group, as the runtime's own first process; kubelet's mounts come later."""
    log = scratch / "pods" / BATCH.uid / "containers" / "main" / "0a1b2c3d"
    log.parent.mkdir(parents=True)
    log.touch()
    target = scratch / "termination-log"
    target.touch()
    script = f"echo ready; sleep {mounts_after}; mount --bind {log} {target} && echo mounted && exec sleep 600"
    command = ["unshare", "-m", "--propagation", "private", "sh", "-c", script]
    group = tree.container(BATCH, "main")
    beginning.make(tree, group)
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
            for point in set(tree.points.values()):
                (point / group / "cgroup.procs").write_text(str(process.pid))
            assert process.stdout.readline() == b"mounted\n"
            yield
        finally:
            process.kill()


@pytest.mark.parametrize("mounts_after", [pytest.param(0.3, id="0.3 s"), pytest.param(0.9, id="0.9 s")])
def test_values_follow_the_first_process(
    node: Tree, enforce: list[str], start: Start, tmp_path: pathlib.Path, mounts_after: float
) -> None:
    """The next tick is a minute away."""
    agent = start(*enforce, "--interval", "60")
    until(lambda: beginning.values(node, node.pod(BATCH))["memory"] == str(64 * MiB), "the first tick")
    with late_container(node, tmp_path, mounts_after=mounts_after):
        wanted, group = beginning.batch_values(node, 400, 64 * MiB), node.container(BATCH, "main")
        taken = beginning.until(node, group, wanted, since=time.monotonic(), seconds=5.0)
        print(f"{1000 * taken:.0f} ms after the mounts")
        assert agent.stop() == 0


@pytest.mark.skipif(shutil.which("runc") is None, reason="needs runc")
def test_a_container_of_runc_has_its_values_before_its_program_runs(
    node: Tree, enforce: list[str], start: Start, tmp_path: pathlib.Path
) -> None:
    agent = start(*enforce, "--interval", "60")
    until(lambda: beginning.values(node, node.pod(BATCH))["memory"] == str(64 * MiB), "the first tick")
    group = node.container(BATCH, "main")
    name, bundle = f"koordlite-test-{time.monotonic_ns()}", _bundle(tmp_path, group)
    runc = ["runc", "--root", str(tmp_path / "runc")]
    subprocess.run([*runc, "create", "--bundle", str(bundle), name], check=True, stdin=subprocess.DEVNULL, timeout=30)
    try:
        wanted = beginning.batch_values(node, 400, 64 * MiB)
        taken = beginning.until(node, group, wanted, since=time.monotonic(), seconds=5.0)
        print(f"{1000 * taken:.0f} ms after runc create returned, before runc start")
    finally:
        subprocess.run([*runc, "delete", "--force", name], check=False, timeout=30)
    assert agent.stop() == 0


def _bundle(folder: pathlib.Path, group: str) -> pathlib.Path:
    """An OCI bundle that runs `sleep` of this machine, with kubelet's mount, in the cgroup `group`."""
    log = folder / "pods" / BATCH.uid / "containers" / "main" / "0a1b2c3d"
    log.parent.mkdir(parents=True)
    log.touch()
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
