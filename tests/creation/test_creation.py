"""What the agent answers a runtime that asks before it creates a container, on emulated nodes."""

from __future__ import annotations

import dataclasses
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import slices
from emulated import BOOT
from hypothesis import given, settings
from hypothesis import strategies as st

from koordlite.changes.system import OOM_SCORE, OOM_SCORE_AT_CREATION
from koordlite.creation import Creation
from koordlite.host.journal import file
from koordlite.host.journal.journal import FileEntry, Journal, read
from koordlite.model.cpuset import CPUSet
from koordlite.model.errors import JournalError
from koordlite.model.node import ResolvedReservation
from koordlite.nri import NOTHING, LinuxContainerAdjustment, LinuxCPU, LinuxResources, Version
from koordlite.report import view
from koordlite.report.explain import pieces
from koordlite.report.history import Write
from koordlite.report.metrics.collector import Metrics
from tests.creation.asking import FIELDS, Asking

LONG_SECONDS = 30.0
SHAPES = ("small", "intel-2s-ht", "amd-ccd", "arm") if slices.WHOLE else ("small", "intel-2s-ht")


@pytest.fixture(params=["intel-2s-ht", "small"])
def asking(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Asking]:
    asking = Asking(request.param, tmp_path)
    yield asking
    asking.close()


def test_a_batch_container_is_created_with_its_shares_and_quota(asking: Asking) -> None:
    """batch-cpu 500 is 512 shares; the quota as the pod's limit says."""
    asking.begin("BE", batch_cpu="500", memory="64Mi")
    asking.agent.begin(frozenset())
    answer = asking.ask()
    assert answer.adjust and answer.adjust.linux and answer.adjust.linux.resources
    cpu = answer.adjust.linux.resources.cpu
    assert cpu is not None and cpu.shares == 512
    assert asking.creation.state.results == {"adjusted": 1}


def test_the_journal_has_what_the_container_would_have_had_before_the_answer_is_out(asking: Asking) -> None:
    asking.begin("BE", batch_cpu="500")
    asking.agent.begin(frozenset())
    before = asking.cgroups.read_raw(asking.container, "cpu.shares")
    asking.creation.create(*asking.messages())
    (entry,) = (e for e in read(asking.node.state, boot_id=BOOT) if e.place.part("cgroup") == asking.container)
    assert isinstance(entry, FileEntry)
    assert (entry.field, entry.at_creation, entry.strategy) == ("cpu.shares", True, "batchResource")
    assert entry.raw.strip() == before.strip()


_PODS: list[tuple[str, dict[str, Any]]] = [
    ("BE", {"batch_cpu": "500", "memory": "64Mi"}),
    ("BE", {"batch_cpu": "2500", "sidecar": True}),
    ("BE", {"batch_cpu": "500", "oom_score": "1000"}),
    ("LS", {"request": "500m"}),
    ("LS", {"request": "500m", "sidecar": True, "oom_score": "1000"}),
    ("LSR", {"request": "1", "guaranteed": True}),
    ("LSR", {"request": "1", "guaranteed": True, "status": '{"cpuset":"1"}'}),
    ("LSE", {"request": "2", "guaranteed": True, "oom_score": "500"}),
    ("", {"request": "300m"}),
    ("", {"request": "1", "guaranteed": True, "sidecar": True}),
]
_RESIZED = {"BE": {"batch_cpu": "1500"}, "LS": {"request": "700m"}, "": {"request": "700m"}}
"""What an in-place resize makes of a pod; the other classes keep their CPUs."""
_EVENTS = st.lists(
    st.sampled_from(["create", "look", "tick", "withdraw", "crash", "update", "resize", "remove"]), max_size=6
)


@pytest.mark.sliced
@given(
    shape=st.sampled_from(SHAPES),
    pod=st.sampled_from(_PODS),
    events=_EVENTS,
    slo=st.fixed_dictionaries(
        {"policy": st.sampled_from(["cpuset", "cfsQuota"]), "resctrl": st.booleans(), "static": st.booleans()}
    ),
)
@settings(max_examples=slices.amount(300, 6), deadline=None)
def test_in_any_order_of_events_the_end_is_that_of_a_node_without_nri(
    shape: str, pod: tuple[str, dict[str, Any]], events: list[str], slo: dict[str, Any]
) -> None:
    """Creation before, between and after rounds, unheard answers, updates of kubelet and resizes, kill -9, with and
    without kubelet's static CPU manager: the same values stand in all containers in the end, and the same come back."""
    ends = []
    for nri in ("auto", "off"):
        with tempfile.TemporaryDirectory() as folder:
            asking = Asking(shape, Path(folder), nri=nri, **slo)
            try:
                asking.begin(pod[0], **pod[1])
                before = _all(asking)
                for event in events:
                    _happen(asking, event, pod, with_nri=nri == "auto")
                asking.node.ticks(asking.agent, 3)
                end = _all(asking)
                asking.agent.put_back()
                ends.append((end, _all(asking), before))
                assert not asking.journal.entries
            finally:
                asking.close()
    with_nri, without = ends
    assert with_nri == without


def _all(asking: Asking) -> dict[str, dict[str, object]]:
    return {name: asking.values_of(name) for name in asking.containers}


def _happen(asking: Asking, event: str, pod: tuple[str, dict[str, Any]], *, with_nri: bool) -> None:
    if event == "look":
        asking.agent.begin(frozenset([asking.pod, *asking.containers.values()]))
    elif event == "tick":
        asking.node.ticks(asking.agent, 1)
    elif event == "crash":
        asking.journal.close()
        asking.journal = asking.node.journal()
        asking.agent = asking.node.agent(asking.journal, nri="auto" if with_nri else "off")
        asking.agent.take_over()
        asking.node.ticks(asking.agent, 1)
    elif event == "resize":
        asking.node.pod("late", pod[0], "0.2", **{**pod[1], **_RESIZED.get(pod[0], {})})
        asking.node.sandbox.advance(1.0)
        asking.node.cluster.view()
        for name in asking.containers if with_nri and pod[0] in _RESIZED else ():
            asked = asking.resources(name)
            asking.make(asking.creation.update(*asking.messages(name), asked).resources, name)
    elif with_nri and event in ("create", "withdraw"):
        for name in asking.containers:
            _create(asking, name, withdraw=event == "withdraw")
    elif with_nri and event == "update":
        for name in asking.containers if "besteffort" in asking.pod else ():
            asked = LinuxResources(cpu=LinuxCPU(shares=2))  # What kubelet has always asked for.
            asking.make(asking.creation.update(*asking.messages(name), asked).resources, name)
    elif with_nri and event == "remove":
        asking.creation.remove(*asking.messages())  # Of an earlier container of this name; the group is there.


def _create(asking: Asking, name: str, *, withdraw: bool) -> None:
    """A container is created once, and before any round has seen its group."""
    group, pids = asking.containers[name], {str(each.pid) for each in asking.processes(name)}
    if any(e.place.part("cgroup") == group or e.place.part("pid") in pids for e in asking.journal.entries):
        return
    asking.hide(name)
    if withdraw:
        asking.creation.create(*asking.messages(name)).withdraw()
    else:
        asking.ask(name)


def _look(asking: Asking) -> None:
    """A picture that has the pod, whose container nobody has judged."""
    asking.agent.snapshot = asking.agent._observer.observe(asking.agent._recall)


def test_an_oom_score_set_at_creation_comes_back_when_it_is_not_asked_for_any_more(asking: Asking) -> None:
    """Of the process that was created, and of what it has forked since; before the first round and after it."""
    asking.begin("LS", request="500m", oom_score="1000")
    (before,) = asking.values["oom"]  # type: ignore[misc]
    _look(asking)
    asking.hide()
    answer = asking.ask()
    assert answer.adjust and answer.adjust.linux and answer.adjust.linux.oom_score_adj == 1000 != before
    (entry,) = (e for e in asking.journal.entries if e.place.kind is OOM_SCORE_AT_CREATION)
    assert (entry.place.part("cgroup"), entry.describe(), entry.strategy) == (asking.container, str(before), "oomScore")
    asking.node.ticks(asking.agent, 2)
    assert asking.values["oom"] == [1000]
    kinds = [e.place.kind for e in asking.journal.entries if e.strategy == "oomScore"]
    assert set(kinds) == {OOM_SCORE}
    asking.node.pod("late", "LS", "0.2", request="500m")
    asking.node.ticks(asking.agent, 2)
    assert asking.values["oom"] == [before]
    assert not [e for e in asking.journal.entries if e.strategy == "oomScore"]


@pytest.mark.parametrize("rounds", [0, 2], ids=["before any round", "after rounds"])
def test_a_restore_gives_the_oom_score_back_that_the_container_would_have_had(asking: Asking, rounds: int) -> None:
    asking.begin("LS", request="500m", oom_score="1000")
    before = asking.values["oom"]
    _look(asking)
    asking.hide()
    asking.ask()
    assert asking.values["oom"] == [1000]
    asking.node.ticks(asking.agent, rounds)
    assert all(step.ok for step in asking.agent.put_back())
    assert asking.values["oom"] == before
    assert not asking.journal.entries


def test_an_oom_score_of_a_container_that_never_came_to_be_is_forgotten(asking: Asking) -> None:
    asking.begin("LS", request="500m", oom_score="1000")
    _look(asking)
    asking.hide()
    messages = asking.messages()
    asking.creation.create(*messages)
    asking.node.remove("late")
    asking.node.sandbox.advance(1.0)
    asking.node.cluster.view()
    asking.creation.remove(*messages)
    asking.node.ticks(asking.agent, 1)
    assert not [e for e in asking.journal.entries if e.place.kind is OOM_SCORE_AT_CREATION]


def test_the_class_of_rdt_is_answered_only_while_its_group_is_there(tmp_path: Path) -> None:
    """A runtime makes a group that is missing, and nobody would remove it."""
    asking = Asking("intel-2s-ht", tmp_path)
    asking.begin("BE", batch_cpu="500")
    _look(asking)
    asking.hide()
    linux = asking.ask().adjust.linux  # type: ignore[union-attr]
    assert linux and linux.rdt and linux.rdt.clos_id == "BE" == asking.rdt()
    asking.agent.put_back()
    assert asking.rdt() == ""
    assert "BE" not in asking.node.host().resctrl.group_names()
    # The picture is older than the removal.
    answer = asking.creation.create(*asking.messages())
    assert not (answer.adjust and answer.adjust.linux and answer.adjust.linux.rdt)
    asking.close()


@pytest.mark.parametrize(
    ("version", "answered", "left"),
    [
        ((0, 12), (1000, "LS"), ""),
        ((0, 11), (1000, "LS"), ""),
        ((0, 8), (1000, ""), "; left to the next round, as its NRI is too old: class of RDT"),
        ((0, 3), (None, ""), "; left to the next round, as its NRI is too old: oom score, class of RDT"),
    ],
)
def test_a_runtime_is_not_asked_for_what_its_nri_does_not_know(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, version: Version, answered: tuple[int | None, str], left: str
) -> None:
    """It would drop the field without a word, and the journal would claim that it stands there."""
    asking = Asking("intel-2s-ht", tmp_path)
    asking.begin("LS", request="500m", oom_score="1000")
    _look(asking)
    asking.hide()
    with caplog.at_level("INFO"):
        asking.creation.connection("runtime 1.0", "", version)
    adjust = asking.ask().adjust
    linux = (adjust and adjust.linux) or LinuxContainerAdjustment()
    assert (linux.oom_score_adj, linux.rdt.clos_id if linux.rdt else "") == answered
    assert f"runtime 1.0 asks before it creates containers{left}\n" in caplog.text
    noted = [e for e in asking.journal.entries if e.place.kind is OOM_SCORE_AT_CREATION]
    assert bool(noted) == (answered[0] is not None)
    asking.close()


def test_a_class_that_another_program_made_is_not_answered(tmp_path: Path) -> None:
    """With a group of ours the class ends with a restore; one of others stays, and the container in it."""
    asking = Asking("intel-2s-ht", tmp_path)
    asking.begin("BE", batch_cpu="500")
    _look(asking)
    shown = asking.agent.snapshot
    assert shown is not None
    asking.agent.snapshot = dataclasses.replace(shown, ours=frozenset(p for p in shown.ours if not p.kind.is_resctrl))
    asking.hide()
    linux = asking.creation.create(*asking.messages()).adjust
    assert not (linux and linux.linux and linux.linux.rdt)
    asking.close()


def test_an_answer_that_is_not_heard_is_not_ours(asking: Asking) -> None:
    asking.begin("BE", batch_cpu="500")
    asking.agent.begin(frozenset())
    answer = asking.creation.create(*asking.messages())
    assert answer.adjust is not None
    answer.withdraw()
    assert not [e for e in asking.journal.entries if e.place.part("cgroup") == asking.container]
    assert asking.creation.take() == ()
    assert asking.creation.state.results == {"adjusted": 1, "withdrawn": 1}


def test_a_node_that_observes_says_what_it_would_set(tmp_path: Path) -> None:
    asking = Asking("small", tmp_path, mode="observe")
    asking.begin("BE", batch_cpu="500")
    asking.node.ticks(asking.agent, 1)
    asking.hide()
    assert asking.creation.create(*asking.messages()) is NOTHING
    assert asking.creation.state.results == {"wouldAdjust": 1}
    asking.close()


def test_without_a_picture_nothing_is_set(asking: Asking) -> None:
    asking.begin("BE", batch_cpu="500")
    asking.creation.publish(None, {}, {})
    assert asking.creation.create(*asking.messages()) is NOTHING
    asking.node.ticks(asking.agent, 1)
    asking.node.sandbox.advance(60.0)
    assert asking.creation.create(*asking.messages()) is NOTHING
    assert asking.creation.state.results == {"noPicture": 2}


@pytest.mark.parametrize("what", ["path", "parent", "uid"])
def test_a_group_that_is_not_kubelets_is_left_alone(asking: Asking, what: str) -> None:
    asking.begin("BE", batch_cpu="500")
    asking.hide()
    pod, container = asking.messages()
    assert container.linux is not None and pod.linux is not None
    if what == "path":
        linux = dataclasses.replace(container.linux, cgroups_path="/system.slice/x")
        container = dataclasses.replace(container, linux=linux)
    elif what == "parent":
        pod = dataclasses.replace(pod, linux=dataclasses.replace(pod.linux, cgroup_parent="/../../etc"))
    else:
        pod = dataclasses.replace(pod, uid="../../etc")
    assert asking.creation.create(pod, container) is NOTHING
    assert asking.creation.state.results == {"unknownGroup": 1}


def test_a_disk_that_refuses_the_journal_sets_nothing(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    asking.begin("BE", batch_cpu="500")
    asking.node.ticks(asking.agent, 1)
    asking.hide()
    asking.journal.forget([e.place for e in asking.journal.entries if e.place.part("cgroup") == asking.container])

    def full(_self: Journal, _entries: object) -> object:
        raise JournalError("no space left on device")

    monkeypatch.setattr(Journal, "add", full)
    pod, container = asking.messages()
    assert container.linux is not None
    resources = LinuxResources(cpu=LinuxCPU(shares=2))
    container = dataclasses.replace(container, linux=dataclasses.replace(container.linux, resources=resources))
    assert asking.creation.create(pod, container) is NOTHING
    assert asking.creation.state.results == {"noJournal": 1}


def test_what_was_set_is_told_as_set_at_creation(asking: Asking) -> None:
    asking.begin("BE", batch_cpu="500")
    asking.node.ticks(asking.agent, 1)
    asking.hide()
    pod, container = asking.messages()
    assert container.linux is not None
    resources = LinuxResources(cpu=LinuxCPU(shares=2))
    container = dataclasses.replace(container, linux=dataclasses.replace(container.linux, resources=resources))
    asking.creation.create(pod, container)
    tick = asking.agent.tick()
    (step,) = [s for s in tick.applied if s.origin]
    assert (str(step.place), step.value, step.origin) == (f"{asking.container}/cpu.shares", "512", "at creation by NRI")
    assert tick.nri.results["adjusted"] == 1


def test_kubelets_update_becomes_what_a_restore_gives_back(asking: Asking) -> None:
    asking.begin("BE", batch_cpu="500")
    asking.node.ticks(asking.agent, 1)
    pod, container = asking.messages()
    answer = asking.creation.update(pod, container, LinuxResources(cpu=LinuxCPU(shares=700, quota=0)))
    assert answer.resources == LinuxResources(cpu=LinuxCPU(shares=512))
    asking.agent.put_back()
    assert asking.values["cpu.shares"] in (700, asking.cgroups.settled("cpu.shares", 700))


def test_fields_and_file_are_what_they_are_called() -> None:
    assert set(FIELDS) == {"cpu.shares", "cpu.quota", "memory.limit", "cpuset.cpus"}
    assert file.AHEAD == "journal-ahead.txt"


class _Killed(BaseException):
    """The process ends here: nothing after it runs."""


@pytest.mark.parametrize(
    "step", ["before the journal", "half a line", "after the journal", "after the answer", "after the start"]
)
def test_killed_at_every_step_of_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Whatever came of the answer, a restore gives the container what it would have had."""
    asking = Asking("small", tmp_path)
    asking.begin("BE", batch_cpu="500")
    asking.agent.begin(frozenset())
    before = asking.values
    add = Journal.add

    def killed(self: Journal, entries: Any) -> Any:
        if step != "before the journal":
            add(self, entries)
        raise _Killed

    if step in ("after the answer", "after the start"):
        answer = asking.creation.create(*asking.messages())
        assert answer.adjust and answer.adjust.linux
        if step == "after the start":
            asking.make(answer.adjust.linux.resources)
            assert asking.values != before
    else:
        with monkeypatch.context() as patched:
            patched.setattr(Journal, "add", killed)
            with pytest.raises(_Killed):
                asking.creation.create(*asking.messages())
        if step == "half a line":
            path = asking.node.state / file.AHEAD
            path.write_bytes(path.read_bytes()[:-20])
    asking.journal.close()
    asking.journal = asking.node.journal()
    restored = asking.node.agent(asking.journal, nri="auto").put_back()
    assert all(done.ok for done in restored)
    # Its set follows those above, which are put back as well.
    assert {**asking.values, "cpuset.cpus": None} == {**before, "cpuset.cpus": None}
    assert not asking.journal.entries
    asking.close()


def test_explain_file_says_that_nri_set_it(asking: Asking) -> None:
    asking.begin("BE", batch_cpu="500")
    asking.agent.begin(frozenset())
    asking.ask()
    (step,) = (step for step in asking.agent.tick().applied if step.origin)
    write = Write(time=0.0, wall=0.0, step=step, cause=None)
    assert ", set at creation by NRI" in "".join(pieces.written(write))


@pytest.mark.parametrize("named", ["", "0-1"])
def test_a_set_that_another_plugin_has_named_is_not_named_again(asking: Asking, named: str) -> None:
    """A DRA driver names the set of every container; a runtime refuses a container of which two plugins name it."""
    asking.begin("LS")
    asking.agent.begin(frozenset())
    pod, container = asking.messages()
    assert container.linux is not None and container.linux.resources is not None
    resources = container.linux.resources
    cpu = dataclasses.replace(resources.cpu or LinuxCPU(), cpus=named)
    linux = dataclasses.replace(container.linux, resources=dataclasses.replace(resources, cpu=cpu))
    basis = asking.creation._basis
    assert basis is not None
    reserved = dataclasses.replace(basis.snapshot, reserved=ResolvedReservation(CPUSet([0])))
    asking.creation.publish(reserved, basis.modes, basis.settings)
    answer = asking.creation.create(pod, dataclasses.replace(container, linux=linux))
    answered = answer.adjust and answer.adjust.linux and answer.adjust.linux.resources
    assert bool(answered and answered.cpu and answered.cpu.cpus) == (not named), answer


def test_an_agent_that_must_be_asked_is_degraded_while_no_runtime_asks(tmp_path: Path) -> None:
    asking = Asking("small", tmp_path, nri="required")
    (tick,) = asking.node.ticks(asking.agent, 1)
    assert (tick.status, tick.because) == ("degraded", "agent.nri is required, and no runtime asks: not connected yet")
    asking.creation.connection("", "/run/nri.sock: No such file or directory")
    (tick,) = asking.node.ticks(asking.agent, 1)
    assert tick.because == "agent.nri is required, and no runtime asks: /run/nri.sock: No such file or directory"
    asking.creation.connection("containerd v2.3.4", "")
    (tick,) = asking.node.ticks(asking.agent, 1)
    assert (tick.status, tick.because) == ("enforcing", "")
    asking.close()


def test_without_being_required_it_may_be_missing(tmp_path: Path) -> None:
    asking = Asking("small", tmp_path)
    asking.creation.connection("", "/run/nri.sock: No such file or directory")
    (tick,) = asking.node.ticks(asking.agent, 1)
    assert tick.status == "enforcing"
    facts = {fact.name: fact.value for fact in view.inputs(tick)}
    assert facts["before the first process"] == "no runtime asks by NRI: /run/nri.sock: No such file or directory"
    asking.close()


def test_answers_are_in_the_status_and_in_the_metrics(tmp_path: Path) -> None:
    asking = Asking("small", tmp_path)
    asking.begin("BE", batch_cpu="500")
    asking.agent.begin(frozenset())
    asking.creation.connection("containerd v2.3.4", "")
    asking.ask()
    asking.creation.answered("CreateContainer", "answered", 0.003)
    asking.creation.answered("CreateContainer", "late", 1.0)
    tick = asking.agent.tick()
    facts = {fact.name: fact.value for fact in view.inputs(tick)}
    said = "containerd v2.3.4 asks by NRI: 1 set at creation, 1 without an answer of ours"
    assert facts["before the first process"] == said
    metrics = Metrics(started=0.0)
    metrics.observe_tick(tick)

    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(name, {"node": tick.node, **labels})

    assert value("koordlite_nri_connected") == 1
    assert value("koordlite_nri_answers_total", method="CreateContainer", outcome="late") == 1
    assert value("koordlite_nri_results_total", result="adjusted") == 1
    assert value("koordlite_nri_answer_seconds_count", method="CreateContainer") == 2
    assert value("koordlite_nri_answer_seconds_sum", method="CreateContainer") == 1.003
    asking.close()


@pytest.fixture
def serving(asking: Asking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Creation]:
    monkeypatch.setattr("koordlite.creation._WAY_SECONDS", LONG_SECONDS)
    with asking.creation.serving(str(tmp_path / "no.sock"), "10"):
        yield asking.creation


def test_the_main_thread_stands_still_wherever_it_is_until_an_answer_is_sent(serving: Creation) -> None:
    at = list[str]()

    def answer() -> None:
        end = time.monotonic() + LONG_SECONDS
        with serving.answering():
            while "_give_way" not in at and time.monotonic() < end:
                at.append(sys._current_frames()[threading.main_thread().ident or 0].f_code.co_name)

    answers = threading.Thread(target=answer)
    answers.start()
    while answers.is_alive():
        pass
    assert at[-1] == "_give_way"


def test_whoever_is_writing_the_journal_goes_on(serving: Creation) -> None:
    assert serving.journal is not None
    began = time.monotonic()
    with serving._turn, serving.journal._changing:
        signal.raise_signal(signal.SIGUSR1)
    assert time.monotonic() - began < LONG_SECONDS / 2


def test_an_answer_that_is_never_sent_stops_the_main_thread_for_a_moment_only(
    serving: Creation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("koordlite.creation._WAY_SECONDS", 0.001)
    began = time.monotonic()
    with serving._turn:
        signal.raise_signal(signal.SIGUSR1)
    assert 0.001 <= time.monotonic() - began < LONG_SECONDS / 2


def test_afterwards_the_signal_is_what_it_was(asking: Asking, tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGUSR1)
    with asking.creation.serving(str(tmp_path / "no.sock"), "10"):
        assert signal.getsignal(signal.SIGUSR1) != before
    assert signal.getsignal(signal.SIGUSR1) == before
    with asking.creation.answering():
        pass
