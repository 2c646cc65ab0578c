"""Trouble comes as often as asked for, the same with the same seed, and leaves the node itself alone."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from koordlite.lab import Sandbox
from koordlite.lab.chaos import QUIET, Chaos, Rates
from koordlite.model.wire import objects

MakePod = Callable[..., objects.PodObject]


def story(make_pod: MakePod, seed: int, rates: Rates | None = None) -> tuple[list[str], Sandbox, Chaos]:
    """A minute of trouble with a reader and a writer."""
    sandbox = Sandbox("small")
    sandbox.sync([make_pod(name, cpu="1") for name in "abcd"])
    chaos = Chaos(sandbox, seed=seed, rates=rates)
    for _ in range(60):
        chaos.stir()
        with contextlib.suppress(OSError):
            sandbox.files.write("/sys/fs/cgroup/cpuset/kubepods/besteffort/cpuset.cpus", b"0-3")
            sandbox.files.read("/sys/fs/cgroup/cpuset/kubepods/besteffort/cpuset.cpus")
        sandbox.advance(1)
    return chaos.events, sandbox, chaos


def test_a_seed_tells_the_whole_story(make_pod: MakePod) -> None:
    first, again, other = (story(make_pod, seed)[0] for seed in (1, 1, 2))
    assert first == again
    assert first != other


@pytest.mark.parametrize(
    ("rates", "word"),
    [
        pytest.param(Rates(write=1, read=0, vanish=0, hostile=0), "write ", id="writes fail"),
        pytest.param(Rates(write=0, read=1, vanish=0, hostile=0), "read ", id="reads fail"),
        pytest.param(Rates(write=0, read=0, vanish=1, hostile=0), "vanish ", id="groups vanish"),
        pytest.param(Rates(write=0, read=0, vanish=0, hostile=1), "hostile ", id="another program writes"),
    ],
)
def test_each_kind_of_trouble(make_pod: MakePod, rates: Rates, word: str) -> None:
    said, *_ = story(make_pod, 3, rates)
    assert said
    assert all(each.startswith(word) for each in said)


def test_quiet_rates_are_no_trouble(make_pod: MakePod) -> None:
    assert story(make_pod, 3, QUIET)[0] == []


def test_quiet_lets_the_outcome_be_read(make_pod: MakePod) -> None:
    _, sandbox, chaos = story(make_pod, 3, Rates(write=1, read=1, vanish=0, hostile=0))
    path = "/sys/fs/cgroup/cpuset/kubepods/besteffort/cpuset.cpus"
    with chaos.quiet():
        assert sandbox.files.read(path) == b"0-3\n"
    with pytest.raises(OSError, match=r"cpuset\.cpus"):
        sandbox.files.read(path)
    chaos.end()
    assert sandbox.files.read(path) == b"0-3\n"


def test_the_hostile_writer_is_remembered(make_pod: MakePod) -> None:
    _, sandbox, chaos = story(make_pod, 5, Rates(write=0, read=0, vanish=0, hostile=1))
    chaos.end()
    assert chaos.hostile
    for path in list(chaos.hostile)[-1:]:
        assert sandbox.files.read(path)


def test_trouble_may_come_with_the_clock(make_pod: MakePod) -> None:
    sandbox = Sandbox("small")
    sandbox.sync([make_pod("a", cpu="1")])
    chaos = Chaos(sandbox, seed=1, rates=Rates(write=0, read=0, vanish=0, hostile=1))
    sandbox.each_second = chaos.stir
    sandbox.advance(0.9)
    assert not chaos.events
    sandbox.advance(9.1)
    assert 5 <= len(chaos.events) <= 10, "once a second; what the kernel refuses does not happen"
