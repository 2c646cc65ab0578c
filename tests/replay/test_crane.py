"""A run that keeps Crane's promises is recorded whole, and judged again gives the same decisions."""

from __future__ import annotations

from pathlib import Path

import cranepods
from emulated import Emulated

from koordlite.record import store
from koordlite.record.reader import Record
from koordlite.record.round_record import RoundRecord
from koordlite.record.segment import Head
from koordlite.record.store import Recorder
from koordlite.replay import text, verify


def test_promises_are_recorded_and_judged_again(tmp_path: Path) -> None:
    node = Emulated(cranepods.machine(16), tmp_path)
    cranepods.kubelet(node, reserved="0")
    cranepods.pod(node, "web")
    cranepods.pod(node, "refused", 2, {0: 9})
    cranepods.pod(node, "numa", 2, {1: 2}, policy="numa", excludes=True)
    recorder = Recorder(tmp_path / "record", Head(koordlite="test", node="node-a"), max_bytes=8 << 20)
    moments: list[RoundRecord] = []
    with cranepods.at_work(node) as agent:
        for second in range(6):
            if second == 2:
                cranepods.pod(node, "nginx", {"telling-name": 2}, {0: 2})
            agent.tick()
            assert agent.last_round
            recorder.add(agent.last_round)
            moments.append(agent.last_round)
            node.sandbox.advance(1.0)
    recorder.close()
    read = list(Record(tmp_path / "record").rounds())
    assert read == moments
    assert read[-1].snapshot.crane.promises["uid-nginx"].policy == "exclusive"
    found = verify.check(read)
    assert found.wrong == 0, text.text(found)
    path, head = tmp_path / "masked.record", Head(koordlite="test", node="node-a")
    assert store.masked(path, head, lambda: moments, decide=verify.decided_again()) == len(moments)
    masked = list(Record(path).rounds())
    assert "telling-name" not in repr(masked)
    assert verify.check(masked).wrong == 0, "masked, it gives the same decisions"
