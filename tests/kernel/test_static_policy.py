"""Kubelet's static CPU manager policy on the real kernel: what it writes into a new container is never refused."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable

from realnode import command
from realnode.command import Command
from realnode.manifests import Manifests, threshold
from realnode.pods import Pod
from realnode.tree import Tree
from realnode.waiting import until

BATCH = Pod("batch", containers=("main", "side"))
LATE = Pod("late")


def test_kubelet_starts_a_container_beside_a_reservation(
    kubepods: Tree, manifests: Manifests, start: Callable[..., Command], enforce: list[str], tmp_path: pathlib.Path
) -> None:
    every = set(os.sched_getaffinity(0))
    default = ",".join(map(str, sorted(every)))
    manifests.node(reservation={"reservedCPUs": "0"})
    manifests.cpu_manager(default)
    manifests.config(threshold=threshold("cpuset"))
    manifests.pod(BATCH)
    kubepods.add(BATCH)
    agent = start(*enforce)
    until(lambda: 0 not in kubepods.cpus(kubepods.container(BATCH, "main")), "best effort leaves the reserved CPU")

    kubepods.add(LATE)
    own = kubepods.file(kubepods.container(LATE, "main"), "cpuset")
    own.write_text(default)
    assert kubepods.cpus(kubepods.container(LATE, "main")) == every
    manifests.pod(LATE)
    until(lambda: 0 not in kubepods.cpus(kubepods.container(LATE, "main")), "the new container leaves it too")
    assert agent.stop() == 0
    assert not command.refusals(command.report(tmp_path / "report"))
