"""Parts of the picture that did not change are the same objects, and what did change is never taken for them."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest
from emulated import Emulated
from hooked_files import HookedFiles

from koordlite.agent import Agent
from koordlite.model.snapshot import Snapshot
from koordlite.observe import Observer, picture
from koordlite.unchanged import Unchanged, WatchedSnapshot, with_equal_shared

STEADY = (
    "node", "notes", "slo", "topology", "reserved", "system_qos", "kubelet", "layout", "pods", "places", "cgroups",
    "resctrl", "published", "cpu_info", "host_groups", "ours", "system", "oom_scores",
)  # fmt: skip


def changed(before: Snapshot, after: Snapshot) -> set[str]:
    return {name for name in STEADY if getattr(before, name) is not getattr(after, name)}


def test_the_first_of_equal_values_is_kept_until_another_comes() -> None:
    steady = Unchanged()
    first, equal, other = {"a": 1}, {"a": 1}, {"a": 2}
    assert steady.same("part", first) is first
    assert steady.same("part", equal) is first
    assert steady.same("another part", equal) is equal
    assert steady.same("part", other) is other
    assert steady.same("part", equal) is equal


def test_what_was_worked_out_holds_while_its_inputs_are_the_same_objects() -> None:
    unchanged, times = Unchanged(), []

    def work() -> int:
        times.append(1)
        return len(times)

    first, equal = [1], [1]
    assert unchanged.of("sum", (first,), work) == unchanged.of("sum", (first,), work) == 1
    assert unchanged.of("sum", (equal,), work) == 2, (
        "equal is not enough: to compare may cost as much as to work it out"
    )
    assert unchanged.of("sum", (equal, first), work) == 3
    assert unchanged.of("another", (equal,), work) == 4


def test_of_many_items_only_the_new_ones_are_worked_out() -> None:
    unchanged, worked = Unchanged(), []

    def work(item: list[int]) -> int:
        worked.append(item)
        return sum(item)

    one, two, three = [1], [2], [3]
    first = unchanged.each("sums", [one, two], work)
    assert first == (1, 2)
    assert unchanged.each("sums", [one, two], work) is first
    assert unchanged.each("sums", [two, three], work) == (2, 3)
    assert worked == [one, two, three]
    assert unchanged.each("sums", [one], work) == (1,), "what was left out was forgotten"
    assert worked == [one, two, three, one]


def test_a_watched_picture_is_a_picture_and_notes_what_is_looked_at(observer: Observer) -> None:
    seen = observer.observe()
    watched = WatchedSnapshot(seen)
    assert isinstance(watched, Snapshot)
    assert watched.pods is seen.pods
    assert watched.layout is seen.layout
    assert watched.looked_at == {"pods": seen.pods, "layout": seen.layout}
    with pytest.raises(dataclasses.FrozenInstanceError):
        watched.time = 0.0  # type: ignore[misc]


def test_a_node_on_which_nothing_happens_is_the_same_node(node: Emulated, observer: Observer) -> None:
    observer.observe()
    node.sandbox.advance(1.0)
    before = observer.observe()
    node.sandbox.advance(1.0)
    after = observer.observe()
    assert changed(before, after) == set()
    assert before.usage != after.usage or before.time != after.time


def test_what_happens_is_seen_where_it_happens(node: Emulated, observer: Observer) -> None:
    observer.observe()
    before = observer.observe()
    node.pod("late", "BE", "1")
    node.sandbox.advance(1.0)
    after = observer.observe()
    assert {"pods", "places", "cgroups"} <= changed(before, after)
    assert {pod.name for pod in after.pods} == {"web", "crunch", "late"}
    assert len(after.places) == 3
    assert set(before.cgroups) < set(after.cgroups)


def test_a_limit_that_somebody_changes_is_another_picture_of_the_groups(node: Emulated, observer: Observer) -> None:
    before = observer.observe()
    group = before.layout.besteffort
    cgroups = node.host().cgroups
    cgroups.write(group, "cpu.quota", 50_000)
    node.sandbox.advance(1.0)
    after = observer.observe()
    assert changed(before, after) == {"cgroups"}
    assert after.cgroups[group] == msgspec.structs.replace(before.cgroups[group], quota_us=50_000)
    same = {name for name, state in before.cgroups.items() if after.cgroups[name] is state}
    assert same == set(before.cgroups) - {group}


def test_equal_values_of_a_mapping_become_one_object() -> None:
    one, other = frozenset(["a", "b"]), frozenset(["b", "a"])
    found = with_equal_shared({"x": one, "y": other, "z": frozenset()})
    assert found == {"x": one, "y": one, "z": frozenset()}
    assert found["x"] is found["y"]


def test_a_run_that_has_written_nothing_has_the_same_state_in_each_picture(node: Emulated) -> None:
    agent, pictures = Agent(node.host(), node.cluster, node.settings("observe")), []
    for _ in range(2):
        agent.tick()
        node.sandbox.advance(1.0)
        pictures.append(agent.snapshot)
    before, after = pictures
    for part in ("ours", "found", "evicted", "refused_evictions"):
        assert getattr(before, part) is getattr(after, part), part


@pytest.mark.parametrize(("mode", "most"), [("observe", 2), ("enforce", 6)])
def test_memory_of_groups_whose_limit_would_fall_is_read_in_turns_where_nothing_is_enforced(
    node: Emulated, monkeypatch: pytest.MonkeyPatch, mode: str, most: int
) -> None:
    monkeypatch.setattr(picture, "AT_LEAST_MEMORY", 2)
    monkeypatch.setattr(picture, "MEMORY_SECONDS", 1000.0)
    for number in range(3):
        node.pod(f"batch-{number}", "BE", "0.1", memory="64Mi", limited=True)
    reads: list[str] = []

    def look(call: str, path: str) -> None:
        if path.endswith(("/memory.current", "/memory.usage_in_bytes")):
            reads.append(path)

    settings = node.settings(mode)
    host = node.host(HookedFiles(node.sandbox.files, look=look))
    # Nothing is written, so that every limit is still to fall in the next picture.
    agent = Agent(host, node.cluster, settings)
    counts = []
    for _ in range(4):
        reads.clear()
        agent.tick()
        counts.append(len(reads))
        assert agent.snapshot is not None
        assert len(agent.snapshot.memory_held) == 6
        node.sandbox.advance(1.0)
    assert counts == [6, most, most, most]
