"""Use of nodes by a Prometheus query: one instant query a cycle, one sample for each node.

Source: upstream `prometheusUsageClient`. The label `instance` names the node; a port behind the name is dropped, which
upstream does not do. A sample is between 0 and 1 and becomes whole percent, rounded down.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from descheduler.picture.cluster import Usage
from koordlite.kube.client.prometheus import Prometheus, results, shown

SOURCE = "Prometheus"
"""Its name in `View.usage`, before a colon and the query."""
METRIC = "MetricResource"
"""The one resource it measures."""


class _Sample(msgspec.Struct, frozen=True):
    metric: dict[str, str] = {}
    value: tuple[float, str] = (0.0, "")


def server(url: str, token: Callable[[], str], ca_file: str = "") -> Prometheus:
    """The server of a policy. Samples of 5,000 nodes are about 1 MB."""
    return Prometheus(url, token, ca_file, timeout_seconds=10.0, largest_answer_bytes=64 << 20)


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
            nodes[name] = {METRIC: int(part * 100)}
    except ValueError as error:
        return Usage(absent=str(error))
    return Usage(nodes, absent="" if nodes else "the query gives no sample")


def _part(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value <= 1 else None
