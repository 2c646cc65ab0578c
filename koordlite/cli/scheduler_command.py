"""`koordlite scheduler`: ask a running extender, or print what installs one."""

from __future__ import annotations

import argparse
import json
import pathlib
import urllib.parse
from collections.abc import Iterable
from typing import Any

from koordlite.cli import asking
from koordlite.model import printable
from koordlite.model.errors import InputError, KoordliteError, Problem


def scheduler(args: argparse.Namespace) -> int:
    """Carry out the action."""
    return _ACTIONS[args.action](args)


def _explain(args: argparse.Namespace) -> int:
    from koordlite.scheduler.report import texts

    namespace, slash, name = args.pod.partition("/")
    if not slash or not namespace or not name:
        do = "write it like default/my-pod"
        raise InputError(Problem("command line", "pod", args.pod, "no namespace and name", do))
    found = _get(args, f"explain/{urllib.parse.quote(args.pod)}")
    _print(args, found, lambda: texts.pod(found, every=args.all))
    return 0


def _state(args: argparse.Namespace) -> int:
    from koordlite.scheduler.report import texts

    if args.node:
        found = _get(args, f"state/{urllib.parse.quote(args.node)}")
        _print(args, found, lambda: texts.node(found))
    else:
        print(printable.in_json(json.dumps(_get(args, "debug/state"), indent=2)))
    return 0


def _log_level(args: argparse.Namespace) -> int:
    url = f"{args.url.rstrip('/')}/loglevel"
    if args.level is not None:
        asked = {"level": args.level, "pod": args.pod, "flow": args.flow, "forSeconds": args.seconds}
        found = json.loads(asking.put(url, asked, args.state_dir))
    else:
        found = _get(args, "loglevel")
    _print(args, found, lambda: _levels(found))
    return 0


def _levels(found: dict[str, Any]) -> Iterable[str]:
    yield f"everything else: {found['default']}"
    yield from (f"flow {name}: {level}" for name, level in found["flows"].items())
    yield from (f"pod {name}: {level}" for name, level in found["pods"].items())


def _try(args: argparse.Namespace) -> int:
    from koordlite.scheduler import trial
    from koordlite.scheduler.judgement.nodes import Settings
    from koordlite.scheduler.report import documents, texts

    if not pathlib.Path(args.folder).is_dir():
        do = "name a folder with Nodes, Pods and NodeResourceTopologies"
        raise InputError(Problem("command line", "DIR", args.folder, "there is no such folder", do))
    made = trial.of_folder(args.folder, args.pod, Settings(strategy=args.strategy))
    for line in trial.lines(made):
        print(printable.lines(line))
    found = documents.of_pod(made.extender, args.pod)
    if found is not None:
        print("")
        for line in texts.pod(found, every=args.all):
            print(printable.lines(line))
    return 0


def _render(args: argparse.Namespace) -> int:
    from koordlite.scheduler import render

    print(printable.lines(render.text(args.what, render.of_arguments(args))), end="")
    return 0


def _get(args: argparse.Namespace, path: str) -> Any:
    url = f"{args.url.rstrip('/')}/{path}"
    try:
        return json.loads(asking.get(url))
    except ValueError as error:
        raise KoordliteError(f"what answers at {url} is no scheduler extender: {error}") from error


def _print(args: argparse.Namespace, found: Any, lines: Any) -> None:
    if args.output == "json":
        print(printable.in_json(json.dumps(found, indent=2)))
        return
    for line in lines():
        print(printable.lines(line))


def _deploy(args: argparse.Namespace) -> int:
    from koordlite.cli import scheduler_deploy

    return scheduler_deploy.run(args)


_ACTIONS = {
    "explain": _explain,
    "state": _state,
    "log-level": _log_level,
    "try": _try,
    "render": _render,
    "validate": _deploy,
    "deploy": _deploy,
    "remove": _deploy,
}
