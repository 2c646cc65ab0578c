"""Orders of quotas and bursts, memory and shares: no step that the kernel refuses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite import plan
from koordlite.changes.cgroup import CgroupChange
from koordlite.model.cgroup_fields import CgroupField
from koordlite.model.picture.groups import Cgroup


def change(group: str, field: CgroupField, value: int) -> CgroupChange:
    return CgroupChange(group, field, value)


def steps(changes: list[CgroupChange], cgroups: dict[str, Cgroup]) -> list[tuple[str, str, int]]:
    done = plan.order(changes, cgroups)
    return [(c.group, c.field, c.value) for c in done if isinstance(c, CgroupChange) and isinstance(c.value, int)]


@given(
    quotas=st.tuples(st.integers(-1, 20).filter(bool), st.integers(-1, 20).filter(bool)),
    bursts=st.tuples(st.integers(0, 20), st.integers(0, 20)),
)
def test_a_burst_is_never_above_its_quota_on_the_way(quotas: tuple[int, int], bursts: tuple[int, int]) -> None:
    fits = all(quota == -1 or burst <= quota for quota, burst in zip(quotas, bursts, strict=True))
    if not fits:
        return
    now = {"cpu.quota": quotas[0], "cpu.burst": bursts[0]}
    held = {"g": Cgroup(quota_us=quotas[0], values={"cpu.burst": bursts[0]})}
    for _, field, value in steps([change("g", "cpu.burst", bursts[1]), change("g", "cpu.quota", quotas[1])], held):
        now[field] = value
        assert now["cpu.quota"] == -1 or now["cpu.burst"] <= now["cpu.quota"]
    assert now == {"cpu.quota": quotas[1], "cpu.burst": bursts[1]}


@pytest.mark.parametrize("field", ["memory.min", "memory.low", "memory.high"])
def test_memory_grows_from_the_top_and_shrinks_from_the_bottom(field: CgroupField) -> None:
    held = {group: Cgroup(values={field: 10}) for group in ("k", "k/p", "k/q", "k/q/c")}
    wanted = [change("k/p", field, 20), change("k", field, 30), change("k/q", field, 5), change("k/q/c", field, 1)]
    assert steps(wanted, held) == [("k/q/c", field, 1), ("k/q", field, 5), ("k", field, 30), ("k/p", field, 20)]


def test_no_limit_is_more_than_any() -> None:
    held = {"k": Cgroup(values={"memory.high": 10}), "k/p": Cgroup(values={"memory.high": -1})}
    wanted = [change("k/p", "memory.high", 5), change("k", "memory.high", -1)]
    assert steps(wanted, held) == [("k/p", "memory.high", 5), ("k", "memory.high", -1)]


def test_swap_grows_before_memory_shrinks_and_shrinks_after_it_grew() -> None:
    held = {group: Cgroup(values={"memory.high": 10, "memory.limit": 20, "memory.swap.max": 5}) for group in "ab"}
    less, more = {"memory.high": 5, "memory.limit": 9}, {"memory.high": 11, "memory.limit": 21}
    wanted = [change("a", field, value) for field, value in less.items()]  # type: ignore[arg-type]
    wanted += [change("b", field, value) for field, value in more.items()]  # type: ignore[arg-type]
    done = steps([*wanted, change("b", "memory.swap.max", 0), change("a", "memory.swap.max", -1)], held)
    assert len(done) == 6
    assert (done[0], done[-1]) == (("a", "memory.swap.max", -1), ("b", "memory.swap.max", 0))


def test_a_group_gets_shares_only_while_it_is_not_idle() -> None:
    waking = steps([change("k", "cpu.shares", 8), change("k", "cpu.idle", 0)], {})
    assert waking == [("k", "cpu.idle", 0), ("k", "cpu.shares", 8)]
    resting = steps([change("k", "cpu.idle", 1), change("k", "cpu.shares", 8)], {})
    assert resting == [("k", "cpu.shares", 8), ("k", "cpu.idle", 1)]


@given(
    before=st.tuples(st.integers(0, 50), st.integers(0, 50)), after=st.tuples(st.integers(0, 50), st.integers(0, 50))
)
def test_one_group_may_take_what_its_sibling_gives_up(before: tuple[int, int], after: tuple[int, int]) -> None:
    now = {"k/a": before[0], "k/b": before[1], "k": sum(before)}
    wanted = {"k/a": after[0], "k/b": after[1], "k": sum(after)}
    held = {group: Cgroup(values={"memory.min": value}) for group, value in now.items()}
    differ = [change(group, "memory.min", value) for group, value in wanted.items() if value != now[group]]
    for group, _, value in steps(differ, held):
        now[group] = value
        assert now["k/a"] + now["k/b"] <= now["k"]
    assert now == wanted
