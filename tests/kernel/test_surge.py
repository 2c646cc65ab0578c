"""A surge of a service between two ticks, on the real kernel: best effort loses its CPU before the next tick.

How fast is measured by `tests/perf/agent/reaction.py`.
"""

from __future__ import annotations

import pathlib

import pytest
import slices
from realnode import command
from realnode.manifests import threshold
from realnode.pods import Pod
from realnode.tree import Tree
from realnode.waiting import until

from tests.kernel.conftest import Rig

SERVICE = Pod("service", "Burstable", "LS")
BATCH = Pod("batch", containers=("main", "side"))
INTERVAL_SECONDS = 3
LEAST_ROOM_US = 40_000
"""Quota that best effort must have before the surge, so that one CPU of a service takes some of it."""


@pytest.fixture
def node(rig: Rig) -> Tree:
    """A node with a service that sleeps and a best-effort pod."""
    rig.populate(SERVICE, BATCH, threshold=threshold("cfsQuota", percent=100))
    return rig.tree


@pytest.fixture
def words(rig: Rig) -> list[str]:
    """Arguments of an agent that has seconds between its ticks."""
    report = ["--report", str(rig.folder / "report"), "--config", str(rig.folder / "koordlite.yaml")]
    return ["run", *rig.options, *report, "--mode", "enforce", "--no-http", "-q", "--interval", str(INTERVAL_SECONDS)]


@pytest.mark.alone
@pytest.mark.parametrize(
    ("reaction", "way"),
    [pytest.param("automatic", "sentinel", id="looked for"), slices.long("off", "tick", id="not looked for")],
)
def test_a_surge_between_two_ticks(rig: Rig, node: Tree, words: list[str], reaction: str, way: str) -> None:
    pathlib.Path(words[words.index("--config") + 1]).write_text(f"agent: {{reaction: {reaction}}}\n")
    group = node.qos("BestEffort")
    agent = rig.start(*words)
    until(lambda: node.quota_us(group) > 0, "best effort has a quota", seconds=3 * INTERVAL_SECONDS)
    before = node.quota_us(group)
    if before < LEAST_ROOM_US:
        pytest.skip(f"other work on this machine leaves best effort {before} µs: a surge would take nothing from it")
    node.load(SERVICE)
    until(lambda: node.quota_us(group) < before, f"a quota below {before}", seconds=2 * INTERVAL_SECONDS)
    assert agent.stop() == 0
    found = command.report(pathlib.Path(words[words.index("--report") + 1]))["last"]["reaction"]
    if found["way"] == "triggers":
        pytest.skip("this kernel has short pressure triggers: tests/vm looks at those")
    assert found["way"] == way
    assert (found["surges"] > 0) == (reaction != "off")
