"""kubelet's top group has fewer CPUs than the machine: on v1 the kernel refuses any set below it that goes beyond."""

from __future__ import annotations

import os

from realnode.manifests import threshold
from realnode.pods import Pod
from realnode.tree import Tree
from realnode.waiting import for_a_while, until

from tests.kernel.conftest import Rig

BATCH = Pod("batch", containers=("main", "side"))
SERVICE = Pod("service", "Burstable", "LS")


def narrow(kubepods: Tree, cpus: str) -> None:
    """Take CPUs from the whole tree, from the bottom, as an operator would."""
    groups = [*kubepods.groups_of(BATCH), *kubepods.groups_of(SERVICE)]
    for group in sorted({*groups, *map(kubepods.qos, ("BestEffort", "Burstable")), kubepods.top}, key=len)[::-1]:
        kubepods.file(group, "cpuset").write_text(cpus)


def test_best_effort_is_released_to_what_the_top_group_has(rig: Rig) -> None:
    last = str(max(os.sched_getaffinity(0)))
    rig.populate(BATCH, SERVICE, threshold=threshold("cpuset"))
    narrow(rig.tree, last)
    agent = rig.enforce()
    until(lambda: any((rig.folder / "published").glob("*")), "the agent has judged once")
    for_a_while(lambda: sets(rig.tree) == {frozenset({int(last)})}, "every set stays within the top group's", seconds=1)
    rig.manifests.config(threshold=threshold("cpuset", enable=False))
    until(lambda: sets(rig.tree) == {frozenset({int(last)})}, "what is released is what the top group has")
    for_a_while(lambda: sets(rig.tree) == {frozenset({int(last)})}, "and stays", seconds=1)
    rig.end(agent)


def sets(kubepods: Tree) -> set[frozenset[int]]:
    groups = (kubepods.qos("BestEffort"), *kubepods.groups_of(BATCH), *kubepods.groups_of(SERVICE)[1:])
    return {frozenset(kubepods.cpus(group)) for group in groups}
