"""What a quiet time leaves over pays for a burst, and idle groups run on what no other wants."""

from __future__ import annotations

from collections.abc import Callable

from koordlite.lab import Sandbox
from koordlite.model.wire import objects

MakePod = Callable[..., objects.PodObject]
ROOT = "/sys/fs/cgroup"


def container(sandbox: Sandbox, name: str) -> str:
    return f"{ROOT}/{sandbox.kubelet.running[f'uid-{name}'].workloads[0].group}"


def counters(sandbox: Sandbox, name: str) -> dict[str, int]:
    lines = sandbox.files.read(f"{container(sandbox, name)}/cpu.stat").decode().splitlines()
    return {key: int(value) for key, value in (line.split() for line in lines)}


def spiky(sandbox: Sandbox, make_pod: MakePod, *, burst_us: int) -> dict[str, int]:
    """A limit of one CPU, half of it used, then 1.5 CPUs for a second; the counters after that second."""
    sandbox.sync([make_pod("a", requests={"cpu": "1"}, limits={"cpu": "1"}, cpu="steps(0:500m,2:1500m,3:500m)")])
    for path in (container(sandbox, "a"), f"{ROOT}/{sandbox.kubelet.running['uid-a'].group}"):
        sandbox.files.write(f"{path}/cpu.max.burst", str(burst_us).encode())
    sandbox.advance(3)
    return counters(sandbox, "a")


def test_without_burst_a_spike_is_throttled(v2: Sandbox, make_pod: MakePod) -> None:
    after = spiky(v2, make_pod, burst_us=0)
    assert (after["nr_throttled"], after["nr_bursts"]) == (10, 0)


def test_burst_lets_a_spike_pass_as_far_as_was_saved(v2: Sandbox, make_pod: MakePod) -> None:
    after = spiky(v2, make_pod, burst_us=100_000)
    assert after["nr_bursts"] == 2, "two periods of half a CPU beyond the limit are 100 ms"
    assert after["burst_usec"] == 100_000
    assert after["nr_throttled"] == 8


def test_no_more_is_saved_than_the_burst(v2: Sandbox, make_pod: MakePod) -> None:
    assert spiky(v2, make_pod, burst_us=50_000)["burst_usec"] == 50_000


def test_an_idle_group_gets_what_is_left(v2: Sandbox, make_pod: MakePod) -> None:
    service = make_pod("ls", requests={"cpu": "4"}, cpu="greedy")
    v2.sync([service, make_pod("be", cpu="greedy")])
    v2.files.write(f"{ROOT}/{v2.kubelet.layout.besteffort}/cpu.idle", b"1")
    v2.advance(1)
    assert v2.stats("uid-be").used_milli < 100
    v2.sync([make_pod("ls", requests={"cpu": "4"}, cpu="10"), make_pod("be", cpu="greedy")])
    v2.advance(1)
    assert round(v2.stats("uid-be").used_milli) == 22_000
