"""`explain file`, `explain pod`: the decision behind a file, our last write, and who else wrote it."""

from __future__ import annotations

import json

import msgspec
import pytest
from reported import tick_of

from koordlite import changes
from koordlite.changes.cgroup import CgroupChange
from koordlite.model.cpuset import CPUSet
from koordlite.model.decision import Decision
from koordlite.model.snapshot import Snapshot
from koordlite.model.status import AppliedStep, FileTrouble, ForeignWrite
from koordlite.report.explain.subject import explain
from koordlite.report.history import History, Remembered

BE = "kubepods/besteffort/cpuset.cpus"
POD_FILE = "kubepods/besteffort/podb1/main/cpuset.cpus"
EVIDENCE = {"budget_milli": 3000, "cpuset": "4-6"}
CHANGES = (
    CgroupChange("kubepods/besteffort", "cpuset.cpus", CPUSet.parse("4-6")),
    CgroupChange("kubepods/besteffort/podb1/main", "cpuset.cpus", CPUSet.parse("4-6")),
)
SHRINK = Decision("besteffort", "shrink", "BECPUBudget", EVIDENCE, CHANGES, "cpuSuppress")
HOLD = msgspec.structs.replace(SHRINK, verdict="hold", changes=())


def past(*, foreign_seconds: tuple[float, ...] = (), error: str = "") -> Remembered:
    """A write at second 5, and foreign writes of the same file afterwards."""
    held = History({}, {})
    steps = tuple(AppliedStep(change.place, "4-6", ok=not error, error=error) for change in CHANGES)
    held.add(tick_of(time=5.0, decisions=(SHRINK,), applied=steps))
    for second in foreign_seconds:
        held.add(tick_of(time=second, foreign=(ForeignWrite(changes.parse(BE), "4-6", "0-7"),)))
    return held.remembered()


def test_a_file_is_told_with_its_decision_its_last_write_and_the_cause() -> None:
    said = explain("file /sys/fs/cgroup/kubepods/besteffort/cpuset.cpus", tick_of(time=9.0, decisions=(HOLD,)), past())
    assert said.startswith(f"{BE}\n  at present: besteffort: hold, BECPUBudget")
    assert "last write at 0:05: 4-6" in said
    assert "because of besteffort: shrink, BECPUBudget" in said


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        pytest.param((10.0,), "changed by someone else once, the last time at 0:10: 0-7 where ours was 4-6", id="once"),
        pytest.param(
            (60.0, 120.0, 181.0), "3 times, the last time at 3:01: 0-7 where ours was 4-6, about 60 s", id="often"
        ),
        pytest.param((60.0, 120.0, 181.0), "kubelet sets up its QoS groups", id="each minute: kubelet's QoS groups"),
        pytest.param((10.0, 20.0, 30.0), "kubelet's CPU manager", id="each ten seconds: its CPU manager"),
    ],
)
def test_who_else_wrote_a_file_is_told_by_its_rhythm(seconds: tuple[float, ...], words: str) -> None:
    assert words in explain("file besteffort/cpuset.cpus", tick_of(time=200.0), past(foreign_seconds=seconds))


def test_another_rhythm_is_nobody_s() -> None:
    said = explain("file besteffort/cpuset.cpus", tick_of(time=200.0), past(foreign_seconds=(30.0, 60.0, 90.0)))
    assert "about 30 s apart" in said
    assert "kubelet" not in said


def test_a_refusal_has_the_kernel_s_words_and_how_long_we_keep_off() -> None:
    trouble = FileTrouble(changes.parse(BE), 3, "EBUSY: device or resource busy", 0, 12.0)
    said = explain("file besteffort/cpuset.cpus", tick_of(time=9.0, troubles=(trouble,)), past(error="EBUSY: busy"))
    assert "refused: EBUSY: busy" in said
    assert "refused 3 times, last EBUSY: device or resource busy" in said
    assert "next correction in 12 s" in said


def test_a_file_that_is_not_ours_is_somebody_else_s() -> None:
    said = explain("file /sys/fs/cgroup/kubepods/cpu.max", tick_of(time=9.0), past())
    assert "another program changed it" in said
    assert BE in said, "what it has to do with is listed"


def test_a_pod_s_file_may_be_named_by_the_pod(picture: Snapshot) -> None:
    tick = tick_of(time=9.0, decisions=(HOLD,), snapshot=picture)
    assert explain("file crunch/cpuset.cpus", tick, past()).startswith(f"{POD_FILE}  (pod lab/crunch)")


def test_a_pod_is_told_with_its_files(picture: Snapshot) -> None:
    said = explain("pod crunch", tick_of(time=9.0, decisions=(HOLD,), snapshot=picture), past())
    assert f"its files:\n  {POD_FILE}\n      last write at 0:05: 4-6" in said
    assert BE not in said.partition("its files:")[2]


def test_json_has_the_same(picture: Snapshot) -> None:
    tick = tick_of(time=9.0, decisions=(HOLD,), snapshot=picture)
    seconds = (60.0, 120.0, 180.0)
    found = json.loads(explain("file cpuset.cpus", tick, past(foreign_seconds=seconds), output="json"))
    assert found["kind"] == "koordlite-file"
    first, second = found["files"]
    assert (first["place"], first["changedByOthers"]["secondsApart"]) == (BE, 60.0), "what is disputed comes first"
    assert (second["pod"], second["lastWrite"]["cause"]["reason"]) == ("lab/crunch", "BECPUBudget")


@pytest.mark.parametrize("subject", ["file", "pod", "cpu"])
def test_a_kind_without_a_name_says_what_is_missing(subject: str) -> None:
    with pytest.raises(ValueError, match=r"name a (file|pod)|there is no CPU"):
        explain(subject, tick_of(time=1.0))
