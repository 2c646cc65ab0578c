"""The command `koordlite`. Commands import heavy parts when they need them, so --help is quick."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from koordlite import __version__, commandline
from koordlite.cli import options
from koordlite.cli.options import Option


class Command(NamedTuple):
    """A command, or an action of one: how it is listed, what it takes, and what carries it out."""

    name: str
    place: str
    """`module:function` in this package; the function takes the options and returns the exit code."""
    help: str
    options: tuple[Option, ...] = ()
    examples: tuple[str, ...] = ()
    """Without the leading `koordlite`; a test runs those that need neither a cluster nor root."""
    actions: tuple[Command, ...] = ()
    """A command that has actions takes no options itself."""


COMMANDS: Mapping[str, tuple[Command, ...]] = {
    "Ask the agent, and watch it": (
        Command(
            "status",
            "questions:status",
            "one screen about a running agent, or about a machine you name",
            options.AGENT_OR_MACHINE,
            ("status", "status --sandbox small", "status -o json"),
        ),
        Command(
            "explain",
            "questions:explain",
            "why a value is what it is, with the numbers, and who changed it",
            options.EXPLAIN,
            (
                "explain node",
                "explain besteffort --since 12h",
                "explain file shop/cache-0/cpu.max",
                "explain --why-pending shop/report --cluster configs/tour-scheduling",
            ),
        ),
        Command(
            "top",
            "questions:top",
            "a running agent, live: node, pods, decisions; with keys",
            options.TOP,
            ("top", "top --once"),
        ),
        Command(
            "replay",
            "recorded:replay",
            "decide again over a flight record, with the same or with other settings",
            options.REPLAY,
            ("replay --since 12h --set cpuSuppressThresholdPercent=70",),
        ),
        Command(
            "numa",
            "questions:numa",
            "why a pod is or is not aligned to NUMA nodes, with the numbers",
            options.NUMA,
            ("numa explain shop/cache-0",),
        ),
        Command(
            "resctrl",
            "resctrl_command:resctrl",
            "cache and memory bandwidth: what there is, who has it, what is planned",
            options.RESCTRL,
            ("resctrl show --sandbox intel-2s-ht",),
        ),
    ),
    "Run the agent, and control it": (
        Command(
            "run",
            "run:run",
            "run the agent on this machine, on an emulated one, or over a recording",
            options.RUN,
            ("run --sandbox small --once", "run --cluster DIR --strategy cpuSuppress=enforce"),
        ),
        Command(
            "pause",
            "acting:pause",
            "stop the agent from writing for a while; it goes on deciding",
            options.PAUSE,
            ('pause 2h --because "kernel upgrade"',),
        ),
        Command("resume", "acting:resume", "end the pause", options.AGENT_STATE, ("resume",)),
        Command(
            "restore",
            "undo:undo",
            "put back every value as it was before the first write",
            options.RESTORE,
            ("restore --dry-run", "restore"),
        ),
        Command(
            "verify",
            "traces:verify",
            "after an uninstall: what is left on this machine and in its cluster; read-only",
            (options.MACHINE, options.JOURNAL, options.OUTPUT),
            ("verify", "verify --kubeconfig FILE"),
        ),
        Command(
            "adopt",
            "traces:adopt",
            "take over what another agent left here, so that it can be put back",
            options.ADOPT,
            ("adopt koordlet --dry-run",),
        ),
        Command(
            "log-level",
            "questions:log_level",
            "show or change which decisions a running agent logs",
            options.LOG_LEVEL,
            ("log-level", "log-level debug --pod shop/cache-0 --for 10m"),
        ),
    ),
    "Try, record and check": (
        Command(
            "simulate",
            "simulate:simulate",
            "run scenarios on an emulated node, faster than real time",
            options.SIMULATE,
            ("simulate configs/scenarios/spike.yaml",),
        ),
        Command(
            "record",
            "record:record",
            "write a flight record to one file: from now on, or of the past",
            options.RECORD,
            ("record --last 10m -o night.record",),
        ),
        Command(
            "capture",
            "record:capture",
            "save one snapshot with the files it came from, for a bug report",
            options.CAPTURE,
            ("capture --mask -o bug-report",),
        ),
        Command(
            "check-node",
            "check:check_node",
            "what this machine supports, and what to do about the rest; read-only",
            (options.OUTPUT, options.MACHINE),
            ("check-node --sandbox amd-ccd",),
        ),
        Command(
            "check-config",
            "check:check_config",
            "list every mistake in koordlite.yaml and in a folder of manifests",
            options.CHECK_CONFIG,
            ("check-config configs/koordlite.yaml --cluster configs/tour --node tour-a",),
        ),
        Command(
            "default-config",
            "check:default_config",
            "print koordlite.yaml with every option at its default, commented",
            examples=("default-config",),
        ),
        Command(
            "kubelet",
            "kubelet_command:kubelet",
            "what another CPU manager policy would do to each pod; read-only",
            options.KUBELET,
            ("kubelet plan --sandbox small --policy static --reserved-cpus 0",),
        ),
        Command(
            "profile",
            "profile:profile",
            "what Koordinator's ClusterColocationProfiles make of a pod; read-only",
            options.PROFILE,
            ("profile apply --profile configs/colocated.yaml configs/colocated.yaml",),
        ),
        Command(
            "crane",
            "crane:assign",
            "the topology result that Crane's scheduler would write for a bound pod",
            options.CRANE,
            ("crane assign shop/cache-0 --cluster DIR",),
        ),
    ),
    "Work beside a kube-scheduler": (
        Command(
            "scheduler-extender",
            "services:extender",
            "the scheduler's side: answer a stock kube-scheduler",
            options.SCHEDULER_EXTENDER,
            ("scheduler-extender --kubeconfig FILE --reservation-controller",),
        ),
        Command(
            "scheduler",
            "",
            "ask a running extender: explain, state, log-level; or render its files",
            examples=(
                "scheduler explain shop/solver",
                "scheduler explain shop/report --make-room",
                "scheduler try configs/tour-scheduling shop/solver",
            ),
            actions=(
                Command(
                    "explain",
                    "scheduler_command:explain",
                    "every node of a pod's last attempt: why not, or its score",
                    options.SCHEDULER_EXPLAIN,
                ),
                Command(
                    "state",
                    "scheduler_command:state",
                    "a node: report, reservations, dirty or not; without NODE all of it",
                    options.SCHEDULER_STATE,
                ),
                Command(
                    "log-level",
                    "scheduler_command:log_level",
                    "show or change what a running extender logs",
                    options.SCHEDULER_LOG_LEVEL,
                ),
                Command(
                    "try",
                    "scheduler_command:try_pod",
                    "ask about a pod of a folder of manifests, without a cluster",
                    options.SCHEDULER_TRY,
                ),
                Command(
                    "render",
                    "scheduler_command:render",
                    "print the manifests or the stanza for given options",
                    options.SCHEDULER_RENDER,
                ),
                Command(
                    "validate",
                    "scheduler_deploy:run",
                    "ask the API server about each object of rendered manifests, and store nothing",
                    options.SCHEDULER_DEPLOY,
                ),
                Command(
                    "deploy",
                    "scheduler_deploy:run",
                    "the same, and then create or change them, unless one of them is refused",
                    options.SCHEDULER_DEPLOY,
                ),
                Command(
                    "remove",
                    "scheduler_deploy:run",
                    "delete them, all but Namespaces and CustomResourceDefinitions",
                    options.SCHEDULER_REMOVE,
                ),
            ),
        ),
        Command(
            "reservation-controller",
            "services:reservation_controller",
            "Koordinator's Reservations without Koordinator's scheduler",
            options.RESERVATION_CONTROLLER,
            ("reservation-controller --kubeconfig FILE",),
        ),
        Command(
            "reservation",
            "",
            "list and explain Reservations of the cluster; read-only",
            examples=("reservation list", "reservation explain NAME"),
            actions=(
                Command(
                    "list",
                    "scheduler_command:reservation",
                    "every Reservation: phase, node, what it holds, owners, end, why it waits",
                    (*options.API_SERVER, options.LISTING),
                ),
                Command(
                    "explain",
                    "scheduler_command:reservation",
                    "who may use it, who does, what it holds, why it waits, when it ends",
                    options.RESERVATION_EXPLAIN,
                ),
            ),
        ),
    ),
    "Serve NUMA nodes, and complete commands": (
        Command(
            "numa-api",
            "services:numa_api",
            "NUMA nodes and the last night of the whole cluster: pages and REST interface",
            options.NUMA_API,
            ("numa-api --kubeconfig FILE",),
        ),
        Command(
            "numa-exporter",
            "serving:numa_exporter",
            "metrics of NUMA nodes for Prometheus, without deciding or writing",
            options.NUMA_EXPORTER,
            ("numa-exporter --node-only --listen 127.0.0.1:9201",),
        ),
        Command(
            "completion",
            "check:completion",
            "print a script that completes commands",
            (commandline.add_completion,),
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
        for command in group:
            _fill(commandline.add_command(commands, command.name, command.help, heading, command.examples), command)
    # Not listed: completion scripts ask it.
    hidden = commands.add_parser("complete")
    hidden.add_argument("words", nargs="*")
    hidden.set_defaults(place="complete:complete")
    return top


def _fill(parser: argparse.ArgumentParser, command: Command) -> None:
    parser.set_defaults(place=command.place)
    options.add(parser, command.options)
    if command.actions:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        for each in command.actions:
            _fill(actions.add_parser(each.name, help=each.help), each)


def _command(args: argparse.Namespace) -> int:
    module, _, function = args.place.partition(":")
    carry_out = getattr(importlib.import_module(f"koordlite.cli.{module}"), function)
    return commandline.in_form(args, lambda: int(carry_out(args)))
