"""What kubelet has given to a pod alone since we found a set is not given back to others."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest
from emulated import Emulated

from koordlite import apply
from koordlite.apply.inherited import ExclusiveCPUs
from koordlite.host.cgroups import names
from koordlite.host.journal.journal import Journal
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.picture.kubelet import PodCPUs
from koordlite.model.settings import Mode

Make = Callable[..., Emulated]
GIVEN = CPUSet.parse("1-2")
GIVEN_TO_U = PodCPUs("u", GIVEN, {"main": GIVEN})


def set_of(node: Emulated, pod: str) -> CPUSet:
    """CPUs that the container of a pod may use."""
    node.cluster.view()
    host = node.host()
    group = node.sandbox.kubelet.running[f"uid-{pod}"].workloads[0].group
    return cast(CPUSet, host.cgroups.state(group).effective)


def overtaken(node: Emulated, journal: Journal) -> None:
    """An agent narrows best effort; while it is away, kubelet gives two of its CPUs to another pod."""
    node.node(reservation='{"reservedCPUs": "0"}')
    node.ticks(node.agent(journal), 5)
    node.node(reservation='{"reservedCPUs": "0"}', cpu_manager="static")
    node.pod("own", "", "1", request="2", static_cpus=str(GIVEN))
    node.cluster.view()
    assert set_of(node, "own") == GIVEN


def restore(node: Emulated, journal: Journal) -> None:
    assert all(step.ok for step in apply.restore(node.host(), journal, node.cluster))


def stop(node: Emulated, journal: Journal) -> None:
    node.agent(journal).put_back()


def start(node: Emulated, journal: Journal) -> None:
    mode: Mode = "observe"
    node.agent(journal, mode).take_over()


@pytest.mark.parametrize("shape", ["small", "arm"])
@pytest.mark.parametrize("undo", [restore, stop, start])
def test_a_container_does_not_get_back_what_is_anothers_now(
    emulate: Make, shape: str, undo: Callable[[Emulated, Journal], None]
) -> None:
    node = emulate(shape)
    every = node.sandbox.machine.cpuset
    with node.journal() as journal:
        overtaken(node, journal)
        undo(node, journal)
    assert set_of(node, "own") == GIVEN
    assert set_of(node, "crunch") == set_of(node, "web") == every - GIVEN


def test_the_undo_list_shows_what_will_come_back(emulate: Make) -> None:
    node = emulate("small")
    with node.journal() as journal:
        overtaken(node, journal)
        given = node.cluster.view().kubelet.pod_cpus
        listed = {place: back for place, _, back in apply.undo_list(node.host(), journal.entries, given)}
    container = node.sandbox.kubelet.running["uid-crunch"].workloads[0].group
    assert listed[f"{container}/cpuset.cpus"] == "0,3"


@pytest.mark.parametrize(
    ("group", "found", "present", "back"),
    [
        pytest.param("kubepods/besteffort", "0-3", "3", "0-3", id="a QoS group comes back whole"),
        pytest.param("kubepods/besteffort/podb", "0-3", "3", "0-3", id="so does a pod"),
        pytest.param("kubepods/besteffort/podb/main", "0-3", "3", "0,3", id="containers leave out what is given away"),
        pytest.param("kubepods/besteffort/podb/main/made", "0-3", "3", "0,3", id="and groups that these made"),
        pytest.param("kubepods/besteffort/podb/main", "", "3", "0,3", id="an empty set of v2 stands for all"),
        pytest.param("kubepods/besteffort/podb/main", "1-2", "3", "0,3", id="never empty"),
        pytest.param("kubepods/podu/main", "0-3", "1-2", "1-2", id="the pod that has them keeps them"),
        pytest.param("kubepods/podu/main", "1-2", "0", "1-2", id="and gets them back where we had moved it"),
        pytest.param("kubepods/podu/side", "0-3", "0", "0,3", id="its other containers do not get them"),
        pytest.param("system.slice/db", "0-3", "3", "0-3", id="kubelet fences nobody outside its own tree"),
    ],
)
def test_what_comes_back(group: str, found: str, present: str, back: str) -> None:
    held = ExclusiveCPUs(names.layout(1, "kubepods"), (GIVEN_TO_U,), CPUSet.parse("0-3"))
    assert str(held.put_back(group, CPUSet.parse(found), CPUSet.parse(present))) == back


def test_without_exclusive_cpus_all_comes_back_as_found() -> None:
    held = ExclusiveCPUs(names.layout(1, "kubepods"), (), EMPTY)
    assert held.put_back("kubepods/besteffort/podb/main", EMPTY, CPUSet([1])) == EMPTY
