"""Memory of containers with a promise, on machines of both cgroup versions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from emulated import Emulated

from koordlite.observe import Observer

STATUS = json.dumps({"cpuset": "2-3"})


@pytest.mark.parametrize("shape", ["intel-2s-ht", "anolis"])
def test_only_containers_with_a_promise_are_looked_at(tmp_path: Path, shape: str) -> None:
    node = Emulated(shape, tmp_path)
    node.pod("pinned", "LSR", "1000m", request="2", status=STATUS)
    node.pod("plain", "LS", "1000m")
    observer = Observer(node.host(), node.cluster, tasks_seconds=5.0)
    seen = observer.observe()
    place = next(place for uid, place in seen.places.items() if uid == "uid-pinned")
    assert set(seen.memory_places) == set(place.containers.values())
    found = next(iter(seen.memory_places.values()))
    assert found.mems == node.sandbox.machine.mems
    assert set(found.used) <= set(found.mems)


def test_nobody_has_a_promise_and_nothing_is_read(tmp_path: Path) -> None:
    node = Emulated("small", tmp_path)
    node.pod("plain", "LS", "1000m")
    assert Observer(node.host(), node.cluster, tasks_seconds=5.0).observe().memory_places == {}
