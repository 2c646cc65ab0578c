"""How soon a runtime has its answer when it asks by NRI how to create a container: an agent on cgroups of this machine.

    python -m tests.perf.agent.nri_answers [--pods 250] [--containers 200]

The agent is a process of its own and ticks once a second; the runtime's side is played here (`nri_runtime`). It asks at
random moments, half a second apart, makes the group as it was answered, and one pod in two is not known yet.
"""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import random
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))

import nri_runtime
from realnode import beginning
from realnode.manifests import Manifests, threshold
from realnode.pods import SANDBOX, Pod
from realnode.tree import Tree

from koordlite.nri import Container, LinuxContainer, LinuxCPU, LinuxMemory, LinuxPodSandbox, LinuxResources, PodSandbox
from koordlite.nri.messages import ContainerEvent, CreateContainerResponse
from koordlite.nri.protobuf import decode
from tests.perf.agent import nodes

MiB = 2**20
BATCH = (100, 8 * MiB)
GOAL_SECONDS = 0.005
WIDE = 20.0
"""The machine may be shared: a run fails when the median is beyond so many times the goal."""


def event(tree: Tree, pod: Pod, name: str) -> ContainerEvent:
    """The runtime's words about a best-effort container that it is about to create."""
    identity = pod.container_id(name)
    sandbox = PodSandbox(
        id=pod.container_id(SANDBOX),
        name=pod.name,
        uid=pod.uid,
        namespace="default",
        labels={"koordinator.sh/qosClass": pod.koord_qos},
        linux=LinuxPodSandbox(cgroup_parent=f"/{tree.pod(pod)}"),
    )
    resources = LinuxResources(cpu=LinuxCPU(shares=2, quota=0, period=100_000), memory=LinuxMemory())
    linux = LinuxContainer(resources=resources, cgroups_path=f"/{tree.container(pod, name)}", oom_score_adj=1000)
    return ContainerEvent(
        pod=sandbox, container=Container(id=identity, pod_sandbox_id=sandbox.id, name=name, linux=linux)
    )


def measured(tree: Tree, folder: pathlib.Path, *, pods: int, containers: int) -> tuple[list[float], int]:
    """Seconds of each answer, and how many of them adjusted the container."""
    chance = random.Random(7)
    manifests = Manifests(folder / "cluster")
    manifests.node()
    manifests.config(threshold=threshold(enable=False))
    nodes.populate(tree, manifests, pods, batch=BATCH)
    fronts = [Pod(f"n{number}", containers=("one", "two"), batch=BATCH) for number in range((containers + 1) // 2)]
    for front in fronts[::2]:
        manifests.pod(front)
    for front in fronts:
        beginning.make(tree, tree.pod(front))
        beginning.delegate(tree, tree.pod(front))
    runtime = nri_runtime.Runtime(folder)
    settings = folder / "koordlite.yaml"
    settings.write_text(f"agent: {{nri: auto, nriSocket: {runtime.path}}}\n")
    with contextlib.closing(runtime), nodes.enforcing(tree, manifests, folder, "--config", str(settings)) as agent:
        runtime.welcome()
        time.sleep(5.0)
        taken, adjusted = [], 0
        asked = [(front, name) for front in fronts for name in front.containers][:containers]
        for front, name in asked:
            time.sleep(0.25 + 0.5 * chance.random())
            payload, seconds = runtime.call("CreateContainer", event(tree, front, name))
            taken.append(seconds)
            adjusted += decode(CreateContainerResponse, payload).adjust is not None
            beginning.make(tree, tree.container(front, name))
        agent.stop()
        return taken, adjusted


def main() -> int:
    """Print the figures; 1 when they are far beyond the goal."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--pods", type=int, default=250)
    asked.add_argument("--containers", type=int, default=200)
    given = asked.parse_args()
    # The journal is on tmpfs, as it is by default.
    with nodes.private("nri", f"{given.pods} pods", where="/dev/shm") as (tree, folder):
        taken, adjusted = measured(tree, folder, pods=given.pods, containers=given.containers)
    print(beginning.told(taken))
    print(f"{adjusted} of {len(taken)} adjusted, {sum(s <= GOAL_SECONDS for s in taken)} answered within 5 ms")
    return int(sorted(taken)[len(taken) // 2] > WIDE * GOAL_SECONDS or not adjusted)


if __name__ == "__main__":
    sys.exit(main())
