"""Every step of a plan is one the kernel takes, and the last one is what was wanted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite import plan
from koordlite.changes.cgroup import CgroupChange
from koordlite.changes.published import (
    NodeAnnotationChange,
    NodeResourceChange,
    TopologyChange,
    ZoneResourceChange,
    ZonesChange,
)
from koordlite.changes.resctrl import ResctrlGroupChange, SchemataChange, TasksChange
from koordlite.lab.cgroups import files as cgroup_files
from koordlite.lab.cgroups.trees import Cgroups, Group
from koordlite.lab.machine import shapes
from koordlite.lab.machine.processes import Processes
from koordlite.lab.machine.tree import File
from koordlite.model.cgroup_fields import CgroupField
from koordlite.model.change import Change
from koordlite.model.cpuset import CPUSet
from koordlite.model.decision import Decision
from koordlite.model.picture.groups import Cgroup

TREE = ("k", "k/be", "k/be/a", "k/be/a/x", "k/be/a/y", "k/be/b", "k/be/b/x", "k/ls", "k/ls/p", "k/ls/p/x")
MACHINE = shapes.machine("intel-2s-ht")
IDS = CPUSet(range(8))
PERIOD_US = 100_000


def parent(group: str) -> str:
    return group.rpartition("/")[0]


class Kernel:
    """The sandbox's rules of one cgroup version over TREE; `populated` puts a thread into every leaf."""

    def __init__(self, version: int, *, populated: bool = False) -> None:
        machine = msgspec.structs.replace(MACHINE, cgroup_version=version)
        self.version, self.groups = version, cgroup_files.build(machine, Processes(1000))
        for group in TREE:
            self.groups.make(group)
            self.cpuset(group).mems = MACHINE.mems
        if populated:
            self.groups.attach("k/be/a/x", (5000,))
            self.groups.attach("k/ls/p/x", (5001,))

    def cpuset(self, group: str) -> Group:
        return _found(self.groups, "cpuset", group)

    def cpu(self, group: str) -> Group:
        return _found(self.groups, "cpu", group)

    def take(self, step: Change) -> None:
        """Write the step as a process would; OSError when the kernel would refuse it."""
        assert isinstance(step, CgroupChange)
        if step.field == "cpuset.cpus":
            _write(self.cpuset(step.group), "cpuset.cpus", str(step.value) or "\n")
        elif self.version == 1:
            _write(self.cpu(step.group), "cpu.cfs_quota_us", str(step.value))
        else:
            _write(self.cpu(step.group), "cpu.max", "max" if step.value == -1 else str(step.value))


def _found(groups: Cgroups, controller: str, group: str) -> Group:
    found = getattr(groups, controller).find(group)
    assert isinstance(found, Group)
    return found


def _write(group: Group, name: str, text: str) -> None:
    entry = group.folder.entries[name]
    assert isinstance(entry, File)
    assert entry.write is not None
    entry.write(text.encode())


@st.composite
def nested_sets(draw: st.DrawFn, *, empty: bool) -> dict[str, CPUSet]:
    """A legal v1 tree: every set inside its parent's."""
    sets = {"": IDS}
    for group in TREE:
        above = sorted(sets[parent(group)])
        least = 0 if empty or not above else 1
        sets[group] = CPUSet(draw(st.sets(st.sampled_from(above), min_size=least))) if above else CPUSet()
    del sets[""]
    return sets


@st.composite
def nested_quotas(draw: st.DrawFn) -> dict[str, int]:
    """A legal v1 tree: no quota above that of the nearest limited ancestor."""
    quotas: dict[str, int] = {"": -1}
    room: dict[str, int] = {"": 3_200_000}
    for group in TREE:
        limit = room[parent(group)]
        quotas[group] = draw(st.one_of(st.just(-1), st.integers(1000, limit)))
        room[group] = limit if quotas[group] == -1 else quotas[group]
    del quotas[""]
    return quotas


def changes(field: CgroupField, target: Mapping[str, CPUSet] | Mapping[str, int]) -> list[Change]:
    return [CgroupChange(group, field, value) for group, value in target.items()]


def check_sets(kernel: Kernel, present: Mapping[str, CPUSet], target: Mapping[str, CPUSet]) -> tuple[Change, ...]:
    for group, cpus in present.items():
        kernel.cpuset(group).cpus = cpus
    steps = plan.order(changes("cpuset.cpus", target), {g: Cgroup(c, c) for g, c in present.items()})
    for step in steps:
        kernel.take(step)
    assert {group: kernel.cpuset(group).cpus for group in target} == dict(target)
    return steps


@given(present=nested_sets(empty=False), target=nested_sets(empty=False))
def test_v1_takes_every_move_of_a_populated_tree(present: dict[str, CPUSet], target: dict[str, CPUSet]) -> None:
    check_sets(Kernel(1, populated=True), present, target)


@given(present=nested_sets(empty=True), target=nested_sets(empty=True))
def test_v1_takes_fresh_groups_being_filled_and_emptied(present: dict[str, CPUSet], target: dict[str, CPUSet]) -> None:
    check_sets(Kernel(1), present, target)


@given(present=nested_sets(empty=True), target=nested_sets(empty=False))
def test_v2_takes_every_move(present: dict[str, CPUSet], target: dict[str, CPUSet]) -> None:
    check_sets(Kernel(2, populated=True), present, target)


@given(present=nested_sets(empty=False), target=nested_sets(empty=False))
def test_no_set_is_written_more_than_twice_and_none_in_vain(
    present: dict[str, CPUSet], target: dict[str, CPUSet]
) -> None:
    steps = check_sets(Kernel(1), present, target)
    places = [str(step.place) for step in steps]
    assert all(places.count(place) <= 2 for place in places)
    assert {str(s.place) for s in steps} == {f"{g}/cpuset.cpus" for g in TREE if present[g] != target[g]}


@given(present=nested_quotas(), target=nested_quotas())
def test_v1_takes_every_change_of_quotas(present: dict[str, int], target: dict[str, int]) -> None:
    kernel = Kernel(1)
    for group, quota in present.items():
        kernel.cpu(group).quota_us = quota
    cgroups = {group: Cgroup(None, None, quota, PERIOD_US) for group, quota in present.items()}
    for step in plan.order(changes("cpu.quota", target), cgroups):
        kernel.take(step)
    assert {group: kernel.cpu(group).quota_us for group in target} == target


def test_a_set_that_moves_passes_through_the_union() -> None:
    cgroups = {"k": Cgroup(CPUSet.parse("0-3")), "k/be": Cgroup(CPUSet.parse("0-1"))}
    wanted = [CgroupChange("k", "cpuset.cpus", CPUSet.parse("2-5")), CgroupChange("k/be", "cpuset.cpus", CPUSet([4]))]
    steps = [(c.group, str(c.value)) for c in plan.order(wanted, cgroups) if isinstance(c, CgroupChange)]
    assert steps == [("k", "0-5"), ("k/be", "0-1,4"), ("k/be", "4"), ("k", "2-5")]


def every_kind() -> Iterator[Change]:
    """One of each, in the worst order."""
    yield ZoneResourceChange("node-0", "kubernetes.io/batch-cpu", None)
    yield ZonesChange((), ())
    yield NodeAnnotationChange("key", "text")
    yield TopologyChange("key", "text")
    yield NodeResourceChange("kubernetes.io/batch-cpu", 1)
    yield TasksChange("BE", (1,))
    yield SchemataChange("BE", "MB", {0: 10})
    yield ResctrlGroupChange("BE")
    yield CgroupChange("k", "cpu.quota", -1)
    yield CgroupChange("k", "cpuset.cpus", CPUSet([1]))


def test_groups_before_schemata_before_threads_and_the_cluster_last() -> None:
    cgroups = {"k": Cgroup(CPUSet([1, 2]), None, 100)}
    steps = plan.order(list(every_kind()), cgroups)
    assert [type(step).__name__ for step in steps] == [
        "CgroupChange",
        "CgroupChange",
        "ResctrlGroupChange",
        "SchemataChange",
        "TasksChange",
        "NodeResourceChange",
        "NodeAnnotationChange",
        "ZonesChange",
        "TopologyChange",
        "ZoneResourceChange",
    ]


# ── merging ──


def answer(strategy: str, *wanted: Change) -> Decision:
    return Decision("besteffort", "set", "Reason", {}, wanted, strategy)


def test_two_values_for_one_place_are_a_conflict_and_the_first_has_it() -> None:
    one, two = CgroupChange("k", "cpu.quota", 1000), CgroupChange("k", "cpu.quota", 2000)
    made = plan.make([answer("first", one), answer("second", two)], {})
    assert made.steps == (one,)
    assert [(str(c.place), c.first, c.second) for c in made.conflicts] == [("k/cpu.quota", "first", "second")]
    assert {str(place): owner for place, owner in made.owners.items()} == {"k/cpu.quota": "first"}


def test_the_same_value_twice_is_no_conflict() -> None:
    one = CgroupChange("k", "cpu.quota", 1000)
    made = plan.make([answer("first", one), answer("second", msgspec.structs.replace(one))], {})
    assert (made.steps, made.conflicts) == ((one,), ())


@pytest.mark.parametrize("count", [0, 3])
def test_decisions_without_changes_plan_nothing(count: int) -> None:
    assert plan.make([answer("quiet")] * count, {}) == plan.Plan((), (), {})


@given(
    quotas=st.dictionaries(st.sampled_from(TREE[1:6]), st.integers(1_000, 400_000), min_size=1),
    present=st.dictionaries(st.sampled_from(TREE[1:6]), st.just(-1)),
)
def test_quotas_that_two_strategies_want_are_legal_together(quotas: dict[str, int], present: dict[str, int]) -> None:
    """What a group is to have is at most what any group above it gets in the same plan; the rest stays as wanted."""
    cgroups = {group: Cgroup(quota_us=quota) for group, quota in present.items()}
    wanted = [CgroupChange(group, "cpu.quota", quota) for group, quota in quotas.items()]
    made = {c.group: c.value for c in plan.order(wanted, cgroups) if isinstance(c, CgroupChange)}
    for group, quota in quotas.items():
        above = [q for other, q in quotas.items() if group.startswith(f"{other}/")]
        assert made[group] == min([quota, *above])


def test_periods_that_differ_leave_quotas_as_they_are_wanted() -> None:
    cgroups = {"k/be": Cgroup(quota_us=-1, period_us=10_000)}
    wanted = [CgroupChange("k/be", "cpu.quota", 5_000), CgroupChange("k/be/a", "cpu.quota", 20_000)]
    assert {c.group: c.value for c in plan.order(wanted, cgroups) if isinstance(c, CgroupChange)} == {
        "k/be": 5_000,
        "k/be/a": 20_000,
    }
