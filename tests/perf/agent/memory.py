"""What the agent takes of a node's memory: real cgroups of this machine, and an API server in another process.

    python -m tests.perf.agent.memory [--pods 250] [--seconds 60] [--mode enforce] [options of koordlite run]

Prints resident memory and its parts after the first ticks and while it is asked for metrics, and its CPU time. The
agent runs as in its pod, with the flight record; there is no kubelet. Fails far beyond the budget.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import re
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))

import yaml
from apiserver import ApiServer
from realnode.command import Command, running
from realnode.manifests import NODE, Manifests, threshold
from realnode.tree import PREFIX, Tree
from realnode.waiting import until

from tests.perf.agent.nodes import cpu_seconds, populate

CRD = pathlib.Path(__file__).resolve().parents[3] / "manifests/crds/noderesourcetopologies.yaml"
BUDGET_MIB_AT_250 = 55.0
WIDE = 1.3
"""Interpreters and their libraries differ: a run fails beyond this many times the budget."""


@contextlib.contextmanager
def node(pods: int, folder: pathlib.Path) -> Iterator[tuple[Tree, ApiServer]]:
    """The groups of that many pods of two containers, and a server that knows them."""
    built = Tree(f"{PREFIX}memory-{os.getpid()}")
    manifests = Manifests(folder / "cluster")
    manifests.node(reservation={"reservedCPUs": "0"})
    manifests.config(threshold=threshold("cpuset"))
    with contextlib.closing(built), ApiServer() as server:
        built.build()
        populate(built, manifests, pods, batch=(100, 64 << 20))
        server.objects.load(yaml.safe_load(CRD.read_text()))
        for file in sorted(manifests.folder.glob("*.yaml")):
            server.objects.load(json.loads(file.read_text()))
        (folder / "kubeconfig").write_text(server.kubeconfig())
        yield built, server


def agent(top: str, folder: pathlib.Path, more: Sequence[str]) -> contextlib.AbstractContextManager[Command]:
    """The agent as its pod runs it."""
    options = ["run", "--kubeconfig", str(folder / "kubeconfig"), "--node", NODE, "--kubepods", top, "--quiet"]
    options += ["--state-dir", str(folder / "state"), "--on-stop", "restore", "--port", "0", *more]
    return running(options, folder / "agent.log", lambda begun: "listening on" in begun.said(), "the agent serves")


def mib(pid: int) -> dict[str, float]:
    """Resident memory of a process in MiB: all, what is its own, what is mapped from files, and the most so far."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    names = {"all": "VmRSS", "own": "RssAnon", "of files": "RssFile", "most": "VmHWM"}
    return {word: int(re.search(rf"{name}:\s+(\d+)", status)[1]) / 1024 for word, name in names.items()}  # type: ignore[index]


def row(label: str, of: Command) -> float:
    """One line; all resident MiB."""
    sizes = mib(of.process.pid)
    shown = "  ".join(f"{word} {value:.1f}" for word, value in sizes.items())
    print(f"{label:<22}{shown}  MiB, load {os.getloadavg()[0]:.1f}", flush=True)
    return sizes["all"]


def main() -> int:
    """Run it, and print; 1 when at 250 pods it is far beyond the budget."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--pods", type=int, default=250)
    words.add_argument("--seconds", type=float, default=60.0)
    words.add_argument("--mode", default="enforce")
    given, more = words.parse_known_args()
    with tempfile.TemporaryDirectory() as scratch, node(given.pods, pathlib.Path(scratch)) as (tree, server):
        folder = pathlib.Path(scratch)
        with agent(tree.top, folder, ["--mode", given.mode, *more]) as begun:
            url = re.search(r"listening on (\S+)", begun.said())[1]  # type: ignore[index]
            until(lambda: _ready(url), "ready")
            time.sleep(5)
            resident = row(f"{given.pods} pods, first ticks", begun)
            cpu, began = cpu_seconds(begun.process.pid), time.monotonic()
            while (passed := time.monotonic() - began) < given.seconds:
                time.sleep(min(15, given.seconds - passed))
                with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
                    answer.read()
                resident = row(f"after {time.monotonic() - began:.0f} s", begun)
            spent = (cpu_seconds(begun.process.pid) - cpu) / (time.monotonic() - began)
            print(f"{100 * spent:.2f} % of a core, {len(server.requests)} requests")
    return int(given.pods <= 250 and resident > WIDE * BUDGET_MIB_AT_250)


def _ready(url: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/readyz", timeout=10) as answer:
        return bool(answer.status == 200)
    return False


if __name__ == "__main__":
    sys.exit(main())
