"""Files that hold no value at the very moment they are asked: told, not written, and nothing else waits for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import applierbench
import pytest
from emulated import BOOT, Emulated
from hooked_files import HookedFiles, unchanged

from koordlite import plan
from koordlite.apply import restore
from koordlite.changes.cgroup import CgroupChange
from koordlite.changes.system import SystemFileChange
from koordlite.host.journal import journal
from koordlite.host.journal.journal import FileEntry, Journal
from koordlite.model.change import Change
from koordlite.model.cpuset import CPUSet
from koordlite.model.status import AppliedStep
from koordlite.plan import Plan

Make = Callable[..., Emulated]
BE = "kubepods/besteffort"
NAME = "vm.watermark_scale_factor"


def garbled_at(end: str) -> Callable[[str, bytes], bytes]:
    """Files that end so hold no value."""
    return lambda path, content: b"garbage\n" if path.endswith(end) else content


class Bench(applierbench.Bench):
    """Files can be garbled between its look and its writes."""

    def __init__(self, node: Emulated, held: Journal) -> None:
        self.files = HookedFiles(node.sandbox.files)
        super().__init__(node, held, self.files)

    def take(self, *changes: Change, owner: str = "cpusetPools", garbled: str = "") -> list[AppliedStep]:
        seen = self.look()
        self.files.content = garbled_at(garbled) if garbled else unchanged
        owners = {change.place: owner for change in changes}
        return list(self.applier.apply(Plan(plan.order(changes, seen.cgroups), owners=owners), seen))


@pytest.fixture
def bench(emulate: Make) -> Iterator[Bench]:
    node = emulate("small")
    node.pod("crunch", "BE", "greedy")
    with node.journal() as held:
        yield Bench(node, held)


@pytest.mark.parametrize(
    ("change", "garbled"),
    [
        pytest.param(CgroupChange(BE, "cpu.quota", 50_000), "besteffort/cpu.cfs_quota_us", id="a quota"),
        pytest.param(CgroupChange(BE, "cpuset.cpus", CPUSet([1])), "besteffort/cpuset.cpus", id="a set"),
        pytest.param(SystemFileChange(NAME, "99"), "watermark_scale_factor", id="a setting of the kernel"),
    ],
)
def test_what_could_not_be_put_back_is_not_written(bench: Bench, change: Change, garbled: str) -> None:
    (step,) = bench.take(change, garbled=garbled)
    assert not step.ok
    assert "garbage" in step.error
    assert change.place not in bench.applier.ours
    bench.files.content = unchanged
    assert change.place not in bench.applier.originals, "and what is noted can be understood"


def test_a_copy_that_cannot_be_read_does_not_stop_the_rest(bench: Bench) -> None:
    bench.take(CgroupChange(BE, "cpuset.cpus", CPUSet([0, 1])))
    steps = bench.take(CgroupChange(BE, "cpuset.cpus", CPUSet([1])), garbled="poduid-crunch/cpuset.cpus")
    assert [str(step.place) for step in steps] == [f"{BE}/cpuset.cpus"] * len(steps)


@pytest.mark.parametrize("garbled", ["besteffort/cpuset.cpus", "poduid-crunch/cpuset.cpus"], ids=["its own", "below"])
def test_a_group_that_cannot_be_understood_keeps_no_other_from_being_put_back(emulate: Make, garbled: str) -> None:
    node = emulate("small")
    node.pod("crunch", "BE", "greedy")
    with node.journal() as held:
        bench = Bench(node, held)
        bench.take(
            CgroupChange(BE, "cpuset.cpus", CPUSet([0, 1])), CgroupChange("kubepods/burstable", "cpu.quota", 50_000)
        )
        bench.files.content = garbled_at(garbled)
        done = {str(step.place): step for step in restore(bench.host, held)}
        assert done["kubepods/burstable/cpu.quota"].ok
        assert "kubepods/burstable/cpu.quota" not in map(str, held.places)


def test_an_entry_that_cannot_be_understood_is_told_and_stays(emulate: Make) -> None:
    node = emulate("small")
    with node.journal() as held:
        bench = Bench(node, held)
        bench.take(CgroupChange(BE, "cpu.quota", 50_000), CgroupChange(BE, "cpu.shares", 5))
        path = bench.host.cgroups.path(BE, "cpu.quota")
        bad = FileEntry.of(path=path, group=BE, field="cpu.quota", raw=b"garbage\n", found_at=0.0, strategy="x")
        held.forget({bad.place})
        held.record([bad])
        done = {str(step.place): step for step in restore(bench.host, held)}
        assert (done[str(bad.place)].ok, done[f"{BE}/cpu.shares"].ok) == (False, True)
        assert "garbage" in done[str(bad.place)].error
        assert [str(entry.place) for entry in journal.read(node.state, boot_id=BOOT)] == [str(bad.place)]
