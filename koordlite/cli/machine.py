"""A machine, a cluster and settings from command line options."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import logging
import math
import os
import pathlib
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeVar

import msgspec

from koordlite import __version__, config, strategies
from koordlite.clock import RealClock
from koordlite.config import Agent, Http, Settings
from koordlite.host import bundle, procfs, sysfs
from koordlite.host.bundle import Host
from koordlite.host.files import RealFiles
from koordlite.kube.cluster import KubeCluster
from koordlite.kube.settings import ClusterSettings
from koordlite.model.errors import ConfigError, InputError, Problem
from koordlite.model.node import Node
from koordlite.model.reading import strict
from koordlite.model.topology import Topology
from koordlite.ports import Clock, Cluster, Files
from koordlite.report import log_format, units
from koordlite.report.tick import Tick

if TYPE_CHECKING:
    from koordlite.agent import Agent as Rounds
    from koordlite.lab import Sandbox

Section = TypeVar("Section", Agent, Http, ClusterSettings)
LOG = logging.getLogger(__name__)
USER_AGENT = f"koordlite/{__version__}"
FIRST_ANSWERS_SECONDS = 5.0
"""Time that a start waits for the API server; without its answers the agent begins all the same."""
CAPACITY_TOLERANCE = 0.1
"""Part of the memory by which a Node may differ from its machine: what firmware and the kernel keep varies."""


class Machine(msgspec.Struct, frozen=True):
    """Target of a command."""

    host: Host
    cluster: Cluster
    name: str
    """Name for titles: `sandbox intel-2s-ht`, `recording …`, the host name."""
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
    base = config.named(args.config)
    agent = _overridden(
        base.agent,
        args,
        node="node",
        kubepods="kubepods",
        interval_seconds="interval",
        state_dir="state_dir",
        on_stop="on_stop",
        log_format="log_format",
    )
    log_format.use(agent.log_format)
    http = _overridden(
        base.http,
        args,
        port="port",
        address="http_address",
        tls_cert_file="tls_cert_file",
        tls_key_file="tls_private_key_file",
    )
    http = dataclasses.replace(http, enable=http.enable and not getattr(args, "no_http", False))
    _check(args, agent, http)
    # A folder for the state of this run is one for its record as well.
    state = getattr(args, "state_dir", None)
    record = dataclasses.replace(base.record, folder=f"{state}/record") if state else base.record
    base = with_modes(msgspec.structs.replace(base, agent=agent, http=http, record=record), args)
    if managed := config.yielded_to_manager(base):
        LOG.warning(
            "publish.nodeResources is manager: %s observe, and Koordinator's manager writes", ", ".join(managed)
        )
    return config.one_writer(base)


def _overridden(section: Section, args: argparse.Namespace, **options: str) -> Section:
    """The section with what the command line says of it; `options` names the option of each field."""
    values = {field: getattr(args, option, None) for field, option in options.items()}
    return dataclasses.replace(section, **{field: value for field, value in values.items() if value is not None})


def _check(args: argparse.Namespace, agent: Agent, http: Http) -> None:
    """ConfigError for a number that no run could work with."""

    def beyond(section: Agent | Http, name: str) -> tuple[object, str]:
        value = getattr(section, name)
        return value, strict.beyond(type(section).__dataclass_fields__[name], value)

    checks = {"--interval": beyond(agent, "interval_seconds"), "--port": beyond(http, "port")}
    for option, name in (("--for", "seconds"), ("--speed", "speed")):
        value = getattr(args, name, None)
        checks[option] = value, "" if value is None or 0 < value < math.inf else "write a number more than 0"
    problems = [
        Problem("command line", option, str(value), "out of range", do) for option, (value, do) in checks.items() if do
    ]
    if problems:
        raise ConfigError(problems)


def machine(args: argparse.Namespace, settings: Settings, stop: threading.Event | None = None) -> Machine:
    """The machine and the cluster that the options name. ConfigError when they do not go together."""
    if args.sandbox:
        return _sandbox(args, settings, stop)
    host = bundle.bind(files(args), RealClock(stop), kubepods=settings.agent.kubepods)
    source = cluster(args, settings, host.files, host.clock, stop)
    name = f"recording {args.recorded[0]}" if args.recorded else socket.gethostname()
    return Machine(host, source, name, remote=_remote(source))


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


def _sandbox(args: argparse.Namespace, settings: Settings, stop: threading.Event | None) -> Machine:
    # An agent on a real machine has no use for the emulated one, nor memory for it.
    from koordlite.lab import demo
    from koordlite.lab.chaos import Chaos
    from koordlite.lab.cluster.cluster import SandboxCluster

    # A scrape is by the time of this machine, so an emulated node has to keep to that as well.
    scraped = args.command == "numa-exporter"
    endless = scraped or (args.command == "run" and args.seconds is None and not args.once)
    speed = getattr(args, "speed", None) or (1.0 if endless else None)
    emulated = _emulated(args, pace=1 / speed if speed else 0.0, stop=stop)
    manifests = None
    if not args.cluster and not args.kubeconfig and not settings.cluster.kubeconfig:
        manifests = tempfile.TemporaryDirectory(prefix="koordlite-demo-")
        demo.write(pathlib.Path(manifests.name), emulated.machine)
        args.cluster = manifests.name
        settings = msgspec.structs.replace(settings, agent=dataclasses.replace(settings.agent, node=demo.NODE))
        if args.command == "run":
            LOG.info("the cluster is a demonstration: its manifests are in %s, and may be edited", manifests.name)
    source = cluster(args, settings, emulated.files, emulated.clock, stop)
    emulation = SandboxCluster(source, emulated, evicts=_remote(source) is not None)
    emulation.view()  # Its kubelet makes the groups that are read next.
    host = bundle.bind(emulated.files, emulated.clock, kubepods=settings.agent.kubepods, cores=emulated.cores)
    seed = getattr(args, "chaos", None)
    if seed is not None:
        emulated.each_second = Chaos(emulated, seed=seed).stir
    return Machine(host, emulation, f"sandbox {args.sandbox}", sandbox=emulated, remote=_remote(source), demo=manifests)


def _remote(cluster: Cluster) -> KubeCluster | None:
    return cluster if isinstance(cluster, KubeCluster) else None


def cluster(
    args: argparse.Namespace, settings: Settings, files: Files, clock: Clock, stop: threading.Event | None = None
) -> Cluster:
    """A folder of manifests where one is named, that of the recording where there is one, else the API server."""
    topology = sysfs.topology(files)
    if args.cluster:
        from koordlite.kube.folder.manifests import ManifestCluster

        published = getattr(args, "published", None)
        return ManifestCluster(
            pathlib.Path(args.cluster),
            node_name=settings.agent.node or None,
            published=pathlib.Path(published) if published else None,
            clock=clock,
            topology=topology,
        )
    if args.recorded:
        from koordlite.kube.folder.recorded import RecordedCluster
        from koordlite.record import capture

        path = pathlib.Path(args.recorded[0])
        return capture.CapturedCluster(path) if capture.is_capture(path) else RecordedCluster(path, topology)
    return open_cluster(args, settings, files=files, topology=topology, stop=stop)


def names_api_server(args: argparse.Namespace, settings: Settings) -> bool:
    """Tell whether options, settings or the environment name an API server. That of KUBECONFIG counts where the Node is
    named too: on a machine of its own it may be any cluster's."""
    if args.kubeconfig or settings.cluster.kubeconfig or os.environ.get("KUBERNETES_SERVICE_HOST"):
        return True
    return bool(os.environ.get("KUBECONFIG") and (settings.agent.node or os.environ.get("NODE_NAME")))


def open_cluster(
    args: argparse.Namespace, settings: Settings, *, files: Files, topology: Topology, stop: threading.Event | None
) -> KubeCluster:
    """The cluster behind an API server, already watching. ConfigError says which of node name and credentials is
    missing."""
    from koordlite.kube.client import access
    from koordlite.kube.publish.background_report import BackgroundReport
    from koordlite.kube.publish.events import Events
    from koordlite.kube.publish.node_metric import NodeMetricReport
    from koordlite.kube.publish.node_reports import NUMATOPOLOGY, POD_AFFINITY, crane_topology

    # It is never guessed from the host name, which may be another's.
    name = settings.agent.node or os.environ.get("NODE_NAME", "")
    if not name:
        why = "which Node is this machine? none of --node-name, agent.node and NODE_NAME says so"
        do = "set NODE_NAME from spec.nodeName in the DaemonSet, or name a folder of manifests with --cluster"
        raise ConfigError(Problem("command line", "--node-name", "", why, do))
    connection = _overridden(settings.cluster, args, kubeconfig="kubeconfig", context="context")
    kubeconfig, context = connection.kubeconfig or None, connection.context or None
    api = access.connect(kubeconfig, context, user_agent=USER_AGENT, answer_bytes=access.NODE_ANSWER_BYTES)
    publish = settings.publish
    reports: list[BackgroundReport | NodeMetricReport] = []
    if publish.node_metric != "off":
        create = publish.node_metric == "create"
        reports.append(NodeMetricReport(api, name, every_seconds=publish.node_metric_seconds, create=create))
    if publish.numatopology == "on":
        reports.append(BackgroundReport(api, name, NUMATOPOLOGY))
    if publish.pod_affinity == "on":
        reports.append(BackgroundReport(api, name, POD_AFFINITY))
    if publish.crane_topology != "off":
        reports.append(BackgroundReport(api, name, crane_topology(parts=publish.crane_topology == "parts")))
    cluster = KubeCluster(
        api,
        connection,
        node_name=name,
        files=files,
        topology=topology,
        clock=RealClock(stop),
        user_agent=USER_AGENT,
        events=Events.of_process(api, "koordlite.io/agent") if publish.events else None,
        reports=reports,
        published=config.published(settings),
        pod_resources=connection.kubelet != "off" and isinstance(files, RealFiles),
        stop=stop,
    )
    cluster.start(FIRST_ANSWERS_SECONDS)
    return cluster


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


def with_modes(settings: Settings, args: argparse.Namespace) -> Settings:
    """`settings` with the modes that `--mode` and `--strategy` give. ConfigError for a strategy that is none."""
    if getattr(args, "mode", None):
        settings = config.with_modes(settings, args.mode)
    for text in getattr(args, "strategy", ()):
        name, _, mode = text.partition("=")
        if name not in settings.strategies or mode not in ("off", "observe", "enforce"):
            renamed = next((s.name for s in strategies.discover() if s.formerly and s.formerly == name), None)
            do = f"write NAME=off|observe|enforce with NAME one of {', '.join(settings.strategies)}"
            do = f"{name} has been renamed: write {renamed}={mode}" if renamed else do
            raise ConfigError(Problem("command line", "--strategy", text, "no such strategy or mode", do))
        settings = config.with_modes(settings, mode, frozenset({name}))
    return settings


def tick(args: argparse.Namespace) -> Tick:
    """Two ticks a second apart, since usage is a rate. InputError when there is no Node object to judge."""
    with judged(args) as (_, tick):
        return tick


@contextlib.contextmanager
def judged(args: argparse.Namespace, *, twice: bool = True) -> Iterator[tuple[Machine, Tick]]:
    """Same as `tick`, and the machine while the block lasts. Once is enough for what does not go by usage."""
    from koordlite.agent import Agent as Rounds

    observing = config.with_modes(settings(args), "observe")
    with contextlib.closing(machine(args, observing)) as target:
        agent = Rounds(target.host, target.cluster, observing)
        tick = two_ticks(agent, target.host) if twice else agent.tick()
        if not tick.node:
            do = "write its manifest, or name it by --node"
            raise InputError(tick.problems or Problem(str(args.cluster), "Node", "", "there is no Node object", do))
        yield target, tick


def two_ticks(agent: Rounds, host: Host) -> Tick:
    """The second of two ticks a second apart, since usage is a rate."""
    agent.tick()
    host.clock.wait(1.0)
    return agent.tick()
