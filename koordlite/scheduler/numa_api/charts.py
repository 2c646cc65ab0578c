"""The last hour of a node by NUMA node: asked of a Prometheus, or of the NUMA exporter that runs there, which is part
of the agent or a component of its own."""

from __future__ import annotations

import http.client
import itertools
import json
import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from koordlite.kube.client import answers
from koordlite.kube.client.access import Api
from koordlite.kube.client.answers import ApiError, ApiUnreachable
from koordlite.kube.client.prometheus import Prometheus, results
from koordlite.model.errors import UNREADABLE

LOG = logging.getLogger(__name__)
NAMESPACES = ("koordlite-system", "volcano-system")
"""Only pods of these are asked: elsewhere, a tenant could start a pod with our label and make charts up."""
LABEL = "app.kubernetes.io/name=koordlite"
PORT = 9201
TIMEOUT_SECONDS = 1.0
LONGEST_ANSWER_SECONDS = 3.0
LARGEST_ANSWER_BYTES = 1 << 20
_MOST_MOMENTS, _MOST_ZONES = 1000, 64
HOUR_SECONDS, STEP_SECONDS = 3600, 60
_CPU = "sum by (numa_node) (rate(numa_node_cpu_used_seconds_total{node=%s}[5m]))"
_MEMORY = "max by (numa_node) (numa_node_memory_used_bytes{node=%s})"


class Series(msgspec.Struct, frozen=True):
    """One amount over time: the same moments for every NUMA node."""

    times: Sequence[float]
    by_zone: Mapping[str, Sequence[float | None]]

    def latest(self, zone: int, since: float) -> float | None:
        """The latest amount of a NUMA node; None where it is from before `since`, or was not measured."""
        values = self.by_zone.get(str(zone), ()) if self.times and self.times[-1] >= since else ()
        return values[-1] if values else None


class Charts(msgspec.Struct, frozen=True):
    """CPU in cores and memory in bytes over time. `why`: why there are none."""

    cpu: Series | None = None
    memory: Series | None = None
    why: str = ""
    source: str = "Prometheus"


class Use(NamedTuple):
    """Present use of a NUMA node; None where it is not measured."""

    cpu_cores: float | None = None
    memory_bytes: float | None = None


NOT_MEASURED = Use()
Usage = Mapping[str, Mapping[int, Use]]
"""Present use by node and NUMA node."""
_CPU_OF_ALL = "sum by (node, numa_node) (rate(numa_node_cpu_used_seconds_total[5m]))"
_MEMORY_OF_ALL = "max by (node, numa_node) (numa_node_memory_used_bytes)"
ASK_SECONDS = 15.0


class ClusterUse:
    """Present use of all nodes by a Prometheus, asked now and then. May be used from many threads."""

    def __init__(self, server: Prometheus, *, monotonic: Callable[[], float]) -> None:
        self._server, self._monotonic, self._lock = server, monotonic, threading.Lock()
        self._next, self._usage, self._why = float("-inf"), dict[str, dict[int, Use]](), ""

    def now(self) -> Usage:
        """Use as it was a few seconds ago; nothing where it cannot be asked. One caller asks, others do not wait."""
        if self._monotonic() >= self._next and self._lock.acquire(blocking=False):
            try:
                self._usage, self._why = self._ask(), ""
            except (OSError, ValueError) as error:
                if str(error) != self._why:
                    LOG.warning("what is in use on NUMA nodes is not shown, Prometheus cannot be asked: %s", error)
                self._usage, self._why = {}, str(error)
            finally:
                self._next = self._monotonic() + ASK_SECONDS
                self._lock.release()
        return self._usage

    def _ask(self) -> dict[str, dict[int, Use]]:
        usage: dict[str, dict[int, Use]] = {}
        for query, field in ((_CPU_OF_ALL, "cpu_cores"), (_MEMORY_OF_ALL, "memory_bytes")):
            for sample in results(self._server.ask("query", {"query": query}).body, "vector", _Sample):
                node, zone = sample.metric.get("node", ""), sample.metric.get("numa_node", "")
                if zone.isascii() and zone.isdigit() and len(zone) < 4:
                    zones = usage.setdefault(node, {})
                    value = {field: _number(sample.value[1])}
                    zones[int(zone)] = zones.get(int(zone), NOT_MEASURED)._replace(**value)
        return usage


class _Sample(msgspec.Struct, frozen=True):
    metric: dict[str, str] = {}
    value: tuple[float, str] = (0.0, "")


class _Result(msgspec.Struct, frozen=True):
    metric: dict[str, str] = {}
    values: list[tuple[float, str]] = []


def of_prometheus(server: Prometheus, node: str, now: float) -> Charts:
    """The last hour of a node; `why` says what keeps it from being shown."""

    def series(query: str) -> Series:
        span = {"start": str(now - HOUR_SECONDS), "end": str(now), "step": str(STEP_SECONDS)}
        return matrix(server.ask("query_range", {"query": query % json.dumps(node), **span}).body)

    try:
        return Charts(series(_CPU), series(_MEMORY))
    except (OSError, ValueError) as error:
        return Charts(why=f"Prometheus cannot be asked: {error}")


def matrix(body: bytes) -> Series:
    """The series by NUMA node out of an answer of `query_range`; ValueError when it is none."""
    points = {r.metric.get("numa_node", "?"): dict(r.values) for r in results(body, "matrix", _Result)[:_MOST_ZONES]}
    times = sorted({time for values in points.values() for time in values if math.isfinite(time)})
    return Series(times, {name: [_number(values.get(time)) for time in times] for name, values in points.items()})


def _number(text: str | None) -> float | None:
    try:
        return _good(float(text)) if text is not None else None
    except ValueError:
        return None


class _Zone(msgspec.Struct, frozen=True, rename="camel"):
    cpu_cores: tuple[float | None, ...] = ()
    memory_used_bytes: tuple[float | None, ...] = ()


class _History(msgspec.Struct, frozen=True):
    times: tuple[float, ...]
    zones: dict[str, _Zone]


class _Status(msgspec.Struct, frozen=True):
    pod_ip: str = msgspec.field(default="", name="podIP")
    phase: str = ""


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _Pod(msgspec.Struct, frozen=True):
    spec: _Spec = _Spec()
    status: _Status = _Status()


class Agents:
    """Asks over plain HTTP at the address of the pod. May be used from many threads."""

    def __init__(self, api: Api, *, namespaces: Sequence[str] = NAMESPACES, port: int = PORT) -> None:
        self._api, self._namespaces, self._port = api, namespaces, port

    def charts(self, node: str) -> Charts:
        """Values of the first exporter of the node that answers; `why` says what keeps it from being shown."""
        why = (
            f"no NUMA exporter runs there: in the namespaces {', '.join(self._namespaces)} the node has no pod {LABEL}"
        )
        try:
            for address in self.addresses(node).get(node, ()):
                try:
                    return read(self.ask(address, "/history"))
                except (OSError, ValueError) as error:
                    where = f"[{address}]" if ":" in address else address
                    why = f"the NUMA exporter at {where}:{self._port} cannot be asked: {error}"
        except (ApiError, ApiUnreachable) as error:
            why = f"the pods of the node cannot be listed: {error}"
        return Charts(why=why)

    def addresses(self, node: str = "") -> dict[str, list[str]]:
        """Addresses of running exporters by node; of one node, or of all. ApiError, ApiUnreachable."""
        query = [("labelSelector", LABEL), *([("fieldSelector", f"spec.nodeName={node}")] if node else [])]
        addresses: dict[str, list[str]] = {}
        for namespace in self._namespaces:
            for raw in self._api.collect(f"/api/v1/namespaces/{namespace}/pods", query).items:
                pod = answers.read(raw, _Pod)
                if pod.status.phase == "Running" and pod.status.pod_ip:
                    addresses.setdefault(pod.spec.node_name, []).append(pod.status.pod_ip)
        return addresses

    def ask(self, address: str, path: str) -> bytes:
        """The answer of one exporter. OSError without one that can be read, and when it comes in crumbs."""
        connection = http.client.HTTPConnection(address, self._port, timeout=TIMEOUT_SECONDS)
        try:
            connection.request("GET", path, headers={"Accept": "application/json"})
            answer = connection.getresponse()
            if answer.status != http.HTTPStatus.OK:
                raise OSError(f"it answers {answer.status}")
            body, ends = b"", time.monotonic() + LONGEST_ANSWER_SECONDS
            while len(body) <= LARGEST_ANSWER_BYTES and (piece := answer.read1(LARGEST_ANSWER_BYTES)):
                body += piece
                if time.monotonic() > ends:
                    raise OSError(f"its answer takes longer than {LONGEST_ANSWER_SECONDS:g} s")
        except http.client.HTTPException as error:
            raise OSError(f"not an answer of HTTP: {error!r}") from error
        finally:
            connection.close()
        if len(body) > LARGEST_ANSWER_BYTES:
            raise OSError(f"its answer is longer than {LARGEST_ANSWER_BYTES} bytes")
        return body


def read(body: bytes) -> Charts:
    """Both charts out of an exporter's /history; ValueError when it is none."""
    try:
        history = msgspec.json.decode(body, type=_History)
    except UNREADABLE as error:
        raise ValueError(f"it is no history: {error}") from error
    times = history.times
    if len(times) > _MOST_MOMENTS or len(history.zones) > _MOST_ZONES:
        raise ValueError(f"it has more than {_MOST_MOMENTS} moments or {_MOST_ZONES} NUMA nodes")
    if not all(map(math.isfinite, times)) or any(after <= before for before, after in itertools.pairwise(times)):
        raise ValueError("its moments do not ascend")
    series = {name: (each.cpu_cores, each.memory_used_bytes) for name, each in history.zones.items()}
    if any(len(values) != len(times) for pair in series.values() for values in pair):
        raise ValueError("it has not one value for each moment")
    cpu = {name: tuple(map(_good, cores)) for name, (cores, _) in series.items()}
    memory = {name: tuple(map(_good, used)) for name, (_, used) in series.items()}
    return Charts(Series(times, cpu), Series(times, memory), source="the NUMA exporter of the node")


def _good(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) and value >= 0 else None
