"""This descheduler beside upstream's, in turns on one real API server: CPU, memory and time of a whole dry run.

    KUBEBUILDER_ASSETS=DIR GO_DESCHEDULER=FILE PYTHONPATH=tests/support \\
        python tests/perf/descheduler/beside.py [--nodes 1000] [--kind each] [--turns 2]

Both read the same cluster (30 pods a node) and the same policy of nine plugins that both have, and find what they would
evict. Upstream's begins its first cycle on a copy of the cluster that is still empty, and is stopped after its second.
DIR has etcd and kube-apiserver, FILE is upstream's descheduler. To load 30,000 pods takes some minutes.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import json
import multiprocessing
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "support")]
PLUGINS: dict[str, dict[str, Any]] = {
    "PodLifeTime": {"maxPodLifeTimeSeconds": 7776000},
    "RemoveFailedPods": {"minPodLifetimeSeconds": 3600},
    "RemovePodsHavingTooManyRestarts": {"podRestartThreshold": 100, "includingInitContainers": True},
    "RemovePodsViolatingNodeAffinity": {"nodeAffinityType": ["requiredDuringSchedulingIgnoredDuringExecution"]},
    "RemovePodsViolatingNodeTaints": {},
    "RemovePodsViolatingInterPodAntiAffinity": {},
    "RemoveDuplicates": {},
    "RemovePodsViolatingTopologySpreadConstraint": {},
    "LowNodeUtilization": {
        "thresholds": {"cpu": 20, "memory": 20, "pods": 20},
        "targetThresholds": {"cpu": 80, "memory": 80, "pods": 60},
    },
}
BALANCING = ("RemoveDuplicates", "RemovePodsViolatingTopologySpreadConstraint", "LowNodeUtilization")
_AT_ONCE = 16
_STATUS = {"Pod": "status", "Node": "status", "PodDisruptionBudget": "status"}
_PATHS = {
    "Namespace": "/api/v1/namespaces",
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/namespaces/{}/pods",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
}


def policy() -> dict[str, Any]:
    """The policy of both."""
    from_both = [{"name": "DefaultEvictor", "args": {"nodeFit": True, "minReplicas": 2}}]
    arguments = from_both + [{"name": name, "args": args} for name, args in PLUGINS.items()]
    first = [name for name in PLUGINS if name not in BALANCING]
    points = {"deschedule": {"enabled": first}, "balance": {"enabled": list(BALANCING)}}
    profile = {"name": "all", "pluginConfig": arguments, "plugins": points}
    return {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy", "profiles": [profile]}


def load(plane: Any, folder: pathlib.Path, nodes: int, kind: str) -> None:
    """Put a cluster onto the server, status and all."""
    import varied

    varied.write(folder, nodes, each=kind == "each")
    api = plane.api()

    def put(item: dict[str, Any]) -> None:
        meta = item["metadata"]
        path = _PATHS[item["kind"]].format(meta.get("namespace", ""))
        meta.pop("resourceVersion", None)
        item.get("spec", {}).pop("priority", None)  # The server derives it from the class, of which there is none.
        api.request("POST", path, body=item)
        if item["kind"] in _STATUS and item.get("status"):
            api.request("PATCH", f"{path}/{meta['name']}/status", body={"status": item["status"]}, content_type=_MERGE)

        if item["kind"] == "Node":  # The server taints new nodes as not ready, until a controller looks at them.
            taints = {"spec": {"taints": item["spec"].get("taints")}}
            api.request("PATCH", f"{path}/{meta['name']}", body=taints, content_type=_MERGE)

    with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
        for name in ("namespaces", "nodes", "budgets", "pods"):
            items = json.loads((folder / f"{name}.json").read_text())["items"]
            for done, _ in enumerate(pool.map(put, items), 1):
                if done % 5000 == 0:
                    print(f"  {done} of {len(items)} {name}", file=sys.stderr, flush=True)


_MERGE = "application/merge-patch+json"


def whole(command: Sequence[str], output: pathlib.Path, totals: int = 0) -> dict[str, float]:
    """Run a command to its end, or stop it once it has logged so many `totals`: CPU seconds, seconds, MiB and
    evictions, the first three as the kernel counted them."""
    began, evictions, told = time.perf_counter(), -1, 0
    with (
        output.open("w") as log,
        subprocess.Popen(list(command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process,
    ):
        assert process.stdout
        for line in process.stdout:
            log.write(line)
            total = _TOTAL.search(line)
            if total:
                evictions, told = int(total[1] or total[2]), told + 1
            if totals and told == totals:
                process.terminate()
                break
        seconds = time.perf_counter() - began
        process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if not totals and process.returncode:
        raise SystemExit(f"{command[0]} failed:\n{output.read_text(errors='replace')[-2000:]}")
    memory = used.ru_maxrss / 1024
    return {"CPU s": used.ru_utime + used.ru_stime, "s": seconds, "MiB": memory, "evictions": evictions}


_TOTAL = re.compile(r"totalEvicted=(\d+)|with findings: (\d+) to evict,")


def main() -> int:
    """Load the cluster, run both, print a row for each run and the ratio of the medians."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--nodes", type=int, default=1000)
    asked.add_argument("--kind", choices=("varied", "each"), default="varied")
    asked.add_argument("--turns", type=int, default=2)
    asked.add_argument("--interval", type=int, default=60, help="seconds in which upstream has copied the cluster")
    args = asked.parse_args()
    upstream = os.environ.get("GO_DESCHEDULER")
    if not upstream or not os.environ.get("KUBEBUILDER_ASSETS"):
        print("skipped: GO_DESCHEDULER and KUBEBUILDER_ASSETS have to name upstream's program and a server's folder")
        return 0
    from control_plane import control_plane

    with tempfile.TemporaryDirectory(prefix="koordlite-perf-") as name, contextlib.ExitStack() as stack:
        folder = pathlib.Path(name)
        (folder / "plane").mkdir()
        plane = stack.enter_context(control_plane(folder / "plane"))
        # In a process of its own: what this one has in memory counts for those that it starts.
        loading = multiprocessing.Process(target=load, args=(plane, folder / "cluster", args.nodes, args.kind))
        loading.start()
        loading.join()
        if loading.exitcode:
            return 1
        (folder / "policy.yaml").write_text(json.dumps(policy()))
        access, rules = str(plane.kubeconfig()), str(folder / "policy.yaml")
        ours = [sys.executable, "-m", "descheduler", "plan", "--kubeconfig", access, "--policy", rules, "--brief"]
        theirs = [upstream, "--kubeconfig", access, "--policy-config-file", rules, "--dry-run", "--secure-port=0"]
        theirs += [f"--descheduling-interval={args.interval}s", "--v=1"]  # Less does not tell when a cycle has ended.
        print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, {args.nodes} nodes, {args.kind}")
        rows: dict[str, list[dict[str, float]]] = {"upstream": [], "ours": []}
        for turn in range(args.turns):
            rows["upstream"].append(whole(theirs, folder / f"upstream-{turn}.log", 2))
            rows["ours"].append(whole(ours, folder / f"ours-{turn}.log"))
            for who, several in rows.items():
                print(f"{who:9}" + "".join(f"{value:10.1f} {what}" for what, value in several[-1].items()), flush=True)
        for what in ("CPU s", "MiB"):
            first, second = (statistics.median(row[what] for row in several) for several in rows.values())
            print(f"{what:6} {first / second:6.1f} times")
    return 0


if __name__ == "__main__":
    sys.exit(main())
