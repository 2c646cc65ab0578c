"""Whatever happens, and wherever the controller ends: nothing is promised twice, lost, or left behind."""

from __future__ import annotations

import random

import pytest
from reservecluster import ReserveCluster, broken, unsettled
from slices import amount

HISTORIES = amount(1_000, 6)
"""Of each part: the parts are for the workers to share."""


def history(seed: int) -> ReserveCluster:
    """Thirty random events, and then rest."""
    chance = random.Random(seed)
    cluster = ReserveCluster(
        chance, nodes={f"n{number}": chance.choice((3, 4, 6)) for number in range(3)}, guarded=chance.random() < 0.5
    )
    names = ("a", "b", "c")
    for number in range(30):
        _event(cluster, chance, names, number)
        assert not (findings := broken(cluster)), f"seed {seed}, event {number}: {findings}"
    return cluster


def _event(cluster: ReserveCluster, chance: random.Random, names: tuple[str, ...], number: int) -> None:
    kind = chance.choices((_people, _machines, _processes), weights=(10, 3, 7))[0]
    kind(cluster, chance, chance.choice(names), number)


def _people(cluster: ReserveCluster, chance: random.Random, name: str, number: int) -> None:
    """Reservations and pods come and go."""
    match chance.randrange(10):
        case 0 | 1 if name not in cluster.reservations:
            more = {"allocateOnce": chance.random() < 0.4, "allocatePolicy": chance.choice(("Aligned", "Restricted"))}
            cluster.reserve(name, chance.randint(1, 6), ttl=chance.choice(("24h", "24h", "90s", "0s")), **more)
        case 2:
            cluster.reservations.pop(name, None)
        case 3 | 4 | 5 | 6:
            cluster.pod(f"owner-{number}", chance.randint(1, 4), app=name, priority=chance.choice((0, 0, 100, -5)))
        case _:
            cluster.pod(f"other-{number}", chance.randint(1, 6), priority=chance.choice((0, 1000)))


def _machines(cluster: ReserveCluster, chance: random.Random, name: str, number: int) -> None:
    """Pods end, are deleted by hand (placeholders, too), nodes vanish, and time passes."""
    del name, number
    bound = [key for key, pod in cluster.pods.items() if pod.spec.node_name]
    took = [key for key in bound if "reservation-allocated" in str(cluster.pods[key].metadata.annotations)]
    if len(cluster.nodes) > 1 and chance.random() < 0.1:
        removed = chance.choice(list(cluster.nodes))
        del cluster.nodes[removed]
        for key in [key for key, pod in cluster.pods.items() if pod.spec.node_name == removed]:
            del cluster.pods[key]
    elif took and chance.random() < 0.4:
        cluster.end(chance.choice(took), chance.choice(("", "Succeeded")))
    elif bound and chance.random() < 0.5:
        cluster.end(chance.choice(bound), chance.choice(("", "", "Succeeded", "Failed")))
    else:
        cluster.now += chance.choice((5, 40, 100))


def _processes(cluster: ReserveCluster, chance: random.Random, name: str, number: int) -> None:
    """The controller works, ends in the middle of it, begins again; schedulers and kubelets work."""
    del name, number
    match chance.randrange(8):
        case 0 if chance.random() < 0.5:
            cluster.restart()
        case 1 | 2:
            cluster.see()
            cluster.control(most=chance.randint(0, 4))
        case 3:
            cluster.control(most=chance.randint(0, 4))  # By an old picture.
        case 4:
            cluster.schedule()
            cluster.kubelets()
        case _:
            cluster.settle(chance.choice((1, 3)))


@pytest.mark.timeout(900)  # The long run takes a minute a part on a quiet machine.
@pytest.mark.sliced
@pytest.mark.parametrize("part", range(10))
def test_nothing_is_promised_twice_lost_or_left_behind(part: int) -> None:
    for seed in range(part * HISTORIES, (part + 1) * HISTORIES):
        cluster = history(seed)
        cluster.settle(100.0, every=5.0)
        cluster.settle(3.0)
        assert not (findings := unsettled(cluster)), f"seed {seed}: {findings}"
