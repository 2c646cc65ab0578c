"""Best-effort limits that neither flap nor come late: what one tick remembers for the next."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
import slices
from hypothesis import given, settings
from hypothesis import strategies as st

from koordlite.changes.cgroup import CgroupChange
from koordlite.model.cpuset import CPUSet
from koordlite.model.decision import Decision
from koordlite.model.node import Node, ResolvedReservation
from koordlite.model.picture.groups import PodGroups
from koordlite.model.quantity import Quantity
from koordlite.model.settings import Memory
from koordlite.model.snapshot import Snapshot
from koordlite.model.topology import CPU, Topology
from koordlite.strategies import cpu_suppress, discover
from koordlite.strategies.cpu_suppress import SuppressMemory

RULE = next(rule for rule in discover() if rule.module == "cpu_suppress")

BE = "kubepods/besteffort"


class Loop:
    """A node whose groups hold what was decided for them; one tick a second."""

    def __init__(self, build: Any, cpus: int = 8, policy: str = "cpuset", **config: Any) -> None:
        self._build = build
        self._config = cpu_suppress.Config(**config)
        rows = (CPU(i, i % (cpus // 2), i % (cpus // 2) * 2 // cpus, i % (cpus // 2) * 4 // cpus) for i in range(cpus))
        amounts = {"cpu": Quantity.of(cpus)}
        self._seen: Snapshot = build.snapshot(
            topology=Topology(tuple(rows), ()),
            node=Node(name="n", capacity=amounts, allocatable=amounts),
            slo=build.suppression(cpu_suppress_policy=policy),
            cgroups=build.best_effort(f"0-{cpus - 1}"),
            pods=(build.pod("web", "LS"),),
        )

    def tick(self, used_milli: int | None, *, after: float = 1, **part: Any) -> Decision:
        """What is decided when the service uses so much; its changes are in force afterwards. Between two ticks
        (`woken`) only what shrinks a limit counts."""
        usage = self._build.used(used_milli, web=used_milli or 0)
        seen = dataclasses.replace(self._seen, usage=usage, time=self._seen.time + after, **part)
        decisions = [d for d in RULE.answer(seen, self._config) if d.verdict == "shrink" or not seen.woken]
        remembered: dict[str, Memory] = dict(seen.remembered)
        for decision in decisions:
            if decision.remember is not None:
                remembered["cpuSuppress"] = decision.remember
        changes = [c for d in decisions for c in d.changes if isinstance(c, CgroupChange)]
        groups = {**seen.cgroups, **_written(seen, changes)}
        ours = seen.ours | {change.place for change in changes}
        kept = dataclasses.replace(seen, cgroups=groups, remembered=remembered, ours=ours)
        self._seen = dataclasses.replace(kept, **{name: getattr(self._seen, name) for name in part})
        return decisions[0]

    @property
    def limit_milli(self) -> int:
        """What best effort is held to."""
        group = self._seen.cgroups[BE]
        return self.held * 1000 if group.quota_us in (None, -1) else (group.quota_us or 0) // 100

    @property
    def held(self) -> int:
        """How many CPUs best effort holds."""
        return len(self._seen.cgroups[BE].cpuset or ())


def _written(seen: Snapshot, changes: Iterable[CgroupChange]) -> dict[str, Any]:
    groups = {}
    for change in changes:
        group = groups.get(change.group, seen.cgroups[change.group])
        value = change.value
        fields = {"cpuset": value, "effective": value} if isinstance(value, CPUSet) else {"quota_us": value}
        groups[change.group] = msgspec.structs.replace(group, **fields)
    return groups


@pytest.mark.parametrize("policy", ["cpuset", "cfsQuota"])
@pytest.mark.parametrize("cpus", [8, 64, 256])
@settings(max_examples=slices.amount(5, 2), deadline=None)
@given(load=st.tuples(st.booleans(), st.integers(50, 600)))
def test_one_percent_of_the_node_to_either_side_writes_nothing(
    build: Any, cpus: int, policy: str, load: tuple[bool, int]
) -> None:
    """Ten minutes, at any load, also where the budget is a whole number of CPUs."""
    border, share = load
    mean = cpus * share
    if border:
        mean = cpus * 650 - (cpus * 650 - mean) // 1000 * 1000
    noise = random.Random(share)
    loop, spread = Loop(build, cpus, policy), cpus * 10
    for _ in range(20):
        loop.tick(mean + noise.randint(-spread, spread))
    decided = [loop.tick(mean + noise.randint(-spread, spread)) for _ in range(600)]
    assert [d for d in decided if d.changes] == []


def test_without_the_band_such_a_load_flaps(build: Any) -> None:
    """The load of the test above is one that needs the band."""
    loop = Loop(build, 8, steady_percent=0, grow_hold_seconds=0)
    loop.tick(2200)
    assert sum(bool(loop.tick(2200 + way).changes) for way in (80, -80) * 10) > 10


@pytest.mark.parametrize("policy", ["cpuset", "cfsQuota"])
def test_a_step_is_followed_at_once_and_in_full(build: Any, policy: str) -> None:
    loop = Loop(build, 64, policy)
    for _ in range(5):
        loop.tick(8000)
    stepped, later = loop.tick(20_000), loop.tick(20_000)
    assert (stepped.verdict, later.verdict) == ("shrink", "hold")
    limit = {"cpuset": ("target_cpus", 21), "cfsQuota": ("quota_us", 2_040_000)}
    name, value = limit[policy]
    assert stepped.evidence[name] == value, "64 × 65 % − 20 = 21.6, less a tenth of the 12 it had too much for a second"


@given(loads=st.lists(st.integers(0, 64_000), min_size=1, max_size=30))
def test_the_limit_exceeds_the_budget_by_repayment_band_and_one_cpu_at_most(build: Any, loads: list[int]) -> None:
    loop = Loop(build, 64)
    for used in loads:
        budget = loop.tick(used).outcome.budget_milli
        assert loop.held * 1000 < max(budget + 64 * 100, 1001) + 1000 + 64 * 20


def test_what_is_followed_is_said(build: Any) -> None:
    loop = Loop(build, 8)
    loop.tick(1000)
    decision = loop.tick(1100)
    assert (decision.outcome.budget_milli, decision.evidence["followed_milli"]) == (4100, 4200)
    assert "followed_milli" not in loop.tick(3000).evidence


def test_nothing_grows_while_growth_is_held_after_a_spike(build: Any) -> None:
    loop = Loop(build, 8, grow_hold_seconds=10)
    loop.tick(1200)
    assert loop.tick(3200).verdict == "shrink"
    after = [loop.tick(1200) for _ in range(12)]
    assert [d.verdict for d in after] == ["hold"] * 9 + ["grow", "grow", "hold"]


def test_a_second_spike_is_followed_while_growth_is_held(build: Any) -> None:
    loop = Loop(build, 32, grow_hold_seconds=10)
    loop.tick(1000)
    assert loop.tick(12_000).verdict == "shrink"
    assert loop.tick(16_000).verdict == "shrink"
    for _ in range(9):
        loop.tick(1000)
        assert loop.held <= 5, "32 × 65 % − 16 = 4.8"
    loop.tick(1000)
    assert loop.held > 5


def test_the_first_limit_of_a_run_is_no_spike(build: Any) -> None:
    loop = Loop(build, 8)
    assert loop.tick(3200).verdict == "shrink"
    assert loop.tick(1200).verdict == "grow"


def test_somebody_elses_change_is_put_right_while_the_budget_is_steady(build: Any) -> None:
    loop = Loop(build, 8)
    loop.tick(1200)
    found = loop.tick(1210, cgroups=build.best_effort("0-7"))
    assert (found.verdict, found.evidence["target_cpus"]) == ("shrink", 4)


def test_a_forbidden_cpu_is_left_at_once_while_the_budget_is_steady(build: Any) -> None:
    loop = Loop(build, 8)
    loop.tick(1200)
    moved = loop.tick(1210, reserved=ResolvedReservation(CPUSet([0])))
    assert moved.verdict == "set"
    assert 0 not in CPUSet.parse(str(moved.evidence["cpuset"]))


def test_switched_off_and_on_again_it_starts_anew(build: Any) -> None:
    loop = Loop(build, 8)
    loop.tick(1200)
    assert loop.tick(1200, slo=build.suppression(enable=False)).remember == SuppressMemory()


# ── what bursts take is given back ──


def _period(seconds: int, on: int) -> list[int]:
    """Ten minutes of a service that uses 5 CPUs for `on` of every so many seconds, else next to nothing."""
    return [5000 if second % seconds < on else 100 for second in range(600)]


@pytest.mark.parametrize("policy", ["cpuset", "cfsQuota"])
@pytest.mark.parametrize(("seconds", "on"), [(2, 1), (10, 5), (10, 1), (20, 10), (7, 2)])
def test_a_load_that_comes_and_goes_leaves_best_effort_the_mean_of_its_budget(
    build: Any, seconds: int, on: int, policy: str
) -> None:
    """The limit follows a second late and grew by steps: half of the budget was lost so. Of the service's seconds the
    limit of the second before is in force."""
    loop = Loop(build, 8, policy)
    budget = allowed = 0.0
    for used in _period(seconds, on):
        allowed += loop.limit_milli
        budget += max(20 if policy == "cfsQuota" else 2000, loop.tick(used).outcome.budget_milli)
    assert allowed / budget > 0.97
    if policy == "cfsQuota":
        assert allowed / budget < 1.03, "a set is rounded up"


@given(loads=st.lists(st.integers(0, 8000), min_size=200, max_size=200))
@settings(max_examples=slices.amount(20, 5), deadline=None)
def test_no_load_makes_the_quota_exceed_the_mean_of_the_budget_for_long(build: Any, loads: list[int]) -> None:
    loop = Loop(build, 8, "cfsQuota", steady_percent=0)
    loop.tick(loads[0])
    allowed, budget = 0.0, 0.0
    for used in loads:
        allowed += loop.limit_milli
        budget += max(20, loop.tick(used).outcome.budget_milli)
    assert abs(allowed - budget) < 8000 * 2 + len(loads) * 80, "one second of the node is owed at most, within 1 %"


def test_a_dip_between_ticks_is_counted_and_given_back(build: Any) -> None:
    loop = Loop(build, 8, "cfsQuota")
    loop.tick(1200)
    assert loop.limit_milli == 4000
    loop.tick(3200, after=0.25, woken=True)
    assert loop.limit_milli == 2000
    tick = loop.tick(1200, after=0.75)
    assert tick.evidence["repaid_milli"] == 150, "2 CPUs for 0.75 s, over ten seconds"
    assert loop.limit_milli == 4150
    assert tick.outcome.owed_milli_seconds == 1500


def test_somebody_elses_limit_owes_nothing(build: Any) -> None:
    loop = Loop(build, 8, "cfsQuota")
    loop.tick(1200)
    found = loop.tick(1200, cgroups=build.best_effort("0-7", 50_000))
    assert (found.evidence.get("repaid_milli"), found.outcome.owed_milli_seconds) == (None, 0)


def test_a_limit_that_only_could_be_there_owes_nothing(build: Any) -> None:
    """In mode observe nothing is written: the group stays unlimited."""
    loop = Loop(build, 8, "cfsQuota")
    free = {"cgroups": build.best_effort("0-7", -1)}
    assert {loop.tick(used, **free).outcome.owed_milli_seconds for used in (0, 5000, 0, 5000, 0)} == {0}


# ── the Node goes away ──


def test_without_its_node_the_last_limit_is_bound_in_time(build: Any) -> None:
    loop = Loop(build, 8, hold_seconds=3)
    loop.tick(3200)
    gone = [loop.tick(3200, node=None) for _ in range(6)]
    assert [(d.verdict, d.reason) for d in gone] == [
        *[("skip", "NoNode")] * 4,
        ("release", "NoNodeReleased"),
        ("hold", "NoNodeReleased"),
    ]
    assert loop.held == 8
    assert loop.tick(3200).verdict == "shrink", "it is back"


def test_a_node_that_comes_back_in_time_finds_its_limit(build: Any) -> None:
    loop = Loop(build, 8, hold_seconds=3)
    loop.tick(3200)
    for _ in range(3):
        loop.tick(3200, node=None)
        loop.tick(3200, node=None)
        assert (loop.tick(3210).verdict, loop.held) == ("hold", 2)


def test_a_node_never_seen_releases_nothing(build: Any) -> None:
    """What stands there is not ours."""
    loop = Loop(build, 8, hold_seconds=0)
    assert [loop.tick(0, node=None, cgroups=build.best_effort("0-1")).reason for _ in range(3)] == ["NoNode"] * 3


# ── who gives way ──


@pytest.mark.parametrize(
    ("qos", "kube", "group", "protected"),
    [
        pytest.param("BE", "Burstable", "", True, id="a BE label alone does not put a pod under the limit"),
        pytest.param("LS", "BestEffort", "", False, id="a pod that lives in the group is limited with it"),
        pytest.param("BE", "BestEffort", "", False, id="the usual best-effort pod"),
        pytest.param("BE", "BestEffort", "kubepods/burstable/podx", True, id="where it really lives counts"),
        pytest.param("", "Burstable", f"{BE}/podx", False, id="also the other way round"),
    ],
)
def test_who_gives_way_is_said_by_the_group(build: Any, qos: str, kube: str, group: str, protected: bool) -> None:
    places = {"x": PodGroups(group, {})} if group else {}
    seen = build.snapshot(pods=(build.pod("x", qos, kube),), usage=build.used(1500, x=1500), places=places)
    (decision,) = RULE.answer(seen, cpu_suppress.Config())
    assert decision.evidence["prod_milli"] == (1500 if protected else 0)
