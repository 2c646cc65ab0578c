"""kubelet makes a group first and writes its values later: in whatever order it and the agent come, what is put back is
what kubelet wrote."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
import slices
from emulated import Emulated
from hypothesis import given, settings
from hypothesis import strategies as st

from koordlite.agent import Agent
from koordlite.changes.eviction import EvictPod
from koordlite.host.cgroups.filesystem import Cgroups
from koordlite.host.journal.journal import Journal
from koordlite.model.change import ClusterChange
from koordlite.model.wire.objects import PodObject
from koordlite.ports import Cluster, ClusterView

INITIAL = {1: b"1024", 2: b"100"}
BY_KUBELET = 2
BY_US = 512
_EVENTS = st.sampled_from(["pod", "container", "look", "look", "tick", "during", "crash", "late"])


class Reporting:
    """The cluster as the API server shows it: kubelet reports a pod as Pending until its containers have started."""

    def __init__(self, cluster: Cluster, is_pending: Callable[[], bool]) -> None:
        self._cluster, self._is_pending = cluster, is_pending

    def view(self) -> ClusterView:
        view, pending = self._cluster.view(), self._is_pending()
        pods = (self._reported(pod) if pending else pod for pod in view.pods)
        return msgspec.structs.replace(view, pods=tuple(pods))

    def publish(self, changes: Sequence[ClusterChange]) -> None:
        self._cluster.publish(changes)

    def evict(self, pod: EvictPod) -> None:
        self._cluster.evict(pod)

    def _reported(self, pod: PodObject) -> PodObject:
        if pod.metadata.name != "late":
            return pod
        return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, phase="Pending"))


class Start:
    """A batch pod whose groups have just been made, an agent that runs since before, and a kubelet that writes when it
    is told to."""

    def __init__(self, shape: str, folder: Path) -> None:
        self.node = Emulated(shape, folder)
        self.groups: tuple[str, ...] = ()
        self.written: set[str] = set()
        self.cluster = Reporting(self.node.cluster, lambda: self.written < set(self.groups))
        self.node.pod("web", "LS", "500m")
        self.journal = self.node.journal()
        self.agent = self._agent()
        self.node.ticks(self.agent, 2)
        self.node.pod("late", "BE", "0.2", batch_cpu="500")
        self.node.sandbox.advance(1.0)
        self.node.cluster.view()
        layout = self.cgroups.layout
        self.pod = next(
            f"{layout.besteffort}/{name}"
            for name in self.cgroups.children(layout.besteffort)
            if name.replace("_", "-").removesuffix(".slice").endswith("poduid-late")
        )
        children = [f"{self.pod}/{name}" for name in self.cgroups.children(self.pod)]
        self.container = next(c for c in children if self.cgroups.cpu_usage_ns(c) or len(self.cgroups.procs(c)) > 0)
        self.groups = (self.pod, *children)
        for group in self.groups:
            self.cgroups.write_raw(group, "cpu.shares", INITIAL[layout.version])

    def happen(self, event: str) -> None:
        """One event of the start."""
        if event == "pod":
            self.by_kubelet(self.pod)
        elif event == "container":
            for group in self.groups[1:]:
                self.by_kubelet(group)
        elif event == "look":
            self.agent.begin(frozenset(self.groups))
        elif event == "during":
            self._write_during_a_look()
        elif event == "crash":
            self.journal.close()
            self.journal = self.node.journal()
            self.agent = self._agent()
            self.agent.take_over()
        else:
            self.node.ticks(self.agent, 2 if event == "late" else 1)

    def _write_during_a_look(self) -> None:
        """kubelet writes after the agent has read what stands there, and before it writes."""
        record = Journal.record

        def recorded(journal: Journal, *given: object, **named: object) -> None:
            record(journal, *given, **named)  # type: ignore[arg-type]
            self.happen("pod")
            self.happen("container")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Journal, "record", recorded)
            self.agent.begin(frozenset(self.groups))

    def by_kubelet(self, group: str) -> None:
        """kubelet writes its shares."""
        self.written.add(group)
        self.cgroups.write(group, "cpu.shares", BY_KUBELET)

    def shares(self) -> set[int]:
        """Those of all groups of the pod."""
        return {
            int(str(self.cgroups.decode("cpu.shares", self.cgroups.read_raw(g, "cpu.shares")))) for g in self.groups
        }

    @property
    def cgroups(self) -> Cgroups:
        """The groups as a process beside the agent sees them."""
        return self.node.host().cgroups

    def _agent(self) -> Agent:
        return Agent(self.node.host(), self.cluster, self.node.settings("enforce"), self.journal)


def check(shape: str, events: list[str]) -> None:
    """After `events`, and kubelet's writes if they have not come, everything that is put back is kubelet's."""
    with tempfile.TemporaryDirectory() as folder:
        start = Start(shape, Path(folder))
        try:
            for event in events:
                start.happen(event)
            for group in set(start.groups) - start.written:
                start.by_kubelet(group)
            start.node.ticks(start.agent, 3)
            start.agent.put_back()
            assert start.shares() == {BY_KUBELET}, events
        finally:
            start.journal.close()


@pytest.mark.parametrize("shape", ["small", "intel-2s-ht"])
@pytest.mark.parametrize(
    "events",
    [
        pytest.param(["look", "pod", "container"], id="read before kubelet wrote, overwritten before the tick"),
        pytest.param(["tick", "tick", "pod", "container"], id="ours for seconds, then kubelet's"),
        pytest.param(["late", "during"], id="kubelet between our reading and our writing"),
        pytest.param(["late", "crash", "pod", "container"], id="a crash between"),
        pytest.param(["pod", "look", "container"], id="the container later than its pod"),
    ],
)
def test_what_is_put_back_is_what_kubelet_wrote(shape: str, events: list[str]) -> None:
    check(shape, events)


@pytest.mark.sliced
@settings(max_examples=slices.amount(60, 8), deadline=None)
@given(events=st.lists(_EVENTS, max_size=7))
def test_in_any_order(events: list[str]) -> None:
    check("small", events)


def test_a_group_that_kubelet_has_not_written_yet_is_not_written_by_us(tmp_path: Path) -> None:
    """It would become idle first, and the kernel would refuse kubelet its shares."""
    start = Start("small", tmp_path)
    with start.journal:
        start.agent.begin(frozenset(start.groups))
        assert start.shares() == {1024}
        for group in start.groups:
            start.cgroups.write(group, "cpu.shares", BY_KUBELET)
        start.agent.begin(frozenset(start.groups))
        assert BY_US in start.shares()


def test_kubelet_that_never_writes_is_not_waited_for_ever(tmp_path: Path) -> None:
    start = Start("small", tmp_path)
    with start.journal:
        start.agent.begin(frozenset(start.groups))
        start.node.ticks(start.agent, 3)
        assert BY_US in start.shares()


def test_what_an_old_group_holds_is_kept_as_it_is(tmp_path: Path) -> None:
    """1024 shares in a group that was there before the agent: somebody chose them."""
    start = Start("small", tmp_path)
    with start.journal:
        start.written.update(start.groups)
        start.happen("crash")
        start.node.ticks(start.agent, 2)
        assert BY_US in start.shares()
        start.agent.put_back()
        assert start.shares() == {1024}
