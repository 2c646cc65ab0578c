"""cpusets on the real kernel: a reservation edited live moves every set without one refusal."""

from __future__ import annotations

import os

from realnode import command
from realnode.manifests import Manifests, threshold
from realnode.pods import Pod
from realnode.tree import Load, Tree
from realnode.waiting import for_a_while, until

from tests.kernel.conftest import Rig

SERVICE = Pod("service", "Burstable", "LS")
GUARANTEED = Pod("guaranteed", "Guaranteed", "LS")
BATCH = Pod("batch", containers=("main", "side"))
CROWD = Pod("crowd")
LATE = Pod("late")
ALL = (SERVICE, GUARANTEED, BATCH, CROWD)


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


def test_a_reservation_edited_live_shrinks_moves_and_grows_every_set(rig: Rig) -> None:
    settle(rig.tree, rig.manifests)
    every = set(os.sched_getaffinity(0))
    agent = rig.enforce()
    for text, reserved in (
        ({"reservedCPUs": "0"}, {0}),
        ({"reservedCPUs": "1"}, {1}),
        (None, set()),
        ({"resources": {"cpu": "1"}}, None),
        (None, set()),
    ):
        rig.manifests.node(reservation=text)
        wanted = every - reserved if reserved is not None else None
        until(
            lambda wanted=wanted: agreed(cpus_of(rig.tree, *ALL), wanted, size=len(every) - 1),
            f"every set leaves the CPUs reserved by {text}; sets are {cpus_of(rig.tree, *ALL)}",
        )
        held = cpus_of(rig.tree, *ALL)
        for_a_while(lambda held=held: cpus_of(rig.tree, *ALL) == held, f"the sets under {text}", seconds=0.6)
    assert agent.stop() == 0
    document = command.report(rig.folder / "report")
    assert not command.refusals(document)
    assert not document["foreign"]


def agreed(sets: list[set[int]], wanted: set[int] | None, *, size: int) -> bool:
    """Whether all sets are the one wanted; without a wish, one set of `size` CPUs."""
    return all(one == sets[0] for one in sets) and (sets[0] == wanted if wanted is not None else len(sets[0]) == size)


def test_pods_may_come_and_go_while_the_sets_move(rig: Rig) -> None:
    loads = dict(zip(ALL, settle(rig.tree, rig.manifests), strict=True))
    rig.manifests.node(reservation={"reservedCPUs": "0"})
    agent = rig.enforce()
    until(lambda: all(0 not in one for one in cpus_of(rig.tree, *ALL)), "all sets leave CPU 0")

    # Kubelet removes the groups before the API server forgets the pod.
    rig.tree.end(loads[CROWD])
    rig.tree.remove(CROWD)
    rig.manifests.node(reservation={"reservedCPUs": "1"})
    rest = (SERVICE, GUARANTEED, BATCH)
    until(lambda: all(1 not in one for one in cpus_of(rig.tree, *rest)), "the rest leaves CPU 1")
    rig.manifests.remove(CROWD)

    # And it makes the groups of a new pod before the pod's status says so.
    rig.tree.add(LATE)
    rig.manifests.pod(LATE)
    rig.manifests.node(reservation={"reservedCPUs": "0"})
    until(lambda: all(0 not in one for one in cpus_of(rig.tree, *rest, LATE)), "also the new pod leaves CPU 0")
    rig.end(agent)
