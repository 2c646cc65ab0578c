"""The policy `guided` on the real kernel: how long a service waits for a CPU is known, and the limit follows it."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

from realnode import command
from realnode.command import Command
from realnode.manifests import Manifests, threshold
from realnode.pods import Pod
from realnode.tree import Tree

SERVICE, BATCH = Pod("service", "Burstable", "LS"), Pod("batch")
FOLLOWING = {"ServicesDoNotWait", "WaitCauseUnknown", "ServicesWait"}
"""Which of them depends on what else runs on this machine."""


def test_the_limit_follows_what_the_kernel_counts_of_a_service(
    kubepods: Tree, manifests: Manifests, options: list[str], tmp_path: pathlib.Path, start: Callable[..., Command]
) -> None:
    manifests.node()
    manifests.config(threshold=threshold("guided", percent=65))
    for pod in (SERVICE, BATCH):
        manifests.pod(pod)
        kubepods.add(pod)
        kubepods.load(pod)
    report = tmp_path / "report"
    words = ["--report", str(report), "--mode", "enforce", "--no-http", "-q", "--interval", "0.5"]
    # What a service waited in less than three seconds decides nothing.
    assert start("run", *options, *words, "--for", "6").wait() == 0
    document = command.report(report)
    assert command.refusals(document) == []
    sentences = [d["sentence"] for d in document["decisions"] if d["reason"] in FOLLOWING]
    assert [each for each in sentences if "service waited" in each], document["decisions"]
