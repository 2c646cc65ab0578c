"""Counters: what the hardware counts, what the driver shows, and that the workloads let them run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from koordlite.lab import Sandbox
from koordlite.lab.machine.machine import Monitoring
from koordlite.lab.resctrl.filesystem import POINT
from koordlite.lab.resctrl.rmids import Counters
from koordlite.model.wire import objects

MakePod = Callable[..., objects.PodObject]

TOTAL, LOCAL, CACHE = "mbm_total_bytes", "mbm_local_bytes", "llc_occupancy"
PLACE = (0, 5, TOTAL)
UNIT = 64


@pytest.fixture
def counters() -> Counters:
    """Hardware with counters of 8 bits."""
    return Counters(Monitoring(counter_bits=8), UNIT)


def test_bandwidth_counts_from_when_the_group_was_made(counters: Counters) -> None:
    counters.level(PLACE, 100)
    counters.start(0, 5)
    assert counters.bytes(PLACE) == 0
    counters.add(PLACE, 7)
    assert counters.bytes(PLACE) == 7 * UNIT
    counters.start(0, 5)
    assert counters.bytes(PLACE) == 0


def test_a_counter_that_went_back_has_wrapped(counters: Counters) -> None:
    counters.level(PLACE, 250)
    counters.start(0, 5)
    counters.level(PLACE, 4)
    assert counters.bytes(PLACE) == 10 * UNIT
    counters.level(PLACE, 3)
    assert counters.bytes(PLACE) == (10 + 255) * UNIT


def test_occupancy_is_a_level(counters: Counters) -> None:
    place = (0, 5, CACHE)
    counters.level(place, 9)
    counters.start(0, 5)
    assert counters.bytes(place) == 9 * UNIT


@pytest.fixture
def node() -> Sandbox:
    """Group g with monitor group m, their counters of cache 0 at 10 and 20 units."""
    sandbox = Sandbox("intel-2s-ht")
    sandbox.files.mkdir(f"{POINT}/g")
    sandbox.files.mkdir(f"{POINT}/g/mon_groups/m")
    for rmid, count in (number_of(sandbox, "g", ""), 10), (number_of(sandbox, "g", "m"), 20):
        hardware(sandbox).level((0, rmid, CACHE), count)
    return sandbox


def hardware(sandbox: Sandbox) -> Counters:
    assert sandbox.resctrl is not None
    assert sandbox.resctrl.rmids is not None
    return sandbox.resctrl.rmids.counters


def number_of(sandbox: Sandbox, control: str, monitor: str) -> int:
    assert sandbox.resctrl is not None
    group = sandbox.resctrl.groups[control]
    return group.monitors[monitor].rmid if monitor else group.rmid


def shown(sandbox: Sandbox, group: str, event: str = CACHE, cache: int = 0) -> str:
    return sandbox.files.read(f"{POINT}/{group}mon_data/mon_L3_{cache:02}/{event}").decode().strip()


def test_a_control_group_shows_the_sum(node: Sandbox) -> None:
    assert shown(node, "g/mon_groups/m/") == str(20 * 65536)
    assert shown(node, "g/") == str(30 * 65536)


def put(sandbox: Sandbox, uid: str, group: str) -> None:
    for workload in sandbox.kubelet.running[uid].workloads:
        for tid in workload.process.tids:
            sandbox.files.write(f"{POINT}/{group}/tasks", str(tid).encode())


@pytest.fixture
def busy(make_pod: MakePod) -> Sandbox:
    """A greedy pod in group BE, an idle one in the root."""
    sandbox = Sandbox("intel-2s-ht")
    sandbox.sync([make_pod("be", cpu="greedy"), make_pod("ls", cpu="2")])
    sandbox.files.mkdir(f"{POINT}/BE")
    put(sandbox, "uid-be", "BE")
    return sandbox


def bandwidth(sandbox: Sandbox, group: str, seconds: float = 2) -> float:
    """Bytes a second over both caches."""
    before = [int(shown(sandbox, group, TOTAL, cache)) for cache in (0, 1)]
    sandbox.advance(seconds)
    return sum(int(shown(sandbox, group, TOTAL, cache)) - old for cache, old in enumerate(before)) / seconds


def test_work_moves_bytes(busy: Sandbox) -> None:
    much, little = bandwidth(busy, "BE/"), bandwidth(busy, "")
    assert much > 5 * little > 0
    local, total = int(shown(busy, "BE/", LOCAL)), int(shown(busy, "BE/", TOTAL))
    assert local == pytest.approx(total * 0.8, rel=0.01)


def test_a_limit_on_bandwidth_is_felt(busy: Sandbox) -> None:
    free = bandwidth(busy, "BE/")
    busy.files.write(f"{POINT}/BE/schemata", b"MB:0=10;1=10\n")
    assert bandwidth(busy, "BE/") < free / 2


def test_occupancy_stays_within_the_mask_and_the_cache(busy: Sandbox) -> None:
    busy.files.write(f"{POINT}/BE/schemata", b"L3:0=1;1=1\n")
    busy.advance(2)
    ways, size = 12, busy.machine.l3_bytes
    assert 0 < int(shown(busy, "BE/")) <= size // ways
    assert int(shown(busy, "")) + int(shown(busy, "BE/")) <= size


def test_lines_of_who_does_not_work_any_more_are_lost_to_others(busy: Sandbox, make_pod: MakePod) -> None:
    busy.advance(2)
    before = int(shown(busy, "BE/"))
    busy.sync([make_pod("ls", cpu="2")])
    busy.advance(5)
    assert int(shown(busy, "BE/")) < before / 2


@pytest.mark.parametrize("shape", ["intel-snc", "amd-genoa", "intel-mbps", "intel-cdp", "arm-mpam", "intel-nomba"])
def test_every_flavour_counts(shape: str, make_pod: MakePod) -> None:
    sandbox = Sandbox(shape)
    sandbox.sync([make_pod("ls", cpu="4")])
    sandbox.advance(1)
    first = next(iter(sandbox.files.list(f"{POINT}/mon_data"))).rstrip("/")
    assert int(sandbox.files.read(f"{POINT}/mon_data/{first}/{CACHE}")) > 0
