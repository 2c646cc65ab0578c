"""Questions to one Prometheus: those of callers, passed on as they are, and those of the page's charts."""

from __future__ import annotations

import http.client
import json
import math
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from koordlite.scheduler.numa_api.node_page import Charts, Series

TIMEOUT_SECONDS = 5.0
LARGEST_ANSWER_BYTES = 8 << 20
_PASSED = {"query": ("query", "time", "timeout", "limit"), "query_range": ("query", "start", "end", "step", "timeout")}
HOUR_SECONDS, STEP_SECONDS = 3600, 60
_MOST_SERIES = 64
_CPU = "sum by (numa_node) (rate(numa_node_cpu_used_seconds_total{node=%s}[5m]))"
_MEMORY = "max by (numa_node) (numa_node_memory_used_bytes{node=%s})"


class _Result(msgspec.Struct, frozen=True):
    metric: dict[str, str] = {}
    values: list[tuple[float, str]] = []


class _Data(msgspec.Struct, frozen=True):
    result: list[_Result] = []


class _Reply(msgspec.Struct, frozen=True):
    status: str = ""
    error: str = ""
    data: _Data | None = None


class Prometheus(msgspec.Struct, frozen=True):
    """One server. Every method may be called from many threads."""

    url: str
    token_file: str = ""
    """With the bearer token, read for each question; empty: none is sent."""
    ca_file: str = ""
    """Certificates it is verified by; empty: the system's."""

    def passed(self, verb: str, given: Mapping[str, str]) -> tuple[int, bytes]:
        """Status and body of the answer to `verb` (`query`, `query_range`), as Prometheus gave them. OSError without
        an answer. Parameters that Prometheus does not have are dropped."""
        known = {name: given[name] for name in _PASSED[verb] if name in given}
        headers = {"Accept": "application/json"}
        if self.token_file:
            headers["Authorization"] = f"Bearer {Path(self.token_file).read_text(encoding='ascii').strip()}"
        address = f"{self.url.rstrip('/')}/api/v1/{verb}?{urllib.parse.urlencode(known)}"
        request = urllib.request.Request(address, headers=headers)
        secure = address.startswith("https:")
        context = ssl.create_default_context(cafile=self.ca_file or None) if secure else None
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS, context=context) as response:
                return response.status, _bounded(response.read(LARGEST_ANSWER_BYTES + 1))
        except urllib.error.HTTPError as error:
            with error:
                return error.code, _bounded(error.read(LARGEST_ANSWER_BYTES + 1))
        except http.client.HTTPException as error:
            raise OSError(f"not an answer of HTTP: {error!r}") from error

    def charts(self, node: str, now: float) -> Charts:
        """The last hour of a node by NUMA node; `why` says what keeps it from being shown."""
        try:
            return Charts(self._series(_CPU, node, now), self._series(_MEMORY, node, now))
        except (OSError, ValueError) as error:
            return Charts(why=f"Prometheus cannot be asked: {error}")

    def _series(self, query: str, node: str, now: float) -> Series:
        asked = {
            "query": query % json.dumps(node),
            "start": str(now - HOUR_SECONDS),
            "end": str(now),
            "step": str(STEP_SECONDS),
        }
        return read(self.passed("query_range", asked)[1])


def read(body: bytes) -> Series:
    """The series by NUMA node out of an answer of `query_range`; ValueError when it is none."""
    try:
        reply = msgspec.json.decode(body, type=_Reply)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"its answer is not that of query_range: {error}") from error
    if reply.status != "success" or reply.data is None:
        raise ValueError(f"it refuses the query: {reply.error}")
    found = {each.metric.get("numa_node", "?"): dict(each.values) for each in reply.data.result[:_MOST_SERIES]}
    times = sorted({time for points in found.values() for time in points if math.isfinite(time)})
    return Series(times, {name: [_number(points.get(time)) for time in times] for name, points in found.items()})


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _bounded(body: bytes) -> bytes:
    if len(body) > LARGEST_ANSWER_BYTES:
        raise OSError(f"its answer is longer than {LARGEST_ANSWER_BYTES} bytes; ask for fewer series or moments")
    return body


def queries() -> Sequence[str]:
    """The questions that may be passed on."""
    return tuple(_PASSED)
