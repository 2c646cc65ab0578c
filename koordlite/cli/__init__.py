"""The command `koordlite`. Commands import heavy parts when they need them, so --help is quick."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence

from koordlite import __version__, commandline
from koordlite.cli import scheduler_options, times

SHAPES = (
    "intel-2s-ht, amd-ccd, arm, small, anolis, intel-cdp, intel-mbps, intel-unmounted, intel-1s, intel-nomba, "
    "intel-l2, intel-snc, amd-milan, amd-genoa, arm-mpam"
)


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
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _run(commands.add_parser("run", help="run the agent on this machine, on an emulated one, or over a recording"))
    _ask(commands.add_parser("status", help="one screen about a running agent, or about a machine you name"))
    _explain(commands.add_parser("explain", help="why a value is what it is, with the numbers, and who changed it"))
    _top(commands.add_parser("top", help="a running agent, live: node, pods, decisions; with keys"))
    _log_level(commands.add_parser("log-level", help="show or change which decisions a running agent logs"))
    _simulate(commands.add_parser("simulate", help="run scenarios on an emulated node, faster than real time"))
    _pause(commands.add_parser("pause", help="stop the agent from writing for a while; it goes on deciding"))
    resume = commands.add_parser("resume", help="end the pause")
    _state(resume)
    _replay(
        commands.add_parser("replay", help="decide again over a flight record, with the same or with other settings")
    )
    _record(commands.add_parser("record", help="write a flight record to one file: from now on, or of the past"))
    _capture(commands.add_parser("capture", help="save one snapshot with the files it came from, for a bug report"))
    _restore(commands.add_parser("restore", help="put back every value as it was before the first write"))
    _adopt(commands.add_parser("adopt", help="take over what another agent left here, so that it can be put back"))
    check = commands.add_parser(
        "check-config", help="list every mistake in koordlite.yaml and in a folder of manifests"
    )
    check.add_argument("file", nargs="?", help="koordlite.yaml")
    check.add_argument("--cluster", metavar="DIR", help="folder of manifests to check as well")
    check.add_argument("--node", metavar="NAME", help="which Node of the folder, if it has several")
    commandline.add_output(check)
    _profile(
        commands.add_parser("profile", help="what Koordinator's ClusterColocationProfiles make of a pod; read-only")
    )
    _crane(commands.add_parser("crane", help="the topology result that Crane's scheduler would write for a bound pod"))
    node = commands.add_parser(
        "check-node", help="what this machine supports, and what to do about the rest; read-only"
    )
    commandline.add_output(node)
    _machine(node)
    resctrl = commands.add_parser(
        "resctrl", help="cache and memory bandwidth: what there is, who has it, what is planned"
    )
    resctrl.add_argument("action", choices=("show", "plan"), help="show needs no cluster; neither of them writes")
    commandline.add_output(resctrl)
    _machine(resctrl)
    _kubelet(commands.add_parser("kubelet", help="what another CPU manager policy would do to each pod; read-only"))
    scheduler_options.add_commands(commands)
    _numa(commands.add_parser("numa", help="why a pod is or is not aligned to NUMA nodes, with the numbers"))
    _numa_exporter(
        commands.add_parser("numa-exporter", help="metrics of NUMA nodes for Prometheus, without deciding or writing")
    )
    commands.add_parser("default-config", help="print koordlite.yaml with every option at its default, commented")
    commandline.add_completion(commands.add_parser("completion", help="print a script that completes commands"))
    return top


def _machine(command: argparse.ArgumentParser) -> None:
    """Options that name the machine and the cluster."""
    group = command.add_argument_group("machine and cluster")
    machine = group.add_mutually_exclusive_group()
    machine.add_argument("--sandbox", metavar="SHAPE", help=f"an emulated node instead of this machine: {SHAPES}")
    machine.add_argument(
        "--recorded", metavar="DIR", nargs="+", help="a captured /sys, /proc and cgroup tree, read-only"
    )
    group.add_argument(
        "--cluster", metavar="DIR", help="folder of YAML manifests in place of a cluster; edits are picked up"
    )
    group.add_argument(
        "--kubeconfig", metavar="FILE", help="kubeconfig of the cluster (default: the cluster of this pod)"
    )
    group.add_argument("--context", metavar="NAME", help="context of the kubeconfig (default: its current context)")
    group.add_argument(
        "--node", "--node-name", dest="node", metavar="NAME", help="name of this machine's Node (default: $NODE_NAME)"
    )
    group.add_argument("--kubepods", metavar="GROUP", help="kubelet's top cgroup, if it is not kubepods")
    group.add_argument("--config", metavar="FILE", help="koordlite.yaml (default: what KOORDLITE_CONFIG names)")


_MODE = "mode of all strategies that are not off by default"


def _run(command: argparse.ArgumentParser) -> None:
    _machine(command)
    command.add_argument(
        "--mode", choices=("off", "observe", "enforce"), help="mode of all strategies but those off by default"
    )
    command.add_argument(
        "--strategy", metavar="NAME=MODE", action="append", default=[], help="mode of one strategy; may be repeated"
    )
    command.add_argument(
        "--for", dest="seconds", metavar="DURATION", type=times.duration("--for"), help="stop after 90s, 5m, …"
    )
    command.add_argument("--once", action="store_true", help="run two ticks, print the status, stop")
    command.add_argument(
        "--interval", metavar="DURATION", type=times.duration("--interval"), help="time between two ticks"
    )
    command.add_argument(
        "--speed",
        metavar="N",
        type=float,
        help="sandbox: simulated seconds per real second (default: as fast as it can with --for, else 1)",
    )
    command.add_argument(
        "--chaos",
        metavar="SEED",
        type=int,
        help="sandbox: inject faults (failing files, vanishing groups, other writers)",
    )
    command.add_argument("--report", metavar="DIR", help="write run.json and run.html here when the run ends")
    command.add_argument(
        "--record", metavar="DIR", help="keep the flight record here (default: section record of koordlite.yaml)"
    )
    command.add_argument("--published", metavar="DIR", help="where a folder cluster stores what the agent publishes")
    command.add_argument("--state-dir", metavar="DIR", help="folder of the undo journal")
    command.add_argument(
        "--on-stop", choices=("keep", "restore"), help="leave values in force when the agent stops, or restore them"
    )
    command.add_argument("--no-http", action="store_true", help="do not start the HTTP server")
    command.add_argument("--port", type=int, help="HTTP port, for /metrics, /healthz, /state, /explain, /loglevel")
    command.add_argument(
        "--http-address", metavar="ADDRESS", help="HTTP address (default: loopback; others need a token)"
    )
    command.add_argument("--tls-cert-file", metavar="FILE", help="serve HTTPS with this certificate (http.tlsCertFile)")
    command.add_argument(
        "--tls-private-key-file", metavar="FILE", help="its key (default: in the same file; http.tlsKeyFile)"
    )
    command.add_argument("-q", "--quiet", action="store_true", help="no live view, log problems only")


def _ask(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--url", help="a running agent (default: $KOORDLITE_URL, else http://127.0.0.1:9316, unless you name a machine)"
    )
    commandline.add_output(command)
    _machine(command)


def _explain(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "subject",
        nargs="+",
        help="node, pod NAME, numa NAMESPACE/POD, cpu N, file PATH, allocatable, config, resctrl, besteffort, pools, "
        "a strategy, a reason",
    )
    command.add_argument(
        "--record", metavar="PATH", help="ask a flight record instead of the agent (a folder or a file)"
    )
    command.add_argument("--at", metavar="TIME", help="at that time: 24h ago is 24h; or 2026-01-31T03:00:00Z")
    command.add_argument("--since", metavar="TIME", help="compare with that time, and name the numbers that differ")
    command.add_argument("--who", action="store_true", help="name the pods whose use moved the budget")
    _ask(command)


def _top(command: argparse.ArgumentParser) -> None:
    command.add_argument("--url", help="a running agent (default: $KOORDLITE_URL, else http://127.0.0.1:9316)")
    command.add_argument(
        "--interval", metavar="DURATION", type=times.duration("--interval"), default=1.0, help="(default: 1s)"
    )
    command.add_argument(
        "--once", action="store_true", help="print one frame and stop (the default when the output is not a terminal)"
    )


def _log_level(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "level", nargs="?", choices=("off", "warning", "info", "debug"), help="leave it out to show the levels"
    )
    whose = command.add_mutually_exclusive_group()
    whose.add_argument("--strategy", default="", metavar="NAME", help="only of this strategy")
    whose.add_argument("--pod", default="", metavar="NAMESPACE/NAME", help="only of decisions about this pod")
    command.add_argument(
        "--for",
        dest="seconds",
        type=times.duration("--for"),
        metavar="DURATION",
        help="then go back to the old level",
    )
    command.add_argument("--url", help="a running agent (default: $KOORDLITE_URL, else http://127.0.0.1:9316)")
    command.add_argument("--state-dir", metavar="DIR", help="the agent's state folder, which holds its token")
    commandline.add_output(command)


def _replay(command: argparse.ArgumentParser) -> None:
    command.add_argument("record", nargs="?", metavar="PATH", help="a file or a folder (default: the agent's record)")
    command.add_argument("--since", metavar="TIME", help="only from that time on: 8h ago is 8h; or a time")
    command.add_argument("-o", "--output", choices=("text", "json", "html"), default="text")
    other = command.add_argument_group(
        "what to change; without any of these, check that every decision is the same as recorded"
    )
    other.add_argument(
        "--config", metavar="FILE", action="append", default=[], help="another koordlite.yaml, or another ConfigMap"
    )
    other.add_argument(
        "--set", metavar="NAME=VALUE", action="append", default=[], help="for example cpuSuppressThresholdPercent=70"
    )
    other.add_argument(
        "--mode", choices=("off", "observe", "enforce"), help="mode of all strategies but those off by default"
    )
    other.add_argument("--strategy", metavar="NAME=MODE", action="append", default=[], help="mode of one strategy")


def _record(command: argparse.ArgumentParser) -> None:
    what = command.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--for",
        dest="seconds",
        metavar="DURATION",
        type=times.duration("--for"),
        help="observe this long (1h), writing nothing",
    )
    what.add_argument(
        "--last",
        metavar="DURATION",
        type=times.duration("--last"),
        help="copy the last 10m … of the agent's record",
    )
    command.add_argument(
        "-o", "--output", metavar="FILE", required=True, help="the file to write; it must not exist yet"
    )
    command.add_argument("--mask", action="store_true", help="replace names and labels by pseudonyms, consistently")
    command.add_argument(
        "--from", dest="source", metavar="PATH", help="with --last: copy from this record instead of the agent's"
    )
    _machine(command)


def _capture(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "-o", "--output", metavar="DIR", required=True, help="the folder to write; it must not exist yet"
    )
    command.add_argument("--mask", action="store_true", help="replace names and labels by pseudonyms, consistently")
    _machine(command)


def _restore(command: argparse.ArgumentParser) -> None:
    _machine(command)
    command.add_argument("--state-dir", metavar="DIR", help="folder of the undo journal")
    command.add_argument("--published", metavar="DIR", help="where a folder cluster stores what the agent published")
    command.add_argument("--dry-run", action="store_true", help="print what would be restored")
    commandline.add_output(command)


def _adopt(command: argparse.ArgumentParser) -> None:
    command.add_argument("agent", choices=("koordlet",), help="the agent that ran here before")
    _machine(command)
    command.add_argument("--state-dir", metavar="DIR", help="folder of the undo journal")
    command.add_argument("--dry-run", action="store_true", help="print the list and change nothing")
    commandline.add_output(command)


def _simulate(command: argparse.ArgumentParser) -> None:
    command.add_argument("scenario", metavar="SCENARIO", nargs="+", help="YAML files; see configs/scenarios")
    command.add_argument("--config", metavar="FILE", help="use this koordlite.yaml instead of the scenario's settings")
    command.add_argument(
        "--compare",
        metavar="FILE",
        nargs=2,
        help="compare two configurations: each a koordlite.yaml or a ConfigMap slo-controller-config",
    )
    command.add_argument(
        "--without",
        action="store_true",
        help="beside it, the same where the agent only observes: what batch work would have got, and services missed",
    )
    command.add_argument("--seed", type=int, help="instead of the scenario's")
    command.add_argument("--mode", choices=("enforce", "observe", "asWritten"), help="instead of the scenario's")
    commandline.add_output(command)
    command.add_argument("--html", metavar="FILE", help="also write a page with timelines here")


def _profile(command: argparse.ArgumentParser) -> None:
    command.add_argument("action", choices=("apply",), help="print the pod as it would be admitted, and why")
    command.add_argument(
        "--profile",
        metavar="FILE",
        action="append",
        required=True,
        help="manifests of ClusterColocationProfiles, and of the Namespaces and PriorityClasses they need; repeatable",
    )
    command.add_argument("pod", metavar="POD", help="manifest of the pod, or of several; of a workload, its first pod")
    commandline.add_output(command)


def _crane(command: argparse.ArgumentParser) -> None:
    command.add_argument("action", choices=("assign",), help="choose NUMA nodes for a pod on the node it is bound to")
    command.add_argument("pod", metavar="NS/POD", help="the pod")
    commandline.add_output(command)
    what = command.add_mutually_exclusive_group()
    what.add_argument("--dry-run", action="store_true", help="print the result and write nothing; the default")
    what.add_argument("--write", action="store_true", help="put the result on the pod")
    command.add_argument("--cluster", metavar="DIR", help="folder of YAML manifests in place of a cluster; read-only")
    command.add_argument("--kubeconfig", metavar="FILE", help="kubeconfig (default: the cluster of this pod)")
    command.add_argument("--context", metavar="NAME", help="context of the kubeconfig (default: its current context)")


def _pause(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "duration", metavar="DURATION", type=times.duration("DURATION"), help="45m, 2h, 1h30m: the pause ends by itself"
    )
    command.add_argument("--because", metavar="TEXT", required=True, help="why; shown wherever the pause is shown")
    command.add_argument(
        "--release", action="store_true", help="also restore what was found (default: leave it in force)"
    )
    command.add_argument("--before-start", action="store_true", help="pause an agent that is not running yet")
    _state(command)


def _kubelet(command: argparse.ArgumentParser) -> None:
    command.add_argument("action", choices=("plan",), help="print the change, its commands and the way back")
    command.add_argument("--policy", choices=("static", "none"), help="cpuManagerPolicy (default: as it is)")
    command.add_argument(
        "--reserved-cpus", metavar="LIST", help="reservedSystemCPUs, such as 0-1,16-17 (default: as it is)"
    )
    command.add_argument(
        "--options",
        metavar="NAME=VALUE,…",
        help="cpuManagerPolicyOptions, such as full-pcpus-only=true (default: as they are)",
    )
    commandline.add_output(command)
    _machine(command)


def _numa(command: argparse.ArgumentParser) -> None:
    """`numa explain NS/POD` is `explain numa NS/POD`."""
    command.add_argument("action", choices=("explain",), help="is the pod aligned, and which causes keep it from that")
    command.add_argument("pod", metavar="NAMESPACE/POD", help="a pod of this node")
    _ask(command)


def _numa_exporter(command: argparse.ArgumentParser) -> None:
    _machine(command)
    command.add_argument("--listen", metavar="ADDRESS:PORT", help="where to serve /metrics (default: :9201)")
    command.add_argument("--node-only", action="store_true", help="ask no cluster: no containers and no violations")
    command.add_argument("--other-names", action="store_true", help="also the names that other NUMA exporters use")
    command.add_argument(
        "--for", dest="seconds", metavar="DURATION", type=times.duration("--for"), help="stop after 90s, 5m, …"
    )


def _state(command: argparse.ArgumentParser) -> None:
    command.add_argument("--state-dir", metavar="DIR", help="folder of the agent's undo journal")
    command.add_argument("--config", metavar="FILE", help="koordlite.yaml, for its stateDir")


_PLACES = {
    "run": "run:run",
    "status": "status:status",
    "numa": "explain:numa",
    "numa-exporter": "numa_exporter:numa_exporter",
    "explain": "explain:explain",
    "top": "top:top",
    "log-level": "log_level:log_level",
    "simulate": "simulate:simulate",
    "pause": "pause:pause",
    "resume": "pause:resume",
    "replay": "replay:replay",
    "record": "record:record",
    "capture": "capture:capture",
    "restore": "undo:undo",
    "adopt": "adopt:adopt",
    "resctrl": "resctrl_command:resctrl",
    "kubelet": "kubelet_command:kubelet",
    "check-config": "check:check_config",
    "check-node": "check:check_node",
    "profile": "profile:profile",
    "crane": "crane:assign",
    "default-config": "check:default_config",
    "completion": "check:completion",
    "scheduler-extender": "scheduler_extender:run",
    "numa-api": "numa_api:run",
    "scheduler": "scheduler_command:scheduler",
    "reservation-controller": "reservation_controller:run",
    "reservation": "reservation_command:reservation",
}
"""Command, to the module in this package and the function that carry it out."""


def _command(args: argparse.Namespace) -> int:
    module, _, function = _PLACES[args.command].partition(":")
    return int(getattr(importlib.import_module(f"koordlite.cli.{module}"), function)(args))
