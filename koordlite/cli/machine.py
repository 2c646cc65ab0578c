"""From command line options to a machine, a cluster and settings."""

from __future__ import annotations

import argparse
import dataclasses
import logging
import math
import pathlib
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from koordlite import config, strategies
from koordlite.clock import RealClock
from koordlite.config import Agent, Http, Settings
from koordlite.host import bundle, procfs, sysfs
from koordlite.host.bundle import Host
from koordlite.host.files import RealFiles
from koordlite.kube.cluster import KubeCluster
from koordlite.model.errors import ConfigError, InputError, Problem
from koordlite.model.node import Node
from koordlite.model.reading import strict
from koordlite.model.topology import Topology
from koordlite.ports import Clock, Cluster, Files
from koordlite.report import log_format, units

if TYPE_CHECKING:
    from koordlite.agent import Agent as Rounds
    from koordlite.lab import Sandbox
import contextlib

from koordlite.report.tick import Tick

LOG = logging.getLogger(__name__)
CAPACITY_TOLERANCE = 0.1
"""Part of the memory by which a Node may differ from its machine: what firmware and the kernel keep varies."""


class Machine(msgspec.Struct, frozen=True):
    """Target of a command."""

    host: Host
    cluster: Cluster
    name: str
    """For titles: `sandbox intel-2s-ht`, `recording …`, the host name."""
    sandbox: Sandbox | None = None
    remote: KubeCluster | None = None
    """The API server, where the cluster is one: it works in threads until it is stopped."""

    demo: tempfile.TemporaryDirectory[str] | None = None
    """The manifests of the demonstration cluster, where no other was named."""

    def close(self) -> None:
        """End what works in the background."""
        if self.remote:
            self.remote.stop()
        if self.demo:
            self.demo.cleanup()


def settings(args: argparse.Namespace) -> Settings:
    """Settings of the file, overridden by the options. InputError where these name folders that are none."""
    for option, folder in [("--recorded", each) for each in args.recorded or ()] + [("--cluster", args.cluster)]:
        if folder is not None and not pathlib.Path(folder).is_dir():
            why = "this is a file" if pathlib.Path(folder).exists() else "there is no such folder"
            do = "name a folder of manifests" if option == "--cluster" else "name the folder that holds sys and proc"
            raise InputError(Problem(folder, "folder", "", why, do))
    chosen = config.named(args.config)
    given = {
        "node": args.node,
        "kubepods": args.kubepods,
        "interval_seconds": getattr(args, "interval", None),
        "state_dir": getattr(args, "state_dir", None),
        "on_stop": getattr(args, "on_stop", None),
        "log_format": getattr(args, "log_format", None),
    }
    agent = dataclasses.replace(chosen.agent, **{key: value for key, value in given.items() if value is not None})
    log_format.use(agent.log_format)
    named = {
        "port": getattr(args, "port", None),
        "address": getattr(args, "http_address", None),
        "tls_cert_file": getattr(args, "tls_cert_file", None),
        "tls_key_file": getattr(args, "tls_private_key_file", None),
    }
    http = dataclasses.replace(chosen.http, **{key: value for key, value in named.items() if value is not None})
    http = dataclasses.replace(http, enable=http.enable and not getattr(args, "no_http", False))
    _check(args, {"--interval": (agent, "interval_seconds"), "--port": (http, "port")})
    chosen = msgspec.structs.replace(chosen, agent=agent, http=http, record=_record(chosen.record, args))
    chosen = with_modes(chosen, args)
    left = config.left_to_manager(chosen)
    if left:
        LOG.warning("publish.nodeResources is manager: %s observe, and Koordinator's manager writes", ", ".join(left))
    return config.one_writer(chosen)


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
    host = bundle.bind(files(args), RealClock(stop), kubepods=chosen.agent.kubepods)
    found = cluster(args, chosen, host.files, host.clock, stop)
    name = f"recording {args.recorded[0]}" if args.recorded else socket.gethostname()
    return Machine(host, found, name, remote=_remote(found))


def files(args: argparse.Namespace) -> Files:
    """The files of the machine that the options name."""
    if args.sandbox:
        return _emulated(args).files
    if args.recorded:
        from koordlite.host.recorded import RecordedFiles

        return RecordedFiles([pathlib.Path(folder) for folder in args.recorded])
    return RealFiles()


def _emulated(args: argparse.Namespace, *, pace: float = 0.0, stop: threading.Event | None = None) -> Sandbox:
    from koordlite.lab import Sandbox, shapes
    from koordlite.lab.sandbox import START

    if args.sandbox not in shapes():
        do = f"write one of: {', '.join(shapes())}"
        raise ConfigError(Problem("command line", "--sandbox", args.sandbox, "no such machine", do))
    # Its clock is that of this machine where people watch: a pause until noon ends at noon.
    return Sandbox(args.sandbox, pace=pace, stop=stop, start=time.time() if pace else START)


def _sandbox(args: argparse.Namespace, chosen: Settings, stop: threading.Event | None) -> Machine:
    # An agent on a real machine has no use for the emulated one, nor memory for it.
    from koordlite.lab import demo
    from koordlite.lab.chaos import Chaos
    from koordlite.lab.cluster.cluster import SandboxCluster

    # A scrape is by the time of this machine, so an emulated node has to keep to that as well.
    scraped = args.command == "numa-exporter"
    endless = scraped or (args.command == "run" and args.seconds is None and not args.once)
    speed = getattr(args, "speed", None) or (1.0 if endless else None)
    emulated = _emulated(args, pace=1 / speed if speed else 0.0, stop=stop)
    made = None
    if not args.cluster and not args.kubeconfig and not chosen.cluster.kubeconfig:
        made = tempfile.TemporaryDirectory(prefix="koordlite-demo-")
        demo.write(pathlib.Path(made.name), emulated.machine)
        args.cluster = made.name
        chosen = msgspec.structs.replace(chosen, agent=dataclasses.replace(chosen.agent, node=demo.NODE))
        if args.command == "run":
            LOG.info("the cluster is a demonstration: its manifests are in %s, and may be edited", made.name)
    named = cluster(args, chosen, emulated.files, emulated.clock, stop)
    shown = SandboxCluster(named, emulated, evicts=_remote(named) is not None)
    shown.view()  # Its kubelet makes the groups that are read next.
    host = bundle.bind(emulated.files, emulated.clock, kubepods=chosen.agent.kubepods, cores=emulated.cores)
    seed = getattr(args, "chaos", None)
    if seed is not None:
        emulated.each_second = Chaos(emulated, seed=seed).stir
    return Machine(host, shown, f"sandbox {args.sandbox}", sandbox=emulated, remote=_remote(named), demo=made)


def _remote(found: Cluster) -> KubeCluster | None:
    return found if isinstance(found, KubeCluster) else None


def cluster(
    args: argparse.Namespace, chosen: Settings, files: Files, clock: Clock, stop: threading.Event | None = None
) -> Cluster:
    """A folder of manifests where one is named, that of the recording where there is one, else the API server."""
    topology = sysfs.topology(files)
    if args.cluster:
        return _folder(args, chosen, clock, topology)
    if args.recorded:
        from koordlite.kube.folder.recorded import RecordedCluster
        from koordlite.record import capture

        path = pathlib.Path(args.recorded[0])
        return capture.CapturedCluster(path) if capture.is_capture(path) else RecordedCluster(path, topology)
    from koordlite.cli.api_cluster import open_cluster

    return open_cluster(args, chosen, files=files, topology=topology, stop=stop)


def need_node(args: argparse.Namespace, cluster: Cluster) -> None:
    """InputError where the folder of manifests named by the options has no Node for this machine; lists those it has.

    From an API server the Node may come later.
    """
    if not args.cluster:
        return
    view = cluster.view()
    if view.node is None:
        folder = pathlib.Path(args.cluster)
        about = tuple(problem for problem in view.problems if pathlib.Path(problem.object).is_relative_to(folder))
        raise InputError(about or view.problems)


def contradictions(node: Node, files: Files) -> Iterator[Problem]:
    """Differences in size between the Node object and this machine: then one of them is another's."""
    owner, do = f"node/{node.name}", "name this machine's own Node with --node, or correct status.capacity"
    cpus = len(sysfs.topology(files).cpus)
    if node.capacity_milli and node.capacity_milli != cpus * 1000:
        why = f"this machine has {cpus} CPUs"
        yield Problem(owner, "status.capacity.cpu", str(node.capacity["cpu"]), why, do)
    memory = procfs.memory(files).total
    if node.capacity_memory and abs(node.capacity_memory - memory) > memory * CAPACITY_TOLERANCE:
        why = f"this machine has {units.size(memory)}"
        yield Problem(owner, "status.capacity.memory", units.size(node.capacity_memory), why, do)


def _folder(args: argparse.Namespace, chosen: Settings, clock: Clock, topology: Topology) -> Cluster:
    from koordlite.kube.folder.manifests import ManifestCluster

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


def tick(args: argparse.Namespace) -> Tick:
    """Two ticks a second apart, since usage is a rate. InputError when there is no Node object to judge."""
    with taken(args) as (_, tick):
        return tick


@contextlib.contextmanager
def taken(args: argparse.Namespace) -> Iterator[tuple[Machine, Tick]]:
    """Same as `tick`, and the machine while the block lasts."""
    from koordlite.agent import Agent as Rounds

    chosen = config.with_modes(settings(args), "observe")
    named = machine(args, chosen)
    with contextlib.closing(named):
        tick = two_ticks(Rounds(named.host, named.cluster, chosen), named.host)
        if not tick.node:
            raise InputError(tick.problems or _no_node(args))
        yield named, tick


def two_ticks(agent: Rounds, host: Host) -> Tick:
    """The second of two ticks a second apart, since usage is a rate."""
    agent.tick()
    host.clock.wait(1.0)
    return agent.tick()


def _no_node(args: argparse.Namespace) -> Problem:
    return Problem(str(args.cluster), "Node", "", "there is no Node object", "write its manifest, or name it by --node")
