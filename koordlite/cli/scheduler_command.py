"""`koordlite scheduler`: ask a running extender, or print what installs one; and `koordlite reservation list|explain`,
read from the API server with the rights of whoever asks."""

from __future__ import annotations

import argparse
import json
import pathlib
import time
import urllib.parse
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from koordlite import commandline
from koordlite.cli import asking, options
from koordlite.model import printable
from koordlite.model.errors import InputError, KoordliteError, Problem

if TYPE_CHECKING:
    from koordlite.kube.client.access import Api
    from koordlite.scheduler.extender import Extender
    from koordlite.scheduler.judgement.nodes import JudgeSettings
    from koordlite.scheduler.trial import Trial

_LIST_SECONDS = 30.0
_EXTENDER = asking.Server(
    "scheduler extender",
    "give its --url, or name manifests or a cluster: `koordlite explain --why-pending POD --cluster DIR`",
)


def explain(args: argparse.Namespace) -> int:
    """Print every node of the last attempt to place a pod."""
    from koordlite.scheduler.report import texts

    _check_name(args.pod)
    document = _get(args, f"explain/{urllib.parse.quote(args.pod)}{'?make-room=1' if args.make_room else ''}")
    _print(args, document, texts.pod(document, every=args.all))
    return 0


def _check_name(pod: str) -> None:
    namespace, slash, name = pod.partition("/")
    if not slash or not namespace or not name:
        do = "write it like default/my-pod"
        raise InputError(Problem("command line", "pod", pod, "no namespace and name", do))


def why_pending(args: argparse.Namespace, pod: str) -> int:
    """`koordlite explain --why-pending POD`: of a running extender, else of a folder or a cluster that is named."""
    from koordlite.scheduler import making_room
    from koordlite.scheduler.judgement.nodes import JudgeSettings
    from koordlite.scheduler.report import texts

    _check_name(pod)
    if args.url or not (args.cluster or args.kubeconfig):
        args.url = args.url or options.EXTENDER_URL
        document = _get(args, f"explain/{urllib.parse.quote(pod)}?make-room=1")
        _print(args, document, texts.pod(document))
    else:
        by_files = _trial(args.cluster, pod, JudgeSettings()).extender if args.cluster else None
        extender = by_files or _extender_of_cluster(args)
        waiting = making_room.document(extender, pod, lambda: None)
        if waiting is None:
            raise InputError(Problem("command line", "pod", pod, "no such pod waits for a node", "name one that does"))
        _print(args, {"pod": pod, "waiting": waiting}, making_room.lines(waiting))
    return 0


def _trial(folder: str, pod: str, settings: JudgeSettings) -> Trial:
    from koordlite.scheduler import trial

    if not pathlib.Path(folder).is_dir():
        do = "name a folder with Nodes, Pods and NodeResourceTopologies"
        raise InputError(Problem("command line", "DIR", folder, "there is no such folder", do))
    return trial.of_folder(folder, pod, settings)


def _extender_of_cluster(args: argparse.Namespace) -> Extender:
    """An extender that has listed the cluster once."""
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
    """Print a node, or everything."""
    from koordlite.scheduler.report import texts

    if args.node:
        document = _get(args, f"state/{urllib.parse.quote(args.node)}")
        _print(args, document, texts.node(document))
    else:
        print(printable.in_json(json.dumps(_get(args, "debug/state"), indent=2)))
    return 0


def log_level(args: argparse.Namespace) -> int:
    """Print the log levels, after the change if one is asked for."""
    url = f"{args.url.rstrip('/')}/loglevel"
    if args.level is not None:
        request = {"level": args.level, "pod": args.pod, "flow": args.flow, "forSeconds": args.seconds}
        levels = json.loads(asking.put(url, request, args.state_dir))
    else:
        levels = _get(args, "loglevel")
    _print(args, levels, _levels(levels))
    return 0


def _levels(levels: dict[str, Any]) -> Iterable[str]:
    yield f"everything else: {levels['default']}"
    yield from (f"flow {name}: {level}" for name, level in levels["flows"].items())
    yield from (f"pod {name}: {level}" for name, level in levels["pods"].items())


def try_pod(args: argparse.Namespace) -> int:
    """Print what an extender would do with a pod of a folder."""
    from koordlite.scheduler import making_room, trial
    from koordlite.scheduler.judgement.nodes import JudgeSettings
    from koordlite.scheduler.report import documents, texts

    attempt = _trial(args.folder, args.pod, JudgeSettings(strategy=args.strategy))
    commandline.print_long(f"{line}\n" for line in trial.lines(attempt))
    document = documents.of_pod(attempt.extender, args.pod)
    if args.make_room:
        waiting = making_room.document(attempt.extender, args.pod, lambda: None)
        document = {**(document or {"pod": args.pod}), "waiting": waiting}
    if document is not None:
        print("")
        commandline.print_long(f"{line}\n" for line in texts.pod(document, every=args.all))
    return 0


def render(args: argparse.Namespace) -> int:
    """Print the files that install an extender."""
    from koordlite.scheduler import render as files

    options = files.Options(**{name: getattr(args, name) for name in files.Options.__struct_fields__})
    print(printable.lines(files.text(args.what, options)), end="")
    return 0


def _get(args: argparse.Namespace, path: str) -> Any:
    url = f"{args.url.rstrip('/')}/{path}"
    try:
        return json.loads(asking.get(url, server=_EXTENDER))
    except ValueError as error:
        raise KoordliteError(f"what answers at {url} is no scheduler extender: {error}") from error


def _print(args: argparse.Namespace, document: Any, lines: Iterable[str]) -> None:
    if args.output == "json":
        print(printable.in_json(json.dumps(document, indent=2)))
    else:
        commandline.print_long(f"{line}\n" for line in lines)


def reservation(args: argparse.Namespace) -> int:
    """List, or explain one. KoordliteError when Reservations are not served."""
    from koordlite.kube.client.access import ApiError, connect
    from koordlite.model.wire.objects import NodeObject, PodObject
    from koordlite.model.wire.reservation import ReservationObject
    from koordlite.reservation import report
    from koordlite.reservation.placeholder import PlaceholderSettings
    from koordlite.reservation.world import World
    from koordlite.reservation.writer import RESERVATIONS

    api, world = connect(args.kubeconfig, args.context, user_agent="koordlite"), World()
    try:
        _each(api, RESERVATIONS, ReservationObject, world.put_reservation)
    except ApiError as error:
        if error.unknown_resource:
            why = "this cluster has no Reservations: apply manifests/crds/koordinator, or install Koordinator"
            raise KoordliteError(why) from error
        raise
    _each(api, "/api/v1/nodes", NodeObject, world.put_node)
    _each(api, "/api/v1/pods", PodObject, world.put_pod)
    if args.action == "list":
        listed = report.all_of(world, time.time())
        names = (f"reservation.scheduling.koordinator.sh/{each['name']}" for each in listed)
        lines = names if args.output == "name" else report.table(listed, wide=args.output == "wide")
        commandline.print_answer(args.output, "Reservations", {"reservations": listed}, lines)
        return 0
    document = report.one_of(world, args.name, PlaceholderSettings(), time.time())
    if document is None:
        listed_names = ", ".join(sorted(world.reservations)[:8]) or "none"
        raise KoordliteError(f"there is no Reservation {args.name}; there are {listed_names}")
    commandline.print_answer(args.output, "Reservation", {"reservation": document}, report.details(document))
    return 0


def _each(api: Api, path: str, shape: type[Any], put: Callable[[Any], object]) -> None:
    from koordlite.kube.client import answers

    for item in api.collect(path).items:
        try:
            put(answers.read(item, shape))
        except answers.ApiError as error:
            print(printable.lines(f"an object of {path} is left out: {error}"))
