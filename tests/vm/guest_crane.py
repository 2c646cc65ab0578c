"""Runs on a real kernel with two NUMA nodes: Crane's tutorial, two exclusive CPUs of node 0.

Prints one line of JSON for each claim: {"claim": …, "ok": …, "detail": …}. The argument is a folder to work in.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import sys

from guestclaims import ALL, claim, tell
from realnode.command import Command
from realnode.cranewalk import Walk
from realnode.manifests import Manifests
from realnode.tree import PREFIX, Tree, parse_list

PATIENCE_SECONDS = 240
"""An emulated machine whose host is busy takes minutes to start Python."""


def main() -> None:
    """All claims."""
    work = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "/tmp/koordlite-crane")
    work.mkdir(parents=True, exist_ok=True)
    tree, manifests = Tree(f"{PREFIX}crane-{os.getpid()}").build(), Manifests(work / "cluster")
    begun: list[Command] = []

    settings = work / "memory.yaml"
    settings.write_text("strategies: {craneCPUManager: {mode: enforce, memoryNodes: true}}\n")

    def begin(*more: str) -> Command:
        options = ["--cluster", str(manifests.folder), "--state-dir", str(work / "state"), "--kubepods", tree.top]
        options += ["--mode", "observe", "--strategy", "craneCPUManager=enforce", "--no-http", "-q"]
        begun.append(Command(["run", *options, *more, "--interval", "0.5"], work / f"log-{len(begun)}"))
        return begun[-1]

    node_0 = parse_list(pathlib.Path("/sys/devices/system/node/node0/cpulist").read_text())
    with contextlib.closing(tree):
        walk = Walk(tree, manifests, begin, work / "state", PATIENCE_SECONDS)
        steps = walk.steps(cpus=2, machine=set(os.sched_getaffinity(0)))
        with claim("nginx has two CPUs of node 0 alone"):
            shown = next(steps)
            own = parse_list(shown.partition("[")[2].rstrip("]").replace(" ", ""))
            assert own < node_0, (own, node_0)
        for text in ("a foreign write is put right", "kill -9 and a start change nothing", "all comes back"):
            with claim(text):
                next(steps)
        with claim("the agent stops in order"):
            assert next(steps, None) is None
        with claim("memory follows where asked, and comes back"):
            walk.memory(lambda: begin("--config", str(settings), "--on-stop", "restore"))
    tell(ALL)


if __name__ == "__main__":
    main()
