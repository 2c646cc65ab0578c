"""Pods that start and end while the limit of best effort moves: cgroup v1 takes no quota above one further up."""

from __future__ import annotations

import random
import time

import pytest
import slices
from realnode import beginning, command
from realnode.manifests import Manifests, threshold
from realnode.pods import SANDBOX, Pod
from realnode.tree import Tree
from realnode.waiting import until

from tests.kernel.conftest import Rig

MiB = 2**20
PODS = slices.amount(150, 20)
MOST_AT_ONCE = 30
SERVICE = Pod("service", "Burstable", "LS")
FIRST = Pod("first", containers=("main", "side"), batch=(500, 64 * MiB))


@pytest.mark.alone
@pytest.mark.sliced
def test_no_quota_is_refused(rig: Rig) -> None:
    """On two CPUs the quota of best effort moves beside its set."""
    rig.populate(SERVICE, FIRST, threshold=threshold(percent=90))
    service = rig.tree.load(SERVICE, duty=0.2)
    agent = rig.enforce("--interval", "0.3")
    until(lambda: rig.tree.quota_us(rig.tree.pod(FIRST)) > 0, "the first pod has its quota")
    rig.tree.load(FIRST)
    dice = random.Random(1)
    pods = []
    for number in range(PODS):
        service.set(dice.choice([0.0, 0.3, 0.9]))
        batch_milli = dice.choice([200, 700, 1500, 4000])
        pods.append(Pod(f"batch-{number}", containers=("main", "side"), batch=(batch_milli, 64 * MiB)))
        begin(rig.tree, rig.manifests, pods[-1], dice)
        if len(pods) > MOST_AT_ONCE:
            rig.manifests.remove(pods[0])
            rig.tree.remove(pods.pop(0))
    assert agent.stop() == 0
    document = command.report(rig.folder / "report")
    assert any(write["place"].endswith("cpu.quota") for write in document["writes"])
    assert not command.refusals(document)


def begin(kubepods: Tree, manifests: Manifests, pod: Pod, dice: random.Random) -> None:
    """Start a pod as kubelet and the runtime do, with pauses of some milliseconds."""
    manifests.pod(pod, named=dice.random() < 0.5)
    time.sleep(dice.random() * 0.03)
    beginning.make(kubepods, kubepods.pod(pod))
    for name in (SANDBOX, *pod.containers):
        time.sleep(dice.random() * 0.03)
        beginning.make(kubepods, kubepods.container(pod, name))
    manifests.pod(pod)
    time.sleep(dice.random() * 0.1)
