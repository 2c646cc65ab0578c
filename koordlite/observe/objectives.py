"""Objectives of services: what the operator's queries say of pods that name one, asked in a thread beside the ticks.

A tenant names a query and a number; neither comes into PromQL. Each query is asked once for all pods of the node, one
after the other, and no round begins while an earlier one lasts.
"""

from __future__ import annotations

import logging
import math
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence

import msgspec

from koordlite.kube.client.prometheus import Prometheus, results, shown
from koordlite.kube.settings import ObjectiveSettings
from koordlite.model.picture.usage import Objective
from koordlite.model.pod.qos import KubeQoS
from koordlite.model.pod.values import Pod
from koordlite.model.slo import pod_overrides
from koordlite.threads import Worker

LOG = logging.getLogger(__name__)
PODS = 64
"""Pods that stand for `$pods`: the address of a question for more gets too long."""
LARGEST_ANSWER = 1 << 20
LARGEST_VALUE = 1e18
"""Stand-in for infinity, which is a percentile above the greatest bucket of a histogram: more than any objective."""
SILENT_SECONDS = 60.0
"""A round that lasts longer is given up; no other begins while its thread still waits for the server."""
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?\Z", re.ASCII)
"""Names of pods and nodes as Kubernetes has them. What is none stands in no query."""


class _Sample(msgspec.Struct, frozen=True):
    metric: dict[str, str] = {}
    value: tuple[float, str] = (0.0, "")


class _Answer(msgspec.Struct, frozen=True):
    """Answer to one query."""

    sent_at: float
    values: Mapping[tuple[str, str], float]
    """Values by namespace and pod."""


class ObjectiveReader:
    """Remembers the last good answer to each query."""

    def __init__(
        self, settings: ObjectiveSettings, begin: Callable[[Callable[[], None]], Worker | None] | None = None
    ) -> None:
        """`begin` runs a round; in a thread of its own unless given. See `at_once`."""
        self._settings, self._begin = settings, begin or self._in_a_thread
        self._server = Prometheus(
            settings.prometheus_url, self._token, settings.ca_file, largest_answer_bytes=LARGEST_ANSWER
        )
        self._sent_at: float | None = None
        self._worker: Worker | None = None
        self._answers: Mapping[str, _Answer] = {}
        self._failures: Mapping[str, str] = {}
        self._pods: Sequence[Pod] = ()
        self._asking: list[tuple[Pod, tuple[str, float | None]]] = []

    def _token(self) -> str:
        file = self._settings.token_file
        return pathlib.Path(file).read_text(encoding="ascii").strip() if file else ""

    def read(self, now: float, pods: Sequence[Pod], node: str) -> dict[str, Objective]:
        """Objectives of these pods by uid, as far as they are known; begins a round when it is time. Never waits for
        one."""
        if pods is not self._pods:
            services = (pod for pod in pods if pod.active and pod.kube_qos is not KubeQoS.BEST_EFFORT)
            asking = [(pod, objective) for pod in services if (objective := pod_overrides.objective(pod)[0])]
            self._pods, self._asking = pods, asking
        by_query: dict[str, list[Pod]] = {}
        for pod, (name, _) in self._asking:
            if name in self._settings.queries:
                by_query.setdefault(name, []).append(pod)
        self._ask(now, by_query, node)
        return {pod.uid: self._objective(pod, name, most) for pod, (name, most) in self._asking}

    def _ask(self, now: float, by_query: Mapping[str, Sequence[Pod]], node: str) -> None:
        worker = self._worker
        if worker is not None and worker.is_alive():
            if self._sent_at is not None and now - self._sent_at > SILENT_SECONDS:
                worker.end()
                self._failures = dict.fromkeys(
                    by_query, f"Prometheus has not ended its answer for {SILENT_SECONDS:g} s"
                )
            return
        if not by_query or (self._sent_at is not None and 0 <= now - self._sent_at < self._settings.interval_seconds):
            return
        self._sent_at = now
        queries = {name: _filled(self._settings.queries[name].query, pods, node) for name, pods in by_query.items()}
        try:
            self._worker = self._begin(lambda: self._round(queries, now))
        except RuntimeError as error:  # No thread can be had; the tick goes on.
            self._failures = dict.fromkeys(queries, f"Prometheus cannot be asked: {error}")

    def _in_a_thread(self, work: Callable[[], None]) -> Worker:
        worker = Worker("objectives", work)
        worker.start()
        return worker

    def _round(self, queries: Mapping[str, str], now: float) -> None:
        """Ask them all, in the thread. Answers and failures are replaced as a whole."""
        answers, failures = dict(self._answers), dict[str, str]()
        for name, query in queries.items():
            if self._worker is not None:
                self._worker.beat()
            try:
                reply = self._server.ask("query", {"query": query})
                if reply.status >= 300:
                    raise ValueError(f"Prometheus answers {reply.status} {reply.reason}: {shown(reply.body)}")
                answers[name] = _Answer(now, values(reply.body))
            except (OSError, ValueError) as error:
                failures[name] = f"Prometheus cannot be asked: {error or type(error).__name__}"[:300]
        if failures.keys() - self._failures.keys():
            LOG.warning("objectives: %s", "; ".join(f"{name}: {why}" for name, why in failures.items()))
        self._answers, self._failures = answers, failures

    def _objective(self, pod: Pod, name: str, most: float | None) -> Objective:
        query = self._settings.queries.get(name)
        if query is None:
            names = ", ".join(sorted(self._settings.queries)) or "none"
            why = f"the operator defines no query of this name (objectives.queries: {names})"
            return Objective(query=name, most=most or 0.0, asked=most or 0.0, why=why)
        target = query.most if most is None else most
        bounded = min(max(target, query.least), query.most)
        objective = Objective(query=name, most=bounded, asked=target, unit=query.unit, why=self._why(name))
        answer = self._answers.get(name)
        value = answer.values.get((pod.namespace, pod.name)) if answer else None
        if answer is None or value is None:
            return msgspec.structs.replace(objective, why=objective.why or "the query gives no number for this pod")
        return msgspec.structs.replace(
            objective,
            value=value,
            since=answer.sent_at - query.window_seconds,
            until=answer.sent_at,
            expires=answer.sent_at + self._settings.stale_seconds,
        )

    def _why(self, name: str) -> str:
        return self._failures.get(name) or ("" if name in self._answers else "it has not been measured yet")


def at_once(work: Callable[[], None]) -> None:
    """Run a round where time only passes between two ticks: on an emulated machine or a recorded one."""
    work()


def _filled(query: str, pods: Sequence[Pod], node: str) -> str:
    """The query about these pods. `[.]` is a point in every sort of PromQL string, `\\.` only in some."""
    names = sorted({pod.name.replace(".", "[.]") for pod in pods if _NAME.match(pod.name)})[:PODS]
    return query.replace("$pods", "|".join(names)).replace("$node", node if _NAME.match(node) else "")


def values(body: bytes) -> dict[tuple[str, str], float]:
    """The worst value of each pod, by namespace and name, in the answer to an instant query; not a number, which is a
    percentile of no requests, is none. ValueError for what is no such answer."""
    worst: dict[tuple[str, str], float] = {}
    for sample in results(body, "vector", _Sample):
        try:
            value = float(sample.value[1])
        except ValueError as error:
            raise ValueError(f"a sample is {sample.value[1][:40]!r}, not a number") from error
        if not math.isnan(value) and value >= 0:
            pod = sample.metric.get("namespace", ""), sample.metric.get("pod", "")
            worst[pod] = max(min(value, LARGEST_VALUE), worst.get(pod, 0.0))
    return worst
