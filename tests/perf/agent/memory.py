"""What the agent takes of a node's memory: real cgroups of this machine, and an API server in another process.

    python -m tests.perf.agent.memory [--pods 250] [--seconds 60] [--mode enforce] [options of koordlite run]

Prints resident memory and its parts after the first ticks and while it is asked for metrics, its part of pages it
shares (PSS), what kubelet accounts it for, and its CPU time. It runs as in its pod, with the flight record, from
bytecode as the image has it, which the first run makes beside this interpreter (a minute); there is no kubelet. Fails
far beyond the budget.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.request
import zlib
from collections.abc import Iterator, Sequence

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))

import yaml
from apiserver import ApiServer
from realnode.command import Command, running
from realnode.manifests import NODE, Manifests, threshold
from realnode.tree import PREFIX, Tree
from realnode.waiting import until

from tests.perf.agent.nodes import cpu_seconds, populate

ROOT = pathlib.Path(__file__).resolve().parents[3]
CRD = ROOT / "manifests/crds/noderesourcetopologies.yaml"
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


def bytecode() -> str:
    """The variable that names the folder of the bytecode that `scripts/compile-tree` makes, for this machine."""
    script = ROOT / "scripts/compile-tree"
    variable = f"PYTHONPYCACHEPREFIX={sys.prefix}/compiled-tree-{zlib.crc32(script.read_bytes()):08x}"
    never_imported = "/(kubernetes/(aio|client/models|client/api)|tests?)/"
    folders = [ROOT / "koordlite", sysconfig.get_path("purelib"), "--except", never_imported]
    command = ["env", variable, sys.executable, script, "--checked", "--stdlib", *folders]
    # Foreign packages bring files that are no Python; they are never imported.
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
    return variable


@contextlib.contextmanager
def account() -> Iterator[pathlib.Path]:
    """A group in which memory is charged to the agent alone."""
    root = pathlib.Path("/sys/fs/cgroup")
    folder = (root / "memory" if (root / "memory").is_dir() else root) / f"{PREFIX}account-{os.getpid()}"
    folder.mkdir()
    try:
        yield folder
    finally:
        folder.rmdir()


def working_set(group: pathlib.Path) -> float:
    """MiB that kubelet accounts a group for: all of it, the kernel's own too, but files that nobody uses any more.
    Source: cAdvisor `setMemoryStats`."""
    stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    names = ("memory.current", "memory.usage_in_bytes")
    used = next(int((group / name).read_text()) for name in names if (group / name).exists())
    return (used - int(stat.get("total_inactive_file") or stat["inactive_file"])) / 2**20


def agent(
    top: str, folder: pathlib.Path, group: pathlib.Path, more: Sequence[str]
) -> contextlib.AbstractContextManager[Command]:
    """The agent as its pod runs it, in `group`."""
    options = ["run", "--kubeconfig", str(folder / "kubeconfig"), "--node", NODE, "--kubepods", top, "--quiet"]
    options += ["--state-dir", str(folder / "state"), "--on-stop", "restore", "--port", "0", *more]
    into = ["env", bytecode(), "sh", "-c", f'echo $$ >{group}/cgroup.procs; exec "$@"', "sh"]
    log, what = folder / "agent.log", "the agent serves"
    return running(options, log, lambda begun: "listening on" in begun.said(), what, before=into)


def mib(pid: int) -> dict[str, float]:
    """Resident memory of a process in MiB: all, what is its own, what is mapped from files, the most so far, and all
    with pages that others map too divided among them."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    status += pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    names = {"all": "VmRSS", "own": "RssAnon", "of files": "RssFile", "most": "VmHWM", "PSS": "\nPss"}
    return {word: int(re.search(rf"{name}:\s+(\d+)", status)[1]) / 1024 for word, name in names.items()}  # type: ignore[index]


def row(label: str, of: Command, group: pathlib.Path) -> float:
    """One line; all resident MiB."""
    sizes = {**mib(of.process.pid), "working set": working_set(group)}
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
        with account() as group, agent(tree.top, folder, group, ["--mode", given.mode, *more]) as begun:
            url = re.search(r"listening on (\S+)", begun.said())[1]  # type: ignore[index]
            until(lambda: _ready(url), "ready")
            time.sleep(5)
            resident = row(f"{given.pods} pods, first ticks", begun, group)
            cpu, began = cpu_seconds(begun.process.pid), time.monotonic()
            while (passed := time.monotonic() - began) < given.seconds:
                time.sleep(min(15, given.seconds - passed))
                with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
                    answer.read()
                resident = row(f"after {time.monotonic() - began:.0f} s", begun, group)
            spent = (cpu_seconds(begun.process.pid) - cpu) / (time.monotonic() - began)
            print(f"{100 * spent:.2f} % of a core, {len(server.requests)} requests")
    return int(given.pods <= 250 and resident > WIDE * BUDGET_MIB_AT_250)


def _ready(url: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/readyz", timeout=10) as answer:
        return bool(answer.status == 200)
    return False


if __name__ == "__main__":
    sys.exit(main())
