"""The CPUs that pods have by Crane's annotations: decided when the picture is taken, since several strategies need the
same ones, and kept in the state folder before anything is written by them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from koordlite.host import crane_promises
from koordlite.host.bundle import Host
from koordlite.host.files import readable
from koordlite.kube.kubelet.configz import parse_cpu_manager_state
from koordlite.model import cpuset
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.errors import InputError, Problem
from koordlite.model.picture.crane import CranePromise, CraneState
from koordlite.model.picture.kubelet import Kubelet
from koordlite.model.pod.qos import QoSClass
from koordlite.model.pod.values import Pod
from koordlite.model.topology import Topology
from koordlite.numa.crane import assignments
from koordlite.numa.crane.assignments import Assignments, Claim, Entries
from koordlite.numa.koordinator.assignments import SharedPool
from koordlite.numa.machine import Machine
from koordlite.strategies.crane_cpu_manager import Config
from koordlite.unchanged import Unchanged

STATIC, UNKNOWN = "static", "unknown"
_BY_KOORDINATOR = "Koordinator's scheduler assigned CPUs to it"
_NOT_CHOSEN = "no scheduler chose NUMA nodes for it: let the extender bind it, or run koordlite crane assign"
_SYSTEM = "pods of class SYSTEM have CPUs of their own"


class Around(msgspec.Struct, frozen=True, kw_only=True):
    """Other facts about the node."""

    complete: bool
    """All pods are known. Until then none counts as gone, and nothing is given."""
    kubelet: Kubelet
    topology: Topology
    reserved: CPUSet
    taken: CPUSet
    """CPUs that others have alone."""
    pool: SharedPool | None = None
    """Pool that latency-sensitive pods share: promises leave it its floor."""

    def shortage(self, exclusive: CPUSet) -> str:
        """Reason why pods may not have these CPUs alone by Crane's annotations; empty when they may."""
        if self.pool is None:
            return ""
        return self.pool.shortage(self.pool.cpus - self.taken - exclusive, self.pool.shared_milli)


class CranePromises:
    """Remembers what was given."""

    def __init__(
        self,
        config: Config | None,
        folder: Path | None,
        host: Host | None,
        *,
        checkpoint: str = "",
        placed_by_others: frozenset[str] = frozenset(),
    ) -> None:
        """`config` is that of the strategy, None while it is off: then nothing is given, and nothing is read. `folder`
        is the state folder; `host` is this machine, whose top group says which CPUs pods may have. `checkpoint` is
        crane-agent's own file, which has the form of kubelet's; it counts once, when nothing has been promised yet.
        `placed_by_others` as in `CraneState`."""
        self._config, self._folder, self._host = config, folder, host
        self._enforced = config is not None and config.mode == "enforce"
        self._checkpoint, self._placed_by_others = checkpoint, placed_by_others
        self._entries: Entries | None = None
        self._unchanged = Unchanged()
        self.problems: tuple[Problem, ...] = ()
        """Mistakes of the kept promises at the last look; of a file that was replaced since, for one look."""
        self._replaced = False

    @property
    def on(self) -> bool:
        """The strategy is not off."""
        return self._config is not None

    def exclusive_cpus(self, pods: Sequence[Pod], kubelet: Kubelet) -> CPUSet:
        """CPUs that are exclusive or immovable from earlier on: neither a reservation nor another assignment may take
        them. None where kubelet places the pods.

        InputError when what an earlier run kept cannot be read.
        """
        if not self._enforced or _why_not(kubelet) == STATIC:
            return EMPTY
        before = self._stored()

        def cpus() -> CPUSet:
            entries = assignments.valid_entries(before, self._claims(pods))
            return cpuset.union(entry.cpus for theirs in entries.values() for entry in theirs.values())

        return self._unchanged.of("held", (pods, before), cpus)

    def look(self, pods: tuple[Pod, ...], created: Callable[[], Mapping[str, str]], around: Around) -> CraneState:
        """Promises that hold now. `created` are the pods' times (RFC 3339) by uid: the older goes first.

        Reserved CPUs, and those that others have alone, hold whether the strategy is off or not.
        """
        if self._config is None:
            return self._unchanged.of(
                "off", (around,), lambda: CraneState(reserved=around.reserved, taken=around.taken)
            )
        if self._replaced:
            self.problems, self._replaced = (), False
        same = self._unchanged.same
        usable = same("usable", _usable(self._host, around.topology))
        around, entries = same("around", around), self._stored()
        return self._unchanged.of(
            "state",
            (pods, usable, around, entries, self.problems),
            lambda: self._state(pods, self._claims(pods, created()), usable, around),
        )

    def _state(self, pods: Sequence[Pod], claims: Sequence[Claim], usable: CPUSet, around: Around) -> CraneState:
        before, why_not = self._stored(), _why_not(around.kubelet)
        assigned = Assignments(
            machine=Machine(around.topology.cpus),
            usable=usable,
            reserved=around.reserved,
            taken=around.taken,
            entries=assignments.valid_entries(before, claims) if around.complete else before,
        )
        refused: Mapping[str, str] = {}
        if around.complete and not why_not:
            if not before:
                assigned = assignments.with_checkpoint(self._crane_agent_sets(), assigned, claims)
            after, refused = assignments.with_claims(assigned, claims, around.shortage)
            assigned = self._keep(assigned, after)
        return CraneState(
            enforced=self._enforced and why_not != STATIC,
            why_not=why_not,
            promises={} if why_not == STATIC else {uid: _promise(assigned, uid) for uid in assigned.entries},
            refused=refused,
            excluding=frozenset(pod.uid for pod in pods if pod.active and pod.crane.excludes_reserved),
            exclusive=assigned.exclusive,
            immovable=assigned.immovable,
            taken=around.taken,
            default=assigned.default,
            reserved=around.reserved,
            placed_by_others=self._placed_by_others,
        )

    def _crane_agent_sets(self) -> Mapping[str, Mapping[str, CPUSet]]:
        """CPUs that crane-agent gave to containers, by pod uid; nothing where it left nothing that can be read."""
        if self._host is None:
            return {}
        try:
            state = parse_cpu_manager_state(self._host.files.read(self._checkpoint))
        except (OSError, InputError):
            return {}
        return {pod.uid: pod.containers for pod in state.pod_cpus}

    def _stored(self) -> Entries:
        if self._entries is None:
            entries, self.problems = crane_promises.read(self._folder) if self._folder else ({}, ())
            self._entries = entries
        return self._entries

    def _keep(self, before: Assignments, after: Assignments) -> Assignments:
        """`after`, once it is on disk; `before`, with a problem, when it cannot be written: nothing is promised that a
        restart would not know."""
        if after.entries == self._entries:
            return after
        if self._folder and self._enforced:
            try:
                crane_promises.write(self._folder, after.entries)
            except OSError as error:
                path = str(self._folder / crane_promises.NAME)
                do = "make room or make it writable; until then no pod gets CPUs by Crane's annotations"
                self.problems = (Problem(path, "file", "", str(error), do),)
                return before
        self._entries, self._replaced = after.entries, bool(self.problems)
        return after

    def _claims(self, pods: Sequence[Pod], created: Mapping[str, str] | None = None) -> list[Claim]:
        """Candidates: pods with a topology result and containers that ask for whole CPUs, in the order the pods were
        made."""
        assert self._config is not None
        times, policy = created or {}, self._config.default_cpu_policy
        ordered = sorted(pods, key=lambda pod: (times.get(pod.uid, ""), pod.uid))
        claims = (_claim(pod, policy) for pod in ordered if _asks(pod) and not pod.finished)
        return [claim for claim in claims if claim]


def _asks(pod: Pod) -> bool:
    return bool(pod.crane.zones or pod.crane.containers)


def _claim(pod: Pod, default_policy: str) -> Claim | None:
    policy = pod.crane.policy or default_policy
    app = [(c.name, c.requests, c.limits) for c in pod.containers if not c.init]
    only = pod.crane.containers
    counts = assignments.targets(policy, app, only)
    if not (counts or only):
        return None
    by_koordinator = bool(pod.resource_status.cpuset)
    barred = _BY_KOORDINATOR if by_koordinator else _SYSTEM if pod.raw_qos is QoSClass.SYSTEM else ""
    barred = barred or assignments.unfit(app, only) or ("" if pod.crane.zones else _NOT_CHOSEN)
    return Claim(uid=pod.uid, policy=policy, zones=pod.crane.zones, containers=counts, barred=barred)


def _why_not(kubelet: Kubelet) -> str:
    policy = kubelet.cpu_manager_policy
    return STATIC if policy == STATIC else "" if policy else UNKNOWN


def _promise(assigned: Assignments, uid: str) -> CranePromise:
    theirs = assigned.entries[uid]
    first = next(iter(theirs.values()))
    # With every CPU of its NUMA nodes exclusive by now, a container shares those of the others.
    sets = {name: assigned.of(uid, name) or assigned.shared or assigned.default for name in theirs}
    return CranePromise(first.policy, tuple(node for node, _ in first.zones), sets)


def _usable(host: Host | None, topology: Topology) -> CPUSet:
    """The online CPUs that kubelet's top group has; all where that group does not say."""
    state = readable(host.cgroups.state, host.cgroups.layout.kubepods) if host else None
    return topology.cpuset & state.effective if state and state.effective else topology.cpuset
