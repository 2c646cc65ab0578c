"""Mid resources from predictions, end to end: learnt on an emulated node, offered, recorded, judged again alike."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import cyaml
import msgspec
import pytest
from emulated import Emulated

from koordlite import strategies
from koordlite.agent import Agent
from koordlite.model import keys
from koordlite.model.decision import Decision
from koordlite.model.snapshot import Snapshot
from koordlite.record import codec


@pytest.fixture
def node(tmp_path: Path) -> Emulated:
    """A service that requests two CPUs and uses half of one, and has done so for long."""
    made = Emulated("small", tmp_path)
    made.slo(resctrl=False)
    made.pod("web", "LS", "500m", request="2", memory="1Gi")
    path = made.folder / "pod-web.yaml"
    described = cyaml.safe_load(path.read_text())
    described["metadata"]["creationTimestamp"] = "2001-01-01T00:00:00Z"
    path.write_text(cyaml.safe_dump(described))
    return made


def agent_of(node: Emulated, *, predict: bool) -> Agent:
    settings = node.settings("observe")
    section = dataclasses.replace(
        settings.strategies["midAllocatable"],
        predict=predict,
        cold_start_seconds=60.0,  # type: ignore[arg-type]
    )
    sections = {**settings.strategies, "midAllocatable": section}
    return Agent(node.host(), node.cluster, msgspec.structs.replace(settings, strategies=sections))


def mid_cpu(agent: Agent) -> Decision:
    assert agent.last_round is not None
    return next(d for d in agent.last_round.decisions if d.subject == f"node/{keys.MID_CPU}")


def test_what_a_service_requests_and_does_not_use_is_offered_to_mid_pods(node: Emulated) -> None:
    agent = agent_of(node, predict=True)
    node.ticks(agent, 20)
    cold = mid_cpu(agent).evidence
    assert (cold["prod_reclaimable"], cold["result"]) == (0, 0)
    assert 0 < int(cold["cold_seconds"]) <= 60
    node.ticks(agent, 50)
    warm = mid_cpu(agent).evidence
    # 2 CPUs are requested, half of one is used: 2 − 0.5 × 1.1, and a bucket of some 5 %.
    assert 1300 <= int(warm["by_pod"]) <= 1450
    assert warm["prod_reclaimable"] == min(int(warm["by_pod"]), int(warm["by_priority"]))
    assert int(warm["result"]) == min(int(warm["prod_reclaimable"]), int(warm["node_unused"]))
    moment = agent.last_round
    assert moment is not None
    back = codec.loader(Snapshot)(codec.decode(codec.encode(moment.snapshot, codec.dumper(Snapshot))))
    again = strategies.decide_all(back, moment.settings)
    assert [d for d in again if d.strategy == "midAllocatable"] == [
        d for d in moment.decisions if d.strategy == "midAllocatable"
    ]


def test_without_the_option_nothing_is_learnt(node: Emulated) -> None:
    agent = agent_of(node, predict=False)
    node.ticks(agent, 3)
    assert agent.snapshot is not None
    assert agent.snapshot.prediction is None
    assert "by_pod" not in mid_cpu(agent).evidence
