"""resctrl as the whole agent changes it, and as it is found again afterwards."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable

import pytest
from hooked_files import HookedFiles, refusing
from resctrlnode import ROOT, EmulatedMounts, Node

from koordlite.apply.kinds import resctrl as resctrl_kinds
from koordlite.changes.resctrl import ThreadEntry
from koordlite.host import bundle, procfs
from koordlite.host.journal.journal import Journal

# ── mounting ──


def test_it_is_mounted_when_somebody_asks_and_unmounted_when_all_is_put_back(
    make: Callable[..., Node], journal: Journal
) -> None:
    node = make(resctrl=None)
    node.classes("beClass")
    assert node.files.list(ROOT) == []
    agent = node.run(3, journal)
    assert node.groups() == {"BE"}
    assert node.tasks("BE") == set(node.tids)
    agent.put_back()
    assert (node.files.list(ROOT), journal.entries) == ([], ())


@pytest.mark.parametrize(("mode", "is_mounted"), [("enforce", True), ("observe", False)])
def test_a_mount_of_a_killed_run_stays_while_the_next_enforces_resctrl_and_goes_otherwise(
    make: Callable[..., Node], journal: Journal, mode: str, is_mounted: bool
) -> None:
    node = make(resctrl=None)
    node.classes("beClass")
    node.run(2, journal)
    agent = node.agent(journal, mode=mode)
    assert all(step.ok for step in agent.take_over())
    assert bool(node.files.list(ROOT)) is is_mounted
    agent.put_back()
    assert (node.files.list(ROOT), journal.entries) == ([], ())


def test_the_library_mounts_with_options(make: Callable[..., Node]) -> None:
    node = make(resctrl=None)
    driver = bundle.resctrl(node.files, EmulatedMounts(node.emulated))
    with pytest.raises(OSError, match="Invalid argument"):
        driver.mount("nonsense")
    driver.mount("cdp", "mba_MBps")
    found = driver.read()
    assert set(found.caches) == {"L3CODE", "L3DATA"}
    assert found.bandwidths["MB"].mbps
    with pytest.raises(OSError, match="busy"):
        driver.mount()


def test_a_mount_in_use_stays_in_the_journal(make: Callable[..., Node], journal: Journal) -> None:
    node = make(resctrl=None)
    node.classes("beClass")
    agent = node.run(2, journal)
    assert node.emulated.sandbox.resctrl
    node.emulated.sandbox.resctrl.users = 1
    refused = [step for step in agent.put_back() if not step.ok]
    assert ["EBUSY" in step.error for step in refused] == [True]
    assert set(map(str, journal.places)) == {"resctrl mount"}
    node.emulated.sandbox.resctrl.users = 0
    agent.put_back()
    assert (node.files.list(ROOT), journal.entries) == ([], ())


# ── giving back ──


def test_a_class_that_is_switched_off_gives_its_group_back(make: Callable[..., Node], journal: Journal) -> None:
    node = make()
    node.classes("beClass")
    agent = node.run(2, journal)
    assert node.tasks("BE") == set(node.tids)
    node.classes()
    node.run(2, journal, agent)
    assert node.groups() == set()
    assert not any(place.kind.is_resctrl for place in journal.places)


def test_a_group_that_was_there_gets_its_values_and_loses_our_threads(
    make: Callable[..., Node], journal: Journal
) -> None:
    node = make()
    node.files.mkdir(f"{ROOT}/BE")
    node.files.write(f"{ROOT}/BE/schemata", b"L3:0=ff0;1=ff0\nMB:0=70;1=70\n")
    node.classes("beClass")
    agent = node.run(2, journal)
    assert node.schemata("BE")["L3"] == {0: 0xF, 1: 0xF}
    born = [node.clone(tid) for tid in node.tids[:2]]
    node.classes()
    node.run(2, journal, agent)
    assert node.schemata("BE") == {"L3": {0: 0xFF0, 1: 0xFF0}, "MB": {0: 70, 1: 70}}
    assert {*node.tids, *born} <= node.tasks("")


def test_a_group_that_somebody_makes_in_the_moment_before_us_stays_his(
    make: Callable[..., Node], journal: Journal
) -> None:
    node = make()

    def make_it_first(call: str, path: str) -> None:
        if call == "mkdir" and path == f"{ROOT}/BE":
            node.files.mkdir(path)
            node.files.write(f"{path}/schemata", b"L3:0=ff0;1=ff0\n")

    node.classes("beClass")
    agent = node.agent(journal, HookedFiles(node.files, make_it_first))
    node.run(1, journal, agent)
    assert node.schemata("BE")["L3"] == {0: 0xFF0, 1: 0xFF0}, "nobody noted these values, so they are not written over"
    node.run(1, journal, agent)
    assert node.schemata("BE")["L3"] == {0: 0xF, 1: 0xF}
    agent.put_back()
    assert node.schemata("BE")["L3"] == {0: 0xFF0, 1: 0xFF0}
    assert node.tasks("BE") == set()


def test_threads_of_somebody_elses_group_go_back_there_and_take_their_kin_with_them(
    make: Callable[..., Node], journal: Journal
) -> None:
    node = make()
    node.files.mkdir(f"{ROOT}/theirs")
    theirs = node.tids[:3]
    for tid in theirs:
        node.files.write(f"{ROOT}/theirs/tasks", b"%d\n" % tid)
    node.classes("beClass")
    agent = node.run(2, journal)
    assert node.tasks("BE") == set(node.tids)
    born = node.clone(theirs[0])
    assert born in node.tasks("BE")
    agent.put_back()
    assert node.tasks("theirs") == {*theirs, born}
    assert node.groups() == {"theirs"}


def test_a_kernel_that_does_not_tell_a_threads_group_is_asked_group_by_group(
    make: Callable[..., Node], journal: Journal
) -> None:
    node = make()
    node.files.mkdir(f"{ROOT}/theirs")
    node.files.write(f"{ROOT}/theirs/tasks", b"%d\n" % node.tids[0])
    node.classes("beClass")
    agent = node.agent(journal, HookedFiles(node.files, look=refusing("/cpu_resctrl_groups", errno.ENOENT)))
    node.run(2, journal, agent)
    assert node.tasks("BE") == set(node.tids)
    agent.put_back()
    assert node.tasks("theirs") == {node.tids[0]}


def test_a_thread_that_somebody_moved_on_stays_with_him(make: Callable[..., Node], journal: Journal) -> None:
    node = make()
    for name in ("theirs", "later"):
        node.files.mkdir(f"{ROOT}/{name}")
    node.files.write(f"{ROOT}/theirs/tasks", b"%d\n" % node.tids[0])
    node.classes("beClass")
    agent = node.run(1, journal)
    node.files.write(f"{ROOT}/later/tasks", b"%d\n" % node.tids[0])
    agent.put_back()
    assert (node.tasks("later"), node.tasks("theirs")) == ({node.tids[0]}, set())


# ── threads ──


def test_a_thread_id_that_is_anothers_by_now_is_left_alone(make: Callable[..., Node]) -> None:
    node = make()
    for group in ("theirs", "BE"):
        node.files.mkdir(f"{ROOT}/{group}")
    tid, other = node.tids[:2]
    for each in (tid, other):
        node.files.write(f"{ROOT}/BE/tasks", b"%d\n" % each)
    started = procfs.start_time(node.files, tid)
    assert started is not None
    noted = [
        ThreadEntry(tid=each, start_time=began, group="theirs", into="BE")
        for each, began in ((tid, started), (other, started + 7))
    ]
    resctrl_kinds.undo_all(node.host, noted)
    assert (node.tasks("theirs") & {tid, other}, node.tasks("BE") & {tid, other}) == ({tid}, {other})


def test_threads_born_while_the_others_are_moved_follow_in_the_same_tick(
    make: Callable[..., Node], journal: Journal
) -> None:
    node = make()
    node.classes("beClass")
    born: list[int] = []

    def bear(call: str, path: str) -> None:
        # The last thread is still in the root group when the first ones move: its children begin there.
        if path == f"{ROOT}/BE/tasks" and len(born) < 9:
            born.append(node.clone(node.tids[-1]))

    node.run(1, journal, node.agent(journal, HookedFiles(node.files, bear)))
    assert node.tasks("BE") == {*node.tids, *born}


def test_a_pod_that_starts_between_two_looks_at_all_threads_follows_within_a_tick(
    make: Callable[..., Node], journal: Journal
) -> None:
    node = make()
    node.classes("beClass")
    agent = node.run(1, journal)
    node.emulated.pod("late", "BE", "100m")
    node.run(1, journal, agent)
    assert set(node.threads("late")) <= node.tasks("BE")


# ── pods ──


def test_a_pods_own_group_comes_changes_and_goes_with_its_annotation(
    make: Callable[..., Node], journal: Journal
) -> None:
    node = make()
    node.classes("beClass")
    node.wish(json.dumps({"llc": {"schemata": {"range": [0, 50]}}}))
    agent = node.run(2, journal, node.agent(journal, pods_beyond_class=True))
    own = "koordlet-uid-crunch"
    assert node.schemata(own)["L3"] == {0: 0x3F, 1: 0x3F}
    assert node.tasks(own) == set(node.tids)
    node.wish(json.dumps({"llc": {"schemata": {"range": [50, 100]}}, "mb": {"schemata": {"percent": 40}}}))
    node.run(2, journal, agent)
    assert node.schemata(own) == {"L3": {0: 0xFC0, 1: 0xFC0}, "MB": {0: 40, 1: 40}}
    node.wish(None)
    node.run(2, journal, agent)
    assert node.groups() == {"BE"}
    assert node.tasks("BE") == set(node.tids)


def test_a_pods_group_goes_with_the_pod(make: Callable[..., Node], journal: Journal) -> None:
    node = make()
    node.classes()
    node.wish(json.dumps({"mb": {"schemata": {"percent": 40}}}))
    agent = node.run(2, journal)
    assert node.groups() == {"koordlet-uid-crunch"}
    node.emulated.remove("crunch")
    node.run(2, journal, agent)
    assert node.groups() == set()
    assert not any(place.kind.is_resctrl for place in journal.places)


def test_steady_state_writes_nothing(make: Callable[..., Node], journal: Journal) -> None:
    node = make()
    agent = node.run(2, journal)
    written = [str(step.place) for tick in node.emulated.ticks(agent, 8) for step in tick.applied]
    assert [place for place in written if place.startswith("resctrl/")] == []


def test_values_come_back_after_a_caches_cpus_were_away(make: Callable[..., Node], journal: Journal) -> None:
    node = make()
    node.classes("beClass")
    agent = node.run(2, journal)
    resctrl = node.emulated.sandbox.resctrl
    assert resctrl
    second = [cpu.id for cpu in node.emulated.sandbox.machine.cpus if cpu.l3 == 1]
    for cpu in second:
        resctrl.offline(cpu)
    node.run(2, journal, agent)
    assert node.schemata("BE")["L3"] == {0: 0xF}
    for cpu in second:
        resctrl.online(cpu)
    assert node.schemata("BE")["L3"] == {0: 0xF, 1: 0xFFF}
    node.run(2, journal, agent)
    assert node.schemata("BE")["L3"] == {0: 0xF, 1: 0xF}


# ── monitoring groups, and what is required ──


def test_pods_are_measured_in_monitoring_groups_that_go_with_the_option(
    make: Callable[..., Node], journal: Journal
) -> None:
    node = make()
    node.classes("beClass")
    agent = node.agent(journal, monitor_pods=True, monitor_seconds=1.0)
    node.run(4, journal, agent)
    monitor = "BE/mon_groups/koordlet-uid-crunch"
    assert node.tasks(monitor) == set(node.tids)
    (tick,) = node.emulated.ticks(agent, 1)
    assert {(row.qos, row.pod) for row in tick.cache_use} == {("BE", ""), ("BE", "crunch")}
    node.run(2, journal, node.agent(journal))
    assert node.host.resctrl.mon_group_names("BE") == []
    assert node.tasks("BE") == set(node.tids)


def test_what_was_measured_is_found_again_as_it_was(make: Callable[..., Node], journal: Journal) -> None:
    node = make()
    node.classes("beClass")
    agent = node.run(4, journal, node.agent(journal, monitor_pods=True))
    agent.put_back()
    assert (node.groups(), journal.entries) == (set(), ())
    assert set(node.tids) <= node.tasks("")


@pytest.mark.parametrize(
    ("section", "status"),
    [({"require": "required", "mount": "never"}, "degraded"), ({"mount": "never"}, "enforcing"), ({}, "enforcing")],
    ids=["required", "automatic", "mounted when it is needed"],
)
def test_a_machine_without_it(
    make: Callable[..., Node], journal: Journal, section: dict[str, str], status: str
) -> None:
    node = make(resctrl=None)
    (tick,) = node.emulated.ticks(node.agent(journal, **section), 1)
    assert tick.status == status
    assert ("resctrl is required" in tick.because) == (status == "degraded")


def test_an_option_that_switches_off_gives_back(make: Callable[..., Node], journal: Journal) -> None:
    node = make()
    node.run(2, journal)
    assert node.groups() == {"BE", "LS", "LSR"}
    node.run(1, journal, node.agent(journal, require="off"))
    assert node.groups() == set()
