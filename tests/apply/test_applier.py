"""What is written, in which order, and what becomes of it when the kernel or somebody else has other ideas."""

from __future__ import annotations

import errno
from collections.abc import Callable

import applierbench
import msgspec
import pytest
from emulated import Emulated
from hooked_files import HookedFiles, refusing

from koordlite import apply
from koordlite.apply import Applier
from koordlite.changes.cgroup import CgroupChange
from koordlite.changes.published import NodeResourceChange, TopologyChange
from koordlite.changes.resctrl import SchemataChange
from koordlite.host.journal.journal import FileEntry
from koordlite.model.change import Change
from koordlite.model.cpuset import CPUSet
from koordlite.model.errors import JournalError
from koordlite.model.status import AppliedStep
from koordlite.plan import Plan

Make = Callable[..., Emulated]
BE = "kubepods/besteffort"
SET, QUOTA = f"{BE}/cpuset.cpus", f"{BE}/cpu.quota"
HALF = CgroupChange(BE, "cpu.quota", 50_000)


class Bench(applierbench.Bench):
    """On a node of shape `small`."""

    def last(self, *changes: Change) -> dict[str, AppliedStep]:
        """Apply the changes as one plan; the last step of each place."""
        return {str(step.place): step for step in self.take(*changes)}

    def write(self, group: str, field: str, raw: bytes) -> None:
        """Somebody else writes."""
        self.node.sandbox.files.write(self.host.cgroups.path(group, field), raw)

    def read(self, group: str, field: str) -> bytes:
        return self.host.cgroups.read_raw(group, field)


def entries_on_disk(node: Emulated) -> set[str]:
    path = node.state / "journal.json"
    text = path.read_bytes() if path.exists() else b'{"entries":[]}'
    return {f"{e['group']}/{e['field']}" for e in msgspec.json.decode(text)["entries"] if "field" in e}


# ── the journal comes first ──


def test_every_value_is_on_disk_before_its_first_write(emulate: Make) -> None:
    node = emulate("small")
    missing: list[str] = []

    def before(what: str, path: str) -> None:
        place = path.removeprefix("/sys/fs/cgroup/").partition("/")[2].replace("cpu.cfs_quota_us", "cpu.quota")
        if place not in entries_on_disk(node):
            missing.append(place)

    with node.at_work(files=HookedFiles(node.sandbox.files, before)) as agent:
        ticks = node.ticks(agent, 3)
    assert any(tick.applied for tick in ticks)
    assert missing == []


def test_a_journal_that_cannot_be_written_stops_every_write(emulate: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    node = emulate("small")
    node.host()
    found = node.programmed()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with node.journal() as journal:
        monkeypatch.setattr("koordlite.host.journal.file.store", full)
        bench = Bench(node, journal)
        with pytest.raises(JournalError, match="No space left on device"):
            bench.take(HALF, NodeResourceChange("kubernetes.io/batch-cpu", 1))
        tick = node.agent(journal).tick()
    assert node.changed(found) == []
    assert (tick.status, tick.applied) == ("degraded", ())
    assert "nothing was written" in tick.because


def test_the_first_value_found_is_the_one_kept(emulate: Make) -> None:
    with Bench.at(emulate("small")) as bench:
        bench.take(HALF)
        bench.take(CgroupChange(BE, "cpu.quota", 40_000))
        (entry,) = bench.journal.entries
    assert isinstance(entry, FileEntry)
    assert (str(entry.place), entry.text) == (QUOTA, "-1\n")


def test_what_cannot_be_read_is_not_written_and_the_rest_is(emulate: Make) -> None:
    with Bench.at(emulate("small")) as bench:
        seen = bench.observer.observe()
        path = bench.host.cgroups.path(BE, "cpu.quota")
        bench.node.sandbox.fail(path, errno.EACCES)
        set_change = CgroupChange(BE, "cpuset.cpus", CPUSet.parse("0-3"))
        steps = {str(s.place): s for s in bench.applier.apply(Plan((HALF, set_change)), seen)}
        assert set(map(str, bench.journal.places)) == {SET}
    assert not steps[QUOTA].ok
    assert "EACCES" in steps[QUOTA].error
    assert path in steps[QUOTA].error
    assert steps[SET].ok
    assert bench.read(BE, "cpu.quota") == b"-1\n"


# ── refusals ──


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.EBUSY, errno.EINVAL])
def test_a_refusal_keeps_the_kernels_words_and_does_not_stop_the_rest(emulate: Make, code: int) -> None:
    node = emulate("small")
    with Bench.at(node, HookedFiles(node.sandbox.files, refusing("cpu.cfs_quota_us", code))) as bench:
        steps = bench.last(HALF, NodeResourceChange("kubernetes.io/batch-cpu", 7))
    assert not steps[QUOTA].ok
    assert steps[QUOTA].error.startswith(errno.errorcode[code])
    assert bench.host.cgroups.path(BE, "cpu.quota") in steps[QUOTA].error
    assert steps["node/kubernetes.io/batch-cpu"].ok


def test_resctrls_own_reason_is_kept(emulate: Make) -> None:
    with Bench.at(emulate("intel-2s-ht")) as bench:
        steps = bench.last(SchemataChange("", "MB", {0: 500, 1: 500}))
    assert "out of range" in steps["resctrl//MB"].error


def test_a_group_that_vanished_is_no_error(emulate: Make) -> None:
    with Bench.at(emulate("small")) as bench:
        steps = bench.last(CgroupChange(f"{BE}/podgone", "cpu.quota", 1000))
        assert not bench.journal.entries
    assert steps[f"{BE}/podgone/cpu.quota"].ok
    assert steps[f"{BE}/podgone/cpu.quota"].value == "gone meanwhile"


def test_a_cluster_that_refuses_is_told_and_nothing_counts_as_published(emulate: Make) -> None:
    with Bench.at(emulate("small")) as bench:

        class Unreachable:
            view = bench.node.cluster.view

            def publish(self, changes: object) -> None:
                raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")

        bench.applier = Applier(bench.host, Unreachable(), bench.journal)
        steps = bench.last(NodeResourceChange("kubernetes.io/batch-cpu", 7), TopologyChange("key", "text"), HALF)
    assert {p for p, s in steps.items() if s.ok} == {QUOTA}
    assert "ECONNREFUSED" in steps["noderesourcetopology/key"].error
    assert bench.applier.last_sync == {}


# ── somebody else ──


def test_a_value_that_stays_is_nobodys_write(emulate: Make) -> None:
    with Bench.at(emulate("small")) as bench:
        bench.take(HALF)
        assert bench.foreign() == []


def test_a_foreign_write_is_told_once_and_corrected_at_once(emulate: Make) -> None:
    with Bench.at(emulate("small")) as bench:
        bench.take(HALF)
        bench.write(BE, "cpu.quota", b"-1")
        assert bench.foreign() == [QUOTA]
        assert bench.foreign() == []
        assert QUOTA in bench.last(HALF)
        assert bench.read(BE, "cpu.quota") == b"50000\n"


def test_a_fight_slows_down(emulate: Make) -> None:
    """Every further foreign write within the hour doubles the time before the next correction, up to a minute."""
    node = emulate("small")
    waits = []
    with Bench.at(node) as bench:
        bench.take(HALF)
        for _ in range(9):
            bench.write(BE, "cpu.quota", b"-1")
            assert bench.foreign() == [QUOTA]
            waited = 0
            while QUOTA not in bench.last(HALF):
                node.sandbox.advance(1.0)
                waited += 1
            waits.append(waited)
    assert waits == [0, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_fight_is_forgotten_after_an_hour(emulate: Make) -> None:
    with Bench.at(emulate("small")) as bench:
        for pause in (2.0, 3700.0):
            bench.take(HALF)
            bench.write(BE, "cpu.quota", b"-1")
            bench.node.sandbox.clock.pass_time(round(pause * 1e6) - 1_000_000)  # At once: nothing happens meanwhile.
            assert bench.foreign() == [QUOTA]
        assert QUOTA in bench.last(HALF)


def test_a_group_that_is_gone_is_no_foreign_write(emulate: Make) -> None:
    with Bench.at(emulate("small")) as bench:
        place = next(iter(bench.observer.observe().places.values()))
        bench.take(CgroupChange(place.group, "cpu.quota", 50_000))
        for name in ("web", "pinned", "crunch"):
            bench.node.remove(name)
        assert bench.foreign(2.0) == []


# ── back again ──


def test_undo_list_shows_what_stands_there_and_what_comes_back(emulate: Make) -> None:
    with Bench.at(emulate("small")) as bench:
        bench.take(HALF, CgroupChange(f"{BE}", "cpuset.cpus", CPUSet.parse("0-3")))
        bench.applier.apply(Plan((NodeResourceChange("kubernetes.io/batch-cpu", 5),)), bench.observer.observe())
        listed = apply.undo_list(bench.host, bench.journal.entries)
    assert (QUOTA, "50000", "-1") in listed
    assert ("node/kubernetes.io/batch-cpu", "ours", "(removed)") in listed


def test_what_cannot_be_restored_stays_in_the_journal(emulate: Make) -> None:
    node = emulate("small")
    with node.journal() as journal:
        Bench(node, journal).take(HALF, CgroupChange(BE, "cpuset.cpus", CPUSet.parse("0-3")))
        files = HookedFiles(node.sandbox.files, refusing("cpu.cfs_quota_us", errno.EBUSY))
        steps = {str(s.place): s for s in apply.restore(node.host(files), journal)}
        assert not steps[QUOTA].ok
        assert "EBUSY" in steps[QUOTA].error
        assert set(map(str, journal.places)) == {QUOTA}
        assert all(step.ok for step in apply.restore(node.host(), journal))
        assert not journal.entries


def test_groups_that_are_gone_are_forgotten(emulate: Make) -> None:
    with Bench.at(emulate("small")) as bench:
        place = bench.observer.observe().places["uid-crunch"]
        bench.take(CgroupChange(place.group, "cpu.quota", 50_000))
        bench.node.remove("crunch")
        bench.node.sandbox.advance(2.0)
        bench.node.cluster.view()
        (step,) = apply.restore(bench.host, bench.journal)
        assert (step.ok, step.value) == (True, "gone meanwhile")
        assert not bench.journal.entries


def test_at_a_start_the_nodes_resources_stay(emulate: Make) -> None:
    with Bench.at(emulate("small")) as bench:
        bench.take(NodeResourceChange("kubernetes.io/batch-cpu", 5))
        assert apply.restore(bench.host, bench.journal) == ()
        assert set(map(str, bench.journal.places)) == {"node/kubernetes.io/batch-cpu"}
        (step,) = apply.restore(bench.host, bench.journal, bench.node.cluster)
        assert step.ok
        view = bench.node.cluster.view()
    assert view.node is not None
    assert "kubernetes.io/batch-cpu" not in (view.node.status.allocatable or {})


def test_a_group_that_cannot_be_read_does_not_keep_the_others_from_being_restored(emulate: Make) -> None:
    with Bench.at(emulate("small")) as bench:
        pod = bench.observer.observe().places["uid-crunch"].group
        place = f"{pod}/cpu.quota"
        bench.take(HALF, CgroupChange(pod, "cpu.quota", 40_000))
        path = bench.host.cgroups.path(pod, "cpu.quota")
        bench.node.sandbox.fail(path, errno.EIO)
        steps = {str(step.place): step for step in apply.restore(bench.host, bench.journal)}
        assert steps[QUOTA].ok
        assert (steps[place].ok, steps[place].error) == (False, f"EIO: Input/output error ({path})")
        assert set(map(str, bench.journal.places)) == {place}
    assert bench.read(BE, "cpu.quota") == b"-1\n"
