"""Whatever stands in any file the agent reads: a tick ends, no rule fails, a restore ends, and the next good look is
whole. What is put back is then as good as what was read."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from emulated import Emulated
from hooked_files import HookedFiles
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import generate_latest

from koordlite.apply import restore
from koordlite.model.status import FreshUse
from koordlite.ports import Files
from koordlite.report.metrics.collector import Metrics
from koordlite.report.tick import UNSEEN

Spoil = Callable[[bytes], bytes]
NUMBER = re.compile(rb"-?\d+(\.\d+)?")
WORDS = [b"0", b"-1", b"1", b"%d" % 2**63, b"%d" % 2**64, b"", b"nan", b"inf", b"1e400", b"1.5", b"max", b"\xff\xfe"]
WORDS += [b"9" * 400, b"9" * 5000, "٣".encode(), b"Unavailable"]
WHOLE = [b"", b"\n", b"0\n", b"-1\n", b"garbage\n", b"\x00", b"a b c d\n", b"max 0\n", b"0 0\n", b"0-\n", b"5-1\n"]
WHOLE += [b"9" * 400, b"0-99999999999\n", b"some avg10=nan avg60=inf avg300=1e400 total=-1\n", b"cpu 1 2 3\n"]


class Spoilt(HookedFiles):
    """The files of a node, some of which read as something else, always or every other time."""

    def __init__(self, files: Files) -> None:
        super().__init__(files)
        self.seen: dict[str, int] = {}
        self.spoils: dict[str, Spoil] = {}
        self.every = 1

    def read(self, path: str) -> bytes:
        raw = self._files.read(path)
        self.seen[path] = self.seen.get(path, 0) + 1
        spoil = self.spoils.get(path.rpartition("/")[2])
        return spoil(raw) if spoil and self.seen[path] % self.every == 0 else raw


def all_of_it(text: bytes) -> Spoil:
    return lambda raw: text


def every_number(text: bytes) -> Spoil:
    return lambda raw: NUMBER.sub(lambda found: text, raw)


def one_number(place: int, text: bytes) -> Spoil:
    def spoil(raw: bytes) -> bytes:
        found = list(NUMBER.finditer(raw))
        if not found:
            return text
        chosen = found[place % len(found)]
        return raw[: chosen.start()] + text + raw[chosen.end() :]

    return spoil


spoils = (
    st.builds(all_of_it, st.sampled_from(WHOLE) | st.binary(max_size=20))
    | st.builds(every_number, st.sampled_from(WORDS))
    | st.builds(one_number, st.integers(0, 50), st.sampled_from(WORDS))
)
NAMES = {
    "small": "stat meminfo cpu memory online level id type cpuset.cpus cpu.cfs_quota_us cpu.cfs_period_us cpulist "
    "cpuinfo cpuacct.usage memory.stat cpuset.effective_mems distance physical_package_id thread_siblings_list",
    "arm": "stat meminfo cpu memory io online cpuset.cpus cpuset.cpus.effective cpu.max cpu.stat memory.stat cpulist "
    "id cpu.pressure memory.pressure io.pressure memory.numa_stat cpu.weight cgroup.procs cgroup.threads",
}


class Life:
    """An agent that enforces everything, while files are spoilt and after."""

    def __init__(self, folder: Path, shape: str) -> None:
        self.node = Emulated(shape, folder)
        self.node.pod("web", "LS", f"{self.node.cpus * 250}m", memory="1Gi")
        self.node.pod("crunch", "BE", "greedy", memory="1Gi")
        self.files = Spoilt(self.node.sandbox.files)
        self._metrics = Metrics()

    def run(self, spoilt: dict[str, Spoil], *, every: int) -> None:
        with self.node.journal() as journal:
            self.agent = self.node.agent(journal, files=self.files)
            self._ticks(2)
            self.files.spoils, self.files.every = spoilt, every
            self._ticks(2)
            self.agent.react(FreshUse(node=None, pods=30_000, best_effort=500))
            restore(self.node.host(), journal)
            self.files.spoils = {}
            self._ticks(1)
            assert self._ticks(1).snapshot is not UNSEEN, "a good look is whole again"
            self.agent.put_back()

    def _ticks(self, count: int) -> Any:
        for _ in range(count):
            (tick,) = self.node.ticks(self.agent, 1)
            assert [d for d in tick.decisions if d.reason == "StrategyFailed"] == []
            self._metrics.observe_tick(tick)
            generate_latest(self._metrics.registry)
        return tick


@pytest.mark.parametrize("shape", NAMES)
def test_no_number_in_any_file_ends_the_loop(tmp_path_factory: pytest.TempPathFactory, shape: str) -> None:
    @settings(max_examples=8, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(
        st.dictionaries(st.sampled_from(NAMES[shape].split()), spoils, min_size=1, max_size=4), st.sampled_from([1, 2])
    )
    def holds(spoilt: dict[str, Spoil], every: int) -> None:
        Life(tmp_path_factory.mktemp("life"), shape).run(spoilt, every=every)

    holds()


@pytest.mark.parametrize(
    ("shape", "name", "spoil"),
    [
        pytest.param("small", "stat", every_number(b"9" * 400), id="ticks of more than 64 bits"),
        pytest.param("small", "cpuacct.usage", all_of_it(b"9" * 400), id="CPU time of more than 64 bits"),
        pytest.param("small", "cpu.cfs_period_us", all_of_it(b"0\n"), id="a period of nothing on v1"),
        pytest.param("arm", "cpu.max", all_of_it(b"0 0\n"), id="a period of nothing on v2"),
        pytest.param("arm", "memory", one_number(6, b"9" * 400), id="a pressure of more than 64 bits"),
        pytest.param("small", "cpuset.cpus", all_of_it(b"garbage\n"), id="a set that is none"),
    ],
)
@pytest.mark.parametrize("every", [1, 2], ids=["always", "every other time"])
def test_what_was_found_so(tmp_path: Path, shape: str, name: str, spoil: Spoil, every: int) -> None:
    Life(tmp_path, shape).run({name: spoil}, every=every)
