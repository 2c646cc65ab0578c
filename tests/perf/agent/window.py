"""Time and CPU time that a new container spent outside of its limits, with a real containerd and runc.

    CONTAINERD_NRI=FILE python -m tests.perf.agent.window [--strategy batchResource cpusetPools craneCPUManager]
        [--nri off auto] [--containers 30] [--pods 250]

Each container does nothing but compute. Its CPU time at the moment its quota, or its set of one CPU, stands is what it
used without a limit; the time until then counts from its first process, which runc executes some time after it made the
group. Both are 0 when runc was given the value. Beside it run that many pods without processes. Without a containerd of
2.0 or newer it says so, and measures nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import json
import pathlib
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))

import containerd_node
from containerd_node import Containerd, SandboxConfig
from realnode import beginning
from realnode.manifests import Manifests, threshold
from realnode.pods import Pod
from realnode.tree import Tree, parse_list
from realnode.waiting import until

from tests.perf.agent import nodes

MiB = 2**20
QUOTA = 40_000
"""Of 400 batch-cpu, in a period of 100 ms."""
PODS = {
    "batchResource": Pod("batch", batch=(400, 64 * MiB)),
    "cpusetPools": Pod("pinned", "Guaranteed", "LSR", pinned="1"),
    "craneCPUManager": Pod("placed", "Guaranteed", "", crane=((0, 1),)),
}
"""The pod that each strategy limits, to a quota or to one CPU."""
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


def is_limited(tree: Tree, group: str, pod: Pod) -> bool:
    """Tell whether the quota stands in a group, or its set of one CPU."""
    values = beginning.values(tree, group)
    return values["quota"].split()[0] == str(QUOTA) if pod.batch else len(parse_list(values["cpus"])) == 1


@dataclasses.dataclass(frozen=True)
class Outside:
    """What one container spent outside of its limits, in milliseconds."""

    cpu: float
    since_first_process: float


def outside(tree: Tree, containerd: Containerd, sandbox: tuple[str, SandboxConfig], pod: Pod) -> Outside:
    """What a container that is created and started now spends so."""
    container = containerd.create(sandbox, "main", BURN, cpu_shares=2 if pod.batch else 1024)
    group, spent = f"{tree.pod(pod)}/{container}", list[Outside]()

    def watch() -> None:
        begun = None
        end = time.monotonic() + LONG_SECONDS
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                if begun is None and has_begun(tree, group):
                    begun = time.monotonic()
                if is_limited(tree, group, pod):
                    late = 0.0 if begun is None else (time.monotonic() - begun) * 1000
                    spent.append(Outside(cpu_milliseconds(tree, group), late))
                    return
            time.sleep(_LOOK_SECONDS)

    watching = threading.Thread(target=watch)
    watching.start()
    containerd.start(container)
    watching.join()
    bundle = containerd.folder / "state/io.containerd.runtime.v2.task/k8s.io" / container / "config.json"
    given = json.loads(bundle.read_text())["linux"]["resources"]["cpu"].get("quota" if pod.batch else "cpus")
    containerd.remove(container)
    if not spent:
        raise TimeoutError(f"the limit of {group} did not stand within {LONG_SECONDS:.0f} s")
    return Outside(0.0, 0.0) if given else spent[0]


def measured(tree: Tree, folder: pathlib.Path, pod: Pod, *, nri: str, containers: int, pods: int) -> list[Outside]:
    """What each container spent outside of its limits."""
    manifests = Manifests(folder / "cluster")
    manifests.node()
    manifests.kubelet(cpuManagerPolicy="none")
    manifests.config(threshold=threshold(enable=False))
    others = [Pod(f"p{number}", "Burstable", "LS", ("one", "two")) for number in range(pods)]
    for other in others:
        manifests.pod(other)
        tree.add(other)
    manifests.pod(pod, named=False)
    beginning.make(tree, tree.pod(pod))
    with containerd_node.running(folder) as containerd:
        settings = folder / "koordlite.yaml"
        # The others request more than the one CPU that is left to them on a machine of two.
        floor = "strategies: {cpusetPools: {poolFloorPercent: 0}}"
        settings.write_text(f"agent: {{nri: '{nri}', nriSocket: {containerd.nri_socket}}}\n{floor}\n")
        options = ["--config", str(settings), "--strategy", "craneCPUManager=enforce"]
        sandbox = containerd.run_pod(pod.name, pod.uid, tree.pod(pod), {"koordinator.sh/qosClass": pod.koord_qos})
        with nodes.enforcing(tree, manifests, folder, *options) as agent:
            # The others are kept off a promised CPU.
            limited = tree.pod(pod) if pod.batch else tree.container(others[0], "one")
            until(lambda: is_limited(tree, limited, pod), "the first round")
            until(lambda: nri == "off" or "INFO NRI:" in agent.said(), "the runtime asks")
            spent = [outside(tree, containerd, sandbox, pod) for _ in range(containers)]
            agent.stop()
            return spent


def _words(values: list[float]) -> str:
    ranked = sorted(values)
    parts = [(name, ranked[min(len(ranked) - 1, int(len(ranked) * part))]) for name, part in PARTS]
    return ", ".join(f"{name} {value:.2f} ms" for name, value in [*parts, ("longest", ranked[-1])])


def main() -> int:
    """Print a line for each setting; 1 when containers with NRI used anything outside of their limits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategy", nargs="+", choices=PODS, default=[*PODS])
    parser.add_argument("--nri", nargs="+", choices=("off", "auto"), default=["off", "auto"])
    parser.add_argument("--containers", type=int, default=30)
    parser.add_argument("--pods", type=int, default=250)
    options = parser.parse_args()
    if containerd_node.MISSING:
        print(f"not measured: {containerd_node.MISSING}; set it to the file of a containerd 2.0 or newer")
        return 0
    failed = False
    for strategy, nri in itertools.product(options.strategy, options.nri):
        with nodes.private("window", f"{strategy}, nri: {nri}") as (tree, folder):
            pod = PODS[strategy]
            spent = measured(tree, folder, pod, nri=nri, containers=options.containers, pods=options.pods)
        cpu = _words([each.cpu for each in spent])
        print(f"{len(spent)} containers, CPU time outside of their limits: {cpu}")
        times = [each.since_first_process for each in spent]
        quick = sum(late <= QUICK_MS for late in times)
        print(f"  time since their first process: {_words(times)}; {quick} within {QUICK_MS} ms", flush=True)
        failed |= nri == "auto" and any(each.cpu for each in spent)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
