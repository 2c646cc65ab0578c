"""A front before several extenders of one machine, so that one that hangs or dies costs no pod its place.

The scheduler waits for each answer, and asks about one pod after the other: an extender that hangs stops it for
`httpTimeout` at every verb of every pod. The front is a small process of its own that does nothing but pass questions
on. It asks the first extender that is ready; one that gives no sign of life for 200 ms is left out at once, the next
one is asked the same question, and where none is left the scheduler is refused at once. Every verb may be asked twice.
"""

from __future__ import annotations

import functools
import http.client
import logging
import secrets
import select
import socket
import subprocess
import threading
import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus

from koordlite import threads
from koordlite.http.answers import HEALTH, Answer, Router, plain, well
from koordlite.threads import WITHIN_SECONDS, Worker

LOG = logging.getLogger(__name__)
SIGN_OF_LIFE_SECONDS = 0.2
"""An extender that answers neither a question nor its readiness for so long is taken for hung."""
ANSWER_SECONDS = 0.9
"""Longest wait for the answer of one that lives: a little less than the scheduler's `httpTimeout`."""
PROBE_SECONDS = 1.0
"""Time between two probes of readiness while there are no questions."""
HUNG_SECONDS = 10.0
"""One that hangs for so long is killed and started again."""
START_SECONDS = 20.0
"""Time that a worker has to begin to listen."""
RESTART_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Pauses before an extender that ended is started again; the last one holds from then on."""
_KEPT = 32
"""Connections that are kept open to each extender."""
_STOP_SECONDS = 5.0
_HEADERS = {"Content-Type": "application/json"}
_OURS = frozenset(
    {"content-type", "content-length", "cache-control", "x-content-type-options", "server", "date", "connection"}
)
"""Headers that the listener writes itself."""


class Silent(OSError):
    """An extender gave no answer in time."""


class Replica:
    """One extender process. It is told its token on a socket, says its port there, and ends when that is closed."""

    def __init__(self, number: int, command: Sequence[str]) -> None:
        """`command` makes an extender that reads its token from standard input and writes its port there."""
        self.number, self._command = number, command
        self.is_ready = False
        self.hung_since: float | None = None
        self.restarts = -1
        self._port, self._token = 0, ""
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._idle: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start the process; it is not ready yet."""
        self.is_ready, self._port = False, 0
        self.hung_since = time.monotonic() + START_SECONDS
        self.restarts += 1
        self._token = secrets.token_urlsafe(32)
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(self._command, stdin=theirs.fileno())
        ours.sendall(f"{self._token}\n".encode())
        ours.setblocking(False)
        self._channel = ours

    def stop(self) -> None:
        """End it."""
        self._hang_up()
        process = self._process
        if process is None or process.poll() is not None:
            return
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def kill(self) -> None:
        """End it though it hangs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._hang_up()

    @property
    def has_ended(self) -> bool:
        """Tell whether the process is gone."""
        return self._process is None or self._process.poll() is not None

    def probe(self, now: float) -> None:
        """Ask whether it is ready, and remember since when it gives no answer."""
        try:
            status = self.ask("GET", "/readyz", b"", SIGN_OF_LIFE_SECONDS).status
        except OSError as error:
            if self.is_ready:
                LOG.warning("extender %d gives no sign of life: %s", self.number, error)
            self.is_ready = False
            if self.hung_since is None:
                self.hung_since = now
            return
        if status == HTTPStatus.OK and not self.is_ready:
            LOG.info("extender %d is ready", self.number)
        self.is_ready, self.hung_since = status == HTTPStatus.OK, None

    def ask(self, method: str, path: str, body: bytes, seconds: float, headers: Mapping[str, str] = _HEADERS) -> Answer:
        """Its answer. OSError when there is none within `seconds`, Silent when it does not even say that it is
        alive."""
        if not self._connected():
            raise Silent("it has not said yet where it listens")
        connection, end = self._take(), time.monotonic() + seconds
        try:
            connection.request(method, path, body, {**headers, "Authorization": f"Bearer {self._token}"})
            self._await(connection, end, alone=path != "/readyz")
            response = connection.getresponse()
            heads = {name: text for name, text in response.getheaders() if name.lower() not in _OURS}
            answer = Answer(response.status, response.getheader("Content-Type", ""), response.read(), heads)
        except (http.client.HTTPException, OSError) as error:
            connection.close()
            raise error if isinstance(error, OSError) else Silent(f"it broke off: {error!r}") from error
        with self._lock:
            self._idle.append(connection) if len(self._idle) < _KEPT else connection.close()
        return answer

    def _await(self, connection: http.client.HTTPConnection, end: float, *, alone: bool) -> None:
        """Wait for the beginning of the answer; look in between whether the extender lives."""
        while not select.select([connection.sock], [], [], min(SIGN_OF_LIFE_SECONDS, end - time.monotonic()))[0]:
            if time.monotonic() >= end:
                raise Silent(f"no answer within {ANSWER_SECONDS:g} s")
            if alone:
                self.probe(time.monotonic())
                if not self.is_ready:
                    raise Silent(f"no sign of life for {2 * SIGN_OF_LIFE_SECONDS:g} s")
        connection.sock.settimeout(max(0.05, end - time.monotonic()))

    def _connected(self) -> bool:
        """Read the port once the process has written it."""
        with self._lock:
            if not self._port and self._channel is not None:
                try:
                    self._port = int(self._channel.recv(64).split()[0])
                except (BlockingIOError, ConnectionError, IndexError, ValueError):
                    return False
            return bool(self._port)

    def _take(self) -> http.client.HTTPConnection:
        """A connection; one whose extender has closed it is readable before anything was asked."""
        with self._lock:
            while self._idle:
                connection = self._idle.pop()
                if not select.select([connection.sock], [], [], 0)[0]:
                    connection.sock.settimeout(ANSWER_SECONDS)
                    return connection
                connection.close()
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=SIGN_OF_LIFE_SECONDS)
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sock.settimeout(ANSWER_SECONDS)
        return connection

    def _hang_up(self) -> None:
        with self._lock:
            for connection in self._idle:
                connection.close()
            self._idle.clear()
            if self._channel is not None:
                self._channel.close()
                self._channel = None
            self._port, self.is_ready = 0, False


class Front(Router):
    """Starts the replicas, keeps them alive, and passes questions on."""

    def __init__(self, commands: Sequence[Sequence[str]], *, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__({"/readyz": lambda request: self._well()})
        self.replicas = [Replica(number, command) for number, command in enumerate(commands)]
        self._monotonic = monotonic
        self._active = 0
        self._stop = threading.Event()
        self._keepers = [
            Worker(f"keeper-{replica.number}", functools.partial(self._keep, replica)) for replica in self.replicas
        ]

    def start(self) -> None:
        """Start all of them."""
        for keeper in self._keepers:
            keeper.start()

    def stop(self) -> None:
        """End all of them."""
        self._stop.set()
        for keeper in self._keepers:
            keeper.join()

    def post(self, path: str, body: bytes) -> Answer:
        """A verb of the scheduler."""
        end = self._monotonic() + ANSWER_SECONDS
        for replica in self._ready():
            try:
                answer = replica.ask("POST", path, body, end - self._monotonic())
            except OSError as error:
                LOG.warning("%s of extender %d: %s", path, replica.number, error)
                if replica.is_ready:
                    replica.probe(self._monotonic())
                if self._monotonic() >= end:
                    return plain(HTTPStatus.GATEWAY_TIMEOUT, "the extender does not answer in time")
                continue
            self._active = replica.number
            return answer
        return plain(HTTPStatus.SERVICE_UNAVAILABLE, "no extender is ready")

    def put(self, path: str, body: bytes) -> Answer:
        """A changed setting, at every replica."""
        answers = [answer for replica in self._ready() if (answer := self._ask(replica, "PUT", path, body))]
        return next((each for each in answers if each.status != HTTPStatus.OK), answers[0]) if answers else _NOBODY

    def answer(self, path: str, query: Mapping[str, str], accept: str) -> Answer:
        """Answer people and probes: by the replica that the scheduler is answered by, else of one that knows."""
        if path in HEALTH:
            return super().answer(path, query, accept)
        target = f"{urllib.parse.quote(path)}?{urllib.parse.urlencode(query)}" if query else urllib.parse.quote(path)
        answer: Answer = _NOBODY
        for replica in self._ready():
            own = self._ask(replica, "GET", target, b"", accept)
            if own is not None and (own.status != HTTPStatus.NOT_FOUND or answer is _NOBODY):
                answer = own
            if own is not None and own.status != HTTPStatus.NOT_FOUND:
                break
        return self._with_own_metrics(answer) if path == "/metrics" else answer

    def _well(self) -> Answer:
        why = threads.not_ready()
        return well(why, "ready") if why or any(each.is_ready for each in self.replicas) else _NOBODY

    def _ready(self) -> list[Replica]:
        """Replicas that are ready, beginning with the one that answered last: what it reserved is there."""
        count, first = len(self.replicas), self._active
        inorder = (self.replicas[(first + step) % count] for step in range(count))
        return [replica for replica in inorder if replica.is_ready]

    @staticmethod
    def _ask(replica: Replica, method: str, path: str, body: bytes, accept: str = "") -> Answer | None:
        try:
            return replica.ask(method, path, body, 5.0, {**_HEADERS, "Accept": accept})
        except OSError as error:
            LOG.info("%s of extender %d: %s", path, replica.number, error)
            return None

    def _with_own_metrics(self, answer: Answer) -> Answer:
        rows = []
        for metric, about, kind, value in _METRICS:
            rows += [f"# HELP {metric} {about}", f"# TYPE {metric} {kind}"]
            rows += [f'{metric}{{replica="{each.number}"}} {value(each)}' for each in self.replicas]
        text = answer.body if answer.status == HTTPStatus.OK else b""
        kind = answer.content_type if text else "text/plain; version=0.0.4; charset=utf-8"
        return Answer(HTTPStatus.OK, kind, text + "\n".join([*rows, ""]).encode())

    def _keep(self, replica: Replica) -> None:
        """Keep one replica alive until the end."""
        while not self._stop.is_set():
            try:
                replica.start()
                self._watch(replica)
            except OSError as error:
                LOG.error("extender %d cannot be started: %s", replica.number, error)
            replica.stop()
            pause = RESTART_SECONDS[min(max(0, replica.restarts), len(RESTART_SECONDS) - 1)]
            self._keepers[replica.number].beat(pause + WITHIN_SECONDS)
            if not self._stop.wait(pause):
                LOG.warning("extender %d is started again", replica.number)

    def _watch(self, replica: Replica) -> None:
        """Watch a worker until it has ended, or hung for too long."""
        while not self._stop.wait(PROBE_SECONDS if replica.is_ready else SIGN_OF_LIFE_SECONDS):
            if replica.has_ended:
                LOG.warning("extender %d has ended", replica.number)
                return
            now = self._monotonic()
            self._keepers[replica.number].beat()
            replica.probe(now)
            if replica.hung_since is not None and now - replica.hung_since > HUNG_SECONDS:
                LOG.error("extender %d hangs for %g s and is killed", replica.number, HUNG_SECONDS)
                replica.kill()
                return


_METRICS: tuple[tuple[str, str, str, Callable[[Replica], int]], ...] = (
    ("koordlite_scheduler_replica_ready", "Whether the extender answers", "gauge", lambda each: int(each.is_ready)),
    (
        "koordlite_scheduler_replica_restarts_total",
        "How often the extender was started again",
        "counter",
        lambda each: max(0, each.restarts),
    ),
)
_NOBODY = plain(HTTPStatus.SERVICE_UNAVAILABLE, "no extender is ready")
