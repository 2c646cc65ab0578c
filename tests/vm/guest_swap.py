"""Runs on a real kernel with swap: `koordlite run` gives batch work a part of it and a service none, and puts it back.

Prints one line of JSON for each claim: {"claim": …, "ok": …, "detail": …}. The argument is a folder to work in.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

from guestclaims import ALL, claim, tell
from realnode.command import Command, soon
from realnode.manifests import Manifests
from realnode.pods import Pod
from realnode.tree import PREFIX, Tree

MiB = 2**20
WEB = Pod("web", "Burstable", "LS")
BATCH = Pod("batch", batch=(1000, 128 * MiB))
QUALITY = {
    "clusterStrategy": {
        "lsClass": {"memoryQOS": {"enable": True, "swapMaxPercent": 0}},
        "beClass": {"memoryQOS": {"enable": True, "swapMaxPercent": 25}},
    }
}
# Joins its group, then fills as many MiB as each line of its input says.
_FILL = """
import sys
open(sys.argv[1], "w").write("0")
kept = []
for line in sys.stdin:
    kept.append(bytearray(int(line) << 20))
    for at in range(0, len(kept[-1]), 4096):
        kept[-1][at] = 1
    print("filled", flush=True)
"""


@contextlib.contextmanager
def swap_device(work: pathlib.Path) -> Iterator[None]:
    """64 MiB of swap on a loop device, as no file of tmpfs is taken for it. The file is written beforehand: pages of a
    hole would be charged to the group that swaps."""
    file = work / "swap"
    file.write_bytes(bytes(64 * MiB))
    device = said("losetup", "--find", "--show", str(file)).strip()
    said("mkswap", device)
    said("swapon", device)
    try:
        yield
    finally:
        said("swapoff", device)
        said("losetup", "--detach", device)


def said(*command: str) -> str:
    """The output of a command that has to succeed."""
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"{command}: {ended.stderr}"
    return ended.stdout


class Machine:
    """A service and a batch pod, with their manifests."""

    def __init__(self, tree: Tree, work: pathlib.Path) -> None:
        self.tree, self.work = tree, work
        manifests = Manifests(work / "cluster")
        manifests.node()
        manifests.config(qos=QUALITY)
        for pod in (WEB, BATCH):
            manifests.pod(pod)
            tree.add(pod)
        self.service, self.batch = tree.container(WEB, "main"), tree.container(BATCH, "main")

    def run(self) -> Command:
        """The agent at work; a stop restores."""
        options = ["--cluster", str(self.work / "cluster"), "--state-dir", str(self.work / "state")]
        options += ["--published", str(self.work / "published"), "--kubepods", self.tree.top]
        # The memory limits stay those of this test.
        modes = ["--mode", "observe", "--strategy", "memoryQos=enforce"]
        how = [*modes, "--no-http", "-q", "--interval", "0.5", "--on-stop", "restore"]
        return Command(["run", *options, *how], self.work / "agent.log")

    def path(self, group: str, name: str) -> pathlib.Path:
        """A file of a group."""
        return self.tree.points["memory"] / group / name

    def text(self, group: str, name: str = "memory.swap.max") -> str:
        """What stands there."""
        return self.path(group, name).read_text()

    @contextlib.contextmanager
    def filling(self, group: str) -> Iterator[subprocess.Popen[str]]:
        """A process in a container that may keep 24 MiB in memory."""
        self.path(group, "memory.max").write_text(str(24 * MiB))
        command = [sys.executable, "-S", "-c", _FILL, str(self.path(group, "cgroup.procs"))]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            try:
                yield process
            finally:
                process.kill()


def take(process: subprocess.Popen[str], mib: int) -> str:
    """The answer of a process that is to fill memory; empty when the kernel has ended it."""
    assert process.stdin and process.stdout
    process.stdin.write(f"{mib}\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def check(machine: Machine) -> None:
    """The limits, what the kernel makes of them, and the way back."""
    every = (*machine.tree.groups(),)
    before = {group: machine.text(group) for group in every}
    agent = machine.run()
    with claim("batch work may swap a quarter of its limit, the service nothing"):
        soon(lambda: machine.text(machine.batch) == f"{32 * MiB}\n", "the limit of batch work", agent)
        soon(lambda: machine.text(machine.service) == "0\n", "the limit of the service", agent)
        assert {machine.text(group) for group in every} == {f"{32 * MiB}\n", "0\n", "max\n"}
    with (
        claim("what does not fit into batch work's memory goes to swap, as far as it may"),
        machine.filling(machine.batch) as process,
    ):
        assert take(process, 32) == "filled", machine.text(machine.batch, "memory.events")
        swapped = int(machine.text(machine.batch, "memory.swap.current"))
        assert 8 * MiB <= swapped <= 32 * MiB, swapped
        assert take(process, 64) == "", "it has 24 MiB of memory and 32 of swap"
        assert process.wait() == -9, process.returncode
    with claim("the service does not get its memory from the disk"), machine.filling(machine.service) as process:
        assert take(process, 32) == ""
        assert process.wait() == -9, process.returncode
        assert "oom_kill 1" in machine.text(machine.service, "memory.events")
    with claim("a stop puts every byte back"):
        assert agent.stop() == 0, agent.said()[-600:]
        assert {group: machine.text(group) for group in every} == before


def main() -> None:
    """All claims."""
    work = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "/tmp/koordlite-swap")
    work.mkdir(parents=True, exist_ok=True)
    tree = Tree(f"{PREFIX}swap-{os.getpid()}").build()
    with contextlib.closing(tree), swap_device(work):
        check(Machine(tree, work))
    tell(ALL)


if __name__ == "__main__":
    main()
