"""Contention on this machine's kernel: a pod stopped by its own quota beside one that others keep from a CPU."""

from __future__ import annotations

import json

import pytest
from realnode.manifests import Manifests
from realnode.pods import Pod
from realnode.tree import Tree

from koordlite.model.decision import Decision
from koordlite.record.reader import Record
from tests.kernel.conftest import Rig

THROTTLED, SERVICE, RIVAL = Pod("throttled", "Burstable", "LS"), Pod("service", "Burstable", "LS"), Pod("rival")


@pytest.mark.alone
def test_waits_by_a_pods_own_quota_are_no_contention_and_those_by_others_are(rig: Rig) -> None:
    rig.manifests.node()
    for pod in (THROTTLED, SERVICE, RIVAL):
        rig.manifests.pod(pod)
        rig.tree.add(pod)
    limit(rig.manifests, THROTTLED, requests={"cpu": "50m"}, limits={"cpu": "50m"})
    limit(rig.manifests, SERVICE, requests={"cpu": "1"}, limits={})
    first, second = sorted(rig.tree.cpus(rig.tree.top))[:2]
    pin(rig.tree, THROTTLED, first)
    for pod in (SERVICE, RIVAL):
        pin(rig.tree, pod, second)
    rig.tree.file(rig.tree.container(THROTTLED, "main"), "cpu").write_text("5000")
    # Equal weights: both want one CPU whole, so that each waits half of the time.
    for pod in (SERVICE, RIVAL):
        shares = rig.tree.points["cpu"] / rig.tree.qos(pod.kube_qos) / "cpu.shares"
        shares.write_text("1024")
    loads = [rig.tree.load(pod) for pod in (THROTTLED, SERVICE, RIVAL)]
    words = ["--record", str(rig.folder / "record"), "--no-http", "-q", "--interval", "0.5"]
    config = rig.folder / "koordlite.yaml"
    config.write_text("strategies: {cpuContention: {mode: observe, sustainedSeconds: 2}}\n")
    agent = rig.start("run", *rig.options, *words, "--config", str(config), "--for", "5")
    assert agent.wait() == 0
    rig.tree.end(*loads)
    last: dict[str, Decision] = {}
    for moment in Record(rig.folder / "record").rounds():
        last |= {each.subject: each for each in moment.decisions if each.strategy == "cpuContention"}
    throttled, service = last["pod/default/throttled"], last["pod/default/service"]
    assert throttled.reason == "ThrottledByOwnLimit", throttled
    assert throttled.evidence["throttled_percent"] > 50  # type: ignore[operator]
    assert service.reason == "PodContended", service
    assert service.evidence["waited_percent"] >= 20, "two that want one CPU, with equal weights"  # type: ignore[operator]
    assert str(service.evidence["culprits"]).startswith("default/rival +")


def limit(manifests: Manifests, pod: Pod, **resources: dict[str, str]) -> None:
    """Give the pod's container these requests and limits."""
    file = manifests.folder / f"pod-{pod.name}.yaml"
    body = json.loads(file.read_text())
    body["spec"]["containers"][0]["resources"] = resources
    file.write_text(json.dumps(body))


def pin(tree: Tree, pod: Pod, cpu: int) -> None:
    """Confine the pod's container to one CPU."""
    tree.file(tree.container(pod, "main"), "cpuset").write_text(str(cpu))
