"""`koordlite scheduler`: ask a running extender, or print what installs one."""

from __future__ import annotations

import argparse
import json
import pathlib
import time
import urllib.parse
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from koordlite.cli import asking, options
from koordlite.model import printable
from koordlite.model.errors import InputError, KoordliteError, Problem

if TYPE_CHECKING:
    from koordlite.scheduler.extender import Extender

_LIST_SECONDS = 30.0
_EXTENDER = asking.Server(
    "scheduler extender",
    "give its --url, or name manifests or a cluster: `koordlite explain --why-pending POD --cluster DIR`",
)


def explain(args: argparse.Namespace) -> int:
    from koordlite.scheduler.report import texts

    _check_name(args.pod)
    document = _get(args, f"explain/{urllib.parse.quote(args.pod)}{'?make-room=1' if args.make_room else ''}")
    _print(args, document, lambda: texts.pod(document, every=args.all))
    return 0


def _check_name(pod: str) -> None:
    namespace, slash, name = pod.partition("/")
    if not slash or not namespace or not name:
        do = "write it like default/my-pod"
        raise InputError(Problem("command line", "pod", pod, "no namespace and name", do))


def why_pending(args: argparse.Namespace, pod: str) -> int:
    """`koordlite explain --why-pending POD`: of a running extender, else of a folder or a cluster that is named."""
    from koordlite.scheduler import making_room
    from koordlite.scheduler.report import texts

    _check_name(pod)
    if args.url or not (args.cluster or args.kubeconfig):
        args.url = args.url or options.EXTENDER_URL
        document = _get(args, f"explain/{urllib.parse.quote(pod)}?make-room=1")
        _print(args, document, lambda: texts.pod(document))
    else:
        extender = _extender_of_folder(args.cluster, pod) if args.cluster else _extender_of_cluster(args)
        waiting = making_room.document(extender, pod, lambda: None)
        if waiting is None:
            raise InputError(Problem("command line", "pod", pod, "no such pod waits for a node", "name one that does"))
        _print(args, {"pod": pod, "waiting": waiting}, lambda: making_room.lines(waiting))
    return 0


def _extender_of_folder(folder: str, pod: str) -> Extender:
    from koordlite.scheduler import trial
    from koordlite.scheduler.judgement.nodes import JudgeSettings

    if not pathlib.Path(folder).is_dir():
        do = "name a folder with Nodes, Pods and NodeResourceTopologies"
        raise InputError(Problem("command line", "DIR", folder, "there is no such folder", do))
    return trial.of_folder(folder, pod, JudgeSettings()).extender


def _extender_of_cluster(args: argparse.Namespace) -> Extender:
    """One that has listed the cluster once."""
    from koordlite.kube.client.access import connect
    from koordlite.scheduler.cluster import Cluster
    from koordlite.scheduler.extender import Extender
    from koordlite.scheduler.judgement.nodes import JudgeSettings
    from koordlite.scheduler.watches import Watches

    api = connect(args.kubeconfig, args.context, user_agent="koordlite-explain")
    cluster = Cluster(JudgeSettings(), monotonic=time.monotonic)
    watches = Watches(api, cluster, monotonic=time.monotonic, with_reservations=True)
    watches.start()
    try:
        if not watches.wait(_LIST_SECONDS):
            errors = "; ".join(f"{state.name}: {state.error}" for state in watches.states() if state.error)
            raise KoordliteError(f"the cluster could not be listed: {errors or 'no answer in time'}")
        return Extender(cluster, wall=time.time, age=watches.age)
    finally:
        watches.stop()


def state(args: argparse.Namespace) -> int:
    from koordlite.scheduler.report import texts

    if args.node:
        document = _get(args, f"state/{urllib.parse.quote(args.node)}")
        _print(args, document, lambda: texts.node(document))
    else:
        print(printable.in_json(json.dumps(_get(args, "debug/state"), indent=2)))
    return 0


def log_level(args: argparse.Namespace) -> int:
    url = f"{args.url.rstrip('/')}/loglevel"
    if args.level is not None:
        request = {"level": args.level, "pod": args.pod, "flow": args.flow, "forSeconds": args.seconds}
        levels = json.loads(asking.put(url, request, args.state_dir))
    else:
        levels = _get(args, "loglevel")
    _print(args, levels, lambda: _levels(levels))
    return 0


def _levels(levels: dict[str, Any]) -> Iterable[str]:
    yield f"everything else: {levels['default']}"
    yield from (f"flow {name}: {level}" for name, level in levels["flows"].items())
    yield from (f"pod {name}: {level}" for name, level in levels["pods"].items())


def try_pod(args: argparse.Namespace) -> int:
    from koordlite.scheduler import making_room, trial
    from koordlite.scheduler.judgement.nodes import JudgeSettings
    from koordlite.scheduler.report import documents, texts

    if not pathlib.Path(args.folder).is_dir():
        do = "name a folder with Nodes, Pods and NodeResourceTopologies"
        raise InputError(Problem("command line", "DIR", args.folder, "there is no such folder", do))
    attempt = trial.of_folder(args.folder, args.pod, JudgeSettings(strategy=args.strategy))
    for line in trial.lines(attempt):
        print(printable.lines(line))
    document = documents.of_pod(attempt.extender, args.pod)
    if args.make_room:
        waiting = making_room.document(attempt.extender, args.pod, lambda: None)
        document = {**(document or {"pod": args.pod}), "waiting": waiting}
    if document is not None:
        print("")
        for line in texts.pod(document, every=args.all):
            print(printable.lines(line))
    return 0


def render(args: argparse.Namespace) -> int:
    from koordlite.scheduler import render as files

    print(printable.lines(files.text(args.what, files.of_arguments(args))), end="")
    return 0


def _get(args: argparse.Namespace, path: str) -> Any:
    url = f"{args.url.rstrip('/')}/{path}"
    try:
        return json.loads(asking.get(url, server=_EXTENDER))
    except ValueError as error:
        raise KoordliteError(f"what answers at {url} is no scheduler extender: {error}") from error


def _print(args: argparse.Namespace, document: Any, lines: Any) -> None:
    if args.output == "json":
        print(printable.in_json(json.dumps(document, indent=2)))
        return
    for line in lines():
        print(printable.lines(line))
