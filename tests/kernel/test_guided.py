"""The policy `guided` on the real kernel: how long a service waits for a CPU is known, and the limit follows it."""

from __future__ import annotations

from realnode.manifests import threshold
from realnode.pods import Pod

from koordlite.record.reader import Record
from tests.kernel.conftest import Rig

SERVICE, BATCH = Pod("service", "Burstable", "LS"), Pod("batch")


def test_the_limit_follows_what_the_kernel_counts_of_a_service(rig: Rig) -> None:
    rig.manifests.node()
    rig.manifests.config(threshold=threshold("guided", percent=65))
    for pod in (SERVICE, BATCH):
        rig.manifests.pod(pod)
        rig.tree.add(pod)
        rig.tree.load(pod, duty=0.2)
    words = ["--record", str(rig.folder / "record"), "--mode", "enforce", "--no-http", "-q", "--interval", "0.5"]
    # What a service waited in less than three seconds decides nothing.
    agent = rig.start("run", *rig.options, *words, "--for", "4.5")
    assert agent.wait() == 0
    decisions = [d for moment in Record(rig.folder / "record").rounds() for d in moment.decisions]
    # Which of them it is depends on what else runs on this machine.
    following = [d for d in decisions if d.reason in ("ServicesDoNotWait", "WaitCauseUnknown", "ServicesWait")]
    assert {d.evidence.get("service") for d in following} - {None}, {d.reason for d in decisions}
