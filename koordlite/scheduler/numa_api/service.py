"""REST answers under `/rest/scheduling/v1/` and the pages under `/numa`, for a listener of `koordlite.http`."""

from __future__ import annotations

import functools
import json
import pathlib
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from koordlite import __version__
from koordlite.http import answers
from koordlite.http.answers import JSON, Answer, Request, Router, plain
from koordlite.kube.client.answers import ApiError, ApiUnreachable
from koordlite.kube.client.prometheus import Prometheus
from koordlite.report.html import page
from koordlite.report.log_levels import LogLevels
from koordlite.report.metrics import families
from koordlite.scheduler.cluster import Cluster
from koordlite.scheduler.judgement.nodes import Row
from koordlite.scheduler.numa_api import (
    charts,
    nights_page,
    node_page,
    overview_page,
    policies_page,
    rest,
    switches,
    view,
)
from koordlite.scheduler.numa_api.charts import Agents
from koordlite.scheduler.numa_api.nights_page import Nights, NodeNight
from koordlite.scheduler.numa_api.switches import CannotEdit, NotThere, Policy, Switches
from koordlite.scheduler.numa_api.view import NodeView

V1 = "/rest/scheduling/v1/"
QUERY = "/rest/scheduling/api/v1/"
"""Prefix under which openFuyao's console asks for charts; the same is at `V1`."""
POLICIES: Mapping[str, Policy] = {
    "numaaware": switches.NUMA_AWARE,
    "numadistance": switches.NUMA_DISTANCE,
    "podaffinity": switches.POD_AFFINITY,
}
"""Path below `V1`, to what is switched there."""
_PASSED = {"query": ("query", "time", "timeout", "limit"), "query_range": ("query", "start", "end", "step", "timeout")}
"""Parameters that Prometheus has; others are dropped."""


@functools.cache
def openapi() -> bytes:
    """The OpenAPI description of the REST interface, as JSON; `openapi.yaml` with the version of this program."""
    import yaml  # For those who ask for it.

    document = yaml.safe_load(pathlib.Path(__file__).with_name("openapi.yaml").read_text(encoding="utf-8"))
    document["info"]["version"] = __version__
    return json.dumps(document).encode()


class NumaService(Router, Collector):
    """Answers from many threads."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        wall: Callable[[], float],
        not_ready: Callable[[], str],
        prometheus: Prometheus | None = None,
        agents: Agents | None = None,
        switches: Switches | None = None,
        may_switch: bool = False,
        levels: LogLevels | None = None,
    ) -> None:
        """`wall` gives seconds since the epoch; `not_ready` why what is known must not be believed, or nothing.
        `agents` are asked for charts where there is no Prometheus. `may_switch`: policies may be changed, by whom the
        guard lets; `levels`: so may these."""
        self._cluster, self._wall, self._not_ready, self._prometheus = cluster, wall, not_ready, prometheus
        self._agents = agents
        self._nights = Nights(agents, monotonic=time.monotonic) if agents else None
        self._use = charts.ClusterUse(prometheus, monotonic=time.monotonic) if prometheus else None
        self._switches, self._may_switch = switches, may_switch
        self.metrics = CollectorRegistry()
        self.metrics.register(self)
        pages = {
            "/numa": self._overview,
            "/numa/policies": lambda request: _page(
                policies_page.document(self._statuses(), may_switch=self._may_switch)
            ),
            "/numa/nights": self._nights_page,
            "/numa/nodes/": self._node_page,
            V1: self._rest,
            QUERY: self._rest,
        }
        super().__init__(pages, ready=not_ready, registry=self.metrics, levels=levels)

    def collect(self) -> Iterator[Metric]:
        """The answer to a scrape."""
        yield families.single("koordlite_numa_api_nodes", "Nodes that are known", len(self._cluster.rows))
        ready = not self._not_ready()
        yield families.single("koordlite_numa_api_ready", "1 while what is known may be believed", ready)
        meaning, total = "Faults of the program, each of which left a node out", self._cluster.faults.total
        yield families.counter("koordlite_numa_api_faults", meaning, (), [((), total)])

    def put(self, path: str, body: bytes) -> Answer:
        """Switch a policy, or change the log levels. The guard has let the caller."""
        if path == "/loglevel":
            return super().put(path, body)
        policy = POLICIES.get(path.removeprefix(V1)) if path.startswith(V1) else None
        if policy is None or self._switches is None:
            return rest.refused(404, f"nothing is changed at {path}; there is {V1}{', '.join(POLICIES)}")
        if not self._may_switch:
            return rest.refused(403, "this server is read-only; --allow-policy-changes makes it switch policies")
        try:
            status = switches.read_body(body)
        except ValueError as error:
            return rest.refused(400, str(error))
        put = self._switches.put
        return _switched(lambda: {"status": status, "changed": put(policy, status)})

    def nodes(self) -> list[NodeView]:
        """All nodes, those that have changed worked out anew."""
        with self._cluster.lock:
            self._cluster.refresh()
            rows = list(self._cluster.rows.values())
        return [node for row in rows if (node := self._view(row)) is not None]

    def _node(self, name: str) -> NodeView | None:
        row = self._cluster.row(name)
        return None if row is None else self._view(row)

    def _view(self, row: Row) -> NodeView | None:
        """One node; None, and counted, where a fault of ours keeps it from being shown."""
        try:
            return view.of_row(row)
        except Exception as error:  # noqa: BLE001 - one node's fault costs that node
            self._cluster.faults.note(row.name, error)
            return None

    def _overview(self, request: Request) -> Answer:
        selection = overview_page.Selection.of(request.query, overview_page.SHOW, overview_page.SORT)
        nodes, policies = self.nodes(), self._cluster.policies
        usage = self._use.now() if self._use else None
        document = overview_page.document(
            nodes, selection, self._wall(), problem=self._not_ready(), policies=policies, usage=usage
        )
        return _page(document)

    def _nights_page(self, request: Request) -> Answer:
        selection = overview_page.Selection.of(request.query, nights_page.SHOW, nights_page.SORT)
        return _page(nights_page.document(self._night_rows(), selection, problem=self._not_ready()))

    def _night_rows(self) -> Sequence[NodeNight]:
        with self._cluster.lock:
            self._cluster.refresh()
            names = list(self._cluster.rows)
        return (
            self._nights.rows(names)
            if self._nights
            else [NodeNight(name, why="agents are not asked") for name in names]
        )

    def _node_page(self, request: Request) -> Answer:
        name, refresh = urllib.parse.unquote(request.rest.rstrip("/")), request.query.get("refresh") != "off"
        node, now = self._node(name), self._wall()
        if node is None:
            return plain(404, f"node {name} is unknown here")
        measured = self._agents.charts(name) if self._agents and not self._prometheus else None
        if self._prometheus:
            measured = charts.of_prometheus(self._prometheus, name, now)
        return _page(node_page.document(node, now, measured, self._cluster.policies, refresh=refresh))

    def _statuses(self) -> dict[str, str]:
        """State of each policy: `open`, `close`, or why that is unknown."""
        statuses: dict[str, str] = {}
        if self._switches is None:
            return statuses
        for name, policy in POLICIES.items():
            try:
                statuses[name] = self._switches.status(policy)
            except (NotThere, CannotEdit, ApiError, ApiUnreachable) as error:
                statuses[name] = f"unknown: {error}"
        return statuses

    def _rest(self, request: Request) -> Answer:
        is_v1 = request.path.startswith(V1)
        parts = [urllib.parse.unquote(part) for part in request.rest.split("/")]
        if len(parts) == 1 and parts[0] in _PASSED:
            return self._query(parts[0], request.query)
        if is_v1 and parts == ["openapi.json"]:
            return Answer(200, JSON, openapi())
        policy = POLICIES.get("/".join(parts)) if is_v1 else None
        if policy is not None and self._switches is not None:
            status = self._switches.status
            return _switched(lambda: {"status": status(policy)})
        if is_v1 and parts[0] == "numa":
            return self._facts(parts[1:])
        return rest.refused(404, f"there is no {request.path}; the interface is described at {V1}openapi.json")

    def _facts(self, parts: list[str]) -> Answer:
        """Statements about nodes, pods and violations, as long as it can be believed."""
        if why := self._not_ready():
            return rest.refused(500, why)
        now, usage = self._wall(), self._use.now() if self._use else {}
        match parts:
            case ["nodes", name]:
                node = self._node(name)
                return _data(rest.whole(node, now, usage.get(name, {})) if node else None, f"node {name}")
            case ["pods", namespace, name]:
                pod = self._cluster.pod_of(f"{namespace}/{name}")
                node = self._node(pod.node) if pod is not None and pod.node else None
                return _data(rest.of_pod(pod, node, now) if pod is not None else None, f"pod {namespace}/{name}")
            case ["nodes"]:
                nodes = sorted(self.nodes(), key=lambda node: node.name)
                listed = [rest.summary(node, now, usage.get(node.name, {})) for node in nodes]
            case ["nights"]:
                listed = [nights_page.plain(row) for row in self._night_rows()]
            case ["violations"]:
                listed = rest.violations(self.nodes(), now)
            case _:
                there = "numa/nodes, numa/nodes/NODE, numa/nights, numa/pods/NAMESPACE/POD, numa/violations"
                return rest.refused(404, f"there is {there}")
        return rest.answer(200, listed)

    def _query(self, verb: str, query: Mapping[str, str]) -> Answer:
        """Prometheus's own answer, without the envelope: its clients read it as it is."""
        if self._prometheus is None:
            return rest.refused(404, "no Prometheus is configured; name one by --prometheus-url")
        if not query.get("query"):
            return rest.refused(400, "the parameter query is missing")
        try:
            reply = self._prometheus.ask(verb, {name: query[name] for name in _PASSED[verb] if name in query})
        except (OSError, ValueError) as error:
            return rest.refused(500, f"Prometheus cannot be asked: {error}")
        return Answer(reply.status, JSON, reply.body)


def _switched(ask: Callable[[], dict[str, Any]]) -> Answer:
    """Result of `ask`, or the reason why there is none."""
    try:
        return rest.answer(200, ask())
    except NotThere as error:
        return rest.refused(404, str(error))
    except (CannotEdit, ApiError, ApiUnreachable) as error:
        return rest.refused(500, str(error))


def _data(data: dict[str, Any] | None, what: str) -> Answer:
    return rest.answer(200, data) if data is not None else rest.refused(404, f"{what} is unknown here")


def _page(document: str) -> Answer:
    return answers.page(page.strict(document, forms=True))
