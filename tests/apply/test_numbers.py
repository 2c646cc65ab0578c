"""Shares, bursts, memory limits: journal, read-back, other writers, back to the bytes found; on both versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import applierbench
import pytest
from emulated import Emulated

from koordlite.apply import restore
from koordlite.apply.kind import GONE
from koordlite.apply.kinds import cgroup
from koordlite.changes.cgroup import CgroupChange
from koordlite.model.cgroup_fields import CgroupField
from koordlite.model.pod.values import Pod
from koordlite.model.slo.settings import SLO
from koordlite.model.snapshot import Snapshot
from koordlite.observe import Observer
from koordlite.observe.wants import Wants

Make = Callable[..., Emulated]
BE = "kubepods/besteffort"
V1, V2 = "small", "amd-ccd"
FIELDS: tuple[CgroupField, ...] = ("cpu.shares", "cpu.idle", "cpu.burst", "memory.min", "memory.high")


def asked(_slo: SLO, _pods: tuple[Pod, ...]) -> Wants:
    """All of the fields."""
    return Wants(frozenset(FIELDS))


class Bench(applierbench.Bench):
    """Its observer is asked for the fields."""

    def look(self) -> Snapshot:
        self.node.sandbox.advance(1.0)
        return super().look()

    def content(self) -> dict[str, bytes | None]:
        supported = self.host.cgroups.supported(FIELDS)
        return {field: self.host.cgroups.read_present(BE, field) for field in supported}


@pytest.fixture(params=[V1, V2], ids=["v1", "v2"])
def bench(request: pytest.FixtureRequest, emulate: Make) -> Any:
    node = emulate(request.param)
    with node.journal() as journal:
        yield Bench(node, journal, needs_of=asked)


def test_only_what_is_asked_for_and_there_is_in_the_picture(bench: Bench) -> None:
    values = bench.look().cgroups[BE].values
    assert set(values) == set(bench.host.cgroups.supported(FIELDS))
    assert {"cpu.shares", "cpu.burst"} <= set(values)
    plain = Observer(bench.host, bench.node.cluster, tasks_seconds=1.0).observe()
    assert plain.cgroups[BE].values == {}


def test_the_bytes_found_come_back(bench: Bench) -> None:
    before = bench.content()
    changes = [
        CgroupChange(BE, "cpu.quota", 200_000),
        CgroupChange(BE, "cpu.burst", 50_000),
        CgroupChange(BE, "cpu.shares", 512),
    ]
    assert all(step.ok for step in bench.take(*changes))
    assert bench.content() != before
    assert all(step.ok for step in restore(bench.host, bench.journal))
    assert (bench.content(), bench.journal.entries) == (before, ())


def test_an_idle_group_gets_the_shares_back_that_it_lost(bench: Bench) -> None:
    bench.host.cgroups.write(BE, "cpu.shares", 512)
    before = bench.content()
    assert all(step.ok for step in bench.take(CgroupChange(BE, "cpu.idle", 1)))
    assert bench.content()["cpu.shares"] != before["cpu.shares"]
    assert all(step.ok for step in restore(bench.host, bench.journal))
    assert bench.content() == before


def test_a_value_that_stands_already_is_not_written(bench: Bench) -> None:
    wanted = CgroupChange(BE, "cpu.shares", 1000)
    assert len(bench.take(wanted)) == 1
    assert bench.take(wanted) == []
    assert bench.applier.foreign_writes(bench.look()) == ()


def test_who_else_writes_a_number_is_told(bench: Bench) -> None:
    bench.take(CgroupChange(BE, "cpu.shares", 1000))
    bench.look()
    bench.host.files.write(bench.host.cgroups.path(BE, "cpu.shares"), b"77")
    assert [str(write.place) for write in bench.applier.foreign_writes(bench.look())] == [f"{BE}/cpu.shares"]


def test_a_value_out_of_range_is_a_refusal_with_the_range(bench: Bench) -> None:
    before = bench.content()
    step = bench.take(CgroupChange(BE, "cpu.burst", -5))[0]
    assert (step.ok, "0 to 100000000" in step.error) == (False, True)
    assert bench.content() == before


def test_a_file_this_kernel_has_not_is_neither_written_nor_noted(bench: Bench) -> None:
    assert bench.host.cgroups.supported(["memory.wmark_ratio"]) == ()
    bench.take(CgroupChange(BE, "memory.wmark_ratio", 5))
    assert bench.journal.entries == ()


def test_a_group_that_is_there_but_lacks_the_file_is_no_group_that_went(bench: Bench) -> None:
    step = cgroup.KIND.put(bench.host, CgroupChange(BE, "memory.wmark_ratio", 5))
    assert (step.ok, step.error.partition(":")[0]) == (False, "ENOENT")
    assert cgroup.KIND.put(bench.host, CgroupChange(f"{BE}/gone", "cpu.shares", 5)).value == GONE
