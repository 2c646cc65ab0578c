"""kubelet's top group has fewer CPUs than the machine: on v1 the kernel refuses any set below it that goes beyond."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable

from realnode import command
from realnode.command import Command
from realnode.manifests import Manifests, threshold
from realnode.pods import Pod
from realnode.tree import Tree
from realnode.waiting import for_a_while, until

BATCH = Pod("batch", containers=("main", "side"))
SERVICE = Pod("service", "Burstable", "LS")


def narrow(kubepods: Tree, cpus: str) -> None:
    """Take CPUs from the whole tree, from the bottom, as an operator would."""
    groups = [*kubepods.groups_of(BATCH), *kubepods.groups_of(SERVICE)]
    for group in sorted({*groups, *map(kubepods.qos, ("BestEffort", "Burstable")), kubepods.top}, key=len)[::-1]:
        kubepods.file(group, "cpuset").write_text(cpus)


def test_best_effort_is_released_to_what_the_top_group_has(
    kubepods: Tree,
    manifests: Manifests,
    start: Callable[..., Command],
    enforce: list[str],
    tmp_path: pathlib.Path,
) -> None:
    last = str(max(os.sched_getaffinity(0)))
    manifests.node()
    manifests.config(threshold=threshold("cpuset"))
    for pod in (BATCH, SERVICE):
        manifests.pod(pod)
        kubepods.add(pod)
    narrow(kubepods, last)
    agent = start(*enforce)
    for_a_while(lambda: sets(kubepods) == {frozenset({int(last)})}, "every set stays within the top group's", seconds=1)
    manifests.config(threshold=threshold("cpuset", enable=False))
    until(lambda: sets(kubepods) == {frozenset({int(last)})}, "what is released is what the top group has")
    for_a_while(lambda: sets(kubepods) == {frozenset({int(last)})}, "and stays", seconds=1)
    assert agent.stop() == 0
    assert not command.refusals(command.report(tmp_path / "report"))


def sets(kubepods: Tree) -> set[frozenset[int]]:
    groups = (kubepods.qos("BestEffort"), *kubepods.groups_of(BATCH), *kubepods.groups_of(SERVICE)[1:])
    return {frozenset(kubepods.cpus(group)) for group in groups}
