"""`koordlite resctrl show` and `plan`: what the machine can divide, who holds what, what would be programmed."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import shutil

from koordlite import commandline
from koordlite.cli import machine as machines
from koordlite.host import bundle
from koordlite.model.pod import resctrl_protocol
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
    groups = dict(resctrl.groups)
    for name, group in resctrl.groups.items():
        with contextlib.suppress(OSError):  # Kernels before 4.19 have no such file, and groups go.
            groups[name] = dataclasses.replace(group, mode=fs.mode(name))
    return dataclasses.replace(resctrl, groups=groups)


def _plan(args: argparse.Namespace, width: int) -> int:
    with machines.judged(args, twice=False) as (machine, tick):
        resctrl = _with_modes(machine.host.resctrl, tick.snapshot.resctrl)
    decisions = [decision for decision in tick.decisions if decision.strategy == STRATEGY]
    overlaps = list(resctrl_plan.overlaps(resctrl, decisions))
    refused = bool(overlaps or resctrl_plan.refused(decisions))
    after = resctrl if resctrl.absent else resctrl_plan.planned(resctrl, decisions)
    labels = {resctrl_protocol.pod_group(pod.uid): f"pod {pod.key}" for pod in tick.snapshot.pods}
    document = {"decisions": resctrl_plan.document(decisions), "machine": resctrl_map.document(after)}
    plan = resctrl_plan.text(decisions, overlaps, width=width)
    text = resctrl_map.text(after, width=width, labels=labels).removesuffix("\n")
    commandline.print_answer(args.output, "koordlite-resctrl-plan", {"overlaps": overlaps, **document}, [plan, text])
    return 1 if refused else 0
