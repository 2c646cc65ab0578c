"""Crane's tutorial on this machine's own cgroups."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable

from realnode import command
from realnode.command import Command
from realnode.cranewalk import Walk
from realnode.manifests import Manifests
from realnode.tree import Tree


def test_nginx_has_its_cpu_alone_and_keeps_it(
    kubepods: Tree, manifests: Manifests, start: Callable[..., Command], options: list[str], tmp_path: pathlib.Path
) -> None:
    report = tmp_path / "report"
    arguments = ["run", *options, "--report", str(report), "--no-http", "-q", "--interval", "0.2"]
    arguments += ["--mode", "observe", "--strategy", "craneCPUManager=enforce"]
    walk = Walk(kubepods, manifests, lambda: start(*arguments), tmp_path / "state")
    assert len(list(walk.steps(cpus=1, machine=set(os.sched_getaffinity(0))))) == 4
    assert not command.refusals(command.report(report))
