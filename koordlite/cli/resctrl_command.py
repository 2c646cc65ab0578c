"""`koordlite resctrl show` and `plan`: what the machine can divide, who holds what, what would be programmed."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import shutil

from koordlite import commandline, config
from koordlite.agent import Agent
from koordlite.cli import machine as machines
from koordlite.host import bundle
from koordlite.model.decision import Decision
from koordlite.model.errors import InputError, Problem
from koordlite.model.pod import resctrl_protocol
from koordlite.model.snapshot import Snapshot
from koordlite.report.explain import resctrl_plan
from koordlite.report.terminal import resctrl_map
from koordlite.resctrl.filesystem import ResctrlFS
from koordlite.resctrl.values import ROOT, Resctrl

STRATEGY = "resctrl"


def resctrl(args: argparse.Namespace) -> int:
    """Print the answer. 1 when the machine has no resctrl, or something of the plan would be refused."""
    width = shutil.get_terminal_size((80, 24)).columns
    if args.action == "plan":
        return _plan(args, width)
    # This needs no cluster: it reads the file system only, every group with its threads and mode.
    fs = bundle.resctrl(machines.files(args))
    resctrl = _with_modes(fs, fs.read(with_tasks=(ROOT, *fs.group_names())))
    text = resctrl_map.text(resctrl, width=width).removesuffix("\n")
    commandline.print_answer(args.output, "koordlite-resctrl", {"machine": resctrl_map.document(resctrl)}, [text])
    return 1 if resctrl.absent else 0


def _with_modes(fs: ResctrlFS, resctrl: Resctrl) -> Resctrl:
    groups = {name: dataclasses.replace(group, mode=_mode(fs, name)) for name, group in resctrl.groups.items()}
    return dataclasses.replace(resctrl, groups=groups)


def _mode(fs: ResctrlFS, group: str) -> str:
    try:
        return fs.mode(group)
    except OSError:
        return ""  # Kernels before 4.19 have no such file, and groups go.


def _plan(args: argparse.Namespace, width: int) -> int:
    snapshot, decisions = _judged(args)
    overlaps = list(resctrl_plan.overlaps(snapshot.resctrl, decisions))
    refused = bool(overlaps or resctrl_plan.refused(decisions))
    after = snapshot.resctrl if snapshot.resctrl.absent else resctrl_plan.planned(snapshot.resctrl, decisions)
    labels = {resctrl_protocol.pod_group(pod.uid): f"pod {pod.key}" for pod in snapshot.pods}
    document = {"decisions": resctrl_plan.document(decisions), "machine": resctrl_map.document(after)}
    plan = resctrl_plan.text(decisions, overlaps, width=width)
    machine = resctrl_map.text(after, width=width, labels=labels).removesuffix("\n")
    commandline.print_answer(args.output, "koordlite-resctrl-plan", {"overlaps": overlaps, **document}, [plan, machine])
    return 1 if refused else 0


def _judged(args: argparse.Namespace) -> tuple[Snapshot, tuple[Decision, ...]]:
    """A snapshot of machine and cluster; nothing is written."""
    settings = config.with_modes(machines.settings(args), "observe")
    machine = machines.machine(args, settings)
    with contextlib.closing(machine):
        agent = Agent(machine.host, machine.cluster, settings)
        tick = agent.tick()
    if agent.snapshot is None or agent.snapshot.node is None:
        do = "write its manifest, or name it by --node"
        raise InputError(tick.problems or Problem(str(args.cluster), "Node", "", "there is no Node object", do))
    decisions = tuple(decision for decision in tick.decisions if decision.strategy == STRATEGY)
    return dataclasses.replace(
        agent.snapshot, resctrl=_with_modes(machine.host.resctrl, agent.snapshot.resctrl)
    ), decisions
