"""From command line options to a machine, a cluster and settings."""

from __future__ import annotations

import argparse
import dataclasses
import math
import pathlib
import socket
import threading
from collections.abc import Mapping

from koordlite import config, strategies
from koordlite.clock import RealClock
from koordlite.config import Agent, Http, Settings
from koordlite.host import bundle, sysfs
from koordlite.host.bundle import Host
from koordlite.host.files import RealFiles
from koordlite.kube.cluster import KubeCluster
from koordlite.kube.folder.manifests import ManifestCluster
from koordlite.model.errors import ConfigError, Problem
from koordlite.model.reading import strict
from koordlite.model.topology import Topology
from koordlite.ports import Clock, Cluster
from koordlite.sandbox import Sandbox, shapes
from koordlite.sandbox.chaos import Chaos
from koordlite.sandbox.cluster.cluster import SandboxCluster


@dataclasses.dataclass(frozen=True, slots=True)
class Machine:
    """What a command works on."""

    host: Host
    cluster: Cluster
    name: str
    """For titles: `sandbox intel-2s-ht`, `recording …`, the host name."""
    sandbox: Sandbox | None = None
    remote: KubeCluster | None = None
    """The API server, where the cluster is one: it works in threads until it is stopped."""

    def close(self) -> None:
        """End what works in the background."""
        if self.remote:
            self.remote.stop()


def settings(args: argparse.Namespace) -> Settings:
    """Settings of the file, overridden by the options."""
    chosen = config.load(pathlib.Path(args.config)) if args.config else config.default()
    given = {
        "node": args.node,
        "kubepods": args.kubepods,
        "interval_seconds": getattr(args, "interval", None),
        "state_dir": getattr(args, "state_dir", None),
        "on_stop": getattr(args, "on_stop", None),
    }
    agent = dataclasses.replace(chosen.agent, **{key: value for key, value in given.items() if value is not None})
    named = {"port": getattr(args, "port", None), "address": getattr(args, "http_address", None)}
    http = dataclasses.replace(chosen.http, **{key: value for key, value in named.items() if value is not None})
    http = dataclasses.replace(http, enable=http.enable and not getattr(args, "no_http", False))
    _check(args, {"--interval": (agent, "interval_seconds"), "--port": (http, "port")})
    return with_modes(dataclasses.replace(chosen, agent=agent, http=http, record=_record(chosen.record, args)), args)


def _check(args: argparse.Namespace, bounded: Mapping[str, tuple[Agent | Http, str]]) -> None:
    """ConfigError for a number that no run could work with; `bounded` says which option fills which field."""
    wrong = {
        option: (
            getattr(section, name),
            strict.beyond(type(section).__dataclass_fields__[name], getattr(section, name)),
        )
        for option, (section, name) in bounded.items()
    }
    for option, name in (("--for", "seconds"), ("--speed", "speed")):
        value = getattr(args, name, None)
        wrong[option] = value, "" if value is None or 0 < value < math.inf else "write a number more than 0"
    problems = [
        Problem("command line", option, str(value), "out of range", do) for option, (value, do) in wrong.items() if do
    ]
    if problems:
        raise ConfigError(problems)


def _record(chosen: config.FlightRecord, args: argparse.Namespace) -> config.FlightRecord:
    """A folder for the state of this run is one for its record as well."""
    state = getattr(args, "state_dir", None)
    return dataclasses.replace(chosen, folder=f"{state}/record") if state else chosen


def machine(args: argparse.Namespace, chosen: Settings, stop: threading.Event | None = None) -> Machine:
    """The machine and the cluster that the options name. ConfigError when they do not go together."""
    if args.sandbox:
        return _sandbox(args, chosen, stop)
    if args.recorded:
        return _recorded(args, chosen)
    host = bundle.bind(RealFiles(), RealClock(stop), kubepods=chosen.agent.kubepods)
    found = cluster(args, chosen, host, stop)
    return Machine(host, found, socket.gethostname(), remote=_remote(found))


def _sandbox(args: argparse.Namespace, chosen: Settings, stop: threading.Event | None) -> Machine:
    if args.sandbox not in shapes():
        do = f"write one of: {', '.join(shapes())}"
        raise ConfigError(Problem("command line", "--sandbox", args.sandbox, "no such machine", do))
    speed = getattr(args, "speed", None)
    emulated = Sandbox(args.sandbox, pace=1 / speed if speed else 0.0, stop=stop)
    named = _named_cluster(args, chosen, emulated, stop)
    cluster = SandboxCluster(named, emulated, evicts=_remote(named) is not None)
    cluster.view()  # Its kubelet makes the groups that are looked for next.
    host = bundle.bind(emulated.files, emulated.clock, kubepods=chosen.agent.kubepods)
    seed = getattr(args, "chaos", None)
    if seed is not None:
        emulated.each_second = Chaos(emulated, seed=seed).stir
    return Machine(host, cluster, f"sandbox {args.sandbox}", sandbox=emulated, remote=_remote(named))


def _remote(found: Cluster) -> KubeCluster | None:
    return found if isinstance(found, KubeCluster) else None


def _named_cluster(
    args: argparse.Namespace, chosen: Settings, emulated: Sandbox, stop: threading.Event | None
) -> Cluster:
    topology = sysfs.topology(emulated.files)
    if args.cluster or not getattr(args, "kubeconfig", None):
        return folder(args, chosen, emulated.clock, topology)
    from koordlite.cli.api_cluster import open_cluster

    return open_cluster(args, chosen, files=emulated.files, topology=topology, stop=stop)


def _recorded(args: argparse.Namespace, chosen: Settings) -> Machine:
    from koordlite.host.recorded import RecordedFiles
    from koordlite.kube.folder.recorded import RecordedCluster
    from koordlite.record import capture

    folders = [pathlib.Path(folder) for folder in args.recorded]
    host = bundle.bind(RecordedFiles(folders), RealClock(), kubepods=chosen.agent.kubepods)
    topology = sysfs.topology(host.files)
    cluster: Cluster
    if args.cluster:
        cluster = folder(args, chosen, host.clock, topology)
    elif capture.is_capture(folders[0]):
        cluster = capture.CapturedCluster(folders[0])
    else:
        cluster = RecordedCluster(folders[0], topology)
    return Machine(host, cluster, f"recording {folders[0]}")


def cluster(args: argparse.Namespace, chosen: Settings, host: Host, stop: threading.Event | None = None) -> Cluster:
    """A folder of manifests where one is named, else the API server."""
    topology = sysfs.topology(host.files)
    if args.cluster:
        return folder(args, chosen, host.clock, topology)
    from koordlite.cli.api_cluster import open_cluster

    return open_cluster(args, chosen, files=host.files, topology=topology, stop=stop)


def folder(args: argparse.Namespace, chosen: Settings, clock: Clock, topology: Topology) -> Cluster:
    """The cluster of a folder of manifests."""
    if not args.cluster:
        do = "name a folder of manifests, or an API server with --kubeconfig"
        raise ConfigError(Problem("command line", "--cluster", "", "an emulated node needs a cluster to be in", do))
    published = getattr(args, "published", None)
    return ManifestCluster(
        pathlib.Path(args.cluster),
        node_name=chosen.agent.node or None,
        published=pathlib.Path(published) if published else None,
        clock=clock,
        topology=topology,
    )


def with_modes(chosen: Settings, args: argparse.Namespace) -> Settings:
    """`chosen` with the modes that `--mode` and `--strategy` give. ConfigError for a strategy that is none."""
    if getattr(args, "mode", None):
        chosen = config.with_modes(chosen, args.mode)
    for text in getattr(args, "strategy", ()):
        name, _, mode = text.partition("=")
        if name not in chosen.strategies or mode not in ("off", "observe", "enforce"):
            renamed = next((s.name for s in strategies.discover() if s.formerly and s.formerly == name), None)
            do = f"write NAME=off|observe|enforce with NAME one of {', '.join(chosen.strategies)}"
            do = f"{name} has been renamed: write {renamed}={mode}" if renamed else do
            raise ConfigError(Problem("command line", "--strategy", text, "no such strategy or mode", do))
        chosen = config.with_modes(chosen, mode, frozenset({name}))
    return chosen
