"""Ends of the wait between two ticks: its time, a stop, latency-sensitive work that needs the CPU at once, a new
group, or news of kubelet that are to be published.

No round runs without need. The last tick says up to which use of all others its limit is right
(`formulas.cpu.reaction`, "upper edge"). When one sample suspects that it is above, a measurement finds it so, and
services meanwhile wait for CPUs longer than they usually do, a round comes before its time. Where the kernel allows
short pressure triggers there are no samples at all until threads wait for CPU.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Literal

import msgspec

from koordlite.formulas.cpu import contention, reaction
from koordlite.host import sentinel
from koordlite.host.bundle import Host
from koordlite.host.files import RealFiles
from koordlite.host.sentinel import SHORTEST_WINDOW_US, GroupNotices, PressureTrigger, Sentinel
from koordlite.model.snapshot import Snapshot
from koordlite.model.status import FreshUse, Reaction, ReactionSetting, ReactionWay
from koordlite.observe import cpu_waits, fast_snapshot
from koordlite.observe import new_groups as beginnings
from koordlite.observe.cpu_waits import Counters
from koordlite.observe.new_groups import NewGroups

LOG = logging.getLogger(__name__)

_AIMED = 0.8
"""Part of the granted share of a core that the period is chosen for: the cost of a sample varies."""
_FIRST_PERIOD_SECONDS = 0.05
"""Period until the first second has shown the cost of a sample."""
_PIECE_SECONDS = 0.5
"""Longest piece of a wait that a stop does not end."""
_ALERT_SECONDS = 2 * SHORTEST_WINDOW_US / 1e6
"""Time for which one report of pressure keeps sampling going: the next may come a window later."""

_EMULATED = "the machine is not a real one"

Cause = Literal["tick", "stop", "surge", "groups"]


class Wake(msgspec.Struct, frozen=True):
    """Reasons why a wait ended."""

    cause: Cause
    use: FreshUse | None = None
    """Measurement of a surge."""
    groups: frozenset[str] = frozenset()
    """New groups to look at now."""


class Waker:
    """Waits between ticks. Without a `sentinel` it only passes the time."""

    def __init__(
        self,
        host: Host,
        *,
        sentinel: Sentinel | None = None,
        trigger: PressureTrigger | None = None,
        new_groups: NewGroups | None = None,
        hertz: float = 50.0,
        cpu_percent: float = 0.3,
        why: str = "",
        missing: bool = False,
    ) -> None:
        self._clock, self._sentinel, self._trigger = host.clock, sentinel, trigger
        self.new_groups = new_groups or NewGroups(host.clock)
        # The clock of a real machine checks for a stop as well, which doubles the cost of a sample.
        self._nap: Callable[[float], bool | None] = time.sleep if isinstance(host.files, RealFiles) else host.clock.wait
        if self.new_groups.fileno is not None:
            self._nap = self.new_groups.wait
            if trigger:
                trigger.also(self.new_groups.fileno)
        self._shortest, self._share = 1 / hertz, _AIMED * cpu_percent / 100
        self._period = max(self._shortest, _FIRST_PERIOD_SECONDS)
        self._why, self._missing = why, missing
        self._snapshot: Snapshot | None = None
        self._edge: int | None = None
        self._suspect_rate = 0.0
        self._alert_until = 0.0
        self._sample_cost = 0.0
        self._cost = self._watched = 0.0
        self._samples = self._pressure = self._surges = self._spared = 0
        self._counters: Counters = {}
        self._usual_share = 0.0
        self.service_counters: Callable[[Snapshot], Counters] | None = None
        """Time for which threads of services ran and waited so far; without it a surge needs no other sign."""
        self._hurry = False
        self.has_changes: Callable[[], bool] | None = None
        """Tell whether the cluster has changes that the next tick should not wait for; asked twice a second."""

    @property
    def state(self) -> Reaction:
        """State for reports."""
        watching = self._sentinel is not None and self._edge is not None
        way: ReactionWay = "triggers" if self._trigger else "sentinel"
        return Reaction(
            way="tick" if self._sentinel is None else way,
            why=self._why,
            missing=self._missing,
            hertz=1 / self._period if watching else 0.0,
            cost_seconds=self._cost,
            cost_percent=100 * self._cost / self._watched if self._watched else 0.0,
            samples=self._samples,
            pressure=self._pressure,
            surges=self._surges,
            spared=self._spared,
            beginning=self.new_groups.state,
        )

    def watch(self, snapshot: Snapshot | None, edge_milli: int | None) -> None:
        """Wake when all but best effort use more than `edge_milli`; None: nothing could be done about it."""
        self._snapshot, self._edge = snapshot, edge_milli
        if snapshot is not None:
            self.new_groups.watch(snapshot)
        if snapshot is not None and edge_milli is not None and self._sentinel is not None:
            counters = self._look_at_services()
            self._usual_share = contention.usual_share(self._usual_share, *cpu_waits.between(self._counters, counters))
            self._counters = counters
            others_milli = snapshot.usage.others_milli or 0
            suspect = reaction.suspect_milli(others_milli=others_milli, edge_milli=edge_milli)
            # Millicores are 10⁶ ns a second.
            self._suspect_rate = max(0, suspect - self._sentinel.outside_milli(snapshot.usage)) * 1e6

    def wait(self, until: float) -> Wake:
        """Wait for the clock to say `until`, or for something to do before."""
        while True:
            wake = self._wait(min(until, self.new_groups.due))
            if wake.cause != "tick" or self.new_groups.take_lost() or self._hurried:
                self._hurry = False
                return wake
            groups = self.new_groups.take()
            if groups:
                return Wake("groups", groups=groups)
            if self._clock.monotonic() >= until:
                return wake

    def _wait(self, until: float) -> Wake:
        """Same as `wait`; `tick` also when the kernel reported something about groups."""
        if self._sentinel is None or self._edge is None:
            return self._pass_time(until)
        began, samples, cpu = self._clock.monotonic(), self._samples, time.thread_time()
        try:
            return self._watch_until(until)
        except (OSError, ValueError) as error:
            # The counters cannot be read: the rest of the wait is only waited, and the next one tries again.
            if self._why != str(error):
                LOG.warning("no samples between ticks: %s", error)
            self._why = str(error)
            return self._pass_time(until)
        finally:
            self._account(time.thread_time() - cpu, self._samples - samples, self._clock.monotonic() - began)

    def close(self) -> None:
        """Give all descriptors back, and only pass the time from here on."""
        self._drop_trigger("")
        self.new_groups.close()
        if self._sentinel:
            self._sentinel.close()
            self._sentinel = None

    def _watch_until(self, until: float) -> Wake:
        while (remaining := until - self._clock.monotonic()) > 0:
            is_alert = self._trigger is None or self._clock.monotonic() < self._alert_until
            look = self._watch_for if is_alert else self._listen
            above = look(min(remaining, _PIECE_SECONDS))
            if self._clock.wait(0.0):
                return Wake("stop")
            wake = self._confirm() if above else None
            if wake:
                return wake
            if self._is_interrupted:
                break
        return Wake("tick")

    def _pass_time(self, until: float) -> Wake:
        """Wait, without samples."""
        if self.new_groups.fileno is None and self.has_changes is None:
            return Wake("stop" if self._clock.wait(until - self._clock.monotonic()) else "tick")
        pause = self._clock.wait if self.new_groups.fileno is None else self.new_groups.wait
        while (remaining := until - self._clock.monotonic()) > 0 and not pause(min(remaining, _PIECE_SECONDS)):
            if self._clock.wait(0.0) or self._hurried:
                break
        return Wake("stop" if self._clock.wait(0.0) else "tick")

    @property
    def _is_interrupted(self) -> bool:
        """Tell whether something was reported about groups, or by the cluster, that this wait does not know of."""
        return self._hurried or self.new_groups.due <= self._clock.monotonic() or self.new_groups.has_lost

    @property
    def _hurried(self) -> bool:
        self._hurry = self._hurry or (self.has_changes is not None and self.has_changes())
        return self._hurry

    def _watch_for(self, seconds: float) -> bool:
        """Sample for `seconds`; True at once when others used so much from one sample to the next that it may be a
        surge. A new group ends it.

        Many times a second and nearly always for nothing: no more work than this. A stop ends only the piece.
        """
        assert self._sentinel is not None
        read, nap, rate, period = self._sentinel.others, self._nap, self._suspect_rate, self._period
        time, used = read()
        end = time + seconds
        while time < end:
            if nap(period):
                break
            self._samples += 1
            time_before, used_before = time, used
            time, used = read()
            if used - used_before > rate * (time - time_before):
                return True
        return False

    def _confirm(self) -> Wake | None:
        """A surge when use stays above the edge. Measured from a sample that lies inside of it, not from before."""
        assert self._snapshot is not None and self._edge is not None and self._sentinel is not None
        before = self._look_at_services()
        first = self._sentinel.sample()
        if self._clock.wait(self._sentinel.confirm_seconds):
            return Wake("stop")
        use = sentinel.between(first, self._sentinel.sample())
        self._samples += 2
        others_milli = fast_snapshot.fresh_others_milli(self._snapshot.usage, use)
        if others_milli is None or others_milli <= self._edge:
            return None
        # A surge that makes no service wait longer than it usually does is none.
        ran, waited = cpu_waits.between(before, self._look_at_services())
        if not contention.is_delayed(ran=ran, waited=waited, share=self._usual_share):
            self._spared += 1
            return None
        self._surges += 1
        return Wake("surge", use)

    def _look_at_services(self) -> Counters:
        return self.service_counters(self._snapshot) if self.service_counters and self._snapshot else {}

    def _listen(self, seconds: float) -> bool:
        """Wait until the kernel reports pressure, or a new group. True for pressure: the kernel has waited before it
        said so, and a sample before the measurement would take as long again."""
        assert self._trigger is not None
        event = self._trigger.wait(seconds)
        if event == "pressure":
            self._pressure += 1
            self._alert_until = self._clock.monotonic() + _ALERT_SECONDS
        elif event == "gone":
            self._drop_trigger("the group of the pressure trigger ended")
        elif event == "other":
            self.new_groups.collect()
        return event == "pressure"

    def _drop_trigger(self, why: str) -> None:
        if self._trigger:
            self._trigger.close()
            self._trigger, self._why = None, why

    def _account(self, cost: float, samples: int, seconds: float) -> None:
        self._cost, self._watched = self._cost + cost, self._watched + seconds
        if samples:
            self._sample_cost = reaction.smoothed_cost_seconds(
                before=self._sample_cost or cost / samples, sample=cost / samples
            )
            self._period = reaction.period_seconds(
                sample_cost_seconds=self._sample_cost, share=self._share, shortest_seconds=self._shortest
            )


def open_waker(host: Host, setting: ReactionSetting, *, hertz: float, cpu_percent: float) -> Waker:
    """The best way there is on this machine. `required` takes what there is as well, and `state` says what is missing.

    An emulated or recorded machine has none with `automatic`: its time passes only while something waits. `required`
    samples its counters in its own time.
    """
    if setting == "off":
        return Waker(host, why="it is off", new_groups=NewGroups(host.clock, why="it is off"))
    real = isinstance(host.files, RealFiles)
    new_groups = NewGroups(host.clock, why=_EMULATED)
    if real:
        try:
            notices = GroupNotices(host.cgroups)
            new_groups = NewGroups(host.clock, notices, state=lambda group: beginnings.state(host, group))
        except OSError as error:
            new_groups = NewGroups(host.clock, why=f"no notices of new groups: {error}")
    if not real and setting == "automatic":
        return Waker(host, why=_EMULATED, new_groups=new_groups)
    try:
        sampler = Sentinel(host.files, host.cgroups, host.clock)
        sampler.sample()
    except (OSError, ValueError) as error:
        return Waker(host, why=str(error), missing=setting == "required", new_groups=new_groups)
    trigger, why = _trigger(host) if real else (None, _EMULATED)
    return Waker(
        host,
        sentinel=sampler,
        trigger=trigger,
        new_groups=new_groups,
        hertz=hertz,
        cpu_percent=cpu_percent,
        why=why,
    )


def _trigger(host: Host) -> tuple[PressureTrigger | None, str]:
    """A trigger with the shortest window, on all pods (v2) or the whole machine (v1); or why there is none."""
    path = "/proc/pressure/cpu"
    if host.cgroups.layout.version == 2:
        folder = host.cgroups.path(host.cgroups.layout.kubepods, "procs").rpartition("/")[0]
        path = f"{folder}/cpu.pressure"
    try:
        return PressureTrigger(path), ""
    except OSError as error:
        return None, f"no pressure trigger of {SHORTEST_WINDOW_US // 1000} ms: {error}"
