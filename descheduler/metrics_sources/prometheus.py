"""Use of nodes by a Prometheus query: one instant query a cycle, one sample for each node.

Source: upstream `prometheusUsageClient`. The label `instance` names the node; a port behind the name is dropped, which
upstream does not do. A sample is between 0 and 1 and becomes whole percent, rounded down.
"""

from __future__ import annotations

import urllib.error
import urllib.parse
from collections.abc import Callable, Iterable

import msgspec

from descheduler.picture.cluster import Usage
from koordlite.model.errors import UNREADABLE

SOURCE = "Prometheus"
"""Its name in `View.usage`, before a colon and the query."""
METRIC = "MetricResource"
"""The one resource it measures."""
TIMEOUT_SECONDS = 10.0
LARGEST_ANSWER_BYTES = 64 << 20
"""Samples of 5,000 nodes are about 1 MB."""
_SHOWN_CHARACTERS = 200


class _Sample(msgspec.Struct, frozen=True):
    metric: dict[str, str] = {}
    value: tuple[float, str] = (0.0, "")


class _Data(msgspec.Struct, frozen=True, rename="camel"):
    result_type: str = ""
    result: msgspec.Raw = msgspec.Raw()


class _Reply(msgspec.Struct, frozen=True, rename="camel"):
    status: str = ""
    data: _Data | None = None
    error_type: str = ""
    error: str = ""


class Prometheus(msgspec.Struct, frozen=True):
    """One server. What it cannot say becomes the reason why there is no measurement; nothing is raised."""

    url: str
    token: Callable[[], str]
    """The bearer token, asked for each query because files and Secrets change; empty: none is sent. OSError says why
    there is none."""
    ca_file: str = ""
    """Certificates it is verified by; empty: the system's."""

    def usage(self, query: str) -> Usage:
        """The answer to an instant query."""
        from http.client import HTTPException

        address = f"{self.url.rstrip('/')}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        try:
            return read(self._get(address))
        except urllib.error.HTTPError as error:
            with error:
                why = _shown(error.read(_SHOWN_CHARACTERS))
            return Usage(absent=f"Prometheus {self.url} answers {error.code} {error.reason}: {why}")
        except (OSError, ValueError, HTTPException) as error:
            return Usage(absent=f"Prometheus {self.url} cannot be asked: {error or type(error).__name__}")

    def _get(self, address: str) -> bytes:
        import ssl  # These take as long to import as a small cluster to judge, and most policies never ask.
        import urllib.request

        token = self.token()
        headers = {"Accept": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
        request = urllib.request.Request(address, headers=headers)
        secure = address.startswith("https:")
        context = ssl.create_default_context(cafile=self.ca_file or None) if secure else None
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS, context=context) as response:
            body: bytes = response.read(LARGEST_ANSWER_BYTES + 1)
        if len(body) > LARGEST_ANSWER_BYTES:
            raise OSError(f"its answer is longer than {LARGEST_ANSWER_BYTES} bytes")
        return body


def read(body: bytes) -> Usage:
    """Percent of each node out of an answer of `/api/v1/query`."""
    try:
        reply = msgspec.json.decode(body, type=_Reply)
        if reply.status != "success" or reply.data is None:
            return Usage(absent=f"Prometheus refuses the query: {reply.error_type} {reply.error}".rstrip())
        if reply.data.result_type != "vector":
            kind = reply.data.result_type
            return Usage(absent=f"the query gives a {kind}, not a vector of one sample for each node")
        return _percentages(msgspec.json.decode(reply.data.result, type=list[_Sample]))
    except UNREADABLE as error:
        return Usage(absent=f"not an answer of Prometheus: {error}; it begins {_shown(body)!r}")


def _percentages(samples: Iterable[_Sample]) -> Usage:
    nodes: dict[str, dict[str, int]] = {}
    for sample in samples:
        name = sample.metric.get("instance", "").rpartition(":")[0] or sample.metric.get("instance", "")
        part = _part(sample.value[1])
        if not name:
            return Usage(absent="a sample has no label instance, so its node is unknown; add it to the query")
        if part is None:
            return Usage(absent=f"the sample of {name} is {sample.value[1]}, not a part between 0 and 1")
        nodes[name] = {METRIC: int(part * 100)}
    return Usage(nodes, absent="" if nodes else "the query gives no sample")


def _part(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value <= 1 else None


def _shown(body: bytes) -> str:
    return " ".join(body[:_SHOWN_CHARACTERS].decode(errors="replace").split())
