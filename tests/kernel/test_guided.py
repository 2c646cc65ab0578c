"""The policy `guided` on the real kernel: how long a service waits for a CPU is known, and the limit follows it."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

from realnode.command import Command
from realnode.manifests import Manifests, threshold
from realnode.pods import Pod
from realnode.tree import Tree

from koordlite.record.reader import Record

SERVICE, BATCH = Pod("service", "Burstable", "LS"), Pod("batch")


def test_the_limit_follows_what_the_kernel_counts_of_a_service(
    kubepods: Tree, manifests: Manifests, options: list[str], tmp_path: pathlib.Path, start: Callable[..., Command]
) -> None:
    manifests.node()
    manifests.config(threshold=threshold("guided", percent=65))
    for pod in (SERVICE, BATCH):
        manifests.pod(pod)
        kubepods.add(pod)
        kubepods.load(pod)
    words = ["--record", str(tmp_path / "record"), "--mode", "enforce", "--no-http", "-q", "--interval", "0.5"]
    # What a service waited in less than three seconds decides nothing.
    agent = start("run", *options, *words, "--for", "6")
    assert agent.wait() == 0
    decisions = [d for moment in Record(tmp_path / "record").moments() for d in moment.decisions]
    # Which of them it is depends on what else runs on this machine.
    following = [d for d in decisions if d.reason in ("ServicesDoNotWait", "WaitCauseUnknown", "ServicesWait")]
    assert {d.evidence.get("service") for d in following} - {None}, {d.reason for d in decisions}
