"""A checkpoint that kubelet writes is seen at once, and kubelet is asked then."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from koordlite.host.files import RealFiles
from koordlite.kube.kubelet.checkpoints import CheckpointNotices
from koordlite.kube.kubelet.resources import PodResourcesPoller
from koordlite.kube.kubelet.state import KubeletState
from koordlite.model.cpuset import CPUSet
from koordlite.model.picture.kubelet import PodResources, ResourceSet
from koordlite.model.topology import CPU, NUMANode, Topology

LONG = 30.0
"""Seconds that no test waits out."""


def replace(path: Path, text: str) -> None:
    """As kubelet writes."""
    fresh = path.with_name(f".{path.name}123")
    fresh.write_text(text)
    fresh.rename(path)


@pytest.fixture
def notices(tmp_path: Path) -> Iterator[CheckpointNotices]:
    watched = CheckpointNotices([str(tmp_path / "state"), str(tmp_path / "plugins" / "devices")])
    yield watched
    watched.close()


def test_a_file_that_is_replaced_ends_the_wait(notices: CheckpointNotices, tmp_path: Path) -> None:
    assert not notices.wait(0.0)
    replace(tmp_path / "state", "1")
    assert notices.wait(LONG)
    assert not notices.wait(0.0)


def test_a_folder_that_comes_later_is_watched(notices: CheckpointNotices, tmp_path: Path) -> None:
    assert not notices.wait(0.0)
    (tmp_path / "plugins").mkdir()
    assert not notices.wait(0.0)
    replace(tmp_path / "plugins" / "devices", "1")
    assert notices.wait(LONG)


def test_other_files_are_of_no_interest(notices: CheckpointNotices, tmp_path: Path) -> None:
    notices.wait(0.0)
    replace(tmp_path / "other", "1")
    assert not notices.wait(0.0)


def test_the_end_ends_the_wait(notices: CheckpointNotices) -> None:
    notices.end()
    assert not notices.wait(LONG)


class Kubelet:
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)

    def list(self) -> tuple[PodResources, ...]:
        self.asked.release()
        return ()

    def allocatable(self) -> ResourceSet:
        return ResourceSet(CPUSet([1]))


def test_kubelet_is_asked_when_it_admits_a_pod(tmp_path: Path) -> None:
    kubelet = Kubelet()
    given = PodResourcesPoller(kubelet, socket="/k.sock", monotonic=time.monotonic)  # type: ignore[arg-type]
    state = KubeletState(
        lambda: None,
        files=RealFiles(),
        folder=str(tmp_path),
        topology=Topology((CPU(0, 0, 0, 0), CPU(1, 0, 0, 0)), (NUMANode(0, CPUSet([0, 1]), 2**30),)),
        with_pods=False,
        monotonic=time.monotonic,
        poller=given,
        notices=True,
    )
    state.start()
    try:
        assert kubelet.asked.acquire(timeout=LONG)
        replace(tmp_path / "cpu_manager_state", '{"policyName":"none","defaultCpuSet":"","checksum":1353318690}')
        assert kubelet.asked.acquire(timeout=LONG)
        assert state.view().kubelet.resources is not None
        assert (state.take_changes(), state.take_changes()) == (True, False)
    finally:
        state.stop()
