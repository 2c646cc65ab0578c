"""How long services wait for a CPU, from the counters of sampled threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from koordlite.host import procfs
from koordlite.host.cgroups.filesystem import Cgroups
from koordlite.host.files import RealFiles
from koordlite.model.picture.groups import Cgroup, Layout, PodGroups
from koordlite.model.picture.usage import CPUWait
from koordlite.observe import cpu_waits
from koordlite.observe.cpu_waits import CPUWaitReader

POD, MAIN = "kubepods/burstable/podu", "kubepods/burstable/podu/main"
PLACES = {"u": PodGroups(POD, {"main": MAIN})}
LIMITS = {POD: Cgroup(quota_us=-1), MAIN: Cgroup(quota_us=50_000)}


class Kernel:
    """Files of one container with threads, and how often its quota stopped it."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.threads: dict[int, tuple[int, int]] = {}
        self.throttled = 0
        self.counts = True
        self.pressure: bytes | None = None
        self.used_ns = 0
        self.reads: list[str] = []

    def read(self, path: str) -> bytes:
        self.reads.append(path)
        if path.startswith("/proc/"):
            _, _, tid, name = path.split("/")
            if name != "schedstat" or int(tid) not in self.threads:
                raise FileNotFoundError(path)
            ran, waited = self.threads[int(tid)] if self.counts else (0, 0)
            return f"{ran} {waited} 7\n".encode()
        name = path.rpartition("/")[2]
        if name in ("cgroup.threads", "tasks"):
            return "\n".join(map(str, self.threads)).encode()
        if name == "cpu.pressure" and self.pressure:
            return self.pressure
        if name == "cpu.stat" and self.version == 1:
            return f"nr_periods 100\nnr_throttled {self.throttled}\nthrottled_time 5\n".encode()
        if name == "cpu.stat":
            used = f"usage_usec {self.used_ns // 1000}\n"
            return f"{used}nr_periods 100\nnr_throttled {self.throttled}\nthrottled_usec 5\n".encode()
        raise FileNotFoundError(path)

    def list(self, path: str) -> list[str]:
        return []


@pytest.fixture(params=[1, 2])
def kernel(request: pytest.FixtureRequest) -> Kernel:
    return Kernel(request.param)


def watching(kernel: Kernel) -> CPUWaitReader:
    layout = Layout(kernel.version, "cgroupfs", "kubepods", "kubepods/burstable", "kubepods/besteffort")
    points = dict.fromkeys(("", "cpu", "cpuacct", "cpuset", "memory", "blkio"), "/cg")
    return CPUWaitReader(kernel, Cgroups(kernel, layout, points))  # type: ignore[arg-type]


@pytest.fixture
def look(kernel: Kernel) -> Callable[[float], CPUWait | None]:
    reader = watching(kernel)
    return lambda now: reader.read(now, PLACES, LIMITS).get("u")


def test_a_window_has_what_the_threads_ran_and_waited(kernel: Kernel, look: Callable[[float], Any]) -> None:
    kernel.threads = {11: (10**9, 0), 12: (0, 0)}
    assert look(0) is None, "one look is no window"
    kernel.threads = {11: (10**9 + 300_000_000, 100_000_000), 12: (100_000_000, 0)}
    assert look(1) == CPUWait(0, 1, 400_000, 100_000)
    assert look(1.0).share == 0.2


def test_the_window_ends_after_five_seconds(kernel: Kernel, look: Callable[[float], Any]) -> None:
    kernel.threads = {11: (1, 0)}
    for second in range(12):
        kernel.threads = {11: (1 + second * 1000, second**2 * 1000)}
        window = look(float(second))
    assert window == CPUWait(6, 11, 5, 11**2 - 6**2)


def test_threads_that_begin_or_end_take_nothing_with_them(kernel: Kernel, look: Callable[[float], Any]) -> None:
    kernel.threads = {11: (5_000_000, 0), 12: (9_000_000, 9_000_000)}
    look(0)
    kernel.threads = {11: (6_000_000, 0)}
    assert look(1) == CPUWait(0, 1, 1000, 0)


def test_an_interval_in_which_its_quota_stopped_the_pod_is_left_out(
    kernel: Kernel, look: Callable[[float], Any]
) -> None:
    kernel.threads = {11: (1, 0)}
    look(0)
    kernel.threads, kernel.throttled = {11: (1, 10**9)}, 3
    look(1)
    kernel.threads = {11: (2_000_001, 10**9)}
    assert look(2) == CPUWait(0, 2, 2000, 0)


def test_of_many_threads_those_that_ran_most_are_watched(kernel: Kernel, look: Callable[[float], Any]) -> None:
    kernel.threads = {tid: (tid * 1000, 0) for tid in range(1, 100)}
    look(0)
    kernel.reads.clear()
    look(1)
    watched = {path for path in kernel.reads if path.startswith("/proc/")}
    assert watched == {f"/proc/{tid}/schedstat" for tid in range(84, 100)}


def test_a_kernel_that_does_not_count_has_pressure_by_group_or_nothing(
    kernel: Kernel, look: Callable[[float], Any]
) -> None:
    kernel.threads, kernel.counts = {11: (1, 0)}, False
    look(0)
    assert look(1) is None
    kernel.pressure = b"some avg10=0.00 avg60=0.00 avg300=0.00 total=1000\n"
    look(2)
    kernel.pressure, kernel.used_ns = kernel.pressure.replace(b"=1000", b"=251000"), 750_000_000
    assert look(3) == (CPUWait(2, 3, 750_000, 250_000) if kernel.version == 2 else None)


def test_pods_beyond_what_a_tick_reads_have_their_turn_in_the_next(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_waits, "THREADS_A_TICK", 4)
    kernel.threads = {11: (1, 0)}
    reader = watching(kernel)
    places = {str(number): PodGroups(f"{POD}{number}", {"main": f"{POD}{number}/main"}) for number in range(6)}
    found = [reader.read(float(second), places, {}) for second in range(6)]
    assert [len(each) for each in found] == [0, 0, 0, 2, 4, 6]


def test_this_kernel_counts_how_long_a_thread_ran() -> None:
    counted = procfs.run_delay(RealFiles(), os.getpid())
    assert counted
    assert counted[0] > 0


def test_a_thread_that_is_gone_has_no_counters() -> None:
    assert procfs.run_delay(RealFiles(), 2**22 + 1) is None


def test_threads_are_followed_without_being_counted_and_counted_when_asked_for(kernel: Kernel) -> None:
    reader = watching(kernel)
    kernel.threads = {11: (10**9, 5)}
    reader.follow(0, PLACES, LIMITS)
    assert not [path for path in kernel.reads if path.startswith("/proc/")]
    first = reader.counters(["gone", "u"])
    kernel.threads = {11: (10**9 + 70, 35), 12: (1000, 1000)}
    assert cpu_waits.between(first, reader.counters(["u"])) == (70, 30)
    reader.follow(1, {}, {})
    assert reader.counters(["u"]) == {}


def test_pods_that_cannot_be_listed_keep_nobody_from_their_turn(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = watching(kernel)
    kernel.threads = {11: (10**9, 5)}
    many = {f"gone{n}": PodGroups(f"kubepods/podgone{n}", {}) for n in range(cpu_waits.LISTS_A_TICK)}
    threads = Cgroups.threads

    def listed(cgroups: Cgroups, group: str) -> list[int]:
        if "gone" in group:
            raise FileNotFoundError(group)
        return threads(cgroups, group)

    monkeypatch.setattr(Cgroups, "threads", listed)
    reader.follow(0, many | PLACES, LIMITS)
    assert reader.counters(["u"]) == {}, "the first of the list have the first turn"
    reader.follow(1, many | PLACES, LIMITS)
    assert reader.counters(["u"])


def test_in_a_surge_a_pod_that_its_own_quota_stopped_says_nothing(kernel: Kernel) -> None:
    reader = watching(kernel)
    kernel.threads = {11: (10**9, 5)}
    reader.follow(0, PLACES, LIMITS)
    first = reader.counters(["u"])
    kernel.threads, kernel.throttled = {11: (10**9 + 70, 10**8)}, 1
    assert cpu_waits.between(first, reader.counters(["u"])) == (0, 0)
    reader.follow(1, PLACES, {POD: Cgroup(), MAIN: Cgroup()})
    first = reader.counters(["u"])
    kernel.threads, kernel.throttled = {11: (10**9 + 140, 10**8 + 30)}, 2
    assert cpu_waits.between(first, reader.counters(["u"])) == (70, 30), "nobody sets it a quota"


def test_in_a_surge_pressure_by_group_counts_where_threads_are_not_counted(kernel: Kernel) -> None:
    reader = watching(kernel)
    kernel.threads, kernel.counts = {11: (1, 0)}, False
    kernel.pressure = b"some avg10=0.00 avg60=0.00 avg300=0.00 total=1000\n"
    reader.follow(0, PLACES, LIMITS)
    first = reader.counters(["u"])
    kernel.pressure, kernel.used_ns = kernel.pressure.replace(b"=1000", b"=3000"), 5_000_000
    expected = (5_000_000, 2_000_000) if kernel.version == 2 else (0, 0)
    assert cpu_waits.between(first, reader.counters(["u"])) == expected
