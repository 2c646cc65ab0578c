"""The plugin against a runtime that keeps containerd's rules."""

from __future__ import annotations

import contextlib
import pathlib
import threading
from collections import Counter
from collections.abc import Iterator, Sequence

import nri_runtime
import pytest
from nri_runtime import LONG_SECONDS, Runtime

from koordlite.nri import (
    Answer,
    Container,
    ContainerAdjustment,
    Handler,
    LinuxContainerAdjustment,
    LinuxCPU,
    LinuxResources,
    Outcome,
    Plugin,
    PodSandbox,
    Version,
    messages,
)
from koordlite.nri.plugin import _version as plugin_version
from koordlite.nri.protobuf import decode
from koordlite.nri.ttrpc import PLUGIN, REQUEST, Frame, framed

POD = PodSandbox(id="p1", name="web", uid="u1", namespace="default")
MAIN = Container(id="c1", pod_sandbox_id="p1", name="main")
SHARES = LinuxResources(cpu=LinuxCPU(shares=2))


class Recorder(Handler):
    """Notes what it is told, and gives every container 2 shares."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.outcomes: list[tuple[str, Outcome]] = []
        self.reports: list[tuple[str, str]] = []
        self.reported = threading.Condition()
        self.release, self.withdrawn = threading.Event(), threading.Event()
        self.slow = False
        self.fault: Exception | None = None

    def synchronize(self, pods: Sequence[PodSandbox], containers: Sequence[Container]) -> None:
        self.calls.append(f"synchronize {len(pods)} pods, {len(containers)} containers")

    def create(self, pod: PodSandbox, container: Container) -> Answer:
        self.calls.append(f"create {container.name}")
        if self.fault:
            raise self.fault
        if self.slow:
            assert self.release.wait(LONG_SECONDS)
        linux = LinuxContainerAdjustment(resources=SHARES)
        return Answer(adjust=ContainerAdjustment(linux=linux), withdraw=self.withdrawn.set)

    def update(self, pod: PodSandbox, container: Container, resources: LinuxResources) -> Answer:
        self.calls.append(f"update {container.name}")
        return Answer(resources=SHARES)

    def started(self, pod: PodSandbox, container: Container) -> None:
        self.calls.append(f"started {container.name}")

    def remove(self, pod: PodSandbox, container: Container) -> None:
        self.calls.append(f"remove {container.name}")

    def answered(self, method: str, outcome: Outcome, seconds: float) -> None:
        with self.reported:
            self.outcomes.append((method, outcome))
            self.reported.notify_all()

    def connection(self, runtime: str, why: str, version: Version = (0, 0)) -> None:
        with self.reported:
            self.version = version
            self.reports.append((runtime, why))
            self.reported.notify_all()

    def wait_for(self, what: str, times: int = 1) -> None:
        """Until the runtime (or why there is none) has been reported so often with this text in it."""
        with self.reported:
            assert self.reported.wait_for(
                lambda: sum(what in " ".join(r) for r in self.reports) >= times, timeout=LONG_SECONDS
            ), self.reports

    def wait_for_outcome(self, outcome: tuple[str, Outcome]) -> None:
        with self.reported:
            assert self.reported.wait_for(lambda: outcome in self.outcomes, timeout=LONG_SECONDS), self.outcomes


@contextlib.contextmanager
def serving(path: str, handler: Recorder) -> Iterator[Plugin]:
    plugin = Plugin(handler, name="test", index="50", path=path, pause=lambda _: 0.01)
    thread = threading.Thread(target=plugin.run)
    thread.start()
    try:
        yield plugin
    finally:
        handler.release.set()
        plugin.stop()
        thread.join(LONG_SECONDS)
        assert not thread.is_alive()


@pytest.fixture
def handler() -> Recorder:
    return Recorder()


@pytest.fixture
def runtime(tmp_path: pathlib.Path, handler: Recorder) -> Iterator[Runtime]:
    with nri_runtime.running(tmp_path) as runtime, serving(runtime.path, handler):
        runtime.welcome((POD,), (MAIN,))
        yield runtime


def test_it_registers_and_asks_for_no_event_that_could_stop_a_container(runtime: Runtime, handler: Recorder) -> None:
    assert runtime.registered == messages.RegisterPluginRequest(
        plugin_name="test", plugin_idx="50", nri_version="v0.12.0"
    )
    assert runtime.mask == 0x8 | 0x40 | 0x80 | 0x400
    handler.wait_for("containerd v2.3.4")
    assert handler.calls == ["synchronize 1 pods, 1 containers"]


def test_answers_reach_the_runtime(runtime: Runtime, handler: Recorder) -> None:
    assert runtime.create(POD, MAIN) == LinuxContainerAdjustment(resources=SHARES)
    assert runtime.update(POD, MAIN, LinuxResources()) == SHARES
    assert not handler.withdrawn.is_set()


@pytest.mark.parametrize("by_method", [True, False], ids=["as its own method", "as a StateChange"])
def test_events_come_in_both_styles(runtime: Runtime, handler: Recorder, by_method: bool) -> None:
    for number, method in (
        (1, "RunPodSandbox"),
        (7, "PostStartContainer"),
        (11, "RemoveContainer"),
        (3, "RemovePodSandbox"),
    ):
        event: object = messages.ContainerEvent(pod=POD, container=MAIN)
        if not by_method:
            event = messages.StateChange(event=number, pod=POD, container=MAIN)
        assert runtime.call(method if by_method else "StateChange", event)[0] == b""
    assert handler.calls[1:] == ["started main", "remove main"]


def test_a_state_change_adjusts_nothing(runtime: Runtime, handler: Recorder) -> None:
    assert runtime.call("StateChange", messages.StateChange(event=4, pod=POD, container=MAIN))[0] == b""
    assert handler.calls[1:] == []


def test_pieces_of_a_synchronize_are_answered_alike_and_taken_together(runtime: Runtime, handler: Recorder) -> None:
    for more in (True, True, False):
        payload, _ = runtime.call(
            "Synchronize", messages.SynchronizeRequest(containers=(MAIN,), pods=(POD,), more=more)
        )
        assert decode(messages.SynchronizeResponse, payload) == messages.SynchronizeResponse(more=more)
    runtime.create(POD, MAIN)
    assert handler.calls[1:] == ["synchronize 3 pods, 3 containers", "create main"]


def test_a_late_answer_is_no_adjustment_and_is_withdrawn(tmp_path: pathlib.Path, handler: Recorder) -> None:
    """Half of 400 ms passes, then the runtime has an empty answer; while the handler is still at it, others get one at
    once."""
    handler.slow = True
    with nri_runtime.running(tmp_path, timeout_ms=400) as runtime, serving(runtime.path, handler):
        runtime.welcome()
        payload, seconds = runtime.call("CreateContainer", messages.ContainerEvent(pod=POD, container=MAIN))
        assert payload == b"" and seconds >= 0.19
        assert runtime.create(POD, MAIN) is None
        handler.wait_for_outcome(("CreateContainer", "busy"))
        assert handler.outcomes[-2:] == [("CreateContainer", "late"), ("CreateContainer", "busy")]
        assert not handler.withdrawn.is_set()
        handler.release.set()
        assert handler.withdrawn.wait(LONG_SECONDS)
        handler.slow = False


def test_a_plugin_that_answers_after_the_runtime_has_given_up_is_dropped_and_comes_back(
    tmp_path: pathlib.Path, handler: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As containerd does it: the container is created as if there were no plugin, and nobody hears of an error. Our
    own deadline, half of the runtime's, is what keeps this from happening."""
    monkeypatch.setattr("koordlite.nri.plugin.PATIENCE", 1000.0)
    handler.slow = True
    with nri_runtime.running(tmp_path, timeout_ms=200) as runtime, serving(runtime.path, handler):
        runtime.welcome()
        assert runtime.create(POD, MAIN) is None
        handler.slow = False
        handler.release.set()
        runtime.timeout_ms = 60_000
        runtime.welcome((POD,))
        assert runtime.create(POD, MAIN) is not None


def test_a_fault_is_no_adjustment(runtime: Runtime, handler: Recorder, caplog: pytest.LogCaptureFixture) -> None:
    handler.fault = RuntimeError("a fault of the test")
    assert runtime.create(POD, MAIN) is None
    handler.wait_for_outcome(("CreateContainer", "fault"))
    assert "a fault of the test" in caplog.text
    handler.fault = None
    assert runtime.create(POD, MAIN) is not None


@pytest.mark.parametrize("payload", [b"\xff\xff", b"\x0a\x7fabc", b"\x08\x01"])
def test_a_call_that_cannot_be_read_is_no_adjustment(runtime: Runtime, handler: Recorder, payload: bytes) -> None:
    """An error in place of an answer would fail the container."""
    assert runtime.call("CreateContainer", payload)[0] == b""
    handler.wait_for_outcome(("CreateContainer", "unreadable"))
    assert runtime.create(POD, MAIN) is not None


def test_a_call_without_a_pod_is_no_adjustment(runtime: Runtime, handler: Recorder) -> None:
    assert runtime.call("CreateContainer", messages.ContainerEvent(container=MAIN))[0] == b""
    assert handler.calls[1:] == []


def test_it_comes_back_to_a_runtime_that_was_away(tmp_path: pathlib.Path, handler: Recorder) -> None:
    """The socket's file is not there, then it is and nobody listens, then the runtime is back."""
    with serving(str(tmp_path / "nri.sock"), handler):
        handler.wait_for("No such file")
        with nri_runtime.running(tmp_path) as runtime:
            runtime.welcome()
            assert runtime.create(POD, MAIN) is not None
        handler.wait_for("Connection refused")
        with nri_runtime.running(tmp_path) as runtime:
            runtime.welcome((POD,))
            assert runtime.create(POD, MAIN) is not None
    assert [call for call in handler.calls if call.startswith("synchronize")] == [
        "synchronize 0 pods, 0 containers",
        "synchronize 1 pods, 0 containers",
    ]


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ((1).to_bytes(4) + b"\xff\xff\xff\xff", "a mux frame of 4294967295 bytes"),
        (framed(Frame(PLUGIN, 99, REQUEST, b"\xff")), "a call that cannot be read"),
    ],
)
def test_a_runtime_that_speaks_nonsense_is_left_and_tried_again(
    runtime: Runtime, handler: Recorder, raw: bytes, why: str
) -> None:
    runtime.send_bytes(raw)
    assert runtime.gone()
    handler.wait_for(why)
    runtime.welcome()
    assert runtime.create(POD, MAIN) is not None


def test_a_refused_registration_is_told_in_the_words_of_the_runtime(tmp_path: pathlib.Path, handler: Recorder) -> None:
    """As containerd answers it, with the socket left open."""
    with nri_runtime.running(tmp_path) as runtime:
        plugin = Plugin(handler, name="test", index="50", path=runtime.path, pause=lambda _: 0.01)
        plugin._index = "5x"  # What the constructor refuses.
        thread = threading.Thread(target=plugin.run)
        thread.start()
        runtime.welcome()
        assert runtime.gone()
        plugin.stop()
        thread.join(LONG_SECONDS)
        handler.wait_for('the plugin: invalid plugin index: invalid plugin index "5x" (not [0-9][0-9]) (code 2)')


def test_a_runtime_that_never_takes_the_plugin_does_not_hold_it(tmp_path: pathlib.Path) -> None:
    """By an own clock, since the registration may take 5 s."""
    handler, now = Recorder(), [0.0]
    with nri_runtime.running(tmp_path) as runtime:
        plugin = Plugin(
            handler, name="test", index="50", path=runtime.path, monotonic=lambda: now[0], pause=lambda _: 0.01
        )
        thread = threading.Thread(target=plugin.run)
        thread.start()
        runtime.accept()
        runtime.receive()
        now[0] = 5.1
        assert runtime.gone()
        handler.wait_for("not taken the plugin in time")
        plugin.stop()
        thread.join(LONG_SECONDS)


@pytest.mark.parametrize(
    ("name", "index"), [("", "50"), ("a/b", "50"), ("a", "5"), ("a", "5x"), ("a", "500"), ("a", "٥٠")]
)
def test_names_that_every_runtime_refuses_are_refused_here(name: str, index: str) -> None:
    with pytest.raises(ValueError, match="plugin"):
        Plugin(Handler(), name=name, index=index)


@pytest.mark.parametrize(
    ("name", "counts", "version"),
    [
        ("01_register_sync_empty", (0, 0, 0), (0, 12)),
        ("02_lifecycle_dedicated_rpc", (0, 1, 1), (0, 12)),
        ("03_lifecycle_statechange_fallback", (0, 1, 1), (0, 12)),
        ("04_create_kinds", (0, 4, 0), (0, 12)),
        ("05_sync_3_pods", (3, 0, 0), (0, 12)),
        ("08_update_container", (1, 0, 13), (0, 12)),
        ("19_sync_60_pods", (60, 0, 0), (0, 12)),
        ("23_preinstalled_plugin", (3, 1, 0), (0, 12)),
        ("30_containerd_2_1_lifecycle", (1, 4, 2), (0, 8)),
        ("31_containerd_2_2_lifecycle", (1, 4, 1), (0, 11)),
    ],
)
def test_recorded_conversations_are_answered_call_by_call(
    tmp_path: pathlib.Path,
    name: str,
    counts: tuple[int, int, int],
    version: Version,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Byte by byte what containerd 2.1, 2.2 and 2.3 sent: methods of their own and StateChange. `counts`: pods at the
    start, creations and updates; `version`: of NRI, which the first two do not say."""
    monkeypatch.setattr("koordlite.nri.plugin.PATIENCE", 15.0)  # They say 2 s, and this machine may stand still.
    handler = Recorder()
    with nri_runtime.running(tmp_path) as runtime, serving(runtime.path, handler):
        runtime.accept()
        runtime.receive()
        streams = nri_runtime.Streams()
        created = answered = 0
        for way, _, raw in nri_runtime.recorded(name):
            if way != "runtime->plugin":
                continue
            runtime.send_bytes(raw)
            for sent in streams.feed(raw):
                if sent.type != REQUEST:
                    continue
                call = decode(messages.Request, sent.body)
                frame = runtime.receive()
                response = decode(messages.Response, frame.body)
                assert frame.stream == sent.stream
                answered += 1
                known = call.method in ("Configure", "Synchronize", "StateChange") or call.method in nri_runtime.METHODS
                assert (response.status is None) == known, call.method
                if call.method == "CreateContainer":
                    created += 1
                    adjust = decode(messages.CreateContainerResponse, response.payload).adjust
                    assert adjust and adjust.linux and adjust.linux.resources == SHARES
        handler.wait_for("containerd")
    assert answered > 1
    assert created == sum(call.startswith("create ") for call in handler.calls)
    told = Counter(call.split(" ")[0] for call in handler.calls)
    pods = sum(int(call.split(" ")[1]) for call in handler.calls if call.startswith("synchronize "))
    assert (pods, created, told["update"]) == counts, handler.calls
    assert handler.version == version


@pytest.mark.parametrize(
    ("runtime", "said", "version"),
    [
        ("containerd v1.7.27", "", (0, 3)),
        ("containerd v2.0.0", "", (0, 8)),
        ("containerd v2.10.1", "", (0, 11)),
        ("containerd 1a2b3c", "", (0, 3)),
        ("cri-o 1.34.1", "", (0, 3)),
        ("cri-o 1.36.0", "v0.12.2", (0, 12)),
        ("containerd v2.9.0", "v1.0.0-rc.1", (1, 0)),
        ("containerd v2.9.0", "devel", (0, 0)),
    ],
)
def test_the_version_of_nri_is_what_the_runtime_says_or_what_it_has_at_least(
    runtime: str, said: str, version: Version
) -> None:
    name, _, number = runtime.partition(" ")
    asked = messages.ConfigureRequest(runtime_name=name, runtime_version=number, nri_version=said)
    assert plugin_version(asked) == version
