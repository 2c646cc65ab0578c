"""From command line options and settings to a cluster behind an API server."""

from __future__ import annotations

import argparse
import dataclasses
import os
import threading
from collections.abc import Mapping

from koordlite import __version__, config
from koordlite.clock import RealClock
from koordlite.config import Settings
from koordlite.host.files import RealFiles
from koordlite.kube.client import access
from koordlite.kube.cluster import KubeCluster
from koordlite.kube.publish.background_report import BackgroundReport
from koordlite.kube.publish.events import Events
from koordlite.kube.publish.node_metric import NodeMetricReport
from koordlite.kube.publish.node_reports import NUMATOPOLOGY, POD_AFFINITY, crane_topology
from koordlite.kube.settings import ClusterSettings, PublishSettings
from koordlite.model.errors import ConfigError, Problem
from koordlite.model.topology import Topology
from koordlite.ports import Files

USER_AGENT = f"koordlite/{__version__}"
FIRST_ANSWERS_SECONDS = 5.0
"""How long a start waits for the API server; without its answers the agent begins all the same."""


def open_cluster(
    args: argparse.Namespace, chosen: Settings, *, files: Files, topology: Topology, stop: threading.Event | None
) -> KubeCluster:
    """The cluster, already watching. ConfigError says which of node name and credentials is missing."""
    name, settings = node_name(chosen, os.environ), overridden(chosen.cluster, args)
    named = settings.kubeconfig or None, settings.context or None
    api = access.connect(*named, user_agent=USER_AGENT, answer_bytes=access.NODE_ANSWER_BYTES)
    cluster = KubeCluster(
        api,
        settings,
        node_name=name,
        files=files,
        topology=topology,
        clock=RealClock(stop),
        user_agent=USER_AGENT,
        events=Events.of_process(api, "koordlite.io/agent") if chosen.publish.events else None,
        reports=_reports(api, name, chosen.publish),
        published=config.published(chosen),
        pod_resources=settings.kubelet != "off" and isinstance(files, RealFiles),
        stop=stop,
    )
    cluster.start(FIRST_ANSWERS_SECONDS)
    return cluster


def _reports(api: access.Api, name: str, settings: PublishSettings) -> list[BackgroundReport | NodeMetricReport]:
    """Objects for other programs that are asked for."""
    reports: list[BackgroundReport | NodeMetricReport] = []
    if settings.node_metric != "off":
        create = settings.node_metric == "create"
        reports.append(NodeMetricReport(api, name, every_seconds=settings.node_metric_seconds, create=create))
    if settings.numatopology == "on":
        reports.append(BackgroundReport(api, name, NUMATOPOLOGY))
    if settings.pod_affinity == "on":
        reports.append(BackgroundReport(api, name, POD_AFFINITY))
    if settings.crane_topology != "off":
        reports.append(BackgroundReport(api, name, crane_topology(parts=settings.crane_topology == "parts")))
    return reports


def node_name(chosen: Settings, environment: Mapping[str, str]) -> str:
    """Name of this machine's Node; it is never guessed from the host name, which may be another's."""
    name = chosen.agent.node or environment.get("NODE_NAME", "")
    if not name:
        why = "which Node is this machine? none of --node-name, agent.node and NODE_NAME says so"
        do = "set NODE_NAME from spec.nodeName in the DaemonSet, or name a folder of manifests with --cluster"
        raise ConfigError(Problem("command line", "--node-name", "", why, do))
    return name


def overridden(settings: ClusterSettings, args: argparse.Namespace) -> ClusterSettings:
    """The settings with what the command line says of them."""
    given = {key: getattr(args, key, None) for key in ("kubeconfig", "context")}
    return dataclasses.replace(settings, **{key: value for key, value in given.items() if value is not None})
