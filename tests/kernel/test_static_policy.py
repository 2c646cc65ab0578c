"""Kubelet's static CPU manager policy on the real kernel: what it writes into a new container is never refused."""

from __future__ import annotations

import os

from realnode.manifests import threshold
from realnode.pods import Pod
from realnode.waiting import until

from tests.kernel.conftest import Rig

BATCH = Pod("batch", containers=("main", "side"))
LATE = Pod("late")


def test_kubelet_starts_a_container_beside_a_reservation(rig: Rig) -> None:
    every = set(os.sched_getaffinity(0))
    default = ",".join(map(str, sorted(every)))
    rig.manifests.node(reservation={"reservedCPUs": "0"})
    rig.manifests.cpu_manager(default)
    rig.manifests.config(threshold=threshold("cpuset"))
    rig.manifests.pod(BATCH)
    rig.tree.add(BATCH)
    agent = rig.enforce()
    until(lambda: 0 not in rig.tree.cpus(rig.tree.container(BATCH, "main")), "best effort leaves the reserved CPU")

    rig.tree.add(LATE)
    own = rig.tree.file(rig.tree.container(LATE, "main"), "cpuset")
    own.write_text(default)
    assert rig.tree.cpus(rig.tree.container(LATE, "main")) == every
    rig.manifests.pod(LATE)
    until(lambda: 0 not in rig.tree.cpus(rig.tree.container(LATE, "main")), "the new container leaves it too")
    rig.end(agent)
