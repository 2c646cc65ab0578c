"""Records of emulated nodes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from emulated import Emulated

from koordlite.record.round_record import RoundRecord
from koordlite.record.segment import Head, PieceWriter

Written = Callable[[list[RoundRecord]], tuple[bytes, list[int]]]


@pytest.fixture(scope="session")
def moments(tmp_path_factory: pytest.TempPathFactory) -> list[RoundRecord]:
    """Some seconds of a busy node: pods come and go, cache is divided, settings change."""
    node = Emulated("intel-1s", tmp_path_factory.mktemp("node"))
    node.pod("web", "LS", "wave(low=1,high=6,period=20,noise=0.2)")
    node.pod("crunch", "BE", "greedy")
    found = []
    with node.at_work() as agent:
        for second in range(20):
            if second == 5:
                node.pod("late", "BE", "2")
            if second == 10:
                node.remove("crunch")
            if second == 14:
                node.slo(policy="cfsQuota", percent=50)
            agent.tick()
            assert agent.last_round
            found.append(agent.last_round)
            node.sandbox.advance(1.0)
    return found


@pytest.fixture
def head() -> Head:
    """The head of a piece."""
    return Head(koordlite="1.2.3", node="node-a", machine="a test")


@pytest.fixture
def written(head: Head) -> Written:
    """The bytes of a piece, and where each of its moments ends."""

    def write(moments: list[RoundRecord]) -> tuple[bytes, list[int]]:
        writer = PieceWriter(head)
        raw, ends = writer.start, []
        for moment in moments:
            raw += writer.frame(moment)
            ends.append(len(raw))
        return raw, ends

    return write


@pytest.fixture
def file(tmp_path: Path) -> Callable[[bytes], Path]:
    """A file with this content."""

    def make(content: bytes) -> Path:
        path = tmp_path / "a.record"
        path.write_bytes(content)
        return path

    return make
