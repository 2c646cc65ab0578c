"""Crane's CPUs on one node: what was promised stays, and no CPU is given twice, whatever comes and goes."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping

import msgspec
import pytest
import slices

from koordlite.model.cpuset import EMPTY, CPUSet, union
from koordlite.model.topology import CPU
from koordlite.numa.crane import assignments
from koordlite.numa.crane.assignments import Assignments, Claim
from koordlite.numa.machine import Machine

MACHINE = Machine(tuple(CPU(cpu, cpu % 8, cpu % 8 // 4, cpu % 8 // 4) for cpu in range(16)))
"""Two NUMA nodes of four cores with two threads each: node 0 has 0-3,8-11."""
NODE_0, NODE_1 = CPUSet.parse("0-3,8-11"), CPUSet.parse("4-7,12-15")


def claim(uid: str, policy: str, *zones: tuple[int, int], containers: Mapping[str, int] | None = None) -> Claim:
    asked = containers or {"main": sum(count for _, count in zones)}
    return Claim(uid=uid, policy=policy, zones=zones, containers=asked)


def given(*claims: Claim, reserved: str = "", taken: str = "") -> tuple[Assignments, Mapping[str, str]]:
    held = Assignments(machine=MACHINE, usable=MACHINE.all, reserved=CPUSet.parse(reserved), taken=CPUSet.parse(taken))
    return assignments.with_claims(held, claims)


def test_containers_of_a_pod_get_cpus_of_their_own() -> None:
    held, refused = given(claim("a", "exclusive", (0, 4), containers={"one": 2, "two": 2}))
    assert not refused
    assert (held.of("a", "one"), held.of("a", "two")) == (CPUSet.parse("0,8"), CPUSet.parse("1,9"))


def test_a_result_with_fewer_cpus_than_requested_is_shared_by_the_containers() -> None:
    held, _ = given(claim("a", "exclusive", (0, 2), containers={"one": 2, "two": 2}))
    assert held.of("a", "one") == held.of("a", "two") == CPUSet.parse("0,8")


@pytest.mark.parametrize(
    ("refused", "why"),
    [
        (claim("a", "exclusive", (0, 4), containers={"main": 2}), "names 4 CPUs, and the containers request 2"),
        (claim("a", "numa", (7, 1)), "names NUMA node 7, and this machine has 0, 1"),
        (claim("a", "immovable", (0, 6)), "6 CPUs of NUMA node 0 are asked for, and 5 are free: 3,8-11"),
        (msgspec.structs.replace(claim("a", "exclusive", (0, 2)), barred="barred"), "barred"),
    ],
)
def test_a_claim_that_cannot_be_granted_says_why(refused: Claim, why: str) -> None:
    held, reasons = given(refused, reserved="0-2")
    assert not held.entries
    assert why in reasons["a"]


def test_what_others_have_is_not_chosen_and_not_shared() -> None:
    held, _ = given(claim("a", "exclusive", (0, 2)), claim("b", "numa", (0, 1)), taken="0,8", reserved="1")
    assert held.of("a", "main") == CPUSet.parse("2,10")
    assert held.of("b", "main") == CPUSet.parse("3,9,11")
    assert held.default == CPUSet.parse("1,3-7,9,11-15")


def test_a_promise_ends_when_the_pod_asks_for_something_else() -> None:
    held, _ = given(claim("a", "exclusive", (0, 2)))
    assert assignments.valid_entries(held.entries, [claim("a", "exclusive", (0, 2))]) == held.entries
    for other in (claim("a", "immovable", (0, 2)), claim("a", "exclusive", (1, 2)), claim("b", "exclusive", (0, 2))):
        assert assignments.valid_entries(held.entries, [other]) == {}


def test_a_container_that_is_resized_in_place_keeps_what_it_may_and_has_it_back_when_it_grows_again() -> None:
    sizes = [{"main": 4, "side": 2}, {"main": 2, "side": 2}, {"main": 3, "side": 1}, {"main": 4, "side": 2}]
    held, _ = given(claim("a", "exclusive", (0, 6), containers=sizes[0]))
    past = [held.entries["a"]]
    for containers in sizes[1:]:
        claims = [claim("a", "exclusive", (0, 6), containers=containers)]
        assert assignments.valid_entries(held.entries, claims) == held.entries, "it is no other promise"
        held, refused = assignments.with_claims(held, claims)
        assert not refused
        assert {name: len(entry.cpus) for name, entry in held.entries["a"].items()} == containers
        past.append(held.entries["a"])
    for name in ("main", "side"):
        for before, after in itertools.pairwise(past):
            assert before[name].cpus <= after[name].cpus or after[name].cpus <= before[name].cpus


def test_what_a_container_gave_back_it_has_again_only_if_it_is_free() -> None:
    first = claim("a", "exclusive", (0, 4))
    held, _ = given(first)
    held, _ = assignments.with_claims(held, [claim("a", "exclusive", (0, 4), containers={"main": 2})])
    assert held.of("a", "main") == CPUSet.parse("0,8")
    held, refused = assignments.with_claims(held, [first, claim("b", "exclusive", (0, 6))])
    assert held.of("a", "main") == CPUSet.parse("0-1,8-9"), "it comes before a new pod"
    assert "4 are free" in refused["b"]
    less = claim("a", "exclusive", (0, 4), containers={"main": 2})
    held, _ = assignments.with_claims(held, [less, claim("b", "exclusive", (0, 6))])
    held, _ = assignments.with_claims(held, [first, claim("b", "exclusive", (0, 6))])
    assert held.of("a", "main") == CPUSet.parse("0,8"), "the new pod has them"
    assert not held.of("a", "main") & (held.of("b", "main") or EMPTY)


def test_a_pod_that_grows_beyond_its_result_keeps_what_it_has() -> None:
    held, _ = given(claim("a", "exclusive", (0, 4)))
    after, refused = assignments.with_claims(held, [claim("a", "exclusive", (0, 4), containers={"main": 6})])
    assert (after.entries, refused) == (held.entries, {})


def test_the_last_shared_cpu_is_not_given_away() -> None:
    held, refused = given(claim("a", "exclusive", (0, 8), (1, 7)), claim("b", "exclusive", (1, 1)))
    assert refused["b"] == "1 CPUs are asked for, and of 1 shared ones one has to stay for other pods"
    assert len(held.default) == 1


def test_contradictions_are_found() -> None:
    first, _ = given(claim("a", "exclusive", (0, 2)))
    second, _ = given(claim("b", "immovable", (0, 2)))
    assert assignments.contradiction(first.entries) == ""
    assert assignments.contradiction({**first.entries, **second.entries}) == "CPU 0 is given to the pods a and b"


class Life:
    """Pods come and go on a machine whose agent restarts now and then; `round` checks all that must hold."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.claims: dict[str, Claim] = {}
        self.held = Assignments(machine=MACHINE, usable=MACHINE.all, reserved=CPUSet(self.random.sample(range(16), 2)))
        self.names = itertools.count()

    def step(self) -> None:
        what = self.random.choice(["add", "add", "add", "remove", "restart", "foreign"])
        if what == "add":
            self._add(f"pod{next(self.names)}")
        elif what == "remove" and self.claims:
            del self.claims[self.random.choice(list(self.claims))]
        elif what == "restart":
            # All that a restart knows is what stands in the file.
            self.held = msgspec.structs.replace(self.held, entries={u: dict(e) for u, e in self.held.entries.items()})
        elif what == "foreign":
            free = list(self.held.shared - self.held.immovable)
            self.held = msgspec.structs.replace(self.held, taken=CPUSet(free[: self.random.randrange(3)]))
        self.round()

    def _add(self, uid: str) -> None:
        nodes = self.random.choice([(0,), (1,), (0, 1)])
        zones = tuple((node, self.random.randint(1, 4)) for node in nodes)
        total = sum(count for _, count in zones)
        parts = {"one": 1, "two": total - 1} if total > 1 and self.random.random() < 0.5 else {"main": total}
        policy = self.random.choice(["exclusive", "numa", "immovable"])
        self.claims[uid] = Claim(uid=uid, policy=policy, zones=zones, containers=parts)

    def round(self) -> None:
        before = self.held
        kept = assignments.valid_entries(before.entries, list(self.claims.values()))
        held = msgspec.structs.replace(before, entries=kept)
        self.held, refused = assignments.with_claims(held, list(self.claims.values()))
        self._check(before, refused)

    def _check(self, before: Assignments, refused: Mapping[str, str]) -> None:
        held = self.held
        assert held.entries.keys() | refused.keys() == self.claims.keys()
        assert not held.entries.keys() & refused.keys()
        for uid in before.entries.keys() & held.entries.keys():
            assert before.entries[uid] == held.entries[uid], "a promise moved"
        fixed: dict[str, CPUSet] = {}
        for uid, theirs in held.entries.items():
            one = self.claims[uid]
            sets = {name: held.of(uid, name) or EMPTY for name in theirs}
            whole = union(sets.values())
            if one.policy == "numa":
                assert whole == held.shared & (CPUSet(c.id for c in MACHINE.cpus if c.node in dict(one.zones)))
                continue
            fixed[uid] = whole
            assert {name: len(cpus) for name, cpus in sets.items()} == one.containers
            assert sum(map(len, sets.values())) == len(whole), "containers of one pod share a CPU"
            assert [len(whole & node) for node in (NODE_0, NODE_1)] == [dict(one.zones).get(n, 0) for n in (0, 1)]
            assert not whole & held.reserved
        for one, other in itertools.combinations(fixed, 2):
            assert not fixed[one] & fixed[other], "a CPU is fixed twice"
        assert not held.exclusive & (held.default | held.shared)
        assert held.immovable <= held.default
        assert held.default | held.exclusive | held.taken == CPUSet(range(16))
        assert assignments.contradiction(held.entries) == ""
        assert held.default or len(held.taken) == 16


@pytest.mark.timeout(900)  # The long run takes some minutes on a busy machine.
@pytest.mark.sliced
def test_random_lives_keep_every_promise() -> None:
    for seed in range(slices.amount(10_000, 150)):
        life = Life(seed)
        for _ in range(20):
            life.step()
