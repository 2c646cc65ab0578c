"""Time and CPU time that a new best-effort container spent outside of its limits, with a real containerd and runc.

    CONTAINERD_NRI=FILE python -m tests.perf.agent.window [--nri off auto] [--containers 30] [--pods 250]

Each container does nothing but compute. Its CPU time at the moment its quota stands is what it used without a limit;
the time until then counts from its first process, which runc executes some time after it made the group. Both are 0
when runc was given the quota. Beside it run that many pods without processes. Without a containerd of 2.0 or
newer it says so, and measures nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))

import containerd_node
from containerd_node import Containerd, SandboxConfig
from realnode import beginning
from realnode.command import Command
from realnode.manifests import Manifests, threshold
from realnode.pods import Pod
from realnode.tree import PREFIX, Tree
from realnode.waiting import until

MiB = 2**20
BATCH = (400, 64 * MiB)
QUOTA = 40_000
"""Of 400 batch-cpu, in a period of 100 ms."""
BURN = ("/bin/sh", "-c", "while :; do :; done")
LONG_SECONDS = 30.0
QUICK_MS = 100
PARTS = (("median", 0.5), ("p90", 0.9), ("p99", 0.99))
_LOOK_SECONDS = 0.0002


def cpu_milliseconds(tree: Tree, group: str) -> float:
    """CPU time of a group since it was made."""
    if tree.version == 1:
        return int((tree.points["cpuacct"] / group / "cpuacct.usage").read_text()) / 1e6
    first = (tree.points["cpu"] / group / "cpu.stat").read_text().split("\n", 1)[0]
    return int(first.split()[1]) / 1e3


def has_begun(tree: Tree, group: str) -> bool:
    """Tell whether the container's own command runs in the group: before it, there is runc."""
    pids = (tree.points["cpu"] / group / "cgroup.procs").read_text().split()
    return any(pathlib.Path("/proc", pid, "comm").read_text().strip() == "sh" for pid in pids)


@dataclasses.dataclass(frozen=True)
class Outside:
    """What one container spent outside of its limits, in milliseconds."""

    cpu: float
    since_first_process: float


def outside(tree: Tree, containerd: Containerd, sandbox: tuple[str, SandboxConfig], pod: Pod, name: str) -> Outside:
    """What a container that is created and started now spends so."""
    container = containerd.create(sandbox, name, BURN, cpu_shares=2)
    group, spent = f"{tree.pod(pod)}/{container}", list[Outside]()

    def watch() -> None:
        begun = None
        end = time.monotonic() + LONG_SECONDS
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                if begun is None and has_begun(tree, group):
                    begun = time.monotonic()
                if beginning.values(tree, group)["quota"].split()[0] == str(QUOTA):
                    late = 0.0 if begun is None else (time.monotonic() - begun) * 1000
                    spent.append(Outside(cpu_milliseconds(tree, group), late))
                    return
            time.sleep(_LOOK_SECONDS)

    watching = threading.Thread(target=watch)
    watching.start()
    containerd.start(container)
    watching.join()
    bundle = containerd.folder / "state/io.containerd.runtime.v2.task/k8s.io" / container / "config.json"
    given = json.loads(bundle.read_text())["linux"]["resources"]["cpu"].get("quota")
    containerd.remove(container)
    if not spent:
        raise TimeoutError(f"the quota of {group} did not stand within {LONG_SECONDS:.0f} s")
    return Outside(0.0, 0.0) if given == QUOTA else spent[0]


def measured(tree: Tree, folder: pathlib.Path, *, nri: str, containers: int, pods: int) -> list[Outside]:
    """What each container spent outside of its limits."""
    manifests = Manifests(folder / "cluster")
    manifests.node()
    manifests.config(threshold=threshold(enable=False))
    for number in range(pods):
        other = Pod(f"p{number}", "Burstable", "LS", ("one", "two"))
        manifests.pod(other)
        tree.add(other)
    pod = Pod("batch", containers=("main",), batch=BATCH)
    manifests.pod(pod, named=False)
    beginning.make(tree, tree.pod(pod))
    with containerd_node.running(folder) as containerd:
        settings = folder / "koordlite.yaml"
        settings.write_text(f"agent: {{nri: '{nri}', nriSocket: {containerd.nri_socket}}}\n")
        options = ["--cluster", str(manifests.folder), "--kubepods", tree.top, "--state-dir", str(folder / "state")]
        options += ["--config", str(settings), "--mode", "enforce", "-q", "--no-http", "--on-stop", "restore"]
        sandbox = containerd.run_pod(pod.name, pod.uid, tree.pod(pod), {"koordinator.sh/qosClass": "BE"})
        agent = Command(["run", *options], folder / "agent.log")
        try:
            stands = beginning.path(tree, tree.pod(pod), "quota")
            until(lambda: stands.read_text().split()[0] == str(QUOTA), "the first round")
            return [outside(tree, containerd, sandbox, pod, "main") for _ in range(containers)]
        finally:
            agent.stop()


def _words(values: list[float]) -> str:
    ranked = sorted(values)
    parts = [(name, ranked[min(len(ranked) - 1, int(len(ranked) * part))]) for name, part in PARTS]
    return ", ".join(f"{name} {value:.2f} ms" for name, value in [*parts, ("longest", ranked[-1])])


def main() -> int:
    """Print a line for each setting; 1 when containers with NRI used anything outside of their limits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nri", nargs="+", choices=("off", "auto"), default=["off", "auto"])
    parser.add_argument("--containers", type=int, default=30)
    parser.add_argument("--pods", type=int, default=250)
    options = parser.parse_args()
    if containerd_node.MISSING:
        print(f"not measured: {containerd_node.MISSING}; set it to the file of a containerd 2.0 or newer")
        return 0
    failed = False
    for nri in options.nri:
        tree = Tree(f"{PREFIX}window{os.getpid()}")
        with contextlib.closing(tree), tempfile.TemporaryDirectory(prefix="koordlite-nri-") as folder:
            tree.build()
            print(f"cgroup v{tree.version}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, nri: {nri}")
            spent = measured(tree, pathlib.Path(folder), nri=nri, containers=options.containers, pods=options.pods)
        cpu = _words([each.cpu for each in spent])
        print(f"{len(spent)} containers, CPU time outside of their limits: {cpu}")
        times = [each.since_first_process for each in spent]
        quick = sum(late <= QUICK_MS for late in times)
        print(f"  time since their first process: {_words(times)}; {quick} within {QUICK_MS} ms")
        failed |= nri == "auto" and any(each.cpu for each in spent)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
