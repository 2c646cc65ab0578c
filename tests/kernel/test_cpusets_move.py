"""cpusets on the real kernel: a reservation edited live moves every set without one refusal."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable

from realnode import command
from realnode.command import Command
from realnode.manifests import Manifests, threshold
from realnode.pods import Pod
from realnode.tree import Load, Tree
from realnode.waiting import for_a_while, until

SERVICE = Pod("service", "Burstable", "LS")
GUARANTEED = Pod("guaranteed", "Guaranteed", "LS")
BATCH = Pod("batch", containers=("main", "side"))
CROWD = Pod("crowd")
LATE = Pod("late")
ALL = (SERVICE, GUARANTEED, BATCH, CROWD)
Start = Callable[..., Command]


def settle(kubepods: Tree, cluster: Manifests, pods: tuple[Pod, ...] = ALL) -> list[Load]:
    """All pods on all CPUs, a greedy process in each, nothing reserved; a budget below the least of two CPUs."""
    cluster.node()
    cluster.config(threshold=threshold("cpuset", percent=40))
    for pod in pods:
        cluster.pod(pod)
        kubepods.add(pod)
    return [kubepods.load(pod, duty=0.1) for pod in pods]


def cpus_of(kubepods: Tree, *pods: Pod) -> list[set[int]]:
    """The sets of best-effort's own group and pods, or of containers and sandboxes of other pods."""
    best_effort = [group for pod in pods if pod.kube_qos == "BestEffort" for group in kubepods.groups_of(pod)]
    others = [group for pod in pods if pod.kube_qos != "BestEffort" for group in kubepods.groups_of(pod)[1:]]
    return [kubepods.cpus(group) for group in (kubepods.qos("BestEffort"), *best_effort, *others)]


def test_a_reservation_edited_live_shrinks_moves_and_grows_every_set(
    kubepods: Tree, manifests: Manifests, start: Start, enforce: list[str], tmp_path: pathlib.Path
) -> None:
    settle(kubepods, manifests)
    every = set(os.sched_getaffinity(0))
    agent = start(*enforce)
    for text, reserved in (
        ({"reservedCPUs": "0"}, {0}),
        ({"reservedCPUs": "1"}, {1}),
        (None, set()),
        ({"resources": {"cpu": "1"}}, None),
        (None, set()),
    ):
        manifests.node(reservation=text)
        wanted = every - reserved if reserved is not None else None
        until(
            lambda wanted=wanted: agreed(cpus_of(kubepods, *ALL), wanted, size=len(every) - 1),
            f"every set leaves the CPUs reserved by {text}; sets are {cpus_of(kubepods, *ALL)}",
        )
        held = cpus_of(kubepods, *ALL)
        for_a_while(lambda held=held: cpus_of(kubepods, *ALL) == held, f"the sets under {text}", seconds=0.6)
    assert agent.stop() == 0
    document = command.report(tmp_path / "report")
    assert not command.refusals(document)
    assert not document["foreign"]


def agreed(sets: list[set[int]], wanted: set[int] | None, *, size: int) -> bool:
    """Whether all sets are the one wanted; without a wish, one set of `size` CPUs."""
    return all(one == sets[0] for one in sets) and (sets[0] == wanted if wanted is not None else len(sets[0]) == size)


def test_pods_may_come_and_go_while_the_sets_move(
    kubepods: Tree, manifests: Manifests, start: Start, enforce: list[str], tmp_path: pathlib.Path
) -> None:
    loads = dict(zip(ALL, settle(kubepods, manifests), strict=True))
    manifests.node(reservation={"reservedCPUs": "0"})
    agent = start(*enforce)
    until(lambda: all(0 not in one for one in cpus_of(kubepods, *ALL)), "all sets leave CPU 0")

    # Kubelet removes the groups before the API server forgets the pod.
    kubepods.end(loads[CROWD])
    kubepods.remove(CROWD)
    manifests.node(reservation={"reservedCPUs": "1"})
    rest = (SERVICE, GUARANTEED, BATCH)
    until(lambda: all(1 not in one for one in cpus_of(kubepods, *rest)), "the rest leaves CPU 1")
    manifests.remove(CROWD)

    # And it makes the groups of a new pod before the pod's status says so.
    kubepods.add(LATE)
    manifests.pod(LATE)
    manifests.node(reservation={"reservedCPUs": "0"})
    until(lambda: all(0 not in one for one in cpus_of(kubepods, *rest, LATE)), "also the new pod leaves CPU 0")
    assert agent.stop() == 0
    assert not command.refusals(command.report(tmp_path / "report"))
