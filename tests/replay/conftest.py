"""Recorded runs of emulated nodes."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import tinyprometheus
from emulated import RESCTRL, Emulated

from koordlite.agent import Agent
from koordlite.kube.settings import ObjectiveQuery, ObjectiveSettings
from koordlite.model.status import FreshUse
from koordlite.record.reader import Record
from koordlite.record.round_record import RoundRecord
from koordlite.record.segment import Head
from koordlite.record.store import Recorder

Recorded = Callable[..., Path]


def run(
    node: Emulated,
    folder: Path,
    *,
    seconds: int,
    surges: tuple[int, ...] = (),
    objectives: ObjectiveSettings | None = None,
    **memory: Any,
) -> list[RoundRecord]:
    """The moments of an agent in mode enforce; they are recorded in `folder`."""
    settings = msgspec.structs.replace(node.settings(), objectives=objectives or ObjectiveSettings())
    rule = dataclasses.replace(settings.strategies["memoryEvict"], **memory)
    settings = msgspec.structs.replace(settings, strategies={**settings.strategies, "memoryEvict": rule})
    recorder, found = Recorder(folder, Head(koordlite="test", node="node-a"), max_bytes=8 << 20), list[RoundRecord]()
    with node.journal() as journal:
        agent = Agent(node.host(), node.cluster, settings, journal)
        for second in range(seconds):
            agent.tick()
            keep(agent, recorder, found)
            if second in surges:
                agent.react(surge(agent))
                keep(agent, recorder, found)
            node.sandbox.advance(1.0)
    recorder.close()
    return found


def keep(agent: Agent, recorder: Recorder, found: list[RoundRecord]) -> None:
    assert agent.last_round
    recorder.add(agent.last_round)
    found.append(agent.last_round)


def surge(agent: Agent) -> FreshUse:
    """Latency-sensitive work suddenly uses two CPUs more."""
    assert agent.snapshot and agent.snapshot.usage.node
    more = agent.snapshot.usage.node.cpu + 2000
    return FreshUse(node=more, pods=more, best_effort=agent.snapshot.usage.best_effort_cpu or 0)


@pytest.fixture(scope="session")
def eventful(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[RoundRecord]]:
    """A run with surges, evictions, a divided cache, a change of settings, and pods that come and go."""
    folder = tmp_path_factory.mktemp("eventful")
    node = Emulated("intel-1s", folder)
    threshold = {"enable": True, "memoryEvictThresholdPercent": 1, "memoryEvictLowerPercent": 0}
    node.raw_slo(
        {
            "colocation-config": {"enable": True, "metricAggregateDurationSeconds": 10},
            "resource-threshold-config": {"clusterStrategy": threshold},
            "resource-qos-config": {"clusterStrategy": RESCTRL},
        }
    )
    node.pod("web", "LS", "wave(low=1,high=6,period=15,noise=0.2)")
    for name in ("first", "second", "third"):
        node.pod(name, "BE", "1500m")
        path = node.folder / f"pod-{name}.yaml"
        path.write_text(path.read_text().replace("annotations:", "annotations:\n    sandbox.koordlite.io/memory: 6Gi"))
    record = folder / "record"
    return record, run(node, record, seconds=24, surges=(6, 14), be_memory_evict=True, max_evictions_per_round=1)


@pytest.fixture(scope="session")
def wave(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A service that comes and goes beside greedy work."""
    folder = tmp_path_factory.mktemp("wave")
    node = Emulated("small", folder)
    node.pod("web", "LS", "wave(low=500m,high=4,period=40)")
    node.pod("crunch", "BE", "greedy")
    run(node, folder / "record", seconds=60)
    return folder / "record"


@pytest.fixture
def guided(tmp_path: Path) -> tuple[Path, list[RoundRecord]]:
    """A service whose shares let batch work delay it, under the policy `guided`."""
    node = Emulated("small", tmp_path)
    node.slo(policy="guided", resctrl=False)
    node.pod("web", "LS", "greedy", request="10m")
    node.pod("crunch", "BE", "greedy")
    return tmp_path / "record", run(node, tmp_path / "record", seconds=25)


@pytest.fixture
def by_objective(tmp_path: Path) -> tuple[Path, list[RoundRecord]]:
    """A service whose p99 is too high for ten seconds, and low from then on, under the policy `guided`."""
    node = Emulated("small", tmp_path)
    node.slo(policy="guided", resctrl=False)
    node.pod("web", "LS", "0.5", objective="p99 <= 50")
    node.pod("crunch", "BE", "greedy")
    answers = itertools.chain([80.0] * 10, itertools.repeat(20.0))
    with tinyprometheus.serving(lambda: tinyprometheus.vector({("ns", "web"): next(answers)})) as server:
        query = ObjectiveQuery(query="p99", most=100.0, unit="ms", window_seconds=2)
        objectives = ObjectiveSettings(prometheus_url=server.url, interval_seconds=1, queries={"p99": query})
        return tmp_path / "record", run(node, tmp_path / "record", seconds=40, objectives=objectives)


@pytest.fixture
def record(wave: Path) -> Record:
    """The record of `wave`."""
    return Record(wave)
