"""Values before the first process: what the agent answers a runtime that asks by NRI how to create a container.

The answer is that of a round about new groups (`agent.begin`): the same rules judge the last picture, to which the
container is added with the values that its runtime would give it. What cannot be said for sure is left out, and the
next round corrects it: a container must never fail, or wait, because of us.
"""

from __future__ import annotations

import _thread
import contextlib
import dataclasses
import logging
import signal
import sys
import threading
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec

from koordlite import fast_path, nri, plan, strategies
from koordlite.apply import inherited
from koordlite.changes import cgroup
from koordlite.changes.cgroup import CgroupChange
from koordlite.changes.resctrl import GROUP, TasksChange
from koordlite.changes.system import OOM_SCORE_AT_CREATION, OOMScoreAtCreation, OOMScoreChange
from koordlite.host.bundle import Host
from koordlite.host.journal.journal import FileEntry, Journal
from koordlite.model.cgroup_fields import MAX_SHARES, MIN_SHARES, CgroupField
from koordlite.model.change import Entry
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.decision import Decision
from koordlite.model.errors import JournalError
from koordlite.model.picture.groups import Cgroup, PodGroups, Process
from koordlite.model.place import Place
from koordlite.model.pod import pod_reader
from koordlite.model.pod.qos import KubeQoS
from koordlite.model.pod.values import Pod
from koordlite.model.settings import StrategySettings
from koordlite.model.snapshot import Snapshot
from koordlite.model.status import AppliedStep, NRISetting, NRIState, RequestHistogram
from koordlite.model.wire import objects
from koordlite.nri import Answer, Container, LinuxResources, PodSandbox
from koordlite.threads import Worker

LOG = logging.getLogger(__name__)

STALE_SECONDS, STALE_TICKS = 15.0, 3
"""Pictures older than both are not judged: the agent hangs."""
LEAST_MEMORY = 16 << 20
"""Below that a runtime's own first process may not fit, and the container would not start."""
LEAST_QUOTA_US = 1000
"""The kernel's own bound; a lower one fails the start."""
UNLIMITED = -1
_ORIGIN = "at creation by NRI"
_FIELDS: tuple[CgroupField, ...] = ("cpuset.cpus", "cpu.quota", "cpu.shares", "memory.limit")
"""Fields of a group that NRI can set on both versions of cgroups; a round writes the rest."""
_MOST_NAMES = 10_000
_SWITCH_SECONDS = 0.0001
"""Longest wait of a thread that answers for one that computes."""
_LEAVE_SECONDS = 2.0
"""Time for which a stop waits for the thread that answers."""
_WAY_SECONDS = 0.005
"""Longest time for which the main thread stands still for one answer."""
_GIVE_WAY = signal.SIGUSR1
"""Signal that is never sent, but said to have come (`_thread.interrupt_main`): so no system call is interrupted, and
where it has no handler nothing happens."""
_NEW_TID = 0
"""No thread of user space has this number: it stands for the container's first one."""


class _Basis(msgspec.Struct, frozen=True):
    """Knowledge of the last round, for the thread that answers."""

    snapshot: Snapshot
    modes: Mapping[str, str]
    """Modes in force: a pause makes every rule observe."""
    settings: Mapping[str, StrategySettings]


class _Question(msgspec.Struct, frozen=True):
    """A container, and what it would be without us."""

    pod: PodSandbox
    container: Container
    group: str
    present: Cgroup
    oom_score: int | None = None


class _Verdict(msgspec.Struct):
    """Values that the rules want for one container, by place or name."""

    values: dict[CgroupField, CPUSet | int] = msgspec.field(default_factory=dict)
    owners: dict[CgroupField, str] = msgspec.field(default_factory=dict)
    oom_score: int | None = None
    oom_score_owner: str = ""
    rdt: str = ""

    @property
    def is_empty(self) -> bool:
        return not self.values and self.oom_score is None and not self.rdt


class Creation(nri.Handler):
    """Answers the runtime in its own thread; the agent's thread gives it pictures and takes what was set."""

    def __init__(self, host: Host, setting: NRISetting) -> None:
        self._host = host
        self.journal: Journal | None = None
        """Journal; without one nothing is set, and what would have been is counted."""
        self._basis: _Basis | None = None
        self._answers = strategies.Answers()
        self._lock = threading.Lock()
        self._set: dict[Place, AppliedStep] = {}
        self._ended: frozenset[Place] = frozenset()
        self.names: Mapping[str, str] = {}
        """The container of each group, as the runtime names it, before the pod's status does."""
        self._turn = threading.Lock()
        """The latest answer's own, locked until it is sent."""
        self.state = NRIState(setting=setting)
        """State for reports."""
        self._runtime, self._version = "containerd", nri.VERSION

    # ── the agent's side ──

    def publish(
        self, snapshot: Snapshot | None, modes: Mapping[str, str], settings: Mapping[str, StrategySettings]
    ) -> None:
        """Judge by this picture from now on; None: there is none, and nothing is set."""
        self._basis = None if snapshot is None else _Basis(snapshot, modes, settings)

    @contextlib.contextmanager
    def serving(self, path: str, index: str) -> Iterator[None]:
        """Answer whoever listens at `path`, in a thread of its own, while the block runs."""
        handlers: list[Worker] = []

        def begin(work: nri.Work) -> None:
            handler = Worker("nri handler", lambda: work(handler.beat))
            handlers.append(handler)
            handler.start()

        plugin = nri.Plugin(self, name="koordlite", index=index, path=path, begin_thread=begin)
        worker = Worker("nri", lambda: plugin.run(worker.beat))
        interval = sys.getswitchinterval()
        # A tick computes for several milliseconds on end, and an answer passes from thread to thread.
        sys.setswitchinterval(_SWITCH_SECONDS)
        is_main = threading.current_thread() is threading.main_thread()
        before = signal.signal(_GIVE_WAY, self._give_way) if is_main else None
        worker.start()
        try:
            yield
        finally:
            sys.setswitchinterval(interval)
            plugin.stop()
            for each in (worker, *handlers):
                each.join(_LEAVE_SECONDS)
            if is_main:
                signal.signal(_GIVE_WAY, before)

    def _give_way(self, _signal: int, _frame: types.FrameType | None) -> None:
        """Let the answer that is on its way go first: a container waits for it, and threads share the interpreter.

        A handler of a signal, so it may begin again within itself, and takes no lock that the main thread can have.
        """
        turn, journal = self._turn, self.journal
        if (journal is None or not journal.is_changing) and turn.acquire(timeout=_WAY_SECONDS):
            turn.release()

    def take(self) -> tuple[AppliedStep, ...]:
        """Values set since the last call. What was set in groups that have gone is forgotten now: writing the journal
        anew would have kept the runtime waiting."""
        with self._lock:
            ended, steps = self._ended, tuple(self._set.values())
            self._set, self._ended = {}, frozenset()
        if self.journal is not None and ended:
            with contextlib.suppress(JournalError):  # Whoever writes it next looks for what has ended as well.
                self.journal.forget(ended)
        return steps

    # ── the runtime's side ──

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """Have the main thread stand still meanwhile, wherever it is in a round."""
        with (turn := threading.Lock()):
            self._turn = turn
            _thread.interrupt_main(_GIVE_WAY)
            yield

    def connection(self, runtime: str, why: str, version: nri.Version = nri.VERSION) -> None:
        """Log when it comes up or changes."""
        before = self.state
        if (runtime, why) != (before.runtime, before.why):
            if runtime:
                new = (("oom score", nri.OOM_SCORE_SINCE), ("class of RDT", nri.RDT_SINCE))
                unknown = ", ".join(word for word, since in new if version < since)
                more = f"; left to the next round, as its NRI is too old: {unknown}" if unknown else ""
                LOG.info("NRI: %s asks before it creates containers%s", runtime, more)
            else:
                LOG.warning("NRI: no runtime asks before it creates containers: %s", why)
        if runtime:
            self._version = version
            self._runtime = "cri-o" if "cri-o" in runtime.lower() else "containerd"
        with self._lock:
            self.state = msgspec.structs.replace(self.state, runtime=runtime, why=why)

    def answered(self, method: str, outcome: nri.Outcome, seconds: float) -> None:
        """Count it."""
        with self._lock:
            state, kind = self.state, (method, outcome)
            answers = {**state.answers, kind: state.answers.get(kind, 0) + 1}
            latency = {**state.latency, method: state.latency.get(method, RequestHistogram()).plus(seconds)}
            self.state = msgspec.structs.replace(state, answers=answers, latency=latency)

    def synchronize(self, pods: Sequence[PodSandbox], containers: Sequence[Container]) -> None:
        """Learn the names of what is there; their values are the next round's."""
        by_id = {pod.id: pod for pod in pods}
        names = {}
        for container in containers[:_MOST_NAMES]:
            pod = by_id.get(container.pod_sandbox_id)
            group = self._group(pod, container) if pod else None
            if group:
                names[group] = container.name
        self.names = names

    def started(self, pod: PodSandbox, container: Container) -> None:
        """Learn its name."""
        self._note_name(self._group(pod, container), container)

    def remove(self, pod: PodSandbox, container: Container) -> None:
        """Let the next round forget what was set where the group has gone, or never came to be."""
        group = self._group(pod, container)
        if group is None:
            return
        self.names = {each: name for each, name in self.names.items() if each != group}
        if not self._host.cgroups.exists(group):
            with self._lock:
                self._ended |= {*cgroup.places_of(group), OOM_SCORE_AT_CREATION.place(group)}

    def create(self, pod: PodSandbox, container: Container) -> Answer:
        """The values of a round, as far as NRI can set them."""
        group = self._group(pod, container)
        if group is None:
            return self._leave("unknownGroup")
        self._note_name(group, container)
        basis, linux = self._fresh, container.linux
        if basis is None:
            return self._leave("noPicture")
        resources = (linux and linux.resources) or LinuxResources()
        present = self._initial(group, resources)
        question = _Question(pod, container, group, present, linux.oom_score_adj if linux else None)
        enforced, observed = self._decisions(basis, question)
        verdict = self._settable(basis.snapshot, group, enforced, present)
        if resources.cpu and resources.cpu.cpus and basis.snapshot.kubelet.cpu_manager_policy != "static":
            # A plugin that was asked before has set it, as a DRA driver does for every container. The runtime refuses
            # two, and the container with them; a round narrows the set once the container runs.
            verdict.values.pop("cpuset.cpus", None)
        if verdict.is_empty:
            if not self._settable(basis.snapshot, group, observed, present).is_empty:
                return self._leave("wouldAdjust")
            return self._leave("asItIs")
        adjust = nri.ContainerAdjustment(
            linux=nri.LinuxContainerAdjustment(
                resources=_resources(verdict.values),
                oom_score_adj=verdict.oom_score,
                rdt=nri.LinuxRdt(clos_id=verdict.rdt) if verdict.rdt else None,
            )
        )
        return self._ours(question, verdict, Answer(adjust=adjust))

    def update(self, pod: PodSandbox, container: Container, resources: LinuxResources) -> Answer:
        """Take over what kubelet changes where we hold a value: its value is what would stand there without us from now
        on."""
        group, basis = self._group(pod, container), self._fresh
        if group is None or basis is None:
            return self._leave("noPicture" if group else "unknownGroup")
        named = self._named(group, resources)
        try:
            before = self._host.cgroups.state(group, ("cpu.shares", "memory.limit"))
        except (OSError, ValueError):
            return self._leave("unknownGroup")
        present = msgspec.structs.replace(
            before,
            cpuset=cast(CPUSet | None, named.get("cpuset.cpus", before.cpuset)),
            quota_us=cast(int | None, named.get("cpu.quota", before.quota_us)),
            values={**before.values, **{k: cast(int, v) for k, v in named.items() if k in before.values}},
        )
        question = _Question(pod, container, group, present)
        enforced, observed = self._decisions(basis, question)
        verdict = self._settable(basis.snapshot, group, enforced, present)
        verdict.values = {field: value for field, value in verdict.values.items() if field in named}
        verdict.oom_score, verdict.rdt = None, ""  # Fixed at creation.
        if self.journal is not None:
            noted = {field: self.journal.by_place.get(cgroup.PLACE.place(group, field)) for field in _FIELDS}
            recorded = {field: entry for field, entry in noted.items() if isinstance(entry, FileEntry)}
            self.journal.amend(self._entries(group, named, {}, recorded))
        if verdict.is_empty:
            would = self._settable(basis.snapshot, group, observed, present).values.keys() & named.keys()
            return self._leave("wouldAdjust" if would else "asItIs")
        return self._ours(question, verdict, Answer(resources=_resources(verdict.values)))

    # ── the judgement ──

    @property
    def _fresh(self) -> _Basis | None:
        """Knowledge of the last round, unless that is long ago."""
        basis = self._basis
        if basis is None:
            return None
        longest = max(STALE_SECONDS, STALE_TICKS * basis.snapshot.interval_seconds)
        return basis if self._host.clock.monotonic() - basis.snapshot.time <= longest else None

    def _decisions(self, basis: _Basis, question: _Question) -> tuple[list[Decision], list[Decision]]:
        """Decisions of the rules about the container, of those that are enforced and those that observe."""
        snapshot = self._with(basis.snapshot, question)
        if snapshot is None:
            return [], []
        picture = fast_path.pictures(snapshot, (question.group,))
        # The limit of best effort as a whole moves every second, and is never fixed in a container.
        limiting = {rule.name for rule in strategies.limiting()}
        on = [name for name, mode in basis.modes.items() if mode != "off" and name not in limiting]
        asking = fast_path.new_group_rules(on)
        decisions: tuple[Decision, ...] = ()
        for rule in (rule for rule in strategies.discover() if rule.name in asking):
            evictees = strategies.evictees_before(rule, decisions, basis.settings)
            decisions += self._answers.of(rule, picture(rule), basis.settings, evictees)
        enforced = [d for d in decisions if basis.modes.get(d.strategy) == "enforce"]
        observed = [d for d in decisions if basis.modes.get(d.strategy) == "observe"]
        return enforced, observed

    def _with(self, snapshot: Snapshot, question: _Question) -> Snapshot | None:
        """The picture with the container in it; None when its pod is not what the picture says."""
        pod, container, group = question.pod, question.container, question.group
        oom = question.oom_score
        listed = next((each for each in snapshot.pods if each.uid == pod.uid), None)
        parent = group.rpartition("/")[0]
        if listed is not None and not any(each.name == container.name for each in listed.containers):
            return None  # Another pod of this uid, or an ephemeral container.
        layout = self._host.cgroups.layout
        classes = {layout.besteffort: KubeQoS.BEST_EFFORT, layout.burstable: KubeQoS.BURSTABLE}
        kube_qos = classes.get(parent.rpartition("/")[0], KubeQoS.GUARANTEED)
        subject = listed or _from_runtime(pod, container, kube_qos)
        if subject is None:
            return None
        place = snapshot.places.get(subject.uid) or PodGroups(parent, {})
        if place.group != parent:
            return None
        sandboxes = tuple(each for each in place.sandboxes if each != group)
        place = PodGroups(parent, {**place.containers, container.name: group}, sandboxes)
        cgroups = {**snapshot.cgroups, group: question.present}
        if parent not in cgroups:
            try:
                cgroups[parent] = self._host.cgroups.state(parent, ("cpu.shares", "memory.limit"))
            except (OSError, ValueError):
                return None
        threads = {**snapshot.resctrl.threads, group: (_NEW_TID,)}
        return dataclasses.replace(
            snapshot,
            pods=snapshot.pods if listed else (*snapshot.pods, subject),
            places={**snapshot.places, subject.uid: place},
            cgroups=cgroups,
            oom_scores={**snapshot.oom_scores, group: () if oom is None else (Process(_NEW_TID, 0, oom),)},
            resctrl=dataclasses.replace(snapshot.resctrl, threads=threads),
        )

    def _settable(self, snapshot: Snapshot, group: str, decisions: Sequence[Decision], present: Cgroup) -> _Verdict:
        """Select the decisions that the runtime can be asked for without risk to the container's start."""
        verdict = _Verdict()
        ordered = plan.make(fast_path.about(decisions, (group,)), {**snapshot.cgroups, group: present})
        for change in ordered.steps:
            if isinstance(change, CgroupChange) and change.field in _FIELDS and not change.gives_back:
                verdict.values[change.field] = change.value  # A set comes twice: widened, then as it is to be.
                verdict.owners[change.field] = ordered.owners[change.place]
        verdict.values = {
            field: value
            for field, value in verdict.values.items()
            if cgroup.present(present, field) not in (None, value) and self._is_safe(snapshot, group, field, value)
        }
        for change, owner in ((change, each.strategy) for each in decisions for change in each.changes):
            if isinstance(change, OOMScoreChange) and change.pid == _NEW_TID and not change.gives_back:
                verdict.oom_score, verdict.oom_score_owner = change.value, owner
            elif isinstance(change, TasksChange) and _NEW_TID in change.tids and "/" not in change.group:
                # Only a group of ours: with it the class ends, and so its threads are back where they would be. It may
                # have gone since the picture was taken, and the runtime would make it again, or refuse the start.
                present_groups: Sequence[str] = ()
                with contextlib.suppress(OSError):
                    present_groups = self._host.files.list(self._host.resctrl.root)
                is_there = GROUP.place(change.group) in snapshot.ours and f"{change.group}/" in present_groups
                verdict.rdt = change.group if is_there else ""
        if self._version < nri.OOM_SCORE_SINCE:
            verdict.oom_score = None
        if self._version < nri.RDT_SINCE:
            verdict.rdt = ""
        return verdict

    def _is_safe(self, snapshot: Snapshot, group: str, field: CgroupField, value: CPUSet | int) -> bool:
        """Tell whether no kernel refuses the value in a new group below those that are there, now and in a moment."""
        above = [group.rpartition("/")[0]]
        while above[-1] not in (snapshot.layout.kubepods, ""):
            above.append(above[-1].rpartition("/")[0])
        if isinstance(value, CPUSet):
            # Best effort's set moves every second, and a group that names none has that of the group above.
            if group.startswith(f"{snapshot.layout.besteffort}/") or not value:
                return False
            return snapshot.layout.version == 2 or all(
                not value - each and value != each for each in self._sets(above[:1])
            )
        if field == "cpu.quota":
            if snapshot.layout.version == 2 or value == UNLIMITED:
                return value == UNLIMITED or value >= LEAST_QUOTA_US
            return value >= LEAST_QUOTA_US and all(
                quota in (None, UNLIMITED) or quota >= value for quota in map(self._quota, above)
            )
        if field == "cpu.shares":
            return MIN_SHARES <= value <= MAX_SHARES
        # With the limit the runtime sets that of memory and swap, which nobody would put back.
        return value >= LEAST_MEMORY and not self._counts_swap(snapshot)

    def _quota(self, group: str) -> int | None:
        try:
            return self._host.cgroups.quota_us(group)
        except FileNotFoundError:
            return None

    def _sets(self, groups: Iterable[str]) -> list[CPUSet]:
        raw = [self._host.cgroups.read_present(each, "cpuset.cpus") for each in groups]
        return [cast(CPUSet, self._host.cgroups.decode("cpuset.cpus", each)) for each in raw if each is not None]

    def _counts_swap(self, snapshot: Snapshot) -> bool:
        """Tell whether the kernel has a limit of memory and swap together that follows the limit of memory."""
        limit = self._host.cgroups.path(snapshot.layout.kubepods, "memory.limit")
        name = "memory.memsw.limit_in_bytes" if snapshot.layout.version == 1 else "memory.swap.max"
        try:
            self._host.files.read(f"{limit.rpartition('/')[0]}/{name}")
        except OSError:
            return False
        return True

    # ── what is ours then ──

    def _ours(self, question: _Question, verdict: _Verdict, answer: Answer) -> Answer:
        """The answer, which can be withdrawn, once the journal on disk says what the container would have had."""
        if self.journal is None:
            return self._leave("wouldAdjust")
        group, score = question.group, verdict.oom_score
        originals = {f: v for f in verdict.values if (v := cgroup.present(question.present, f)) is not None}
        entries: list[Entry] = [*self._entries(group, originals, verdict.owners, {})]
        changes = (CgroupChange(group, field, value) for field, value in verdict.values.items())
        values = {change.place: change.describe() for change in changes}
        if score is not None and question.oom_score is not None:
            owner = verdict.oom_score_owner
            entries.append(OOMScoreAtCreation(group=group, value=question.oom_score, ours=score, strategy=owner))
            values[entries[-1].place] = str(score)
        try:
            added = self.journal.add(entries)
        except JournalError as error:
            LOG.error("NRI: nothing is set: %s", error)
            return self._leave("noJournal")
        steps = {place: AppliedStep(place, value, origin=_ORIGIN) for place, value in values.items()}
        with self._lock:
            self._set |= steps
        self._count("adjusted")
        journal = self.journal

        def withdraw() -> None:
            with self._lock:
                self._set = {place: step for place, step in self._set.items() if place not in steps}
            journal.forget(added)
            self._count("withdrawn")

        return dataclasses.replace(answer, withdraw=withdraw)

    def _entries(
        self,
        group: str,
        originals: Mapping[CgroupField, CPUSet | int],
        owners: Mapping[CgroupField, str],
        recorded: Mapping[CgroupField, FileEntry],
    ) -> list[FileEntry]:
        """Values that would stand in the group without us; what is recorded keeps its strategy and its time."""
        cgroups, wall, entries = self._host.cgroups, self._host.clock.wall(), []
        for field, value in originals.items():
            raw, before = cgroups.encode(field, value), recorded.get(field)
            if field == inherited.FIELD and self.journal is not None:
                raw = inherited.original(self._host, group, raw, self.journal.by_place, inherited.RecentSets())
            if before is not None:
                entries.append(msgspec.structs.replace(before, text=raw.decode("latin-1")))
                continue
            path, owner = cgroups.path(group, field), owners.get(field, "")
            entry = FileEntry.of(
                path=path, group=group, field=field, raw=raw, found_at=wall, strategy=owner, at_creation=True
            )
            entries.append(entry)
        return entries

    # ── what the runtime says ──

    def _group(self, pod: PodSandbox, container: Container) -> str | None:
        """The container's group below the cgroup root; None where it is none of kubelet's."""
        path = container.linux.cgroups_path if container.linux else ""
        parent = pod.linux.cgroup_parent.strip("/") if pod.linux else ""
        cgroups = self._host.cgroups
        for qos in KubeQoS:
            try:
                pod_group = cgroups.pod_group(pod.uid, qos)
                group = cgroups.container_group(pod_group, f"{self._runtime}://{container.id}") or ""
            except ValueError:
                return None
            if cgroups.layout.driver == "systemd":
                slice_, name = pod_group.rpartition("/")[2], group.rpartition("/")[2].removesuffix(".scope")
                prefix, _, _ = name.partition(f"-{container.id}")
                if parent.rpartition("/")[2] == slice_ and path == f"{slice_}:{prefix}:{container.id}":
                    return group
            elif parent == pod_group and path.strip("/") == group:
                return group
        return None

    def _initial(self, group: str, resources: LinuxResources) -> Cgroup:
        """The group as the runtime would make it. A set that is not named is that of the group above."""
        cpu, parent = resources.cpu or nri.LinuxCPU(), group.rpartition("/")[0]
        is_v1 = self._host.cgroups.layout.version == 1
        above = next(iter(self._sets([parent])), EMPTY)
        cpus = CPUSet.parse(cpu.cpus) if cpu.cpus else above if is_v1 else EMPTY
        limit = resources.memory.limit if resources.memory else None
        values = {"memory.limit": limit or UNLIMITED}
        if cpu.shares:
            values["cpu.shares"] = cast(int, self._host.cgroups.settled("cpu.shares", cpu.shares))
        return Cgroup(
            cpuset=cpus,
            effective=cpus or None,
            quota_us=cpu.quota or UNLIMITED,
            period_us=cpu.period or Cgroup().period_us,
            values=values,
        )

    def _named(self, group: str, resources: LinuxResources) -> dict[CgroupField, CPUSet | int]:
        """Resources that an update names; 0 is not named."""
        cpu, memory = resources.cpu or nri.LinuxCPU(), resources.memory or nri.LinuxMemory()
        values: dict[CgroupField, CPUSet | int | None] = {
            "cpuset.cpus": CPUSet.parse(cpu.cpus) if cpu.cpus else None,
            "cpu.quota": cpu.quota,
            "cpu.shares": cpu.shares,
            "memory.limit": memory.limit,
        }
        return {field: value for field, value in values.items() if value}

    def _note_name(self, group: str | None, container: Container) -> None:
        if group is not None and len(self.names) < _MOST_NAMES:
            self.names = {**self.names, group: container.name}

    def _leave(self, why: str) -> Answer:
        self._count(why)
        return nri.NOTHING

    def _count(self, what: str) -> None:
        with self._lock:
            state = self.state
            results = {**state.results, what: state.results.get(what, 0) + 1}
            self.state = msgspec.structs.replace(state, results=results)


def _resources(values: Mapping[CgroupField, CPUSet | int]) -> LinuxResources | None:
    if not values:
        return None
    value = cast(Mapping[str, Any], values).get
    cpu = nri.LinuxCPU(shares=value("cpu.shares"), quota=value("cpu.quota"), cpus=str(value("cpuset.cpus", "")))
    return LinuxResources(
        cpu=cpu if values.keys() - {"memory.limit"} else None,
        memory=nri.LinuxMemory(limit=value("memory.limit")) if "memory.limit" in values else None,
    )


def _from_runtime(pod: PodSandbox, container: Container, kube_qos: KubeQoS) -> Pod | None:
    """The pod by what the runtime says of it: its class, labels and annotations, but no requests. None where CPUs are
    promised to it: whether it gets them depends on the other pods."""
    read = pod_reader.from_wire(
        objects.PodObject(
            metadata=objects.ObjectMeta(
                name=pod.name,
                namespace=pod.namespace,
                uid=pod.uid,
                labels=dict(pod.labels),
                annotations=dict(pod.annotations),
            ),
            spec=objects.PodSpec(containers=(objects.Container(name=container.name),)),
            status=objects.PodStatus(phase="Pending", qos_class=str(kube_qos)),
        )
    )
    return None if read.resource_status.cpuset or read.crane.zones else read
