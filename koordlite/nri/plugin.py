"""A plugin of NRI: registers with the runtime, answers its calls in time, and comes back when the runtime was away.

A plugin must never be why a container does not start. So nothing a handler does reaches the runtime as an error: what
fails, is late or cannot be read is answered with "no adjustment". Handlers run in a thread of their own; while one is
still at a call that was given up, later calls are answered at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import queue
import random
import re
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Literal

from koordlite.nri import messages
from koordlite.nri.messages import Container, ContainerAdjustment, LinuxResources, PodSandbox
from koordlite.nri.protobuf import decode, encode
from koordlite.nri.ttrpc import PLUGIN, REQUEST, RESPONSE, RUNTIME, Frame, Link, ProtocolError

LOG = logging.getLogger(__name__)

SOCKET = "/var/run/nri/nri.sock"
"""Default socket of containerd and CRI-O."""
REGISTRATION_SECONDS, REQUEST_SECONDS = 5.0, 2.0
"""Time for which a runtime waits that does not say."""
PATIENCE = 0.5
"""Part of the time the runtime waits within which it is answered, whatever the handler does."""
MOST_SYNCHRONIZED = 100_000
"""Pods and containers that are taken from one Synchronize: the pieces have no bound of their own."""
_PAUSES = (0.1, 5.0)
"""Shortest and longest pause until the next try to connect."""
_SETTLED_SECONDS = 10.0
"""A connection that lasted so long begins with the shortest pause again."""
_PIECE_SECONDS = 0.25
_SERVICE, _RUNTIME = "nri.pkg.api.v1alpha1.Plugin", "nri.pkg.api.v1alpha1.Runtime"
_UNKNOWN, _UNIMPLEMENTED = 2, 12
_EVENTS = {
    "RunPodSandbox": 1,
    "StopPodSandbox": 2,
    "RemovePodSandbox": 3,
    "CreateContainer": 4,
    "PostCreateContainer": 5,
    "StartContainer": 6,
    "PostStartContainer": 7,
    "UpdateContainer": 8,
    "PostUpdateContainer": 9,
    "StopContainer": 10,
    "RemoveContainer": 11,
}
_METHODS = {number: name for name, number in _EVENTS.items()}
SUBSCRIBED = (
    "CreateContainer",
    "PostStartContainer",
    "UpdateContainer",
    "RemoveContainer",
)
"""Nothing of a pod can be set by NRI, so that calls about pods would only cost. Never ValidateContainerAdjustment: a
dead plugin that asked for it makes the next creation fail."""

Version = tuple[int, int]
"""Version of NRI, major and minor."""
VERSION: Version = (0, 12)
"""The newest one of which this library knows the messages."""
OOM_SCORE_SINCE: Version = (0, 7)
RDT_SINCE: Version = (0, 11)
"""Older runtimes drop `LinuxContainerAdjustment.oom_score_adj` and `rdt` without a word."""
_VERSIONS: tuple[tuple[Version, Version], ...] = (((2, 2), (0, 11)), ((2, 0), (0, 8)))
"""Versions of NRI by the first of containerd that has them; before 0.12 it does not say so itself."""
_OLDEST: Version = (0, 3)

Outcome = Literal["answered", "late", "busy", "unreadable", "fault"]


class NRIError(Exception):
    """The runtime has refused the plugin, in its own words."""


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """Answer of a handler about one container. Without an adjustment or resources nothing is to differ."""

    adjust: ContainerAdjustment | None = None
    """Answer at creation."""
    resources: LinuxResources | None = None
    """Answer at an update."""
    withdraw: Callable[[], None] = lambda: None
    """Called when the runtime will not hear this answer."""


NOTHING = Answer()


class Handler:
    """Handler of the plugin's events; as it stands, nothing. Every method may take its time and raise what it likes."""

    def answering(self) -> contextlib.AbstractContextManager[None]:
        """Enclose the answer to a call, from its receipt until it is sent, in the thread that answers. It must neither
        wait nor raise."""
        return contextlib.nullcontext()

    def synchronize(self, pods: Sequence[PodSandbox], containers: Sequence[Container]) -> None:
        """Take in all that is there: after each connection."""

    def create(self, pod: PodSandbox, container: Container) -> Answer:
        """Answer what is to differ of a container that is about to be created."""
        return NOTHING

    def started(self, pod: PodSandbox, container: Container) -> None:
        """A container runs."""

    def update(self, pod: PodSandbox, container: Container, resources: LinuxResources) -> Answer:
        """Answer what is to differ of an update that kubelet asks for."""
        return NOTHING

    def remove(self, pod: PodSandbox, container: Container) -> None:
        """A container is gone, or has never come to be."""

    def answered(self, method: str, outcome: Outcome, seconds: float) -> None:
        """Count a call that was answered. Called in the thread that answers: it must be quick."""

    def connection(self, runtime: str, why: str, version: Version = VERSION) -> None:
        """Note that the runtime of this name and version has accepted the plugin, or why none has; and which NRI it
        speaks at least."""


Work = Callable[[Callable[[], None]], None]
"""The work of a thread, which calls its argument at least every second while it has nothing else to do."""


def _begin_thread(work: Work) -> None:
    threading.Thread(target=work, args=(lambda: None,), name="nri handler", daemon=True).start()


class Plugin:
    """One plugin of one runtime. `run` blocks until `stop` is called, from another thread."""

    def __init__(
        self,
        handler: Handler,
        *,
        name: str,
        index: str,
        path: str = SOCKET,
        monotonic: Callable[[], float] = time.monotonic,
        pause: Callable[[float], float] = lambda longest: random.uniform(longest / 2, longest),
        begin_thread: Callable[[Work], None] = _begin_thread,
    ) -> None:
        """`index` places the plugin among others: two digits, lower ones are asked first. `pause` draws the pause until
        the next try, from the longest it may be; `begin_thread` begins the thread of the handler. ValueError for a name
        or an index that every runtime refuses."""
        if not re.fullmatch(r"[0-9]{2}", index):
            raise ValueError(f"plugin index {index!r}: two digits are needed")
        if not name or "/" in name:
            raise ValueError(f"plugin name {name!r}: it must not be empty or have a slash")
        self._handler, self._name, self._index, self._path = handler, name, index, path
        self._now, self._pause, self._begin_thread = monotonic, pause, begin_thread
        self._stop = threading.Event()
        self._calls: queue.SimpleQueue[tuple[Future[Answer], Callable[[], Answer]] | None] = queue.SimpleQueue()
        self._last: Future[Answer] | None = None

    def run(self, beat: Callable[[], None] = lambda: None) -> None:
        """Serve until stopped; `beat` is called at least every few seconds."""
        self._begin_thread(self._work)
        longest = _PAUSES[0]
        try:
            while not self._stop.is_set():
                began = self._now()
                try:
                    self._serve(beat)
                except (OSError, ValueError, NRIError) as error:
                    self._handler.connection("", f"{self._path}: {_words(error)}")
                if self._now() - began >= _SETTLED_SECONDS:
                    longest = _PAUSES[0]
                beat()
                self._stop.wait(self._pause(longest))
                longest = min(2 * longest, _PAUSES[1])
        finally:
            self._calls.put(None)

    def stop(self) -> None:
        """Leave the runtime. What was adjusted stays so."""
        self._stop.set()

    def _work(self, beat: Callable[[], None]) -> None:
        while True:
            beat()
            try:
                call = self._calls.get(timeout=_PIECE_SECONDS)
            except queue.Empty:
                continue
            if call is None:
                return
            future, work = call
            try:
                future.set_result(work())
            except Exception as error:  # noqa: BLE001 - whatever it is, the container starts
                future.set_exception(error)

    def _serve(self, beat: Callable[[], None]) -> None:
        """One connection, from its beginning to its end. OSError, ValueError or NRIError say why it ended."""
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with contextlib.closing(connected):
            connected.settimeout(_PIECE_SECONDS)
            connected.connect(self._path)
            session = _Session(Link(connected), self._handler, self._at_handler, self._now)
            session.register(self._name, self._index)
            while not self._stop.is_set():
                session.turn(_PIECE_SECONDS)
                beat()

    def _at_handler(self, work: Callable[[], Answer], seconds: float) -> tuple[Answer, Outcome]:
        """Ask the handler, and wait no longer than it may take. An answer that comes later is withdrawn."""
        if self._last is not None and not self._last.done():
            return NOTHING, "busy"
        future = self._last = Future[Answer]()
        self._calls.put((future, work))
        try:
            error = future.exception(max(seconds, 0.0))
        except TimeoutError:
            future.add_done_callback(_withdraw)
            return NOTHING, "late"
        if error is not None:
            LOG.error("a fault in the answer to the runtime: %r", error, exc_info=error)
            return NOTHING, "fault"
        return future.result(), "answered"


def _withdraw(late: Future[Answer]) -> None:
    if late.exception() is None:
        late.result().withdraw()


class _Session:
    """One connection to a runtime."""

    def __init__(
        self,
        link: Link,
        handler: Handler,
        at_handler: Callable[[Callable[[], Answer], float], tuple[Answer, Outcome]],
        now: Callable[[], float],
    ) -> None:
        self._link, self._handler, self._at_handler, self._now = link, handler, at_handler, now
        self._pods: list[PodSandbox] = []
        self._containers: list[Container] = []
        self._request_seconds = REQUEST_SECONDS
        self._runtime, self._version = "", _OLDEST
        self._due: float | None = now() + REGISTRATION_SECONDS
        """Time by which the runtime has to have synchronized."""

    def register(self, name: str, index: str) -> None:
        """Ask to be taken. The runtime may call Configure before it answers."""
        version = ".".join(map(str, (*VERSION, 0)))
        registration = messages.RegisterPluginRequest(plugin_name=name, plugin_idx=index, nri_version=f"v{version}")
        call = messages.Request(
            service=_RUNTIME,
            method="RegisterPlugin",
            payload=encode(registration),
            timeout_nano=int(REGISTRATION_SECONDS * 1e9),
        )
        self._link.send(Frame(RUNTIME, 1, REQUEST, encode(call)))

    def turn(self, seconds: float) -> None:
        """Wait for messages at most so long, and answer them."""
        for frame in self._link.receive(seconds):
            if (frame.connection, frame.stream, frame.type) == (RUNTIME, 1, RESPONSE):
                status = decode(messages.Response, frame.body).status
                if status is not None and status.code:
                    raise NRIError(f"the runtime refuses the plugin: {status.message} (code {status.code})")
            elif frame.connection == PLUGIN and frame.type == REQUEST:
                self._called(frame)
        if self._due is not None and self._now() > self._due:
            raise TimeoutError("the runtime has not taken the plugin in time")

    def _called(self, frame: Frame) -> None:
        began = self._now()
        try:
            call = decode(messages.Request, frame.body)
        except ValueError as error:
            raise ProtocolError(f"a call that cannot be read: {error}") from error
        if call.service != _SERVICE:
            self._refuse(frame, _UNIMPLEMENTED, f"service {call.service[:80]}")
        elif call.method == "Configure":
            self._configure(frame, decode(messages.ConfigureRequest, call.payload))
        elif call.method == "Synchronize":
            self._synchronize(frame, call)
        elif call.method == "StateChange" or call.method in _EVENTS:
            with self._handler.answering():
                self._event(frame, call, began)
        else:
            self._refuse(frame, _UNIMPLEMENTED, f"method {call.method[:80]}")

    def _configure(self, frame: Frame, config: messages.ConfigureRequest) -> None:
        self._runtime = f"{config.runtime_name} {config.runtime_version}"[:120]
        self._version = _version(config)
        if config.request_timeout > 0:
            self._request_seconds = config.request_timeout / 1000
        mask = sum(1 << (_EVENTS[name] - 1) for name in SUBSCRIBED)
        self._reply(frame, messages.ConfigureResponse(events=mask))

    def _synchronize(self, frame: Frame, call: messages.Request) -> None:
        piece = decode(messages.SynchronizeRequest, call.payload)
        self._pods += piece.pods
        self._containers += piece.containers
        if len(self._pods) + len(self._containers) > MOST_SYNCHRONIZED:
            raise ProtocolError(f"more than {MOST_SYNCHRONIZED} pods and containers")
        self._reply(frame, messages.SynchronizeResponse(more=piece.more))
        if piece.more:
            return
        pods, containers, began = tuple(self._pods), tuple(self._containers), self._now()
        self._pods, self._containers, self._due = [], [], None
        work = _notice(lambda: self._handler.synchronize(pods, containers))
        _, outcome = self._at_handler(work, self._patience(call))
        self._handler.connection(self._runtime, "", self._version)
        self._handler.answered("Synchronize", outcome, self._now() - began)

    def _event(self, frame: Frame, call: messages.Request, began: float) -> None:
        method, answer = call.method, NOTHING
        outcome: Outcome
        try:
            if method == "StateChange":
                change = decode(messages.StateChange, call.payload)
                method = _METHODS.get(change.event, "StateChange")
                event = messages.ContainerEvent(pod=change.pod, container=change.container)
            else:
                event = decode(messages.ContainerEvent, call.payload)
        except ValueError as error:
            LOG.warning("a call of %s cannot be read, and gets no adjustment: %s", method, error)
            outcome = "unreadable"
        else:
            work = self._work(method, event, is_notice=call.method == "StateChange")
            patience = self._patience(call) - (self._now() - began)
            answer, outcome = self._at_handler(work, patience) if work else (NOTHING, "answered")
        try:
            self._reply(frame, _response(call.method, event.container if outcome == "answered" else None, answer))
        except BaseException:
            answer.withdraw()
            raise
        self._handler.answered(method, outcome, self._now() - began)

    def _work(self, method: str, event: messages.ContainerEvent, *, is_notice: bool) -> Callable[[], Answer] | None:
        """Call at the handler; None for an event that is none of its own, or names nobody. A notice
        (StateChange) asks for no adjustment."""
        handler, pod, container = self._handler, event.pod, event.container
        if pod is None:
            return None
        if container is None or (is_notice and method in ("CreateContainer", "UpdateContainer")):
            return None
        if method == "CreateContainer":
            return lambda: handler.create(pod, container)
        if method == "UpdateContainer":
            return lambda: handler.update(pod, container, event.linux_resources or LinuxResources())
        about = {"PostStartContainer": handler.started, "RemoveContainer": handler.remove}.get(method)
        return _notice(lambda: about(pod, container)) if about else None

    def _patience(self, call: messages.Request) -> float:
        seconds = call.timeout_nano / 1e9 if call.timeout_nano > 0 else self._request_seconds
        return PATIENCE * min(seconds, self._request_seconds)

    def _reply(self, frame: Frame, answer: Any) -> None:
        payload = encode(answer)
        self._link.send(Frame(PLUGIN, frame.stream, RESPONSE, encode(messages.Response(payload=payload))))

    def _refuse(self, frame: Frame, code: int, what: str) -> None:
        status = messages.Status(code=code, message=f"{what}: not served")
        self._link.send(Frame(PLUGIN, frame.stream, RESPONSE, encode(messages.Response(status=status))))


def _version(config: messages.ConfigureRequest) -> Version:
    if config.nri_version:
        return _numbers(config.nri_version)
    theirs = _numbers(config.runtime_version) if config.runtime_name == "containerd" else (0, 0)
    return next((version for first, version in _VERSIONS if theirs >= first), _OLDEST)


def _numbers(text: str) -> Version:
    """Major and minor of `v2.1.9`; 0.0 where there are none."""
    numbers = re.match(r"v?([0-9]{1,6})\.([0-9]{1,6})", text)
    return (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)


def _response(method: str, container: Container | None, answer: Answer) -> Any:
    if method == "CreateContainer":
        return messages.CreateContainerResponse(adjust=answer.adjust)
    if method == "UpdateContainer" and container is not None and answer.resources is not None:
        linux = messages.LinuxContainerUpdate(resources=answer.resources)
        return messages.UpdateContainerResponse(
            update=(messages.ContainerUpdate(container_id=container.id, linux=linux),)
        )
    return messages.UpdateContainerResponse()


def _notice(tell: Callable[[], None]) -> Callable[[], Answer]:
    def work() -> Answer:
        tell()
        return NOTHING

    return work


def _words(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else "") or str(error) or type(error).__name__
