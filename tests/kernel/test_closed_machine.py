"""A machine that does not let us write: the refusal names file and errno, the agent goes on, nothing is lost."""

from __future__ import annotations

import errno as errnos
import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Iterator

import pytest
from realnode import command
from realnode.manifests import threshold
from realnode.pods import Pod
from realnode.tree import CONTROLLERS, Tree
from realnode.waiting import for_a_while, until

from tests.kernel.conftest import Rig

BATCH = Pod("batch")
NOBODY = 65534


@pytest.fixture
def found(rig: Rig) -> dict[str, bytes]:
    """Every byte of a tree in which the agent has something to do."""
    rig.populate(BATCH, reservation={"reservedCPUs": "0"}, threshold=threshold("cpuset", percent=90))
    return rig.tree.content()


@pytest.fixture
def tmp_path() -> Iterator[pathlib.Path]:
    """A folder that other users may use too; pytest's own is closed to them."""
    with tempfile.TemporaryDirectory(prefix="koordlite-test-") as folder:
        open_to_all = pathlib.Path(folder)
        open_to_all.chmod(0o777)
        yield open_to_all


def unprivileged(kubepods: Tree) -> list[str]:
    """Run as nobody, who may read everything, so that it can start wherever the project lies, but not write."""
    caps = ("--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search")
    return [_tool("setpriv"), f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *caps]


def read_only(kubepods: Tree) -> list[str]:
    """Run in a mount namespace of its own, where the cgroup file systems are read-only."""
    script = "; ".join(f"mount -o remount,bind,ro {kubepods.points[name]}" for name in CONTROLLERS)
    return [_tool("unshare"), "-m", "sh", "-ec", f'{script}; exec "$@"', "sh"]


def _tool(name: str) -> str:
    found = shutil.which(name)
    if not found:
        pytest.skip(f"needs {name} of util-linux")
    return found


@pytest.mark.parametrize(
    ("closed", "errno"),
    [
        pytest.param(unprivileged, "EACCES", id="an-agent-without-permission-says-EACCES-and-the-file"),
        pytest.param(read_only, "EROFS", id="on-a-read-only-cgroupfs-it-says-EROFS-and-the-file"),
    ],
)
def test_refusals_are_told_and_survived(
    rig: Rig, closed: Callable[[Tree], list[str]], errno: str, found: dict[str, bytes]
) -> None:
    reports = ["--report", str(rig.folder / "report")]
    agent = rig.start(
        "run",
        *rig.options,
        *reports,
        "--mode",
        "enforce",
        "--no-http",
        "-q",
        "--interval",
        "0.1",
        before=closed(rig.tree),
    )
    file = str(rig.tree.file(rig.tree.qos("BestEffort"), "cpuset"))
    told = f"{errno}: {os.strerror(getattr(errnos, errno))} ({file})"
    until(lambda: told in agent.said(), f"it says {told}")
    for_a_while(agent.alive, "the agent runs", seconds=0.5)
    assert agent.stop() == 0
    assert rig.tree.content() == found
    assert any(errno in line and file in line for line in command.refusals(command.report(rig.folder / "report")))
    assert agent.said().count(file) == 1, "the same refusal is told once, not each tick"

    for path in (rig.folder / "state", *(rig.folder / "state").iterdir()):
        os.chown(path, os.geteuid(), os.getegid())  # Another user's journal is refused.
    restored = rig.start("restore", *rig.options)
    assert restored.wait() == 0, restored.said()
    assert rig.tree.content() == found
