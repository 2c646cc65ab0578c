"""The command `koordlite`. Heavy parts are imported by the command that needs them, so that --help is quick."""

from __future__ import annotations

import argparse
import importlib
import io
import sys
from collections.abc import Sequence

from koordlite import __version__
from koordlite.model.errors import InputError, KoordliteError

SHAPES = (
    "intel-2s-ht, amd-ccd, arm, small, anolis, intel-cdp, intel-mbps, intel-unmounted, intel-1s, intel-nomba, "
    "intel-l2, intel-snc, amd-milan, amd-genoa, arm-mpam"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command. 0: done; 1: it ran and the answer is no; 2: it could not run, and said why."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal without an arrow or a dash shows `?`: nothing may end because of a character.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    args = parser().parse_args(argv)
    try:
        return _command(args)
    except InputError as error:
        for problem in error.problems:
            print(f"koordlite: {problem}", file=sys.stderr)
    except BrokenPipeError:
        return 0  # The reader of our output has seen enough.
    except (KoordliteError, OSError) as error:
        print(f"koordlite: {error}", file=sys.stderr)
    return 2


def parser() -> argparse.ArgumentParser:
    """Every command and option."""
    top = argparse.ArgumentParser(
        prog="koordlite",
        description="Co-location agent for Kubernetes nodes. Without an order to enforce it only observes.",
    )
    top.add_argument("--version", action="version", version=f"koordlite {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _run(commands.add_parser("run", help="run the agent on this machine, on an emulated one, or over a recording"))
    _ask(commands.add_parser("status", help="one screen on a running agent, or on one look at a machine"))
    _explain(commands.add_parser("explain", help="why something is as it is, with the numbers, and who changed it"))
    _top(commands.add_parser("top", help="a running agent, live: CPU map, limits, pools, pressure, decisions"))
    _log_level(commands.add_parser("log-level", help="which decisions a running agent logs: show or change it"))
    _simulate(commands.add_parser("simulate", help="play scenarios on an emulated node in compressed time"))
    _pause(commands.add_parser("pause", help="let the agent only look on for a while; decisions go on"))
    resume = commands.add_parser("resume", help="end the pause")
    _state(resume)
    _replay(commands.add_parser("replay", help="judge a flight record again: as it was, or with other settings"))
    _record(commands.add_parser("record", help="a flight record in one file: of the time to come, or of the past"))
    _capture(commands.add_parser("capture", help="one picture with the files it came from, for a bug report"))
    _restore(commands.add_parser("restore", help="put back every value that was found before the first write"))
    check = commands.add_parser("check-config", help="every mistake in koordlite.yaml and in a folder of manifests")
    check.add_argument("file", nargs="?", help="koordlite.yaml")
    check.add_argument("--cluster", metavar="DIR", help="folder of manifests to check as well")
    check.add_argument("--node", metavar="NAME", help="which Node of the folder, where there are several")
    node = commands.add_parser("check-node", help="what this machine offers and what to do about the rest; read-only")
    _machine(node)
    resctrl = commands.add_parser("resctrl", help="cache and bandwidth: what there is, who has it, what is planned")
    resctrl.add_argument("action", choices=("show", "plan"), help="show needs no cluster; neither writes anything")
    resctrl.add_argument("-o", "--output", choices=("text", "json"), default="text")
    _machine(resctrl)
    commands.add_parser("default-config", help="koordlite.yaml with every option at its default, commented")
    return top


def _machine(command: argparse.ArgumentParser) -> None:
    """Options that say which machine and which cluster."""
    group = command.add_argument_group("machine and cluster")
    machine = group.add_mutually_exclusive_group()
    machine.add_argument("--sandbox", metavar="SHAPE", help=f"an emulated node instead of this machine: {SHAPES}")
    machine.add_argument("--recorded", metavar="DIR", nargs="+", help="captured /sys, /proc and cgroups, read-only")
    group.add_argument("--cluster", metavar="DIR", help="folder of YAML manifests as the cluster; edits are picked up")
    group.add_argument("--kubeconfig", metavar="FILE", help="API server as the cluster (default: that of this pod)")
    group.add_argument("--context", metavar="NAME", help="context of the kubeconfig (default: its current one)")
    group.add_argument(
        "--node", "--node-name", dest="node", metavar="NAME", help="name of this machine's Node (or NODE_NAME)"
    )
    group.add_argument("--kubepods", metavar="GROUP", help="kubelet's top cgroup where it is not kubepods")
    group.add_argument("--config", metavar="FILE", help="koordlite.yaml")


def _run(command: argparse.ArgumentParser) -> None:
    _machine(command)
    command.add_argument("--mode", choices=("off", "observe", "enforce"), help="mode of all strategies")
    command.add_argument(
        "--strategy", metavar="NAME=MODE", action="append", default=[], help="mode of one strategy; may be repeated"
    )
    command.add_argument("--for", dest="seconds", metavar="SECONDS", type=float, help="stop after this time")
    command.add_argument("--once", action="store_true", help="two ticks, print the status, stop")
    command.add_argument("--interval", metavar="SECONDS", type=float, help="time between two ticks")
    command.add_argument(
        "--speed",
        metavar="N",
        type=float,
        help="sandbox: simulated seconds in a real one (default: no pause)",
    )
    command.add_argument(
        "--chaos", metavar="SEED", type=int, help="sandbox: files fail, groups vanish, somebody else writes, by SEED"
    )
    command.add_argument("--report", metavar="DIR", help="write run.json and run.html there when the run ends")
    command.add_argument("--record", metavar="DIR", help="keep the flight record there (default: section record)")
    command.add_argument("--published", metavar="DIR", help="where a folder cluster keeps what the agent publishes")
    command.add_argument("--state-dir", metavar="DIR", help="where the undo journal lives")
    command.add_argument("--on-stop", choices=("keep", "restore"), help="what a stop leaves behind")
    command.add_argument("--no-http", action="store_true", help="do not listen")
    command.add_argument("--port", type=int, help="port for /metrics, /healthz, /state, /explain, /loglevel")
    command.add_argument(
        "--http-address", metavar="ADDRESS", help="listen there (default: loopback; others need a token)"
    )
    command.add_argument("-q", "--quiet", action="store_true", help="no live view, only problems")


def _ask(command: argparse.ArgumentParser) -> None:
    command.add_argument("--url", help="a running agent (default: http://127.0.0.1:9316, unless a machine is named)")
    command.add_argument("-o", "--output", choices=("text", "json"), default="text")
    _machine(command)


def _explain(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "subject",
        nargs="+",
        help="node, pod NAME, cpu N, file PATH, allocatable, config, resctrl, besteffort, pools, a strategy, a reason",
    )
    command.add_argument("--record", metavar="PATH", help="ask a flight record, not the agent (its folder, or a file)")
    command.add_argument("--at", metavar="TIME", help="as it was then: 24h for so long ago, or 2026-01-31T03:00:00Z")
    command.add_argument("--since", metavar="TIME", help="compare with then, and name the numbers that differ")
    _ask(command)


def _top(command: argparse.ArgumentParser) -> None:
    command.add_argument("--url", help="a running agent (default: http://127.0.0.1:9316)")
    command.add_argument("--interval", metavar="SECONDS", type=float, default=1.0, help="(default: %(default)s)")
    command.add_argument("--once", action="store_true", help="one frame, then stop; so it is when this is no terminal")


def _log_level(command: argparse.ArgumentParser) -> None:
    command.add_argument("level", nargs="?", choices=("off", "warning", "info", "debug"), help="without: show them")
    whose = command.add_mutually_exclusive_group()
    whose.add_argument("--strategy", default="", metavar="NAME", help="of this strategy only")
    whose.add_argument("--pod", default="", metavar="NAMESPACE/NAME", help="of what concerns this pod only")
    command.add_argument("--for", dest="seconds", type=float, metavar="SECONDS", help="then as before")
    command.add_argument("--url", help="a running agent (default: http://127.0.0.1:9316)")
    command.add_argument("--state-dir", metavar="DIR", help="the agent's folder, where its token is")


def _replay(command: argparse.ArgumentParser) -> None:
    command.add_argument("record", nargs="?", metavar="PATH", help="a file, or a folder (default: the agent's)")
    command.add_argument("--since", metavar="TIME", help="only from then on: 8h for so long ago, or a time")
    command.add_argument("-o", "--output", choices=("text", "json", "html"), default="text")
    other = command.add_argument_group("what is to be otherwise; without any of these, whether all comes out the same")
    other.add_argument("--config", metavar="FILE", action="append", default=[], help="koordlite.yaml, or the ConfigMap")
    other.add_argument(
        "--set", metavar="NAME=VALUE", action="append", default=[], help="as in cpuSuppressThresholdPercent=70"
    )
    other.add_argument("--mode", choices=("off", "observe", "enforce"), help="mode of all strategies")
    other.add_argument("--strategy", metavar="NAME=MODE", action="append", default=[], help="mode of one strategy")


def _record(command: argparse.ArgumentParser) -> None:
    what = command.add_mutually_exclusive_group(required=True)
    what.add_argument("--for", dest="duration", metavar="DURATION", help="look on for so long (1h), writing nothing")
    what.add_argument("--last", metavar="DURATION", help="take the last so long out of the agent's record")
    command.add_argument("-o", "--output", metavar="FILE", required=True, help="the file; it must not exist")
    command.add_argument("--mask", action="store_true", help="names and labels become pseudonyms, the same everywhere")
    command.add_argument("--from", dest="source", metavar="PATH", help="with --last: another record than the agent's")
    _machine(command)


def _capture(command: argparse.ArgumentParser) -> None:
    command.add_argument("-o", "--output", metavar="DIR", required=True, help="the folder; it must not exist")
    command.add_argument("--mask", action="store_true", help="names and labels become pseudonyms, the same everywhere")
    _machine(command)


def _restore(command: argparse.ArgumentParser) -> None:
    _machine(command)
    command.add_argument("--state-dir", metavar="DIR", help="where the undo journal lives")
    command.add_argument("--published", metavar="DIR", help="where a folder cluster keeps what the agent published")
    command.add_argument("--dry-run", action="store_true", help="print what would be put back")


def _simulate(command: argparse.ArgumentParser) -> None:
    command.add_argument("scenario", metavar="SCENARIO", nargs="+", help="YAML files, see configs/scenarios")
    command.add_argument("--config", metavar="FILE", help="koordlite.yaml in place of the scenario's settings")
    command.add_argument(
        "--compare",
        metavar="FILE",
        nargs=2,
        help="two configurations side by side: each a koordlite.yaml or a ConfigMap slo-controller-config",
    )
    command.add_argument("--seed", type=int, help="in place of the scenario's")
    command.add_argument("--mode", choices=("enforce", "observe", "asWritten"), help="in place of the scenario's")
    command.add_argument("-o", "--output", choices=("text", "json"), default="text")
    command.add_argument("--html", metavar="FILE", help="write a page with timelines there as well")


def _pause(command: argparse.ArgumentParser) -> None:
    command.add_argument("duration", metavar="DURATION", help="45m, 2h, 1h30m: it ends by itself")
    command.add_argument("--because", metavar="TEXT", required=True, help="why, for everybody who looks meanwhile")
    command.add_argument("--release", action="store_true", help="give back what is in force (default: it stays)")
    _state(command)


def _state(command: argparse.ArgumentParser) -> None:
    command.add_argument("--state-dir", metavar="DIR", help="where the agent keeps its undo journal")
    command.add_argument("--config", metavar="FILE", help="koordlite.yaml, for its stateDir")


_PLACES = {
    "run": "run:run",
    "status": "status:status",
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
    "resctrl": "resctrl_command:resctrl",
    "check-config": "check:check_config",
    "check-node": "check:check_node",
    "default-config": "check:default_config",
}
"""Command, to the module in this package and the function that carry it out."""


def _command(args: argparse.Namespace) -> int:
    module, _, function = _PLACES[args.command].partition(":")
    return int(getattr(importlib.import_module(f"koordlite.cli.{module}"), function)(args))
