"""Numbers that no node has, of pods and of the kernel, end no look and leave nothing behind."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from emulated import Emulated

from koordlite.observe import Observer
from koordlite.ports import Files

LARGEST = 2**63 - 1


class Underflown:
    """The files of a node, but in memory.stat of some groups a counter went below zero, as kernels 4.x print it."""

    def __init__(self, files: Files, part: str) -> None:
        self._files, self._part = files, part
        self.broken = True

    def read(self, path: str) -> bytes:
        raw = self._files.read(path)
        if self.broken and self._part in path and path.endswith("memory.stat"):
            return raw.replace(b"total_active_anon ", b"total_active_anon 1844674407370")
        return raw

    def write(self, path: str, data: bytes) -> None:
        self._files.write(path, data)

    def list(self, path: str) -> Sequence[str]:
        return self._files.list(path)

    def mkdir(self, path: str) -> None:
        self._files.mkdir(path)

    def rmdir(self, path: str) -> None:
        self._files.rmdir(path)


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
    for _ in range(400):
        node.sandbox.advance(1.0)
        seen = observer.observe()
    assert seen.average.best_effort_request == 1000


def test_a_memory_counter_below_zero_is_no_sample(node: Emulated) -> None:
    files = Underflown(node.sandbox.files, "uid-web")
    observer = Observer(node.host(files), node.cluster, tasks_seconds=5.0)
    for _ in range(3):
        node.sandbox.advance(1.0)
        seen = observer.observe()
    assert set(seen.usage.pods) == {"uid-crunch"}
    files.broken = False
    for _ in range(3):
        node.sandbox.advance(1.0)
        seen = observer.observe()
    assert set(seen.usage.pods) == {"uid-crunch", "uid-web"}
    assert seen.usage.pods["uid-web"].memory < 1 << 40
