"""What groups have of disks: written line by line, known as ours, and put back; and shares of a group found idle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import applierbench
import pytest
from emulated import Emulated

from koordlite.agent import Agent
from koordlite.apply import restore
from koordlite.apply.restore import undo_list
from koordlite.changes.block_device import BlockChange
from koordlite.changes.cgroup import CgroupChange
from koordlite.host import block as block_files
from koordlite.model.picture.blocks import ROOT, BlockField

Make = Callable[..., Emulated]
V1, V2 = "anolis", "arm"
DISK, OTHER = "254:0", "254:16"
TARGETS = "enable=1 ctrl=user rpct=95 rlat=2000 wpct=95 wlat=3000"


class Bench(applierbench.Bench):
    """With one group of kubelet's."""

    @property
    def group(self) -> str:
        return self.host.cgroups.layout.besteffort

    def held(self, field: BlockField, group: str | None = None) -> dict[str, str] | None:
        where = self.group if group is None else group
        return block_files.read(self.host.files, self.host.cgroups, where, field)

    def disk(self, field: BlockField, value: str | None, group: str | None = None, **more: Any) -> BlockChange:
        return BlockChange(self.group if group is None else group, DISK, field, value, **more)


@pytest.fixture(params=[V1, V2], ids=["v1", "v2"])
def bench(request: pytest.FixtureRequest, emulate: Make) -> Any:
    node = emulate(request.param)
    with node.journal() as journal:
        yield Bench(node, journal)


def test_each_limit_is_a_value_of_its_own_and_all_come_back(bench: Bench) -> None:
    files, cgroups = bench.host.files, bench.host.cgroups
    block_files.write(files, cgroups, bench.group, "io.read_bps", (DISK, "777"))
    block_files.write(files, cgroups, bench.group, "io.read_bps", (OTHER, "888"))
    block_files.write(files, cgroups, ROOT, "io.cost.qos", (DISK, "enable=1"))
    steps = bench.take(
        bench.disk("io.read_bps", "1000"), bench.disk("io.write_iops", "50"), bench.disk("io.weight", "60")
    )
    assert [step.error for step in steps] == ["", "", ""]
    assert bench.held("io.read_bps") == {DISK: "1000", OTHER: "888"}
    assert (bench.held("io.write_iops") or {})[DISK] == "50"
    assert [found for _, _, found in undo_list(bench.host, bench.journal.entries)] == ["777", "max", "default"]
    assert all(step.ok for step in restore(bench.host, bench.journal))
    assert bench.held("io.read_bps") == {DISK: "777", OTHER: "888"}
    assert (bench.held("io.write_iops") or {}).get(DISK, "max") == "max"
    assert (bench.held("io.weight") or {}).get(DISK, "100") == "100"
    assert bench.journal.entries == ()


def test_targets_and_model_of_the_machine_go_back_to_the_kernel_s_own(bench: Bench) -> None:
    model = "ctrl=user rbps=5 rseqiops=5 rrandiops=5 wbps=5 wseqiops=5 wrandiops=5"
    bench.take(bench.disk("io.cost.model", model, ROOT), bench.disk("io.cost.qos", TARGETS, ROOT))
    assert TARGETS in (bench.held("io.cost.qos", ROOT) or {})[DISK]
    assert all(step.ok for step in restore(bench.host, bench.journal))
    assert (bench.held("io.cost.qos", ROOT) or {})[DISK].startswith("enable=0")
    assert (bench.held("io.cost.model", ROOT) or {})[DISK] == "ctrl=auto"


def test_what_is_given_back_is_what_was_found_and_not_ours_any_more(bench: Bench) -> None:
    block_files.write(bench.host.files, bench.host.cgroups, bench.group, "io.read_bps", (DISK, "777"))
    bench.take(bench.disk("io.read_bps", "1000"))
    assert set(map(str, bench.applier.ours)) == {f"io:{bench.group}/{DISK}/io.read_bps"}
    bench.take(bench.disk("io.read_bps", None, gives_back=True))
    assert bench.held("io.read_bps") == {DISK: "777"}
    assert bench.applier.ours == frozenset()


def test_a_refusal_keeps_the_kernel_s_words(bench: Bench) -> None:
    (step,) = bench.take(BlockChange(bench.group, "9:9", "io.read_bps", "1000"))
    assert (step.ok, step.error[:6]) == (False, "ENODEV")


def test_a_group_that_vanished_is_no_error_and_leaves_the_journal(bench: Bench) -> None:
    gone = f"{bench.group}/gone"
    bench.node.sandbox.cgroups.make(gone)
    bench.take(bench.disk("io.read_bps", "1000", gone))
    bench.node.sandbox.cgroups.remove(gone)
    assert [step.ok for step in bench.take(bench.disk("io.read_bps", "2000", gone))] == [True]
    bench.take(bench.disk("io.read_bps", "1000"))
    assert set(map(str, bench.applier.ours)) == {f"io:{bench.group}/{DISK}/io.read_bps"}


def test_a_group_that_was_found_idle_is_idle_again(bench: Bench) -> None:
    cgroups = bench.host.cgroups
    cgroups.write(bench.group, "cpu.idle", 1)
    before = cgroups.read_raw(bench.group, "cpu.idle"), cgroups.read_raw(bench.group, "cpu.shares")
    wakes = (CgroupChange(bench.group, "cpu.idle", 0), CgroupChange(bench.group, "cpu.shares", 512))
    assert all(step.ok for step in bench.take(*wakes))
    assert [step.error for step in restore(bench.host, bench.journal)] == ["", ""]
    assert (cgroups.read_raw(bench.group, "cpu.idle"), cgroups.read_raw(bench.group, "cpu.shares")) == before


def test_a_weight_is_written_after_the_line_that_lets_the_kernel_weigh(bench: Bench) -> None:
    steps = bench.take(bench.disk("io.weight", "60"), bench.disk("io.cost.qos", TARGETS, ROOT))
    assert [step.error for step in steps] == ["", ""]
    assert all(step.ok for step in restore(bench.host, bench.journal))


def test_who_else_writes_a_line_is_told_and_then_left_alone_for_longer_and_longer(bench: Bench) -> None:
    """Somebody takes our limit off every second."""
    qos = {"beClass": {"blkioQOS": {"enable": True, "blocks": [READER]}}}
    bench.node.raw_slo({"resource-qos-config": {"clusterStrategy": qos}})
    bench.node.sandbox.advance(5.0)  # The folder is looked at anew.
    agent = Agent(bench.host, bench.node.cluster, bench.node.settings(), bench.journal)
    corrected = []
    for _ in range(20):
        tick = agent.tick()
        corrected.append(any(str(step.place).startswith("io:") for step in tick.applied))
        block_files.write(bench.host.files, bench.host.cgroups, bench.group, "io.read_bps", (DISK, "5"))
        bench.node.sandbox.advance(1.0)
    assert corrected[0]
    assert 3 <= sum(corrected) <= 6


READER = {"name": "vda", "type": "device", "ioCfg": {"readBPS": 1000}}
