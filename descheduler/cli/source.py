"""The source of the picture, files or a cluster, and the policy that judges it. Options shared by commands."""

from __future__ import annotations

import argparse
import contextlib
import gc
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from koordlite import commandline
from koordlite.model import printable
from koordlite.model.errors import InputError, Problem, refusing

if TYPE_CHECKING:
    from descheduler.history.past_evictions import Requests
    from descheduler.metrics_sources.gather import Gatherer
    from descheduler.picture.cluster import View
    from descheduler.plan import EvictionPlan, Setup
    from descheduler.snapshot.assemble import Pictures
    from descheduler.snapshot.cluster import Watches
    from descheduler.snapshot.files import Objects
    from koordlite.kube.client.access import Api


def add_options(command: argparse.ArgumentParser) -> None:
    """The options that name the input and the policy."""
    source = command.add_mutually_exclusive_group()
    source.add_argument(
        "--snapshot",
        metavar="PATH",
        nargs="+",
        help="files or folders made by `kubectl get nodes,pods,… -A -o json`, see docs/descheduler.md; YAML and pipes "
        "will do, and - is standard input. Without it the cluster is asked",
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
        "--now",
        metavar="TIME",
        default="",
        help="RFC 3339 time of the picture; without it the newest in the files, or this machine's clock for a cluster",
    )


class PictureSource:
    """`loop.Source` for the command line: the files are read, or the cluster is asked, again each time."""

    def __init__(
        self, args: argparse.Namespace, *, kubeconfig: str = "", repeated: bool = False, watch: bool = False
    ) -> None:
        """ConfigError when there is no way to the cluster; it is not asked yet. `kubeconfig` is the policy's, for when
        no option names one. `repeated`: for more than one cycle, so what has not changed on the cluster since the
        last one is not read again; with `watch` it is not even listed."""
        if "" in (args.snapshot or ()):
            do = "name files or folders of manifests, or - for standard input"
            raise InputError(Problem("command line", "--snapshot", "", "this names nothing", do))
        self._paths, self._now = args.snapshot, _time_text(args.now)
        self.api: Api | None = None
        """The cluster; None when there are only files."""
        if not args.snapshot:
            from koordlite.kube.client import access

            file = args.kubeconfig or kubeconfig or None
            self.api = access.connect(file, args.context, user_agent="descheduler")
        self._gatherer: Gatherer | None = None
        self._repeated, self._watch = repeated, repeated and watch
        self._watches: Watches | None = None
        self._read: Objects | None = None
        self._pictures: Pictures | None = None

    def view(self, document: Any, setup: Setup) -> View:
        """The picture, with the measurements that the policy's plugins need; most policies need none."""
        from descheduler.metrics_sources import gather
        from descheduler.snapshot import assemble

        objects = self._objects()
        if self._pictures is None or not self._repeated:
            self._pictures = assemble.Pictures()
        view = self._pictures.view(objects, *self._time())
        if not gather.required_sources(setup):
            return view
        if self._gatherer is None:
            self._gatherer = gather.of_policy(getattr(document, "metrics_providers", ()), self.api)
        return self._gatherer.measure(view, setup)

    def _time(self) -> tuple[str, str]:
        """The time of the picture and whose it is; empty: that of the newest object.

        A cluster is looked at as of this machine's clock, as upstream does: the newest time in its objects would let
        one node whose clock is ahead make every pod old, and open maintenance windows.
        """
        from koordlite.clock import RealClock
        from koordlite.model import times

        if self._now or self.api is None:
            return self._now, "given"
        return times.show(RealClock().wall()), "this machine's clock"

    def _objects(self) -> Objects:
        if self.api is None:
            from descheduler.snapshot import files

            return files.read(self._paths)
        from descheduler.snapshot import cluster

        if not self._repeated:
            return cluster.read(self.api)
        if self._watch and self._watches is None:
            from descheduler.snapshot.cluster import Watches

            self._watches = Watches(self.api, monotonic=time.monotonic)
        self._read = cluster.read(self.api, before=self._read or cluster.nothing_yet(), watches=self._watches)
        return self._read

    def close(self) -> None:
        """End what goes on between two cycles."""
        if self._watches is not None:
            self._watches.stop()


def make(args: argparse.Namespace, explained: str = "") -> EvictionPlan:
    """Make a plan by these options; `explained`: see `planner.plan`."""
    from descheduler.cycle import planner
    from descheduler.policy import reader

    problems: list[Problem] = []
    document = reader.load(args.policy, problems) if args.policy else reader.default()
    notices(problems)
    setup = reader.setup(document)
    with no_collection():
        with commandline.progress("reading the files" if args.snapshot else "reading the cluster"):
            source = PictureSource(args, kubeconfig=reader.kubeconfig(document))
            view = source.view(document, setup)
            requests = _eviction_requests(source.api, view, setup)
        with commandline.progress(f"judging {len(view.by_uid)} pods"):
            return planner.plan(view, setup, background=requests, explained=explained)


def _eviction_requests(api: Api | None, view: View, setup: Setup) -> Requests:
    """Standing of the EvictionRequests; none, and a note, where that cannot be read."""
    if api is None or setup.eviction_requests.mode == "off":
        return {}
    from descheduler.evictors import eviction_requests
    from koordlite.kube.client.answers import ApiError, ApiUnreachable

    def note(why: str) -> None:
        do = "see the roles of descheduler-eviction-requests; pods count as not asked until then"
        notices([Problem("evictionrequests", "", "", why, do)])

    try:
        return eviction_requests.read(api, view, setup.eviction_requests, lambda progress: note(progress.text))
    except (ApiError, ApiUnreachable) as error:
        note(f"they cannot be read: {error}")
        return {}


MANY_OBJECTS = 100_000
"""Number of new objects from which on the picture is a first one."""


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Nothing is thrown away while a plan is made, and to look for it in millions of objects takes seconds."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if gc.get_count()[0] > MANY_OBJECTS:
            # They stay. As members of the oldest generation they are not searched now, and once more some cycles later.
            gc.freeze()
            gc.unfreeze()
        if was_on:
            gc.enable()


def notices(problems: Iterable[Problem]) -> None:
    """Tell what is no mistake in a policy, but worth checking."""
    for notice in problems:
        print(printable.lines(f"descheduler: note: {notice}"), file=sys.stderr)


def _time_text(text: str) -> str:
    from koordlite.model import times

    with refusing("command line", "--now", text, "write a time like 2026-01-01T00:00:00Z"):
        return text and times.show(times.parse(text))
