"""A new agent goes on where the last one ended: nothing is lifted before it knows the node."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pytest
from emulated import Emulated

from koordlite.agent import Agent
from koordlite.changes.eviction import EvictPod
from koordlite.model.change import ClusterChange
from koordlite.model.status import WatchState
from koordlite.ports import ClusterView


class Late:
    """The cluster of a node while its API server has not told everything yet."""

    def __init__(self, node: Emulated, unknown: str) -> None:
        self._node, self.unknown = node, unknown

    def view(self) -> ClusterView:
        whole = self._node.cluster.view()
        ages = {name: None if name == self.unknown else 0.5 for name in ("node", "pods", "config", "topology")}
        watches = tuple(WatchState(name=name, age_seconds=age) for name, age in ages.items())
        if self.unknown in ("", "topology"):
            return msgspec.structs.replace(whole, watches=watches)
        return msgspec.structs.replace(whole, node=None, pods=(), config=None, watches=watches)

    def publish(self, changes: Sequence[ClusterChange]) -> None:
        self._node.cluster.publish(changes)

    def evict(self, pod: EvictPod) -> None:
        self._node.cluster.evict(pod)


@pytest.mark.parametrize("unknown", ["node", "pods", "config"])
def test_with_half_a_picture_everything_stays_as_the_last_run_left_it(
    emulate: Callable[[str], Emulated], unknown: str
) -> None:
    node = emulate("intel-2s-ht")
    with node.journal() as journal:
        node.ticks(node.agent(journal), 12)
    left = node.programmed()
    with node.journal() as journal:
        cluster = Late(node, unknown)
        agent = Agent(node.host(), cluster, node.settings(), journal)
        agent.take_over()
        ticks = node.ticks(agent, 5)
        assert [tick.applied for tick in ticks] == [()] * 5
        assert node.programmed() == left
        assert (ticks[0].status, ticks[0].because) == (
            "degraded",
            f"what an earlier run left stays until these are known: {unknown}",
        )
        cluster.unknown = "topology"
        assert [tick.status for tick in node.ticks(agent, 4)] == ["degraded", *["enforcing"] * 3]
        assert node.programmed() == left, "the load is what it was"


def test_without_an_earlier_run_nothing_waits(emulate: Callable[[str], Emulated]) -> None:
    node = emulate("small")
    with node.journal() as journal:
        agent = Agent(node.host(), Late(node, "config"), node.settings(), journal)
        agent.take_over()
        assert "earlier run" not in node.ticks(agent, 1)[0].because
