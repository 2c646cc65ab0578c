"""One agent after another on the real kernel: what the first left in force holds until the second knows the node."""

from __future__ import annotations

import threading
import time

from realnode import command
from realnode.manifests import threshold
from realnode.pods import Pod
from realnode.waiting import until

from tests.kernel.conftest import Rig

BATCH = Pod("batch", containers=("main",))
SERVICE = Pod("service", "Burstable", "LS")


def test_a_roll_out_never_lifts_the_limit(rig: Rig) -> None:
    rig.populate(SERVICE, BATCH, threshold=threshold("cfsQuota", percent=30))
    rig.tree.load(SERVICE, duty=0.5)
    group = rig.tree.qos("BestEffort")
    seen: list[int] = []
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            seen.append(rig.tree.quota_us(group))
            time.sleep(0.002)

    first = rig.enforce("--on-stop", "keep")
    until(lambda: rig.tree.quota_us(group) > 0, "a quota is in force")
    rig.tree.load(BATCH)
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        assert first.stop() == 0
        second = rig.enforce("--on-stop", "keep")
        until(lambda: command.TAKEN_OVER in second.said(), "the second agent goes on from there")
        time.sleep(1.5)
        assert second.stop() == 0
    finally:
        over.set()
        watcher.join()
    assert len(seen) > 100
    assert -1 not in seen, "the limit was lifted on the way"
    assert "not ended properly" not in second.said()
