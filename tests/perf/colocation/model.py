"""A model of the kernel's CPU scheduler, for nodes larger than this machine: events of services and greedy batch work.

What it knows of Linux: a woken thread goes to the CPU it ran on if that is idle, else to any idle CPU, else it waits
where it was; service threads run before batch work, whose weight is next to nothing, but batch work that has just begun
to run is left alone for one slice; queued threads are pulled by CPUs that run out of work, and by the balancing of the
timer interrupt; a quota is handed out to CPUs in slices of 5 ms, and what has none left waits for the next period.
Batch work fills every CPU it may use. All CPUs are alike, and caches and memory cost nothing: `emulated.py` compares it
with measurements. Times are in microseconds.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import math
import random
from collections import deque
from collections.abc import Callable, Sequence

QUOTA_SLICE_US = 5_000.0
BALANCE_US = 4_000.0
"""Period of the timer interrupt."""
_ALMOST_NOTHING_US = 0.5
_SWITCH_US = 3.0
"""What a switch between two threads costs who comes next."""


def base_slice_us(cpus: int) -> float:
    """The kernel's: 0.7 ms × (1 + log2 CPUs), of at most eight CPUs."""
    return 700.0 * (1 + int(math.log2(min(cpus, 8))))


@dataclasses.dataclass(frozen=True)
class ServiceLoad:
    """Requests of one service: Poisson arrivals; its threads take one each, or divide each among them."""

    rate: float
    work_us: float
    threads: int = 1
    is_divided: bool = False

    @property
    def parts(self) -> int:
        """Pieces of work of one request."""
        return self.threads if self.is_divided else 1


@dataclasses.dataclass(eq=False)
class _Thread:
    service: int
    cpu: int
    left_us: float = 0.0
    queued_at: float | None = None
    request: _Request | None = None


@dataclasses.dataclass(eq=False)
class _Request:
    due: float
    parts: int


@dataclasses.dataclass(eq=False)
class _CPU:
    thread: _Thread | None = None
    is_batch: bool = False
    since: float = 0.0
    version: int = 0
    """Of what it runs: an event of an earlier version means nothing."""
    waiting: deque[_Thread] = dataclasses.field(default_factory=deque)
    runtime_us: float = 0.0
    """What is left of the slice of quota it has fetched."""
    throttled: bool = False
    charged: float = 0.0
    """Until when what it ran has been counted."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """What holds for batch work; a controller changes it between two seconds."""

    cpus: frozenset[int]
    quota_us: float = math.inf
    period_us: float = 100_000.0
    is_idle: bool = False
    """Batch work is of the scheduler's idle class: a CPU that runs it counts as idle."""


class Node:
    """CPUs, services and batch work."""

    def __init__(self, cpus: int, services: Sequence[ServiceLoad], limits: Limits, *, batch: bool, seed: int) -> None:
        self.now, self.limits, self.has_batch = 0.0, limits, batch
        self.service_us, self.batch_us = 0.0, 0.0
        self.waits = [(0.0, 0.0) for _ in services]
        """How long threads of each service ran, and how long they could run and did not."""
        self.latencies: list[tuple[float, float]] = []
        """When a request was due, and how long it took."""
        self._services = services
        self._cpus = [_CPU() for _ in range(cpus)]
        self._slice = base_slice_us(cpus)
        self._events: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self._number = itertools.count()
        self._chance = random.Random(seed)
        self._idle = set(range(cpus))
        self._queued: set[int] = set()
        self._pool = limits.quota_us
        self._sleeping = [
            [_Thread(number, self._chance.randrange(cpus)) for _ in range(each.threads)]
            for number, each in enumerate(services)
        ]
        self._requests: list[deque[_Request]] = [deque() for _ in services]
        for number in range(len(services)):
            self._arrive_later(number)
        self._at(BALANCE_US, self._balance)
        self._at(limits.period_us, self._refill)
        for number in range(cpus):
            self._next(number)

    def advance(self, until_us: float) -> None:
        """Let time pass."""
        while self._events and self._events[0][0] <= until_us:
            self.now, _, call, arguments = heapq.heappop(self._events)
            call(*arguments)
        self.now = until_us
        for number in range(len(self._cpus)):
            self._account(number)

    def limit(self, limits: Limits) -> None:
        """Other limits from now on."""
        if limits.quota_us != self.limits.quota_us:
            self._pool = min(self._pool, limits.quota_us) if math.isfinite(limits.quota_us) else math.inf
        for number in range(len(self._cpus)):
            self._account(number)
        self.limits = limits
        for number, cpu in enumerate(self._cpus):
            cpu.throttled = cpu.throttled and math.isfinite(limits.quota_us)
            if cpu.thread is None:
                cpu.is_batch = cpu.is_batch and number in limits.cpus
                if not cpu.is_batch or math.isfinite(limits.quota_us):
                    self._next(number)

    def _at(self, time: float, call: Callable[..., None], *arguments: object) -> None:
        heapq.heappush(self._events, (time, next(self._number), call, arguments))

    # Requests and threads

    def _arrive_later(self, service: int) -> None:
        gap = self._chance.expovariate(self._services[service].rate / 1e6)
        self._at(self.now + gap, self._arrive, service)

    def _arrive(self, service: int) -> None:
        load = self._services[service]
        request = _Request(self.now, load.parts)
        self._requests[service].extend([request] * load.parts)
        for _ in range(load.parts):
            if self._sleeping[service]:
                thread = self._sleeping[service].pop(0)
                self._take_work(thread)
                self._wake(thread)
        self._arrive_later(service)

    def _take_work(self, thread: _Thread) -> None:
        load = self._services[thread.service]
        thread.request = self._requests[thread.service].popleft()
        thread.left_us = load.work_us / load.parts

    def _wake(self, thread: _Thread) -> None:
        number = self._choose(thread.cpu)
        cpu = self._cpus[number]
        thread.cpu = number
        if cpu.thread is not None:
            self._queue(number, thread)
            self._at(max(self.now, cpu.since + self._slice), self._rotate, number, cpu.version)
        elif not cpu.is_batch or self.limits.is_idle or self.now >= cpu.since + self._slice:
            self._run(number, thread)
        else:
            self._queue(number, thread)
            self._at(cpu.since + self._slice, self._preempt, number, cpu.version)

    def _queue(self, number: int, thread: _Thread) -> None:
        thread.queued_at = self.now
        self._cpus[number].waiting.append(thread)
        self._queued.add(number)

    def _choose(self, previous: int) -> int:
        """The CPU a woken thread goes to."""
        if previous in self._idle or (self.limits.is_idle and self._cpus[previous].is_batch):
            return previous
        if self._idle:
            return next(iter(self._idle))
        if self.limits.is_idle:
            return next((n for n, cpu in enumerate(self._cpus) if cpu.is_batch), previous)
        return previous

    def _run(self, number: int, thread: _Thread) -> None:
        cpu = self._cpus[number]
        self._account(number)
        cpu.thread, cpu.is_batch, cpu.since = thread, False, self.now
        cpu.version += 1
        if thread.queued_at is not None:
            ran, waited = self.waits[thread.service]
            self.waits[thread.service] = ran, waited + self.now - thread.queued_at
            thread.queued_at = None
        thread.cpu = number
        thread.left_us += _SWITCH_US
        self._idle.discard(number)
        self._at(self.now + thread.left_us, self._finish, number, cpu.version)
        if cpu.waiting:
            self._at(self.now + self._slice, self._rotate, number, cpu.version)

    def _finish(self, number: int, version: int) -> None:
        cpu = self._cpus[number]
        if cpu.version != version or cpu.thread is None:
            return
        self._account(number)
        thread, cpu.thread = cpu.thread, None
        assert thread.request
        thread.request.parts -= 1
        if not thread.request.parts:
            self.latencies.append((thread.request.due, self.now - thread.request.due))
        thread.request = None
        if self._requests[thread.service]:
            self._take_work(thread)
            cpu.thread = thread  # It goes on with the next one without sleeping.
            cpu.version += 1
            self._at(self.now + thread.left_us, self._finish, number, cpu.version)
            if cpu.waiting:
                self._at(max(self.now, cpu.since + self._slice), self._rotate, number, cpu.version)
            return
        self._sleeping[thread.service].append(thread)
        self._next(number)

    def _rotate(self, number: int, version: int) -> None:
        """The slice is over, and another thread waits."""
        cpu = self._cpus[number]
        if cpu.version != version or cpu.thread is None or not cpu.waiting:
            return
        if self.now < cpu.since + self._slice:
            self._at(cpu.since + self._slice, self._rotate, number, version)
            return
        self._account(number)
        self._queue(number, cpu.thread)
        self._run(number, cpu.waiting.popleft())

    def _preempt(self, number: int, version: int) -> None:
        """Batch work has had its slice."""
        cpu = self._cpus[number]
        if cpu.version == version and cpu.is_batch and cpu.waiting:
            self._run(number, cpu.waiting.popleft())
            self._forget_queue(number)

    def _next(self, number: int) -> None:
        """What a CPU without a thread does: its own queue, batch work, which is in its queue too, another's queue."""
        cpu = self._cpus[number]
        if cpu.waiting:
            self._run(number, cpu.waiting.popleft())
            self._forget_queue(number)
        elif self._may_run_batch(number):
            self._run_batch(number)
        elif self._queued:
            self._pull(number)
        else:
            self._account(number)
            cpu.is_batch = False
            cpu.version += 1
            self._idle.add(number)

    def _pull(self, number: int) -> None:
        other = next(iter(self._queued))
        thread = self._cpus[other].waiting.popleft()
        self._forget_queue(other)
        self._run(number, thread)

    def _forget_queue(self, number: int) -> None:
        if not self._cpus[number].waiting:
            self._queued.discard(number)

    def _balance(self) -> None:
        """The timer interrupt: threads that wait go to CPUs that are idle or run batch work."""
        for number in list(self._queued):
            cpu = self._cpus[number]
            target = next(iter(self._idle), None)
            if target is None:
                target = next((n for n, each in enumerate(self._cpus) if each.is_batch and not each.waiting), None)
            if target is None:
                break
            if cpu.waiting and target != number:
                self._run(target, cpu.waiting.popleft())
                self._forget_queue(number)
        self._at(self.now + BALANCE_US, self._balance)

    # Batch work and its quota

    def _may_run_batch(self, number: int) -> bool:
        cpu = self._cpus[number]
        if not self.has_batch or number not in self.limits.cpus or cpu.throttled:
            return False
        if cpu.runtime_us <= _ALMOST_NOTHING_US and math.isfinite(self.limits.quota_us):
            fetched = min(QUOTA_SLICE_US, self._pool)
            self._pool -= fetched
            cpu.runtime_us += fetched
            if cpu.runtime_us <= _ALMOST_NOTHING_US:
                cpu.throttled = True
                return False
        return True

    def _run_batch(self, number: int) -> None:
        cpu = self._cpus[number]
        self._account(number)
        self._idle.discard(number)
        if not cpu.is_batch:
            cpu.is_batch, cpu.since = True, self.now
        cpu.version += 1
        if math.isfinite(self.limits.quota_us):
            self._at(self.now + cpu.runtime_us, self._runtime_over, number, cpu.version)
        if cpu.waiting:
            self._at(max(self.now, cpu.since + self._slice), self._preempt, number, cpu.version)

    def _runtime_over(self, number: int, version: int) -> None:
        cpu = self._cpus[number]
        if cpu.version != version or not cpu.is_batch:
            return
        self._account(number)
        if self._may_run_batch(number):
            self._run_batch(number)
        else:
            cpu.is_batch = False
            self._next(number)

    def _refill(self) -> None:
        self._pool = self.limits.quota_us
        for number, cpu in enumerate(self._cpus):
            if cpu.throttled:
                cpu.throttled = False
                if cpu.thread is None and not cpu.is_batch:
                    self._next(number)
        self._at(self.now + self.limits.period_us, self._refill)

    def _account(self, number: int) -> None:
        """Charge what ran since the last time."""
        cpu = self._cpus[number]
        ran = self.now - cpu.charged
        cpu.charged = self.now
        if cpu.thread is not None:
            self.service_us += ran
            before, waited = self.waits[cpu.thread.service]
            self.waits[cpu.thread.service] = before + ran, waited
            cpu.thread.left_us -= ran
        elif cpu.is_batch:
            self.batch_us += ran
            cpu.runtime_us -= ran if math.isfinite(self.limits.quota_us) else 0.0
