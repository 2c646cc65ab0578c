"""What is made of the cluster's answers to evictions."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import cast

import pytest
from emulated import Emulated

from koordlite.apply.evictions import Evictions
from koordlite.changes.eviction import EvictPod
from koordlite.lab.machine.clock import SandboxClock
from koordlite.model.errors import EvictionRefused
from koordlite.model.snapshot import Snapshot
from koordlite.ports import Clock, Cluster


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    """A picture of an emulated node."""
    agent = Emulated("small", tmp_path_factory.mktemp("node")).agent(None)
    agent.tick()
    assert agent.snapshot is not None
    return agent.snapshot


class Answering:
    """A cluster that answers each eviction by a function."""

    def __init__(self, answer: Callable[[EvictPod], None]) -> None:
        self.answer, self.asked = answer, list[str]()

    def evict(self, pod: EvictPod) -> None:
        self.asked.append(pod.name)
        self.answer(pod)


def wanted(name: str) -> EvictPod:
    return EvictPod("ns", name, f"uid-{name}", "memory is short")


def evictions(answer: Callable[[EvictPod], None]) -> tuple[Evictions, Answering]:
    cluster = Answering(answer)
    return Evictions(cast(Cluster, cluster), cast(Clock, SandboxClock(lambda _seconds: None, start=0.0))), cluster


def recent(made: Evictions, time: float, *names: str) -> tuple[dict[str, float], dict[str, str]]:
    """What a picture at `time` shows of pods with these names."""
    return made.recent(time, {f"uid-{name}" for name in names})


def refuse(pod: EvictPod) -> None:
    if pod.name == "kept":
        raise EvictionRefused("pod/ns/kept", "the budget is used up")


def test_a_refusal_is_told_and_the_next_pod_is_asked_all_the_same() -> None:
    made, cluster = evictions(refuse)
    steps = made.take([wanted("kept"), wanted("gone")], time=10.0)
    assert cluster.asked == ["kept", "gone"]
    assert [(step.ok, step.error) for step in steps] == [(False, "the budget is used up"), (True, "")]
    accepted, refused = recent(made, 10.0, "kept", "gone")
    assert accepted == {"uid-gone": 10.0}
    assert refused == {"uid-kept": "the budget is used up"}


def test_a_refused_pod_is_left_alone_twice_as_long_each_time() -> None:
    made, _ = evictions(refuse)
    made.take([wanted("kept")], time=0.0)
    assert recent(made, 9.9, "kept")[1]
    assert not recent(made, 10.0, "kept")[1]
    made.take([wanted("kept")], time=10.0)
    assert recent(made, 29.9, "kept")[1]
    assert not recent(made, 30.0, "kept")[1]


def test_the_cluster_may_wish_for_more_time() -> None:
    def wait(_pod: EvictPod) -> None:
        raise EvictionRefused("pod/ns/kept", "slow down", retry_after_seconds=60.0)

    made, _ = evictions(wait)
    made.take([wanted("kept")], time=0.0)
    assert recent(made, 59.0, "kept")[1]


def test_an_unreachable_cluster_is_no_eviction() -> None:
    def unreachable(_pod: EvictPod) -> None:
        raise OSError(errno.ECONNREFUSED, "Connection refused")

    made, _ = evictions(unreachable)
    (step,) = made.take([wanted("a")], time=0.0)
    assert (step.ok, step.error) == (False, "ECONNREFUSED: Connection refused")
    assert not recent(made, 0.0, "a")[0]


def failing(*codes: int) -> Callable[[EvictPod], None]:
    """Ends in these errors one after another (0: accepted), and then accepts."""
    left = list(codes)

    def answer(_pod: EvictPod) -> None:
        code = left.pop(0) if left else 0
        if code:
            raise OSError(code, "no answer yet" if code == errno.EINPROGRESS else "timed out")

    return answer


@pytest.mark.parametrize("code", [errno.EINPROGRESS, errno.ETIMEDOUT], ids=["is still asked", "never came"])
def test_while_the_answer_about_one_pod_is_not_known_no_other_is_asked_for(code: int) -> None:
    made, cluster = evictions(failing(code))
    steps = made.take([wanted("a"), wanted("b")], time=0.0)
    assert cluster.asked == ["a"], "a may be on its way out"
    assert [step.ok for step in steps] == [False, False]
    assert steps[1].error.startswith("not asked, the last eviction has no answer: E")
    assert "uid-b" not in recent(made, 0.0, "a", "b")[1], "nobody refused it"


def test_a_pod_that_is_still_asked_for_stays_the_one_to_go() -> None:
    made, cluster = evictions(failing(errno.EINPROGRESS, errno.EINPROGRESS))
    for time in (0.0, 1.0):
        made.take([wanted("a")], time=time)
        assert not recent(made, time, "a")[1]
    made.take([wanted("a")], time=2.0)
    assert cluster.asked == ["a", "a", "a"]
    assert recent(made, 2.0, "a")[0] == {"uid-a": 2.0}


def test_a_silent_cluster_is_asked_seldom_and_at_once_again_after_an_answer() -> None:
    made, cluster = evictions(failing(*[errno.ETIMEDOUT] * 4))
    asked_at = []
    for second in range(90):
        before = len(cluster.asked)
        made.take([wanted("a")], time=float(second))
        asked_at += [second] * (len(cluster.asked) - before)
    assert asked_at[:5] == [0, 10, 30, 50, 70]
    assert asked_at[5:] == list(range(71, 90))


@pytest.mark.parametrize(
    ("time", "names", "evicted"),
    [
        pytest.param(119.0, ("a",), True, id="it takes its time to go"),
        pytest.param(120.0, ("a",), False, id="after two minutes it may be asked for again"),
        pytest.param(1.0, (), False, id="it has gone"),
    ],
)
def test_an_accepted_eviction_is_known_until_the_pod_is_gone(
    seen: Snapshot, time: float, names: tuple[str, ...], evicted: bool
) -> None:
    made, _ = evictions(lambda _pod: None)
    made.take([wanted("a")], time=0.0)
    assert bool(recent(made, time, *names)[0]) is evicted
