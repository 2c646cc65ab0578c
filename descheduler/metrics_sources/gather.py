"""The measurements that the plugins of a policy ask for, from wherever they are: objects in the picture (koordlet's
NodeMetric, the resource metrics API), Prometheus.
"""

from __future__ import annotations

import base64
import functools
import pathlib
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from descheduler.picture import pods
from descheduler.picture.cluster import Usage, View
from descheduler.plan import Setup
from descheduler.policy.upstream import MetricsProvider
from descheduler.utilization import levels
from koordlite.kube.client.answers import ApiError, ApiUnreachable
from koordlite.kube.client.prometheus import Prometheus, results, shown
from koordlite.model import times
from koordlite.model.errors import Problem
from koordlite.model.quantity import parse_resources
from koordlite.model.wire import metrics

SOURCE = "Prometheus"
"""Its name in `View.usage`, before a colon and the query."""


class _Sample(msgspec.Struct, frozen=True):
    metric: dict[str, str] = {}
    value: tuple[float, str] = (0.0, "")


def usage(server: Prometheus, query: str) -> Usage:
    """The answer to an instant query, or the reason why there is no measurement; nothing is raised."""
    try:
        reply = server.ask("query", {"query": query})
    except (OSError, ValueError) as error:
        return Usage(absent=f"Prometheus {server.url} cannot be asked: {error or type(error).__name__}")
    if reply.status >= 300:
        return Usage(absent=f"Prometheus {server.url} answers {reply.status} {reply.reason}: {shown(reply.body)}")
    return read(reply.body)


def read(body: bytes) -> Usage:
    """Percent of each node out of an answer of `/api/v1/query`."""
    nodes: dict[str, dict[str, int]] = {}
    try:
        for sample in results(body, "vector", _Sample):
            name = sample.metric.get("instance", "").rpartition(":")[0] or sample.metric.get("instance", "")
            part = _part(sample.value[1])
            if not name:
                return Usage(absent="a sample has no label instance, so its node is unknown; add it to the query")
            if part is None:
                return Usage(absent=f"the sample of {name} is {sample.value[1]}, not a part between 0 and 1")
            nodes[name] = {levels.METRIC: int(part * 100)}
    except ValueError as error:
        return Usage(absent=str(error))
    return Usage(nodes, absent="" if nodes else "the query gives no sample")


def _part(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value <= 1 else None


NODES = "/apis/metrics.k8s.io/v1beta1/nodes"
PODS = "/apis/metrics.k8s.io/v1beta1/pods"
SERVICE_ACCOUNT = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Folder of the token and the certificates of a pod's own service account."""
TOKEN_KEY = "prometheusAuthToken"
"""Key of the token for Prometheus in a Secret. Source: upstream."""
_NOT_CONFIGURED = "no provider of this source is configured: add it to metricsProviders"

if TYPE_CHECKING:
    from koordlite.kube.client.access import Api


NODE_METRIC = "NodeMetric"
"""Its name in `View.usage`."""


def of_node_metrics(objects: Iterable[metrics.NodeMetricObject], now: float, problems: list[Problem]) -> Usage:
    """Use of nodes (the system and all pods) and of pods. A node that nobody has filled in is not among them.

    Source: Koordinator `getNodeUsage`: host applications and `nodeUsage` do not count.
    """
    nodes: dict[str, dict[str, int]] = {}
    pods: dict[str, dict[str, int]] = {}
    ages: dict[str, float] = {}
    for obj in objects:
        name, status = obj.metadata.name, obj.status
        if status.node_metric is None:
            continue
        owner = f"nodemetric/{name}"
        total = _measured(status.node_metric.system_usage, owner, problems)
        for pod in status.pods_metric or ():
            used = pods[f"{pod.namespace}/{pod.name}"] = _measured(pod.pod_usage, owner, problems)
            for resource, amount in used.items():
                total[resource] = total.get(resource, 0) + amount
        nodes[name] = total
        written = times.parse_or_none(status.update_time)
        if written is not None:
            ages[name] = max(0.0, now - written)
    return Usage(nodes, pods, ages, "" if nodes else "there is no NodeMetric that koordlet has filled in")


def _measured(measured: metrics.MeasuredResources | None, owner: str, problems: list[Problem]) -> dict[str, int]:
    return pods.units(parse_resources(measured.resources if measured else None, owner, "status", problems))


METRICS_API = "KubernetesMetrics"
"""Its name in `View.usage`."""
OLD_TENTHS = 9
"""Tenths of the old value that stay when a new one comes. Source: upstream `metricscollector`."""
NO_NODES = "the metrics API reports no node"


def of_metrics_api(
    nodes: Iterable[metrics.NodeMetricsObject],
    pods: Iterable[metrics.PodMetricsObject],
    problems: list[Problem],
) -> Usage:
    """Use of nodes and pods as measured just now."""
    of_nodes = {obj.metadata.name: _amounts(obj.usage, f"nodemetrics/{obj.metadata.name}", problems) for obj in nodes}
    of_pods: dict[str, dict[str, int]] = {}
    for obj in pods:
        key = f"{obj.metadata.namespace}/{obj.metadata.name}"
        total = of_pods[key] = Counter[str]()
        for container in obj.containers or ():
            total.update(_amounts(container.usage, f"podmetrics/{key}", problems))
    return Usage(of_nodes, of_pods, absent="" if of_nodes else NO_NODES)


def _amounts(use: dict[str, str | int | float] | None, owner: str, problems: list[Problem]) -> dict[str, int]:
    return pods.units(parse_resources(use, owner, "usage", problems))


class Smoothed:
    """Use of nodes over many samples; a node that a sample lacks keeps what it had."""

    def __init__(self) -> None:
        self._nodes: dict[str, dict[str, int]] = {}

    def add(self, sample: Usage) -> Usage:
        """Take in a sample; the same with the nodes smoothed.

        The first sample of a node counts as it is; after that new = 0.9 × old + 0.1 × sample.
        """
        for name, measured in sample.nodes.items():
            old = self._nodes.get(name, measured)
            self._nodes[name] = {resource: smooth(old.get(resource, use), use) for resource, use in measured.items()}
        nodes = {name: dict(use) for name, use in self._nodes.items()}
        return Usage(nodes, sample.pods, absent="" if nodes else sample.absent or NO_NODES)

    def keep(self, names: Iterable[str]) -> None:
        """Forget nodes that are no more."""
        present = set(names)
        self._nodes = {name: use for name, use in self._nodes.items() if name in present}


def smooth(old: int, sample: int) -> int:
    """One step of the moving average, rounded to whole units.

    >>> smooth(1000, 2000)
    1100
    """
    return (OLD_TENTHS * old + (10 - OLD_TENTHS) * sample + 5) // 10


def required_sources(setup: Setup) -> tuple[tuple[str, str], ...]:
    """Sources, with the query where one is asked, that plugins of the policy need; each once.

    A plugin says so in a property `sources` of its arguments.
    """
    configs = [config for profile in setup.profiles for _, config in profile.plugins]
    return tuple(dict.fromkeys(source for config in configs for source in getattr(config, "sources", ())))


class Gatherer(msgspec.Struct, frozen=True):
    """Asks the sources once a cycle. It remembers the smoothed use of nodes, so keep one for the whole run."""

    api: Api | None = None
    """The API server; None when the picture comes from files."""
    server: Prometheus | None = None
    """Prometheus; None when none is configured."""
    smoothed: Smoothed = msgspec.field(default_factory=Smoothed)

    def measure(self, view: View, setup: Setup) -> View:
        """The picture with everything that its plugins need measured. What lies in the picture already stays."""
        by_source = dict(view.usage)
        problems: list[Problem] = []
        for source, query in required_sources(setup):
            name = f"{source}:{query}" if query else source
            if name not in by_source and source in _READERS:
                by_source[name] = self._ask(source, query, view, problems)
        return msgspec.structs.replace(view, usage=by_source, problems=(*view.problems, *problems))

    def _ask(self, source: str, query: str, view: View, problems: list[Problem]) -> Usage:
        if source == SOURCE:
            return usage(self.server, query) if self.server else Usage(absent=_NOT_CONFIGURED)
        if self.api is None:
            return Usage(absent="the files hold no NodeMetrics")
        sample = metrics_api(self.api, problems)
        self.smoothed.keep(view.nodes)
        return self.smoothed.add(sample)


_READERS = (SOURCE, METRICS_API)


class _Secret(msgspec.Struct, frozen=True):
    data: dict[str, str] = {}


class _NodeList(msgspec.Struct, frozen=True):
    items: list[metrics.NodeMetricsObject] = []


class _PodList(msgspec.Struct, frozen=True):
    items: list[metrics.PodMetricsObject] = []


def metrics_api(api: Api, problems: list[Problem]) -> Usage:
    """Sample all nodes and pods, in two lists. Upstream asks for each node and each pod by itself."""
    try:
        nodes, pods = api.request("GET", NODES).read(_NodeList), api.request("GET", PODS).read(_PodList)
    except (ApiError, ApiUnreachable) as error:
        return Usage(absent=f"the metrics API cannot be read: {error}")
    return of_metrics_api(nodes.items, pods.items, problems)


def of_policy(providers: Iterable[MetricsProvider], api: Api | None) -> Gatherer:
    """The sources that a policy's `metricsProviders` name."""
    prometheus = next((provider.prometheus for provider in providers if provider.prometheus), None)
    if prometheus is None:
        return Gatherer(api)
    reference = prometheus.auth_token.secret_reference if prometheus.auth_token else None
    token: Callable[[], str] = service_account_token
    if reference is not None:
        token = functools.partial(secret_token, api, reference.namespace, reference.name)
    certificates = SERVICE_ACCOUNT / "ca.crt"  # There is none outside a cluster.
    ca_file = str(certificates) if certificates.is_file() else ""
    # Samples of 5,000 nodes are about 1 MB.
    server = Prometheus(prometheus.url, token, ca_file, timeout_seconds=10.0, largest_answer_bytes=64 << 20)
    return Gatherer(api, server)


def secret_token(api: Api | None, namespace: str, name: str) -> str:
    """The token in a Secret, read again because it may change. OSError says why there is none."""
    where = f"Secret {namespace}/{name}"
    if api is None:
        raise OSError(f"{where} is on a cluster, and none is asked")
    try:
        path = f"/api/v1/namespaces/{quote(namespace)}/secrets/{quote(name)}"
        written = api.request("GET", path).read(_Secret).data.get(TOKEN_KEY, "")
        token = base64.b64decode(written, validate=True).decode().strip()
    except (ApiError, ApiUnreachable, ValueError) as error:
        raise OSError(f"{where} cannot be read: {error}") from error
    if not token:
        raise OSError(f"{where} has nothing under {TOKEN_KEY}")
    return token


def service_account_token() -> str:
    """The token of the pod's own service account, read again because it is rotated."""
    return (SERVICE_ACCOUNT / "token").read_text(encoding="utf-8").strip()
