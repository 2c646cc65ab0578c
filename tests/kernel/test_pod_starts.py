"""Pods that start and end while the limit of best effort moves: cgroup v1 takes no quota above one further up."""

from __future__ import annotations

import pathlib
import random
import time
from collections.abc import Callable

import pytest
import slices
from realnode import beginning, command
from realnode.command import Command
from realnode.manifests import Manifests, threshold
from realnode.pods import SANDBOX, Pod
from realnode.tree import Tree
from realnode.waiting import until

MiB = 2**20
PODS = slices.amount(150, 30)
MOST_AT_ONCE = 30
SERVICE = Pod("service", "Burstable", "LS")
FIRST = Pod("first", containers=("main", "side"), batch=(500, 64 * MiB))


@pytest.mark.alone
@pytest.mark.sliced
def test_no_quota_is_refused(
    kubepods: Tree,
    manifests: Manifests,
    start: Callable[..., Command],
    enforce: list[str],
    tmp_path: pathlib.Path,
) -> None:
    """On two CPUs the quota of best effort moves beside its set."""
    manifests.node()
    manifests.config(threshold=threshold(percent=90))
    for pod in (SERVICE, FIRST):
        manifests.pod(pod)
        kubepods.add(pod)
    kubepods.load(FIRST)
    service = kubepods.load(SERVICE, duty=0.2)
    agent = start(*enforce, "--interval", "0.3")
    until(lambda: kubepods.quota_us(kubepods.pod(FIRST)) > 0, "the first pod has its quota")
    dice = random.Random(1)
    pods = []
    for number in range(PODS):
        service.set(dice.choice([0.0, 0.3, 0.9]))
        batch_milli = dice.choice([200, 700, 1500, 4000])
        pods.append(Pod(f"batch-{number}", containers=("main", "side"), batch=(batch_milli, 64 * MiB)))
        begin(kubepods, manifests, pods[-1], dice)
        if len(pods) > MOST_AT_ONCE:
            manifests.remove(pods[0])
            kubepods.remove(pods.pop(0))
    assert agent.stop() == 0
    document = command.report(tmp_path / "report")
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
