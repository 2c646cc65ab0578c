"""Others work on the same resctrl: they mount it anew, have groups in our mount, and monitor threads that we move."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from typing import Any

import pytest
from hooked_files import HookedFiles
from resctrlnode import ROOT, EmulatedMounts, Node

from koordlite.host.journal.journal import Journal
from koordlite.lab.resctrl.filesystem import EmulatedResctrl

OWN = "koordlet-uid-crunch"
HALF_CACHE = {"llc": {"schemata": {"range": [0, 50]}}}
SOME_BANDWIDTH = {"mb": {"schemata": {"percent": 40}}}


def emulation(node: Node) -> EmulatedResctrl:
    assert node.emulated.sandbox.resctrl
    return node.emulated.sandbox.resctrl


def enter(node: Node, group: str, tid: int) -> None:
    """Somebody moves a thread."""
    node.files.write(f"{ROOT}/{group}/tasks", b"%d\n" % tid)


def homes(node: Node) -> list[bytes]:
    return [node.files.read(f"/proc/{tid}/cpu_resctrl_groups") for tid in node.tids]


# ── mounts ──


@pytest.mark.parametrize("theirs", ["theirs", "mon_groups/theirs"], ids=["a control group", "a monitoring group"])
def test_a_mount_of_ours_in_which_others_have(make: Callable[..., Node], journal: Journal, theirs: str) -> None:
    node = make(resctrl=None)
    node.classes("beClass")
    agent = node.run(2, journal)
    node.files.mkdir(f"{ROOT}/{theirs}")
    (step,) = [step for step in agent.put_back() if str(step.place) == "resctrl mount"]
    assert step.ok
    assert "theirs" in step.value
    assert f"{theirs.rpartition('/')[2]}/" in node.files.list(f"{ROOT}/{theirs}".rpartition("/")[0])
    assert (node.groups() - {"theirs"}, journal.entries) == (set(), ())


def test_a_mount_that_the_kernel_refused_is_not_unmounted_when_others_mount_later(
    make: Callable[..., Node], journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = make(resctrl=None)
    node.classes("beClass")
    with monkeypatch.context() as context:
        context.setattr(EmulatedMounts, "mount", refuse)
        agent = node.run(1, journal)
    assert "resctrl mount" not in map(str, journal.places)
    emulation(node).mount()
    agent.put_back()
    assert emulation(node).mounted


def refuse(_mounts: Any, point: str, _options: str = "") -> None:
    raise OSError(errno.EBUSY, "Device or resource busy", point)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [("", "mba_MBps", 2**32 - 1), ("mba_MBps", "", 50)],
    ids=["50 % is never written as 50 MB/s", "what could not be told in MB/s is told in percent"],
)
def test_mounted_anew_with_another_unit(
    make: Callable[..., Node], journal: Journal, before: str, after: str, expected: int
) -> None:
    node = make(resctrl=before)
    node.classes("beClass")
    agent = node.run(2, journal)
    emulation(node).umount()
    emulation(node).mount(after)
    node.run(1, journal, agent)
    assert node.schemata("BE") == {"L3": {0: 0xF, 1: 0xF}, "MB": {0: expected, 1: expected}}


# ── threads ──


def test_threads_go_back_into_monitoring_groups_of_others(make: Callable[..., Node], journal: Journal) -> None:
    node = make()
    for group in ("mon_groups/all", "theirs", "theirs/mon_groups/web"):
        node.files.mkdir(f"{ROOT}/{group}")
    enter(node, "mon_groups/all", node.tids[0])
    for group in ("theirs", "theirs/mon_groups/web"):
        enter(node, group, node.tids[1])
    found = homes(node)
    node.classes("beClass")
    agent = node.run(2, journal)
    assert node.tasks("BE") == set(node.tids)
    born = node.clone(node.tids[1])
    agent.put_back()
    assert homes(node) == found
    assert node.tasks("theirs/mon_groups/web") == {node.tids[1], born}


def test_threads_whose_group_others_removed_are_where_the_kernel_would_have_put_them(
    make: Callable[..., Node], journal: Journal
) -> None:
    node = make()
    for group in ("theirs", "BE"):
        node.files.mkdir(f"{ROOT}/{group}")
    enter(node, "theirs", node.tids[0])
    node.classes("beClass")
    agent = node.run(2, journal)
    born = node.clone(node.tids[0])
    node.files.rmdir(f"{ROOT}/theirs")
    agent.put_back()
    assert node.tasks("BE") == set()
    assert {*node.tids, born} <= node.tasks("")


def test_our_group_taken_away_while_we_run_is_there_again_with_its_threads(
    make: Callable[..., Node], journal: Journal
) -> None:
    node = make()
    node.classes("beClass")
    agent = node.run(2, journal)
    node.files.rmdir(f"{ROOT}/BE")
    node.run(4, journal, agent)
    assert (node.schemata("BE")["L3"], node.tasks("BE")) == ({0: 0xF, 1: 0xF}, set(node.tids))


# ── a wish that asks for less ──


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (HALF_CACHE, {"L3": {0: 0x3F, 1: 0x3F}, "MB": {0: 100, 1: 100}}),
        (SOME_BANDWIDTH, {"L3": {0: 0xFFF, 1: 0xFFF}, "MB": {0: 40, 1: 40}}),
        (
            {"mb": {"schemataPerCache": [{"cacheID": 1, "percent": 20}]}},
            {"L3": {0: 0xFFF, 1: 0xFFF}, "MB": {0: 100, 1: 20}},
        ),
    ],
    ids=["no bandwidth", "no cache", "one cache only"],
)
def test_what_a_pod_asks_for_no_more_is_not_kept_from_it(
    make: Callable[..., Node], journal: Journal, after: Any, expected: dict[str, dict[int, int]]
) -> None:
    node = make()
    node.classes()
    node.wish(json.dumps({**HALF_CACHE, **SOME_BANDWIDTH}))
    agent = node.run(2, journal)
    node.wish(json.dumps(after))
    node.run(2, journal, agent)
    assert node.schemata(OWN) == expected


def test_values_of_a_group_that_others_made_stay_where_the_pod_asks_for_nothing(
    make: Callable[..., Node], journal: Journal
) -> None:
    node = make()
    node.files.mkdir(f"{ROOT}/{OWN}")
    node.files.write(f"{ROOT}/{OWN}/schemata", b"MB:0=70;1=70\n")
    node.classes()
    node.wish(json.dumps(HALF_CACHE))
    node.run(3, journal)
    assert node.schemata(OWN) == {"L3": {0: 0x3F, 1: 0x3F}, "MB": {0: 70, 1: 70}}


def test_ways_that_may_be_somebodys_alone_are_not_reached_for(make: Callable[..., Node], journal: Journal) -> None:
    node = make()
    node.files.write(f"{ROOT}/schemata", b"L3:0=ff;1=ff\n")
    node.files.mkdir(f"{ROOT}/theirs")
    node.files.write(f"{ROOT}/theirs/schemata", b"L3:0=f00;1=f00\n")
    node.files.write(f"{ROOT}/theirs/mode", b"exclusive\n")
    node.classes()
    node.wish(json.dumps(SOME_BANDWIDTH))
    written: list[str] = []
    node.run(3, journal, node.agent(journal, HookedFiles(node.files, lambda _, path: written.append(path))))
    assert node.schemata(OWN) == {"L3": {0: 0xFF, 1: 0xFF}, "MB": {0: 40, 1: 40}}
    assert written.count(f"{ROOT}/{OWN}/schemata") == 1
