"""The loop: observe, decide, plan, apply, report. All it knows is in one picture; all it does is in one plan."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

import msgspec

from koordlite import fast_path, plan, strategies, wakeup
from koordlite.apply import Applier, log_refused, log_restored
from koordlite.config import Settings
from koordlite.fault_guard import FaultGuard
from koordlite.host.bundle import Host
from koordlite.host.files import RealFiles
from koordlite.host.journal.journal import Journal, damaged
from koordlite.host.pause_file import Pauses
from koordlite.model import node as nodes
from koordlite.model.decision import Decision
from koordlite.model.errors import JournalError, KoordliteError
from koordlite.model.picture.groups import RunState
from koordlite.model.place import Place
from koordlite.model.settings import Memory, Mode
from koordlite.model.snapshot import Snapshot
from koordlite.model.status import AppliedStep, FreshUse, NRIState, Pause
from koordlite.observe import Observer, wants
from koordlite.ports import Changes, Cluster
from koordlite.record.round_record import RoundRecord
from koordlite.report import health
from koordlite.report.tick import Tick
from koordlite.wakeup import Waker

if TYPE_CHECKING:
    from koordlite.creation import Creation

LOG = logging.getLogger(__name__)
JOURNAL_SECONDS = 60.0
"""Time after which a journal is opened again for which the disk had no room."""
_NOTHING_WRITTEN = RunState()
"""State of a run without a journal: one object, so that nobody is asked anew for its sake."""
_WHOLE = ("node", "pods", "kubelet pods", "config")
"""Parts that the cluster must have sent before the picture counts as whole."""


class Agent:
    """Agent of a node. Without a journal nothing could be undone, so nothing is written."""

    def __init__(
        self,
        host: Host,
        cluster: Cluster,
        settings: Settings,
        journal: Journal | None = None,
        *,
        unjournaled: str = "",
        open_journal: Callable[[], Journal] | None = None,
    ) -> None:
        """`unjournaled`: why there is no journal, although something is to be written; `open_journal` is then tried
        each minute, and raises JournalFull while there still is no room."""
        self._host, self._cluster, self._settings = host, cluster, settings
        self._unjournaled, self._open_journal = unjournaled, open_journal
        self._next_try = host.clock.monotonic() + JOURNAL_SECONDS
        self._started = host.clock.monotonic()
        self._refused: Mapping[Place, str] = {}
        self._remembered: dict[str, Memory] = {}
        self._answers, self._early = strategies.Answers(), strategies.Answers()
        self._logged: dict[str, str] = {}
        self.creation: Creation | None = None
        """Answers a runtime that asks by NRI; None while that is off."""
        if settings.agent.nri != "off":
            from koordlite.creation import Creation

            self.creation = Creation(host.for_another_thread(), settings.agent.nri)
        self._use(journal)
        self._waker = Waker(host)
        self._guard = FaultGuard(limit=0)
        self._overdue = self._taking_over = False
        self._awaited = self._unreleased = ""
        self._unrestored = self._restored = 0
        self._node_unread = False
        self.paused: Pause | None = None
        """The pause that holds."""
        self._last: Tick | None = None
        self.modes = {name: section.mode for name, section in settings.strategies.items()}
        self.snapshot: Snapshot | None = None
        """The last picture."""
        self.last_round: RoundRecord | None = None
        """Picture and decisions of the last round; None when there was no picture."""

    def _use(self, journal: Journal | None) -> None:
        """Work with this journal, and with what an earlier run left in its folder."""
        host, cluster, settings = self._host, self._cluster, self._settings
        folder = journal.folder if journal else None
        active = [s for s in strategies.discover() if settings.strategies[s.name].mode != "off"]
        self.journal = journal
        self._journal_problems = damaged(folder) if folder else ()
        self._observer = Observer(
            host,
            cluster,
            tasks_seconds=settings.agent.tasks_seconds,
            monitor_seconds=wants.monitor_seconds(active, settings.strategies),
            interval_seconds=settings.agent.interval_seconds,
            needs_of=wants.of(active),
            state=folder,
            node_metric=settings.publish.node_metric != "off",
            sections=settings.strategies,
            kubelet_folder=settings.cluster.kubelet_folder,
            metrics=settings.metrics,
            reacts=settings.agent.reaction != "off",
            objectives=settings.objectives,
        )
        self._applier = Applier(host, cluster, journal) if journal else None
        self._pauses = Pauses(folder)
        if (creation := self.creation) is not None:
            creation.journal = journal
            self._observer.names = lambda: creation.names

    def _try_journal(self) -> None:
        """Open the journal that had no room at the start, and begin as a fresh run does."""
        now = self._host.clock.monotonic()
        if self._open_journal is None or not self._unjournaled or now < self._next_try:
            return
        self._next_try = now + JOURNAL_SECONDS
        try:
            journal = self._open_journal()
        except JournalError as error:
            self._say("journal", f"nothing can be journaled, so nothing is written: {error}")
            return
        LOG.warning("there is room for the undo journal now: what is enforced is written from here on")
        self._unjournaled = ""
        self._logged.pop("journal", None)
        self._use(journal)
        self._waker.service_counters = self._observer.service_counters
        self.take_over()

    def take_over(self) -> tuple[AppliedStep, ...]:
        """Go on with what an earlier run left in force; undo only what no strategy enforces any more.

        The rest stays as it is until the first full picture, and then follows it as if this had been one run.
        """
        view = self._cluster.view()
        node, self._node_unread = view.node, view.node is None
        if self._applier is None:
            return ()
        try:
            self._applier.note_unlisted(view)
        except JournalError as error:
            self._say("take over", f"what an earlier run left on the Node cannot be noted: {error}")
        if not self._applier.place_count:
            return ()
        paused = self._look_for_pause(nodes.from_wire(node) if node else None)
        self._taking_over = True
        self._overdue = paused is not None and not paused.release
        if self._overdue:
            return ()  # What is in force stays, whoever put it there; what nobody enforces is undone after the pause.
        try:
            steps = self._applier.restore(staying=() if paused else self._enforced)
        except (OSError, KoordliteError) as error:
            # A full disk keeps the journal from being brought up to date: no reason not to start, and to limit.
            self._say("take over", f"what an earlier run left could not all be given back: {error}")
            return ()
        self._unrestored = sum(not step.ok for step in steps)
        self._restored = len(steps) - self._unrestored
        log_restored("left by an earlier run, and not enforced any more", steps)
        if self._applier.place_count:
            LOG.info("%d places stay as an earlier run left them, until the node is known", self._applier.place_count)
        return steps

    def put_back(self) -> tuple[AppliedStep, ...]:
        """Give every file and the Node what was found before this run."""
        if self._applier is None:
            return ()
        try:
            steps = self._applier.restore()
        except JournalError as error:
            self._say("put back", f"values were given back, and the journal lists them still: {error}")
            return ()
        log_restored("stopping", steps)
        return steps

    def run(
        self, on_tick: Callable[[Tick], None], *, seconds: float | None = None, guard: FaultGuard | None = None
    ) -> None:
        """Tick until the clock says stop, or for `seconds`. A tick that is late is not made up for.

        Faults, also of `on_tick`, that `guard` survives are reported as a tick; without a guard they end the run.
        However it ends, all is put back where that is what a stop does.
        """
        self._guard = guard or self._guard
        self.take_over()
        agent = self._settings.agent
        self._waker = wakeup.open_waker(
            self._host, agent.reaction, hertz=agent.reaction_hertz, cpu_percent=agent.reaction_cpu_percent
        )
        self._waker.service_counters = self._observer.service_counters
        self._waker.has_changes = self._cluster.take_changes if isinstance(self._cluster, Changes) else None
        answering: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        if self.creation is not None and isinstance(self._host.files, RealFiles):
            # The runtime of a real machine is answered in a thread of its own.
            answering = self.creation.serving(agent.nri_socket, agent.nri_index)
        try:
            with answering:
                self._loop(on_tick, seconds)
        finally:
            self._waker.close()
            if self._settings.agent.on_stop == "restore":
                self.put_back()

    def react(self, use: FreshUse) -> Tick | None:
        """A round before its time on the last picture with the CPU use of `use`: best effort may only shrink.

        None when there is no last picture.
        """
        if self.snapshot is None or self._last is None or self.paused:
            return None
        began, last = time.perf_counter(), self._last
        snapshot = self._observer.observe_surge(self.snapshot, use, self._recall)
        fresh = fast_path.allowed(d for rule in strategies.limiting() for d in self._judge(rule, snapshot))
        self._remember(fresh)
        applied, because = self._apply(plan.make(fresh, snapshot.cgroups), snapshot)
        self._note_round(snapshot, fresh, applied, woken=True)
        decisions = fast_path.merged(last.decisions, fresh)
        self._last = self._report(snapshot, decisions, applied, began, because, after=last)
        self._attend(snapshot, decisions, applied)
        return self._last

    def begin(self, groups: Collection[str]) -> Tick | None:
        """A round before its time on the last picture with `groups`, which are new: they get what was last decided.
        None when there is no last picture, or nothing to write."""
        before, last, began = self.last_round, self._last, time.perf_counter()
        if before is None or before.still or last is None or self.paused:
            return None
        snapshot = self._observer.observe_new(before.snapshot, groups, self._recall)
        self._show(snapshot)
        fresh = fast_path.new_groups(before.snapshot, snapshot, groups)
        picture, asking = fast_path.pictures(snapshot, fresh), fast_path.new_group_rules(self._enforced)
        decisions: tuple[Decision, ...] = ()
        for rule in (rule for rule in strategies.discover() if rule.name in asking):
            decisions += self._judge(rule, picture(rule), decisions, early=True)
        decided = fast_path.about(decisions, fresh)
        self._waker.new_groups.looked(snapshot, time.perf_counter() - began)
        if not decided:
            return None
        applied, because = self._apply(plan.make(decided, snapshot.cgroups), snapshot, new=fresh)
        self.snapshot = snapshot
        self._note_round(snapshot, decided, applied, woken=True, new_groups=tuple(sorted(fresh)))
        decisions = fast_path.added(last.decisions, decided)
        self._last = self._report(snapshot, decisions, applied, began, because, after=last)
        return self._last

    def _attend(self, snapshot: Snapshot, decisions: tuple[Decision, ...], applied: tuple[AppliedStep, ...]) -> None:
        """Set what the coming wait watches."""
        band = self._settings.agent.reaction_band_percent
        edge = fast_path.edge_milli(decisions, applied, snapshot, modes=self._modes_in_force, band_percent=band)
        self._waker.watch(snapshot, edge if self._applier and not self.paused else None)

    def _loop(self, on_tick: Callable[[Tick], None], seconds: float | None) -> None:
        clock, interval = self._host.clock, self._settings.agent.interval_seconds
        end = None if seconds is None else clock.monotonic() + seconds
        due = clock.monotonic()
        while end is None or clock.monotonic() < end:
            due = min(due, clock.monotonic())  # It came early: reports of groups were lost, or kubelet has news.
            self._guard.begin()
            with self._guard:
                on_tick(self.tick())
            self._tell_fault(on_tick)
            due = max(due + interval, clock.monotonic())
            if self._pass_time(due, on_tick):
                break

    def _pass_time(self, due: float, on_tick: Callable[[Tick], None]) -> bool:
        """Wait for the next tick, and answer surges and new groups meanwhile; True when the run was asked to stop."""
        with self._guard:
            while (woken := self._waker.wait(due)).cause in ("surge", "groups"):
                tick = self.react(woken.use) if woken.use else self.begin(woken.groups)
                if tick:
                    on_tick(tick)
            return woken.cause == "stop"
        self._tell_fault(on_tick)
        return self._host.clock.wait(max(0.0, due - self._host.clock.monotonic()))

    def _tell_fault(self, on_tick: Callable[[Tick], None]) -> None:
        """A round that a fault of ours has ended, as a tick. What is in force stays, nothing wakes before its time."""
        if not self._guard.hurt:
            return
        self._waker.watch(None, None)
        self.last_round = None
        self._show(None)
        faults = self._guard.state
        tick = dataclasses.replace(self._blind(faults.why, 0.0), faults=faults, problems=(faults.problem("agent"),))
        with self._guard:
            on_tick(tick)

    def tick(self) -> Tick:
        """Make a round. Whatever goes wrong in it is in the Tick; the next round comes."""
        began = time.perf_counter()
        self._try_journal()
        if self._node_unread and self._cluster.view().node is not None:
            self.take_over()  # Only now is it known what an earlier run left on the Node.
        try:
            snapshot = self.snapshot = self._observer.observe(self._recall)
        except (OSError, ValueError, KoordliteError) as error:
            self._say("picture", f"no picture of the node: {error}")
            self._waker.watch(None, None)
            self.last_round = None
            self._show(None)
            return self._blind(f"no picture of the node: {error}", time.perf_counter() - began)
        self._logged.pop("picture", None)
        still = self._stands_still(snapshot)
        decisions: tuple[Decision, ...] = ()
        for rule in strategies.discover():
            decisions += self._judge(rule, snapshot, decisions)
        self._remember(decisions)
        enforced = (d for d in decisions if self.modes[d.strategy] == "enforce" and not still)
        round_plan = plan.make(enforced, snapshot.cgroups)
        # Before our own writes: the picture shows what stood there then.
        foreign = self._applier.foreign_writes(snapshot) if self._applier else ()
        applied, because = self._apply(round_plan, snapshot)
        applied = (*(self.creation.take() if self.creation else ()), *applied)
        released = still and not self._taking_over and (self.paused is None or self.paused.release)
        self._note_round(snapshot, decisions, applied, still=still, released=released)
        self._show(None if still and self.paused is None else snapshot)
        problems = (
            *snapshot.problems,
            *self._journal_problems,
            *self._pauses.problems,
            *(conflict.problem for conflict in round_plan.conflicts),
        )
        tick = self._report(snapshot, decisions, applied, began, because)
        trouble = self._applier.trouble(snapshot.time) if self._applier else ()
        self._last = dataclasses.replace(tick, problems=problems, foreign=foreign, troubles=trouble)
        self._attend(snapshot, decisions, applied)
        return self._last

    def _show(self, snapshot: Snapshot | None) -> None:
        """Let a runtime that asks by NRI be answered by this picture; None: by none."""
        if self.creation is not None:
            self.creation.publish(snapshot, self._modes_in_force, self._settings.strategies)

    def _report(
        self,
        snapshot: Snapshot,
        decisions: tuple[Decision, ...],
        applied: tuple[AppliedStep, ...],
        began: float,
        because: str,
        *,
        after: Tick | None = None,
    ) -> Tick:
        """The round as reports see it; `after` is the one before, where this one came before its time."""
        stale_seconds = self._settings.agent.stale_seconds
        nri = self.creation.state if self.creation else NRIState()
        restored, self._restored = self._restored, 0
        return Tick(
            time=snapshot.time - self._started,
            wall=self._host.clock.wall(),
            snapshot=snapshot,
            decisions=decisions,
            modes=dict(self._modes_in_force),
            applied=applied,
            applied_before=(*after.applied_before, *after.applied) if after else (),
            problems=after.problems if after else (),
            because=because
            or self._unjournaled
            or self._unreleased
            or health.degradation(snapshot, decisions, self._waker.state, stale_seconds)
            or health.without_nri(nri),
            tick_seconds=time.perf_counter() - began,
            woken=after is not None,
            reaction=self._waker.state,
            nri=nri,
            unrestored=self._unrestored,
            restored=restored,
            faults=self._guard.past,
            pause=self.paused,
        )

    def _stands_still(self, snapshot: Snapshot) -> bool:
        """Tell whether nothing may be written in this tick: paused (what is given back, is so here), or half a
        picture."""
        paused, self._unreleased = self._look_for_pause(snapshot.node), ""
        if paused is None and not self._overdue:
            unknown = ", ".join(w.name for w in snapshot.watches if w.name in _WHOLE and w.age_seconds is None)
            self._taking_over, self._awaited = self._taking_over and bool(unknown or self._awaited), unknown
            why = f"what an earlier run left stays until these are known: {unknown or 'use of pods'}"
            self._unreleased = why if self._taking_over else ""
            return self._taking_over
        if self._applier and self._applier.place_count and (paused is None or paused.release):
            self._release(self._applier, "paused" if paused else "a pause has ended")
        self._overdue = self._overdue and (paused is not None or bool(self._unreleased))
        return True

    def _release(self, applier: Applier, occasion: str) -> None:
        """Give everything back; a disk or a group that fails ends no loop, and the next tick tries again."""
        try:
            steps = applier.release(staying=() if self.paused else self._enforced)
        except (OSError, KoordliteError) as error:
            self._unreleased = f"{occasion}, and what is in force could not all be given back: {error}"
            self._say("release", self._unreleased)
        else:
            log_restored(occasion, steps)
            self._restored += sum(step.ok for step in steps)
            self._logged.pop("release", None)

    def _look_for_pause(self, node: nodes.Node | None) -> Pause | None:
        before, wall = self.paused, self._host.clock.wall()
        notes, owner = (node.annotations, f"node/{node.name}") if node else (None, "node")
        self.paused = self._pauses.read(notes, owner=owner, wall=wall)
        if self.paused and before is None:
            LOG.warning("paused, nothing is written: %s", self.paused.because)
        elif before and self.paused is None:
            LOG.warning("the pause has ended")
        return self.paused

    @property
    def _modes_in_force(self) -> Mapping[str, Mode]:
        """A pause makes every strategy observe."""
        if not self.paused:
            return self.modes
        return {name: "observe" if mode == "enforce" else mode for name, mode in self.modes.items()}

    def _note_round(
        self,
        snapshot: Snapshot,
        decisions: tuple[Decision, ...],
        applied: tuple[AppliedStep, ...],
        *,
        woken: bool = False,
        new_groups: tuple[str, ...] = (),
        still: bool = False,
        released: bool = False,
    ) -> None:
        self.last_round = RoundRecord(
            wall=self._host.clock.wall(),
            snapshot=snapshot,
            settings=self._settings.strategies,
            woken=woken,
            new_groups=new_groups,
            decisions=decisions,
            applied=applied,
            still=still,
            released=released,
        )

    def _recall(self, time: float, uids: Collection[str]) -> RunState:
        """State of this run: what it holds, what strategies remember, what became of writes and evictions."""
        state = self._applier.state(time, uids) if self._applier else _NOTHING_WRITTEN
        return msgspec.structs.replace(state, remembered=dict(self._remembered), refused_writes=self._refused)

    def _remember(self, decisions: tuple[Decision, ...]) -> None:
        """The last decision of a strategy that wants something remembered wins."""
        self._remembered |= {d.strategy: d.remember for d in decisions if d.remember is not None}

    @property
    def _enforced(self) -> list[str]:
        return [name for name, mode in self.modes.items() if mode == "enforce"]

    def _judge(
        self, rule: strategies.Strategy, snapshot: Snapshot, before: tuple[Decision, ...] = (), *, early: bool = False
    ) -> tuple[Decision, ...]:
        """Decisions of a strategy, after those that were taken `before` in this round."""
        try:
            answers = self._early if early else self._answers
            evictees = strategies.evictees_before(rule, before, self._settings.strategies)
            decisions = answers.of(rule, snapshot, self._settings.strategies, evictees)
        except Exception as error:
            if self._logged.get(rule.name) != repr(error):
                LOG.exception("strategy %s failed", rule.name)
            self._logged[rule.name] = repr(error)
            return (strategies.failed(rule, error),)
        self._tell_skipped(rule, decisions)
        return decisions

    def _tell_skipped(self, rule: strategies.Strategy, decisions: tuple[Decision, ...]) -> None:
        """Errors about single subjects are logged when they come up or change."""
        errors = [f"{d.subject}: {d.evidence['error']}" for d in decisions if d.reason == "SubjectFailed"]
        if errors:
            more = f", and {len(errors) - 1} more" if len(errors) > 1 else ""
            self._say(f"subjects of {rule.name}", f"strategy {rule.name} skips {errors[0]}{more}")
        else:
            self._logged.pop(f"subjects of {rule.name}", None)

    def _apply(
        self, round_plan: plan.Plan, snapshot: Snapshot, *, new: Collection[str] = ()
    ) -> tuple[tuple[AppliedStep, ...], str]:
        """The steps taken, and why the agent is degraded when it could not take them all; groups in `new` have just
        been made."""
        if self._applier is None or not round_plan.steps:
            return (), ""
        try:
            self._applier.begin(new, snapshot)
            applied = self._applier.apply(round_plan, snapshot, tidy=not new)
        except (OSError, KoordliteError) as error:
            self._say("apply", f"nothing was written: {error}")
            return (), f"nothing was written: {error}"
        self._logged.pop("apply", None)
        self._refused = log_refused(applied, self._refused)
        return applied, health.refusals(applied)

    def _say(self, about: str, text: str) -> None:
        """Log a problem when it comes up or changes, not each tick it lasts."""
        if self._logged.get(about) != text:
            LOG.error(text)
        self._logged[about] = text

    def _blind(self, because: str, seconds: float) -> Tick:
        clock = self._host.clock
        return Tick(
            time=clock.monotonic() - self._started,
            wall=clock.wall(),
            because=because,
            modes=self._modes_in_force,
            tick_seconds=seconds,
            faults=self._guard.past,
            pause=self.paused,
        )
