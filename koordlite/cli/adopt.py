"""`koordlite adopt koordlet`: take over what koordlet left on this node, so that it can be put back."""

from __future__ import annotations

import argparse
import contextlib
import pathlib

from koordlite import adopt as adoption
from koordlite import commandline, config
from koordlite.agent import Agent
from koordlite.cli import acting
from koordlite.cli import machine as machines
from koordlite.cli.machine import Machine
from koordlite.config import Settings
from koordlite.host import procfs
from koordlite.host.journal.journal import Journal
from koordlite.model import printable
from koordlite.model.errors import ConfigError, InputError, Problem
from koordlite.model.snapshot import Snapshot


def adopt(args: argparse.Namespace) -> int:
    """List what is koordlet's and what is not, then note it in the undo journal. 1 while koordlet still runs."""
    real = not (args.sandbox or args.recorded)
    if not real and not args.dry_run:
        why = "an emulated node has no koordlet, and a recording is never written"
        raise ConfigError(Problem("command line", "--sandbox/--recorded", "", why, "add --dry-run"))
    settings = machines.settings(args)
    if real:
        acting.target(args, pathlib.Path(settings.agent.state_dir)).show(args.output)
    with contextlib.closing(machines.machine(args, settings)) as machine:
        pid = adoption.koordlet_pid(machine.host.files)
        if pid is not None:
            print(printable.lines(f"koordlet runs here (process {pid}): stop it first, both write the same files"))
            if not args.dry_run:
                return 1
        snapshot, with_node = observed(args, machine, settings), settings.publish.node_resources == "agent"
        recognition = adoption.recognise(snapshot, settings.strategies, with_node=with_node)
        traces, others = recognition.traces, recognition.others
        document = {
            "traces": [
                {"place": str(t.place), "present": t.present, "before": t.before, "strategy": t.strategy}
                for t in traces
            ],
            "others": [{"place": str(place), "present": now, "kubelet": kubelet} for place, now, kubelet in others],
        }
        lines = [f"{t.place}: {t.present} → {_before(t)}  ({t.strategy})" for t in traces]
        lines.append(
            f"{len(traces)} places hold values of koordlet; → shows what comes back once nothing enforces them"
        )
        if others:
            lines += ["", "neither kubelet nor koordlet's rules give these values; they are not touched:"]
            lines += [f"{place}: {present}, kubelet would have {expected}" for place, present, expected in others]
        commandline.print_answer(args.output, "koordlite-adopt", document, lines)
        if not args.dry_run:
            with Journal.open(settings.agent.state_dir, boot_id=procfs.boot_id(machine.host.files)) as journal:
                fresh = len(adoption.seed(machine.host, journal, traces))
            before = f", {len(traces) - fresh} were in the journal already" if len(traces) > fresh else ""
            print(printable.lines(f"{fresh} places adopted{before}"))
    return 0


def observed(args: argparse.Namespace, machine: Machine, settings: Settings) -> Snapshot:
    """Two looks a second apart, since usage is a rate, with all that any strategy reads."""
    machines.need_node(args, machine.cluster)
    agent = Agent(machine.host, machine.cluster, config.with_modes(settings, "observe"))
    tick = machines.two_ticks(agent, machine.host)
    if agent.snapshot is None or agent.snapshot.node is None:
        do = "name the cluster with --kubeconfig or --cluster: what is koordlet's follows from pods and settings"
        raise InputError(tick.problems or Problem("Node", "object", "", tick.because or "there is none", do))
    return agent.snapshot


def _before(trace: adoption.Trace) -> str:
    return "(removed)" if trace.before is None else str(trace.before) or "(the parent's set)"
