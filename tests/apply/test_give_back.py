"""Places that hold again what was found are not ours any more."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import applierbench
import pytest
from emulated import Emulated
from hooked_files import HookedFiles, refusing

from koordlite import changes
from koordlite.changes.cgroup import CgroupChange
from koordlite.changes.published import TopologyChange
from koordlite.model.change import Change
from koordlite.model.cpuset import CPUSet
from koordlite.model.picture.groups import Original, RunState
from koordlite.model.status import AppliedStep

Make = Callable[..., Emulated]
BE = "kubepods/besteffort"
SET, QUOTA = f"{BE}/cpuset.cpus", f"{BE}/cpu.quota"


class Bench(applierbench.Bench):
    def take(self, *changes: Change, owner: str = "cpusetPools") -> list[AppliedStep]:
        return super().take(*changes, owner=owner)


def test_what_was_found_is_in_the_picture_with_its_writer(emulate: Make) -> None:
    with Bench.at(emulate("small")) as bench:
        assert bench.applier.originals == {}
        bench.take(CgroupChange(BE, "cpu.quota", 50_000), CgroupChange(BE, "cpuset.cpus", CPUSet([1])))
        assert bench.applier.originals == {
            changes.parse(QUOTA): Original(-1, "cpusetPools"),
            changes.parse(SET): Original(CPUSet.parse("0-3"), "cpusetPools"),
        }
        assert (
            bench.observer.observe(lambda *_: RunState(found=bench.applier.originals)).found[changes.parse(QUOTA)].value
            == -1
        )


def test_a_place_given_back_leaves_the_journal_and_others_may_write_it(emulate: Make) -> None:
    with Bench.at(emulate("small")) as bench:
        bench.take(CgroupChange(BE, "cpu.quota", 50_000))
        assert changes.parse(QUOTA) in bench.applier.ours
        bench.take(CgroupChange(BE, "cpu.quota", -1, gives_back=True))
        assert (changes.parse(QUOTA) in bench.applier.ours, bench.applier.originals) == (False, {})
        bench.host.cgroups.write(BE, "cpu.quota", 70_000)
        assert bench.foreign() == []


def test_a_place_that_could_not_be_given_back_stays_ours(emulate: Make) -> None:
    node = emulate("small")
    with node.journal() as journal:
        Bench(node, journal).take(CgroupChange(BE, "cpu.quota", 50_000))
        files = HookedFiles(node.sandbox.files, refusing("cpu.cfs_quota_us", errno.EINVAL))
        bench = Bench(node, journal, files)
        (step,) = bench.take(CgroupChange(BE, "cpu.quota", -1, gives_back=True))
        assert not step.ok
        assert changes.parse(QUOTA) in bench.applier.ours


def test_a_group_that_is_gone_is_given_back(emulate: Make) -> None:
    with Bench.at(emulate("small")) as bench:
        group = bench.observer.observe().places["uid-web"].group
        bench.take(CgroupChange(group, "cpu.quota", 90_000))
        bench.node.sandbox.vanish(group)
        bench.take(CgroupChange(group, "cpu.quota", -1, gives_back=True))
        assert changes.parse(f"{group}/cpu.quota") not in bench.applier.ours


def full(*_: object) -> None:
    """A disk without room."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_journal_that_cannot_forget_stops_nothing_else(emulate: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    with Bench.at(emulate("small")) as bench:
        bench.take(CgroupChange(BE, "cpu.quota", 50_000))
        monkeypatch.setattr("koordlite.host.journal.file.store", full)
        note = TopologyChange("key", "text")
        steps = {str(s.place): s for s in bench.take(CgroupChange(BE, "cpu.quota", -1, gives_back=True), note)}
        assert (steps[QUOTA].ok, steps[str(note.place)].ok) == (True, True)
        assert "No space left on device" in steps["journal"].error
        assert set(map(str, bench.journal.places)) == {QUOTA}
        monkeypatch.undo()
        assert [str(step.place) for step in bench.take(CgroupChange(BE, "cpu.quota", -1, gives_back=True))] == [QUOTA]
        assert bench.journal.places == frozenset()
