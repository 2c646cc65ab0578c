"""The command `descheduler`. Heavy parts are imported by the command that needs them, so that --help is quick."""

from __future__ import annotations

import argparse
import contextlib
import gc
import pathlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from koordlite import __version__
from koordlite.model.errors import InputError, KoordliteError, Problem

if TYPE_CHECKING:
    from descheduler.outcome import EvictionPlan, Setup
    from descheduler.picture import View
    from descheduler.snapshot.files import Objects

FOUND = 3
"""Exit code of `plan --fail-on-findings` when a pod stands wrong."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command. 0: done; 2: bad input, every problem on stderr; 3: findings, with `--fail-on-findings`."""
    args = parser().parse_args(argv)
    try:
        code: int = args.run(args)
    except InputError as error:
        for problem in error.problems:
            print(f"descheduler: {problem}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        return 0
    except (KoordliteError, OSError) as error:
        print(f"descheduler: {error}", file=sys.stderr)
        return 2
    return code


def parser() -> argparse.ArgumentParser:
    """Every command and option."""
    top = argparse.ArgumentParser(
        prog="descheduler",
        description="Finds pods that stand where they should not, and says which of them should be evicted and why.",
    )
    top.add_argument("--version", action="version", version=f"descheduler {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _plan(commands.add_parser("plan", help="what would be evicted, and why; nothing is (dry run)"))
    explain = commands.add_parser("explain", help="everything about one pod, or why it is not in the plan")
    explain.add_argument("pod", help="namespace/name, or a name")
    _picture(explain)
    explain.set_defaults(run=_run_explain)
    check = commands.add_parser("check-config", help="every mistake in a policy file, and what is hardly meant")
    check.add_argument("file", help="a DeschedulerPolicy, or a DeschedulerConfiguration of Koordinator")
    check.set_defaults(run=_run_check)
    listing = commands.add_parser("list-plugins", help="the plugins and what each is for")
    listing.set_defaults(run=_run_list)
    default = commands.add_parser("default-config", help="the policy that holds without --policy, commented")
    default.set_defaults(run=_run_default)
    return top


def _plan(command: argparse.ArgumentParser) -> None:
    _picture(command)
    command.add_argument("--output", choices=("text", "json", "html"), default="text", help="form of standard output")
    command.add_argument("--report", metavar="DIR", help="also write plan.txt, plan.json and plan.html there")
    command.add_argument(
        "--fail-on-findings", action="store_true", help=f"exit with {FOUND} when a pod stands wrong, evicted or spared"
    )
    command.set_defaults(run=_run_plan)


def _picture(command: argparse.ArgumentParser) -> None:
    source = command.add_mutually_exclusive_group()
    source.add_argument(
        "--snapshot",
        metavar="PATH",
        nargs="+",
        help="files or folders made by `kubectl get nodes,pods,noderesourcetopologies,pdb -A -o json`; YAML will do. "
        "Without it the cluster is asked",
    )
    source.add_argument(
        "--kubeconfig",
        "--client-connection-kubeconfig",
        metavar="FILE",
        help="the cluster to ask; without it the pod's service account, else the file named by KUBECONFIG",
    )
    command.add_argument("--context", help="context of the kubeconfig; without it the current one")
    command.add_argument(
        "--policy",
        "--policy-config-file",
        "--config",
        metavar="FILE",
        help="a DeschedulerPolicy or DeschedulerConfiguration; without one see `default-config`",
    )
    command.add_argument(
        "--now", metavar="TIME", default="", help="RFC 3339 time of the snapshot; without it the newest time in it"
    )


def _make(args: argparse.Namespace) -> EvictionPlan:
    from descheduler import config, cycle
    from descheduler.snapshot import assemble

    told: list[Problem] = []
    policy = config.load(args.policy, told) if args.policy else config.default()
    _tell(told)
    with _no_collection():
        setup = config.setup(policy)
        view = _measured(assemble.view(_objects(args), _moment(args.now)), args, policy, setup)
        return cycle.plan(view, setup)


def _measured(view: View, args: argparse.Namespace, policy: Any, setup: Setup) -> View:
    """The picture with the measurements that the policy's plugins need; most policies need none."""
    from descheduler.metrics_sources import gather

    if not gather.wanted(setup):
        return view
    from koordlite.kube import access

    api = None if args.snapshot else access.connect(args.kubeconfig, args.context, user_agent="descheduler")
    return gather.of_policy(getattr(policy, "metrics_providers", ()), api).measured(view, setup)


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Nothing is thrown away while a plan is made, and to look for it in millions of objects takes seconds."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _objects(args: argparse.Namespace) -> Objects:
    if args.snapshot:
        from descheduler.snapshot import files

        return files.read(args.snapshot)
    from descheduler.snapshot import cluster
    from koordlite.kube import access

    return cluster.read(access.connect(args.kubeconfig, args.context, user_agent="descheduler"))


def _tell(notices: Iterable[Problem]) -> None:
    for notice in notices:
        print(f"descheduler: note: {notice}", file=sys.stderr)


def _moment(text: str) -> str:
    from descheduler import times

    try:
        return text and times.show(times.parse(text))
    except ValueError as error:
        do = "write a time like 2026-01-01T00:00:00Z"
        raise InputError(Problem("command line", "--now", text, str(error), do)) from error


def _run_plan(args: argparse.Namespace) -> int:
    plan = _make(args)
    print(_rendered(plan, args.output), end="")
    if args.report:
        _write_reports(plan, pathlib.Path(args.report))
    if args.output != "text":  # The text has them itself.
        for problem in plan.view.problems:
            print(f"descheduler: {problem}", file=sys.stderr)
    return FOUND if args.fail_on_findings and plan.outcomes else 0


def _rendered(plan: EvictionPlan, form: str) -> str:
    from descheduler.evictors import dry_run
    from descheduler.report import document, html, text

    if form == "json":
        return document.encode(plan, dry_run.evict(plan))
    return html.render(plan) if form == "html" else text.render(plan)


def _write_reports(plan: EvictionPlan, folder: pathlib.Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for form, suffix in (("text", "txt"), ("json", "json"), ("html", "html")):
        path = folder / f"plan.{suffix}"
        path.write_text(_rendered(plan, form), encoding="utf-8")
        print(f"wrote {path}", file=sys.stderr)


def _run_explain(args: argparse.Namespace) -> int:
    from descheduler.report import explain

    print(explain.render(_make(args), args.pod), end="")
    return 0


def _run_check(args: argparse.Namespace) -> int:
    from descheduler import config

    told: list[Problem] = []
    policy = config.load(args.file, told)
    _tell(told)
    for profile in config.setup(policy).profiles:
        names = ", ".join(plugin.name for plugin, _ in profile.plugins) or "none"
        print(f"{args.file}: profile {profile.name}: plugins {names}")
    return 0


def _run_list(_args: argparse.Namespace) -> int:
    from descheduler import plugins

    for name, plugin in plugins.discover().items():
        print(f"{name}\n    {plugin.doc.splitlines()[0]}")
    return 0


def _run_default(_args: argparse.Namespace) -> int:
    from descheduler import policy_text

    print(policy_text.default_policy(), end="")
    return 0
