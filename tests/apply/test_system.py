"""Settings of the whole kernel and numbers of processes: journalled before the write, put back afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from emulated import Emulated

from koordlite import plan
from koordlite.apply import Applier, restore
from koordlite.changes.system import OOMScoreChange, SystemFileChange
from koordlite.host import procfs, system_files
from koordlite.model.picture.groups import RunState
from koordlite.observe import Observer
from koordlite.plan import Plan

Make = Callable[..., Emulated]
NAME, FEATURE = "vm.watermark_scale_factor", "sched_features/START_DEBIT"


def take(node: Emulated, journal: Any, *changes: Any) -> tuple[Any, Applier]:
    host = node.host()
    applier = Applier(host, node.cluster, journal)
    seen = Observer(host, node.cluster, tasks_seconds=1.0).observe(
        lambda *_: RunState(ours=applier.ours, found=applier.originals)
    )
    owners = {change.place: "systemConfig" for change in changes}
    return applier.apply(Plan(plan.order(changes, seen.cgroups), owners=owners), seen), applier


def test_settings_are_written_known_as_found_and_put_back(emulate: Make) -> None:
    node = emulate("small")
    files = node.host().files
    with node.journal() as journal:
        steps, applier = take(node, journal, SystemFileChange(NAME, "99"), SystemFileChange(FEATURE, "NO_START_DEBIT"))
        assert [step.ok for step in steps] == [True, True]
        assert (system_files.read(files, NAME), system_files.read(files, FEATURE)) == ("99", "NO_START_DEBIT")
        assert {str(p): f.value for p, f in applier.originals.items()} == {f"system/{NAME}": 10, f"system/{FEATURE}": 1}
        assert all(step.ok for step in restore(node.host(), journal))
        assert (system_files.read(files, NAME), system_files.read(files, FEATURE)) == ("10", "START_DEBIT")
        assert journal.entries == ()


def test_a_setting_this_kernel_lacks_is_refused_in_the_kernel_s_words(emulate: Make) -> None:
    node = emulate("small")
    with node.journal() as journal:
        (step,), _ = take(node, journal, SystemFileChange("memcg_reaper.reap_background", "1"))
        assert not step.ok and step.error.startswith("ENOENT")
        assert journal.entries == ()


def test_a_value_given_back_is_not_ours_any_more(emulate: Make) -> None:
    node = emulate("small")
    with node.journal() as journal:
        take(node, journal, SystemFileChange(NAME, "99"))
        take(node, journal, SystemFileChange(NAME, "10", gives_back=True))
        assert journal.entries == ()


def test_a_process_gets_its_number_and_its_old_one_back(emulate: Make) -> None:
    node = emulate("small")
    files = node.host().files
    pid = next(int(name[:-1]) for name in files.list("/proc") if name[:-1].isdigit())
    started, before = procfs.start_time(files, pid), system_files.oom_score_adj(files, pid)
    assert started is not None
    with node.journal() as journal:
        steps, _ = take(node, journal, OOMScoreChange(pid, started, 300), OOMScoreChange(pid, started + 1, 5))
        assert [step.value for step in steps] == ["300", "gone meanwhile"]
        assert system_files.oom_score_adj(files, pid) == 300
        restore(node.host(), journal)
        assert system_files.oom_score_adj(files, pid) == before
