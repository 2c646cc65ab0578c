"""`numa explain --memory`: what is remote, why, and what a move would cost."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from koordlite import cli
from koordlite.model.cpuset import CPUSet
from koordlite.model.errors import InputError
from koordlite.model.picture.numa_memory import ContainerMemory, PodMemory
from koordlite.report.explain import numa_memory

GiB = 2**30
CONTAINER = ContainerMemory(
    container="main",
    processes=1,
    pages={"private": {0: GiB, 1: 3 * GiB}, "library": {1: GiB}},
    mapped_by_others={1: GiB},
    cpus=CPUSet([0, 1]),
    mems=CPUSet([0, 1]),
    ran={0: 1.0},
)


def memory(**changes: Any) -> PodMemory:
    return PodMemory(
        pod="ns/web",
        seconds=1.0,
        containers=(msgspec.structs.replace(CONTAINER, **changes),),
        available={0: 2 * GiB, 1: GiB},
        cpus={0: CPUSet([0, 1]), 1: CPUSet([2, 3])},
    )


def test_what_lies_away_from_the_containers_cpus_is_remote_and_others_pages_stay() -> None:
    """4 of 5 GiB are remote; the library, which others map, is not moved with the 3 that are its own."""
    shown = memory()
    away = numa_memory.remote(shown, shown.containers[0])
    assert (away.home, away.pages, away.movable) == ((0,), {1: 4 * GiB}, 3 * GiB)
    text = "\n".join(numa_memory.answer(shown).lines)
    assert "! remote: 4.0 GiB (80%) lie away from NUMA 0: 4.0 GiB on NUMA 1" in text
    assert "copy 3.0 GiB in about 3.2 s (assumed: 1 GB/s); NUMA 0 has 2.0 GiB available, too little" in text
    assert "migratepages PID 1 0" in text
    assert "it may take memory of NUMA 1 as well" in text


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        pytest.param(
            {"mems": CPUSet([0])}, "confined to NUMA 0 now, and pages on NUMA 1 are from before", id="confined"
        ),
        pytest.param({"ran": {0: 0.4, 1: 0.6}}, "its threads ran 60% on NUMA 1", id="threads elsewhere"),
        pytest.param({"pages": {"file": {1: GiB}}}, "maybe another pod's", id="page cache"),
        pytest.param({"pages": {"huge": {1: GiB}}}, "none of it can be moved", id="huge pages"),
        pytest.param({"pages": {"private": {0: GiB}}}, "no page lies away from NUMA 0", id="all at home"),
        pytest.param({"cpus": CPUSet([0, 1, 2, 3]), "ran": {0: 0.5, 1: 0.5}}, "it has no home", id="no home"),
        pytest.param({"cpus": CPUSet([0, 1, 2, 3]), "ran": {1: 0.95, 0: 0.05}}, "away from NUMA 1: 1.0 GiB", id="ran"),
        pytest.param({"unread": "3 of 9 processes"}, "! not all of it was read: 3 of 9 processes", id="left out"),
    ],
)
def test_each_cause_is_named(changes: dict[str, Any], said: str) -> None:
    assert said in "\n".join(numa_memory.answer(memory(**changes)).lines)


def test_programs_get_the_same_in_bytes() -> None:
    (container,) = numa_memory.answer(memory()).document["containers"]
    assert (container["remote"], container["movable"], container["home"]) == ({"1": 4 * GiB}, 3 * GiB, [0])
    assert container["pages"]["private"] == {"0": GiB, "1": 3 * GiB}


@pytest.mark.parametrize(
    "words", [["node", "--memory"], ["numa", "--memory"], ["numa", "a/b", "--memory", "--at", "1h"]]
)
def test_only_the_memory_of_one_pod_now_can_be_asked_for(words: list[str]) -> None:
    from koordlite.cli import questions

    with pytest.raises(InputError, match="it is about the memory of one pod, now"):
        questions.explain(cli.parser().parse_args(["explain", *words]))
