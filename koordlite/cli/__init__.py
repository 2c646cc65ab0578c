"""The command `koordlite`. Commands import heavy parts when they need them, so --help is quick."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from koordlite import __version__, commandline
from koordlite.cli import options, scheduler_options


class Command(NamedTuple):
    """One command: how it is listed, what it takes, and what carries it out."""

    name: str
    help: str
    place: str
    """`module:function` in this package; the function takes the options and returns the exit code."""
    options: Callable[[argparse.ArgumentParser], object] = lambda command: None
    examples: tuple[str, ...] = ()
    """Without the leading `koordlite`; a test runs those that need neither a cluster nor root."""


COMMANDS: Mapping[str, tuple[Command, ...]] = {
    "Ask the agent, and watch it": (
        Command(
            "status",
            "one screen about a running agent, or about a machine you name",
            "status:status",
            options.ask,
            ("status", "status --sandbox small", "status -o json"),
        ),
        Command(
            "explain",
            "why a value is what it is, with the numbers, and who changed it",
            "explain:explain",
            options.explain,
            (
                "explain node",
                "explain besteffort --since 12h",
                "explain file shop/cache-0/cpu.max",
                "explain --why-pending shop/report --cluster configs/tour-scheduling",
            ),
        ),
        Command(
            "top",
            "a running agent, live: node, pods, decisions; with keys",
            "top:top",
            options.top,
            ("top", "top --once"),
        ),
        Command(
            "replay",
            "decide again over a flight record, with the same or with other settings",
            "replay:replay",
            options.replay,
            ("replay --since 12h --set cpuSuppressThresholdPercent=70",),
        ),
        Command(
            "numa",
            "why a pod is or is not aligned to NUMA nodes, with the numbers",
            "explain:numa",
            options.numa,
            ("numa explain shop/cache-0",),
        ),
        Command(
            "resctrl",
            "cache and memory bandwidth: what there is, who has it, what is planned",
            "resctrl_command:resctrl",
            options.resctrl,
            ("resctrl show --sandbox intel-2s-ht",),
        ),
    ),
    "Run the agent, and control it": (
        Command(
            "run",
            "run the agent on this machine, on an emulated one, or over a recording",
            "run:run",
            options.run,
            ("run --sandbox small --once", "run --cluster DIR --strategy cpuSuppress=enforce"),
        ),
        Command(
            "pause",
            "stop the agent from writing for a while; it goes on deciding",
            "pause:pause",
            options.pause,
            ('pause 2h --because "kernel upgrade"',),
        ),
        Command("resume", "end the pause", "pause:resume", options.state, ("resume",)),
        Command(
            "restore",
            "put back every value as it was before the first write",
            "undo:undo",
            options.restore,
            ("restore --dry-run", "restore"),
        ),
        Command(
            "verify",
            "after an uninstall: what is left on this machine and in its cluster; read-only",
            "verify:verify",
            options.verify,
            ("verify", "verify --kubeconfig FILE"),
        ),
        Command(
            "adopt",
            "take over what another agent left here, so that it can be put back",
            "adopt:adopt",
            options.adopt,
            ("adopt koordlet --dry-run",),
        ),
        Command(
            "log-level",
            "show or change which decisions a running agent logs",
            "log_level:log_level",
            options.log_level,
            ("log-level", "log-level debug --pod shop/cache-0 --for 10m"),
        ),
    ),
    "Try, record and check": (
        Command(
            "simulate",
            "run scenarios on an emulated node, faster than real time",
            "simulate:simulate",
            options.simulate,
            ("simulate configs/scenarios/spike.yaml",),
        ),
        Command(
            "record",
            "write a flight record to one file: from now on, or of the past",
            "record:record",
            options.record,
            ("record --last 10m -o night.record",),
        ),
        Command(
            "capture",
            "save one snapshot with the files it came from, for a bug report",
            "capture:capture",
            options.capture,
            ("capture --mask -o bug-report",),
        ),
        Command(
            "check-node",
            "what this machine supports, and what to do about the rest; read-only",
            "check:check_node",
            options.ask_machine,
            ("check-node --sandbox amd-ccd",),
        ),
        Command(
            "check-config",
            "list every mistake in koordlite.yaml and in a folder of manifests",
            "check:check_config",
            options.check_config,
            ("check-config configs/koordlite.yaml --cluster configs/tour --node tour-a",),
        ),
        Command(
            "default-config",
            "print koordlite.yaml with every option at its default, commented",
            "check:default_config",
            examples=("default-config",),
        ),
        Command(
            "kubelet",
            "what another CPU manager policy would do to each pod; read-only",
            "kubelet_command:kubelet",
            options.kubelet,
            ("kubelet plan --sandbox small --policy static --reserved-cpus 0",),
        ),
        Command(
            "profile",
            "what Koordinator's ClusterColocationProfiles make of a pod; read-only",
            "profile:profile",
            options.profile,
            ("profile apply --profile configs/colocated.yaml configs/colocated.yaml",),
        ),
        Command(
            "crane",
            "the topology result that Crane's scheduler would write for a bound pod",
            "crane:assign",
            options.crane,
            ("crane assign shop/cache-0 --cluster DIR",),
        ),
    ),
    "Work beside a kube-scheduler": (
        Command(
            "scheduler-extender",
            "the scheduler's side: answer a stock kube-scheduler",
            "scheduler_extender:run",
            scheduler_options.extender,
            ("scheduler-extender --kubeconfig FILE --reservation-controller",),
        ),
        Command(
            "scheduler",
            "ask a running extender: explain, state, log-level; or render its files",
            "scheduler_command:scheduler",
            scheduler_options.scheduler,
            (
                "scheduler explain shop/solver",
                "scheduler explain shop/report --make-room",
                "scheduler try configs/tour-scheduling shop/solver",
            ),
        ),
        Command(
            "reservation-controller",
            "Koordinator's Reservations without Koordinator's scheduler",
            "reservation_controller:run",
            scheduler_options.controller,
            ("reservation-controller --kubeconfig FILE",),
        ),
        Command(
            "reservation",
            "list and explain Reservations of the cluster; read-only",
            "reservation_command:reservation",
            scheduler_options.reservation,
            ("reservation list", "reservation explain NAME"),
        ),
    ),
    "Serve NUMA nodes, and complete commands": (
        Command(
            "numa-api",
            "NUMA nodes and the last night of the whole cluster: pages and REST interface",
            "numa_api:run",
            scheduler_options.numa_api,
            ("numa-api --kubeconfig FILE",),
        ),
        Command(
            "numa-exporter",
            "metrics of NUMA nodes for Prometheus, without deciding or writing",
            "numa_exporter:numa_exporter",
            options.numa_exporter,
            ("numa-exporter --node-only --listen 127.0.0.1:9201",),
        ),
        Command(
            "completion",
            "print a script that completes commands",
            "check:completion",
            commandline.add_completion,
            ("completion bash",),
        ),
    ),
}
"""Every command, by the heading under which --help and the manual page list it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command. 0: done; 1: it ran and the answer is no; 2: it could not run, see the message; 130: stopped."""
    commandline.replace_unprintable()
    return commandline.exit_code("koordlite", lambda: _command(parser().parse_args(argv)))


def parser() -> argparse.ArgumentParser:
    """Every command and option."""
    top = commandline.CommandParser(
        prog="koordlite",
        description="Co-location agent for Kubernetes nodes. It only observes until you tell it to enforce.",
    )
    top.add_argument("--version", action="version", version=f"koordlite {__version__}")
    commands = top.add_subparsers(title="commands", dest="command", required=True, metavar="COMMAND")
    for heading, group in COMMANDS.items():
        for each in group:
            each.options(commandline.add_command(commands, each.name, each.help, heading, each.examples))
    # Not listed: completion scripts ask it.
    commands.add_parser("complete").add_argument("words", nargs="*")
    return top


def _command(args: argparse.Namespace) -> int:
    places = {each.name: each.place for group in COMMANDS.values() for each in group}
    place = {"complete": "complete:complete", **places}[args.command]
    module, _, function = place.partition(":")
    carry_out = getattr(importlib.import_module(f"koordlite.cli.{module}"), function)
    return commandline.in_form(args, lambda: int(carry_out(args)))
