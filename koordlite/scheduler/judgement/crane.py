"""Crane's protocol, with `cpus.koordlite.io/exclusive` as a spelling of its policy exclusive for some containers: the
extender chooses NUMA nodes, the Binding carries the result, the agent sets the CPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from koordlite.model import keys
from koordlite.model.errors import UNREADABLE
from koordlite.model.pod import pod_reader
from koordlite.model.quantity import Quantity
from koordlite.model.wire import crane as wire
from koordlite.numa.crane import scheduling
from koordlite.reservation.pods import ClusterPod, PodShape
from koordlite.scheduler.judgement.nodes import JudgeSettings, Promise, Row, Score, Verdict

NAME = "crane"
_Result = Mapping[str, Mapping[str, Quantity]]


def concerns(shape: PodShape, row: Row) -> bool:
    """Tell whether the pod names Crane, or its agent places pods on the node."""
    if row.crane is not None and row.crane.crane_manager_policy.cpu_manager_policy == wire.STATIC:
        return True
    return any(map(shape.pod.annotations.get, keys.CRANE_REQUEST))


def verdict(shape: PodShape, row: Row, settings: JudgeSettings) -> Verdict:
    """Crane's filter, with its text."""
    del settings
    crane = _verdict(shape, row)
    zones = tuple(sorted(wire.node_of(name) for name in crane.result))
    return Verdict(NAME, crane.text, zones, why=crane.detail, placed=(("*", zones),) if zones else ())


def score(shape: PodShape, row: Row, settings: JudgeSettings) -> Score:
    """Crane's score: fewer NUMA nodes are better."""
    del settings
    crane = _verdict(shape, row)
    return Score(crane.score, {"zones": ", ".join(crane.result) or "none"})


def promise(shape: PodShape, row: Row, settings: JudgeSettings, uid: str) -> Promise:
    """The topology result for the Binding."""
    del settings, uid
    crane = _verdict(shape, row)
    return Promise({keys.CRANE_TOPOLOGY_RESULT: crane.annotation} if crane.annotation else {}, crane.text)


def _verdict(shape: PodShape, row: Row) -> scheduling.CraneVerdict:
    results = row.once(NAME, lambda: tuple(_results(row.pods)))
    return scheduling.verdict(shape.once(NAME, lambda: _request(shape)), row.crane, results)


def _request(shape: PodShape) -> scheduling.CranePod:
    return scheduling.CranePod(
        containers=[(one.name, *pod_reader.amounts(one.resources)) for one in shape.containers],
        policy=shape.pod.crane.policy,
        only=shape.pod.crane.containers,
        aware=shape.pod.crane.aware,
        of_daemon_set=shape.daemon,
    )


def _results(pods: tuple[ClusterPod, ...]) -> Iterator[_Result]:
    """CPUs that pods were given; a result that cannot be read is one that the agent does not carry out."""
    for pod in pods:
        if pod.crane_result:
            try:
                zones = msgspec.json.decode(pod.crane_result, type=tuple[wire.Zone, ...] | None) or ()
            except UNREADABLE:
                continue
            yield scheduling.results_of(zones)
