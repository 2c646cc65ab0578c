"""Crane's tutorial on this machine's own cgroups."""

from __future__ import annotations

import os

from realnode import command
from realnode.cranewalk import Walk

from tests.kernel.conftest import Rig


def test_nginx_has_its_cpu_alone_and_keeps_it(rig: Rig) -> None:
    report = rig.folder / "report"
    arguments = ["run", *rig.options, "--report", str(report), "--no-http", "-q", "--interval", "0.2"]
    arguments += ["--mode", "observe", "--strategy", "craneCPUManager=enforce"]
    walk = Walk(rig.tree, rig.manifests, lambda: rig.start(*arguments), rig.folder / "state")
    assert len(list(walk.steps(cpus=1, machine=set(os.sched_getaffinity(0))))) == 4
    assert not command.refusals(command.report(report))
