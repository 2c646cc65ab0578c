"""Numbers that no node has, of pods and of the kernel, end no look and leave nothing behind."""

from __future__ import annotations

import pytest
from emulated import Emulated
from hooked_files import HookedFiles, unchanged

from koordlite.observe import Observer

LARGEST = 2**63 - 1


@pytest.mark.parametrize("count", [1, 3], ids=["one pod", "more than 64 bits together"])
def test_best_effort_pods_that_ask_for_the_largest_quantity_end_no_look(
    node: Emulated, observer: Observer, count: int
) -> None:
    for number in range(count):
        node.pod(f"greedy-{number}", "BE", "100m")
        path = node.folder / f"pod-greedy-{number}.yaml"
        path.write_text(path.read_text().replace("'1000'", f"'{LARGEST}'"))
    for _ in range(3):
        node.sandbox.advance(1.0)
        seen = observer.observe()
    assert seen.usage.best_effort_request == 1000 + count * LARGEST
    assert seen.average.best_effort_request == LARGEST
    for number in range(count):
        node.remove(f"greedy-{number}")
    for _ in range(40):
        node.sandbox.advance(10.0)
        seen = observer.observe()
    assert seen.average.best_effort_request == 1000


def underflow(path: str, content: bytes) -> bytes:
    """In memory.stat of a pod's groups a counter went below zero, as kernels 4.x print it."""
    if "uid-web" in path and path.endswith("memory.stat"):
        return content.replace(b"total_active_anon ", b"total_active_anon 1844674407370")
    return content


def test_a_memory_counter_below_zero_is_no_sample(node: Emulated) -> None:
    files = HookedFiles(node.sandbox.files, content=underflow)
    observer = Observer(node.host(files), node.cluster, tasks_seconds=5.0)
    for _ in range(3):
        node.sandbox.advance(1.0)
        seen = observer.observe()
    assert set(seen.usage.pods) == {"uid-crunch"}
    files.content = unchanged
    for _ in range(3):
        node.sandbox.advance(1.0)
        seen = observer.observe()
    assert set(seen.usage.pods) == {"uid-crunch", "uid-web"}
    assert seen.usage.pods["uid-web"].memory < 1 << 40
