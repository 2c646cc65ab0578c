"""The command `koordlite`. Heavy parts are imported by the command that needs them, so that --help is quick."""

from __future__ import annotations

import argparse
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
    status = commands.add_parser("status", help="one screen on a running agent, or on one look at a machine")
    _ask(status)
    explain = commands.add_parser("explain", help="why something is as it is, with the numbers")
    explain.add_argument(
        "subject",
        nargs="+",
        help="pod NAME, besteffort, node, pools, part of a file name, a strategy, a reason, config, allocatable",
    )
    _ask(explain)
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
    _sandbox(commands.add_parser("sandbox", help="an emulated kernel interface or API server for other programs"))
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
    command.add_argument("--published", metavar="DIR", help="where a folder cluster keeps what the agent publishes")
    command.add_argument("--state-dir", metavar="DIR", help="where the undo journal lives")
    command.add_argument("--on-stop", choices=("keep", "restore"), help="what a stop leaves behind")
    command.add_argument("--no-http", action="store_true", help="do not listen")
    command.add_argument("--port", type=int, help="port for /metrics, /healthz, /state, /explain")
    command.add_argument("-q", "--quiet", action="store_true", help="no live view, only problems")


def _sandbox(command: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(dest="action", required=True, metavar="ACTION")
    mount = actions.add_parser("mount", help="an emulated resctrl as a mounted file system; needs libfuse")
    mount.add_argument("folder", metavar="DIR", help="an empty folder")
    mount.add_argument("--machine", metavar="SHAPE", default="intel-2s-ht", help=f"whose hardware it has: {SHAPES}")
    mount.add_argument("--options", default="", help="as for mount -t resctrl: cdp, cdpl2, mba_MBps, debug, ro")
    server = actions.add_parser("apiserver", help="a small Kubernetes API server; everybody may do everything there")
    server.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    server.add_argument("--port", type=int, default=0, help="port (default: any free one)")
    server.add_argument("--objects", metavar="DIR", action="append", default=[], help="manifests to begin with")
    server.add_argument("--kubeconfig-out", metavar="FILE", help="write a kubeconfig for it there")
    server.add_argument("--no-controllers", action="store_true", help="leave budgets and terminating pods as they are")


def _ask(command: argparse.ArgumentParser) -> None:
    command.add_argument("--url", help="a running agent (default: http://127.0.0.1:9316, unless a machine is named)")
    command.add_argument("-o", "--output", choices=("text", "json"), default="text")
    _machine(command)


def _restore(command: argparse.ArgumentParser) -> None:
    _machine(command)
    command.add_argument("--state-dir", metavar="DIR", help="where the undo journal lives")
    command.add_argument("--dry-run", action="store_true", help="print what would be put back")


def _command(args: argparse.Namespace) -> int:
    if args.command == "run":
        from koordlite.cli.run import run

        return run(args)
    if args.command in ("status", "explain"):
        from koordlite.cli.ask import ask

        return ask(args)
    if args.command == "restore":
        from koordlite.cli.undo import undo

        return undo(args)
    if args.command == "sandbox":
        return _sandboxed(args)
    if args.command == "resctrl":
        from koordlite.cli.resctrl import resctrl

        return resctrl(args)
    from koordlite.cli import check

    return check.COMMANDS[args.command](args)


def _sandboxed(args: argparse.Namespace) -> int:
    if args.action == "apiserver":
        from koordlite.cli.sandbox_apiserver import apiserver

        return apiserver(args)
    from koordlite.cli.sandbox_mount import mount

    return mount(args)
