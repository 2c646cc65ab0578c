"""Sending the NodeMetric: its status every so often, and the object itself where it is missing and may be made."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

import msgspec

from koordlite.kube.client.access import Api, ApiError
from koordlite.kube.publish import node_metric
from koordlite.kube.publish.background_report import BackgroundWriter
from koordlite.model.errors import UNREADABLE, Problem
from koordlite.model.slo import settings
from koordlite.model.snapshot import Snapshot
from koordlite.model.wire import objects

LOG = logging.getLogger(__name__)
PATH = f"/apis/{node_metric.API_VERSION}/nodemetrics"
LEAST_SECONDS = 30.0
"""Between two reports; source: Koordinator `minReportIntervalSeconds`."""
_MERGE = "application/merge-patch+json"
_GONE = "Koordinator's manager makes this object; without it set publish.nodeMetric to create, or to off"
_NO_NODE = "the Node that would own it is not known yet"


class _Held(msgspec.Struct):
    """The object as the server holds it after a write."""

    metadata: objects.ObjectMeta = objects.ObjectMeta()
    spec: dict[str, Any] = {}

    @property
    def ours(self) -> bool:
        """True if an agent made it: the one of Koordinator's manager has no owner."""
        return any(owner.kind == "Node" for owner in self.metadata.owner_references or ())


class Report(msgspec.Struct, frozen=True):
    """The content of one report."""

    status: Mapping[str, Any]
    spec: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """What the spec should be; empty where it is another's."""
    whole: Mapping[str, Any] | None = None
    """The object to make when there is none; None when none may be made."""
    why_not: str = _GONE
    """Why none may be made."""


class NodeMetricReport(BackgroundWriter):
    """Sends a status every so often, in the background."""

    thread = "node-metric"
    named = "the NodeMetric"
    no_kind = (
        "install the CRD nodemetrics.slo.koordinator.sh (manifests/crds/koordinator), or set publish.nodeMetric: off"
    )

    def __init__(self, api: Api, node_name: str, *, every_seconds: float = 0.0, create: bool = False) -> None:
        """`every_seconds` 0: as often as `colocation-config` says. `create`: a missing object is made."""
        super().__init__(api, node_name)
        self._create = create
        self._every_seconds, self._last = every_seconds, float("-inf")

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Obstacles to writing the report, for `status`."""
        if not self.error:
            return ()
        do = "without it, schedulers and deschedulers do not know how full the node is; it is tried again"
        return (Problem(f"nodemetric/{self._name}", "status", "", self.error, do),)

    def observe(
        self, snapshot: Snapshot, *, monotonic: float, wall: float, node: Callable[[], objects.NodeObject | None]
    ) -> None:
        """Report this picture when it is time. `node` gives the object that owns a new NodeMetric."""
        every = max(
            LEAST_SECONDS, self._every_seconds or settings.collect_policy(snapshot.slo.colocation).report_seconds
        )
        if self._last == float("-inf"):
            self._last = monotonic
        if monotonic - self._last < every:
            return
        self._last = monotonic
        report = self.report(snapshot, wall=wall, node=node())
        if report is not None:
            self.send(report)

    def report(self, snapshot: Snapshot, *, wall: float, node: objects.NodeObject | None) -> Report | None:
        """The report of this picture; None while nothing has been measured."""
        status = node_metric.status(snapshot, wall=wall)
        if status is None:
            return None
        if not self._create:
            return Report(status)
        colocation = snapshot.slo.colocation
        spec = node_metric.spec(colocation)
        if node is None:
            return Report(status, spec, why_not=_NO_NODE)
        return Report(status, spec, node_metric.fresh(node, colocation))

    def send(self, report: Report, *, patience_seconds: float = 0.0) -> None:
        """Write one report; what nobody waits for is answered in the background, in `error`."""
        self._send(lambda: self._write(report), patience_seconds)

    def _write(self, report: Report) -> None:
        """The object where there is none, its status, and its spec where an agent made it."""
        try:
            held = self._patch("/status", {"status": report.status})
        except ApiError as refused:
            if refused.status != HTTPStatus.NOT_FOUND or refused.unknown_resource:
                raise
            self._make(report, refused)
            held = self._patch("/status", {"status": report.status})
        if report.spec and held.ours and held.spec != report.spec:
            self._patch("", {"spec": report.spec})

    def _make(self, report: Report, missing: ApiError) -> None:
        if report.whole is None:
            raise ApiError(missing.status, missing.reason, f"{missing.message}; {report.why_not}", named=self._name)
        try:
            self._api.request("POST", PATH, body=report.whole)
        except ApiError as refused:
            if refused.status != HTTPStatus.CONFLICT:
                raise
            return  # Koordinator's manager made it at the same moment.
        LOG.info("made the NodeMetric %s", self._name)

    def _patch(self, part: str, body: Mapping[str, Any]) -> _Held:
        """Write a part of the object."""
        answer = self._api.request("PATCH", f"{PATH}/{self._name}{part}", body=body, content_type=_MERGE)
        try:
            return msgspec.json.decode(answer.body, type=_Held)
        except UNREADABLE as error:
            raise ApiError(422, "Unreadable", str(error), named=self._name) from error
