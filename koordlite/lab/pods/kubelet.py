"""The kubelet of the emulated node: makes and removes the cgroups and processes of pods, as the real one leaves them.

Like the real one it sets shares and quotas from requests and limits, ignores batch resources, sets cpusets of
containers only, and gives every pod a sandbox container of its own. A container starts on a copy of its pod's set;
under the static policy kubelet's own set is then written over it, and where the kernel refuses that (v1, a group above
has fewer CPUs) the container does not start.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import structs

from koordlite.formulas import batch_resource, ceilings
from koordlite.formulas.batch_resource import Values
from koordlite.host.cgroups import names
from koordlite.lab.cgroups import files
from koordlite.lab.cgroups.trees import UNLIMITED, Cgroups, Group
from koordlite.lab.load import memory
from koordlite.lab.load.connections import ELSEWHERE, Connections
from koordlite.lab.load.demand import NOTHING
from koordlite.lab.load.workloads import Workload, Workloads
from koordlite.lab.machine.clock import BOOTED
from koordlite.lab.machine.machine import Machine
from koordlite.lab.machine.processes import Process, Processes
from koordlite.lab.pods import pod_spec
from koordlite.lab.pods.managers import Managers
from koordlite.lab.pods.pod_spec import Behaviour
from koordlite.model import node as nodes
from koordlite.model.cgroup_fields import MIN_SHARES, weight_of_shares
from koordlite.model.cpuset import CPUSet
from koordlite.model.errors import Problem
from koordlite.model.pod import pod_reader
from koordlite.model.pod.qos import KubeQoS
from koordlite.model.pod.values import ContainerInfo, Pod
from koordlite.model.quantity import Quantity
from koordlite.model.wire import objects

PODS = 110
EVICTION_MEMORY = 100 * 2**20
"""kubelet's default hard eviction threshold, which allocatable leaves out."""

Amounts = dict[str, str | int | float]


def registered_node(machine: Machine, name: str) -> objects.NodeObject:
    """A Node as this machine's kubelet registers it."""
    capacity: Amounts = {**_native(machine), "pods": str(PODS)}
    allocatable = {**capacity, "memory": f"{(machine.memory - EVICTION_MEMORY) // 1024}Ki"}
    return objects.NodeObject(
        metadata=objects.ObjectMeta(name=name, uid=f"node-{name}"),
        status=objects.NodeStatus(capacity=capacity, allocatable=allocatable),
    )


def with_machine_amounts(
    machine: Machine, written: objects.NodeObject
) -> tuple[objects.NodeObject, tuple[Problem, ...]]:
    """`written` with the machine's CPUs and memory, keeping what it holds back from them; and what was wrong.

    The same object when it was right. A manifest without a status is not wrong.
    """
    described = nodes.from_wire(written)
    native = {name: Quantity.parse(text) for name, text in _native(machine).items()}
    wrong = {
        name: described.capacity.get(name) for name, amount in native.items() if described.capacity.get(name) != amount
    }
    if not wrong:
        return written, ()
    base = registered_node(machine, written.metadata.name).status
    capacity: Amounts = {**(base.capacity or {}), **(written.status.capacity or {}), **_native(machine)}
    allocatable: Amounts = {**(base.allocatable or {}), **(written.status.allocatable or {})}
    # The machine's amounts less what the manifest's allocatable leaves out of its capacity.
    allocatable |= {
        name: str(Quantity(max(0, amount.nano - capacity_of.nano + allocatable_of.nano), amount.format))
        for name, amount in native.items()
        if (capacity_of := described.capacity.get(name)) and (allocatable_of := described.allocatable.get(name))
    }
    do = "fix the manifest or take another shape; the machine's amount counts"
    problems = tuple(
        Problem(
            f"node/{written.metadata.name}",
            f"status.capacity.{name}",
            str(amount),
            f"the emulated machine has {native[name]}",
            do,
        )
        for name, amount in wrong.items()
        if amount
    )
    status = structs.replace(written.status, capacity=capacity, allocatable=allocatable)
    return structs.replace(written, status=status), problems


def _native(machine: Machine) -> Amounts:
    return {"cpu": str(len(machine.cpus)), "memory": f"{machine.memory // 1024}Ki"}


SYSTEM_GROUP = "system.slice/node-daemons.service"
RESTART_SECONDS = 10.0
"""A container that was killed or could not be started is started again after this time, the first delay of kubelet's
back-off."""


class RunningPod(msgspec.Struct, eq=False):
    """A pod that has been started."""

    source: objects.PodObject
    described: Pod
    behaviour: Behaviour
    group: str
    containers: tuple[ContainerInfo, ...] = ()
    workloads: tuple[Workload, ...] = ()
    pause: Process | None = None
    problems: tuple[Problem, ...] = ()
    restarts: dict[str, int] = msgspec.field(default_factory=dict)
    """Restarts by container name."""
    waiting: dict[str, str] = msgspec.field(default_factory=dict)
    """Reason why a container could not be started, by its name."""


class EmulatedKubelet:
    """Brings the cgroups and processes of the node in line with the pods bound to it."""

    def __init__(
        self, machine: Machine, cgroups: Cgroups, processes: Processes, workloads: Workloads, *, seed: int
    ) -> None:
        self._machine, self._cgroups, self._processes, self._workloads = machine, cgroups, processes, workloads
        self._seed = seed
        kubepods = "kubepods.slice" if machine.driver == "systemd" else "kubepods"
        self.layout = names.layout(machine.cgroup_version, kubepods)
        self.running: dict[str, RunningPod] = {}
        """Started pods by uid."""
        self._reported: dict[str, tuple[objects.PodObject, object, objects.PodObject]] = {}
        """Pods by uid: the object, what its report follows from besides, and the report."""
        self._dead: list[tuple[float, Workload]] = []
        self._unstarted: list[tuple[float, RunningPod, ContainerInfo]] = []
        self.managers, self.connections = Managers(machine), Connections()
        for group in (self.layout.kubepods, self.layout.burstable, self.layout.besteffort, SYSTEM_GROUP):
            self._make(group)
        self._set_shares(self.layout.kubepods, batch_resource.shares(1000 * len(machine.cpus)))
        self._set_shares(self.layout.besteffort, MIN_SHARES)
        daemons = processes.spawn("node-daemons", threads=4, now=0)
        self._daemons = Workload("", "system", SYSTEM_GROUP, daemons, NOTHING)
        self._start(self._daemons)

    def sync(
        self, pods: Iterable[objects.PodObject], node: objects.NodeObject | None, now: float
    ) -> tuple[Problem, ...]:
        """Start what is new, stop what is gone, take over changed annotations; what cannot be read comes back."""
        problems: list[Problem] = []
        self._daemons.demand, configuration = pod_spec.node_behaviour(node, problems)
        restarted = self.managers.configure(configuration)
        bound = {obj.metadata.uid: obj for obj in pods if obj.status.phase in ("", "Pending", "Running")}
        self.managers.keep(bound)
        for uid in [uid for uid in self.running if uid not in bound]:
            self._stop_pod(uid)
        for uid in [uid for uid in self.running if restarted and not self.managers.admit(bound[uid])]:
            self._stop_pod(uid)
        for uid, obj in bound.items():
            self._sync_pod(uid, obj, now)
            problems.extend(self.running[uid].problems if uid in self.running else ())
        self._set_pool()
        requests = (each.described for each in self.running.values())
        milli = sum(each.request_milli("cpu") for each in requests if each.kube_qos is KubeQoS.BURSTABLE)
        self._set_shares(self.layout.burstable, batch_resource.shares(milli))
        self._connect()
        return tuple(problems)

    def reported(self, obj: objects.PodObject) -> objects.PodObject:
        """The pod with the status that kubelet reports; unchanged pods keep their identity."""
        uid = obj.metadata.uid
        running, refusal = self.running.get(uid), self.managers.refused.get(uid)
        if running is None and refusal is None:
            return obj
        state = refusal or (running and (sum(running.restarts.values()), tuple(running.waiting.items())))
        last = self._reported.get(uid)
        if last is None or last[0] is not obj or last[1] != state:
            if refusal:
                status = structs.replace(obj.status, phase="Failed", reason=refusal.reason, message=refusal.message)
            else:
                status = _status(running, obj.status) if running else obj.status
            last = self._reported[uid] = obj, state, structs.replace(obj, status=status)
        return last[2]

    def killed(self, workloads: Sequence[Workload], now: float) -> None:
        """The kernel has killed these containers: they come back in a while, in the groups they had.

        A real kubelet gives a restarted container a new id and group; here both stay.
        """
        self._end(each.process for each in workloads)
        self._dead += [(now + RESTART_SECONDS, each) for each in workloads]

    def restart(self, now: float) -> None:
        """Start again what was killed, or could not be started, long enough ago, unless its pod or group is gone."""
        retried = [(running, spec) for when, running, spec in self._unstarted if when <= now]
        self._unstarted = [each for each in self._unstarted if each[0] > now]
        for waiting, spec in retried:
            if self.running.get(waiting.described.uid) is waiting:
                self._start_container(waiting, spec, now)
                self._follow(waiting, now)
        due = [workload for when, workload in self._dead if when <= now]
        self._dead = [(when, workload) for when, workload in self._dead if when > now]
        for workload in due:
            running = self.running.get(workload.uid)
            if running is None or workload not in running.workloads or self._cgroups.cpu.find(workload.group) is None:
                continue
            old, container = workload.process, workload.container
            workload.process = self._processes.spawn(
                old.comm, threads=len(old.tids), now=now, oom_score_adj=old.oom_score_adj, pod=old.pod
            )
            running.restarts[container] = running.restarts.get(container, 0) + 1
            self._start(workload)

    def end_below(self, group: str) -> None:
        """End every process in a group and below it, then remove the group: what an OOM kill or a crash leaves."""
        self._end(self._processes.of(tid) for tid in self._cgroups.tids_below(group))
        self._cgroups.remove(group)

    def _connect(self) -> None:
        uids = {running.described.key: uid for uid, running in self.running.items()} | {ELSEWHERE: ELSEWHERE}
        talkers = ((uid, running.behaviour.connections) for uid, running in self.running.items())
        talks = {(uid, uids[name]): number for uid, each in talkers for name, number in each.items() if name in uids}
        self.connections.set(talks)

    def _sync_pod(self, uid: str, obj: objects.PodObject, now: float) -> None:
        present = self.running.get(uid)
        if present is not None and present.source is obj:
            return
        problems: list[Problem] = []
        described = pod_reader.from_wire(obj)
        behaviour = pod_spec.behaviour(described, self._seed, problems)
        if present is None:
            if not self.managers.admit(obj):
                return
            group = names.pod_group(self.layout, uid, described.kube_qos)
            present = self.running[uid] = RunningPod(obj, described, behaviour, group)
            pause = self._container_group(group, pod_spec.container_id(uid, "pause"))
            self._make(pause)
            self._set_shares(pause, MIN_SHARES)
            present.pause = self._processes.spawn(
                "pause", threads=1, now=now, oom_score_adj=pod_spec.PAUSE_ADJ, pod=uid
            )
            self._cgroups.attach(pause, present.pause.tids)
            present.containers = tuple(
                structs.replace(each, id=each.id or pod_spec.container_id(uid, each.name))
                for each in described.containers
            )
            for spec in present.containers:
                self._start_container(present, spec, now)
        present.source, present.described, present.behaviour = obj, described, behaviour
        present.problems = tuple(problems)
        self._follow(present, now)

    def _follow(self, running: RunningPod, now: float) -> None:
        """Set behaviour, shares, quotas and memory of the pod and its containers, also after a resize in place."""
        described, behaviour = running.described, running.behaviour
        values = {each.name: pod_spec.values(each) for each in described.containers}
        for workload in running.workloads:
            workload.demand, workload.disk = behaviour.demand, behaviour.disk
            group = self._cgroups.memory.find(workload.group)
            if workload.container in values:
                self._set_values(workload.group, values[workload.container])
            if group is not None and workload.memory != behaviour.memory:
                # What the pod wants is there from the start; later it grows and shrinks as memory is filled.
                workload.memory = behaviour.memory
                memory.fill(workload, group, seconds=now - BOOTED)
        quotas, limits = [each.quota_us for each in values.values()], [each.limit_bytes for each in values.values()]
        quota_us, limit_bytes = (UNLIMITED if UNLIMITED in each else sum(each) for each in (quotas, limits))
        shares = batch_resource.shares(described.request_milli("cpu"))
        self._set_values(running.group, Values(shares=shares, quota_us=quota_us, limit_bytes=limit_bytes))

    def _start_container(self, fresh: RunningPod, spec: ContainerInfo, now: float) -> None:
        group = self._container_group(fresh.group, spec.id)
        made, cpus = self._make(group), self.managers.of(fresh.described.uid, spec.name)
        try:
            if cpus is not None:
                self._write_cpus(made, cpus)
        except OSError as error:
            words = (error.strerror or "").lower()
            fresh.waiting[spec.name] = f'failed to write "{cpus}": /sys/fs/cgroup/cpuset/{group}/cpuset.cpus: {words}'
            self._cgroups.remove(group)
            self._unstarted.append((now + RESTART_SECONDS, fresh, spec))
            return
        fresh.waiting.pop(spec.name, None)
        demand = fresh.behaviour.demand
        # One thread for each CPU when it is greedy, else a few.
        threads = len(self._machine.cpus) if math.isinf(demand.milli(0)) else 4
        adj = ceilings.kubelet_oom_score(fresh.described.kube_qos, spec, capacity=self._machine.memory)
        uid = fresh.described.uid
        process = self._processes.spawn(spec.name[:15], threads=threads, now=now, oom_score_adj=adj, pod=uid)
        name = f"{fresh.described.key}/{spec.name}"
        workload = Workload(uid, name, group, process, demand, 1 / len(fresh.containers))
        self._start(workload)
        fresh.workloads = (*fresh.workloads, workload)

    def _start(self, workload: Workload) -> None:
        self._cgroups.attach(workload.group, workload.process.tids)
        self._workloads.add(workload)

    def _stop_pod(self, uid: str) -> None:
        pod = self.running.pop(uid)
        self._end([*(workload.process for workload in pod.workloads), *([pod.pause] if pod.pause else [])])
        self._cgroups.remove(pod.group)

    def _end(self, processes: Iterable[Process]) -> None:
        ended = set(processes)
        for workload in [each for each in self._workloads if each.process in ended]:
            self._workloads.remove(workload)
        for process in ended:
            for tid in process.tids:
                self._cgroups.detach(tid)
            self._processes.end(process)

    def _make(self, path: str) -> Group:
        """mkdir with parents; the group for CPUs. On v1 new cpusets are empty, so runc copies each from its parent."""
        self._cgroups.make(path)
        made = self._cgroups.cpuset.make_all(path)
        if self._cgroups.version == 1:
            for group in reversed(list(made.lineage())):
                if group.parent is not None and not group.cpus:
                    group.cpus, group.mems = group.parent.cpus, group.parent.mems
        return made

    def _set_pool(self) -> None:
        """Keep every other container off the exclusive CPUs under the static policy. What the kernel refuses stays as
        it is: the real one logs it and tries again."""
        for running in self.running.values() if self.managers.node else ():
            for workload in running.workloads:
                group = self._cgroups.cpuset.find(workload.group)
                cpus = self.managers.of(workload.uid, workload.container)
                if group is not None and cpus is not None and group.cpus != cpus:
                    with contextlib.suppress(OSError):
                        self._write_cpus(group, cpus)

    def _write_cpus(self, group: Group, cpus: CPUSet) -> None:
        """Write `cpuset.cpus` as the runtime does; OSError where the kernel refuses it."""
        if self._cgroups.version == 1:
            files.nest(group, "cpus", cpus)
        else:
            group.cpus = cpus
        self._cgroups.cpuset.epoch += 1

    def _set_values(self, path: str, values: Values) -> None:
        self._set_shares(path, values.shares)
        cpu, of_memory = self._cgroups.cpu.find(path), self._cgroups.memory.find(path)
        if cpu is not None:
            cpu.quota_us = values.quota_us
        if of_memory is not None:
            of_memory.memory_limit = values.limit_bytes

    def _set_shares(self, path: str, shares: int) -> None:
        group = self._cgroups.cpu.find(path)
        if group is not None:
            group.weight = shares if self._cgroups.version == 1 else weight_of_shares(shares)

    def _container_group(self, pod_group: str, container_id: str) -> str:
        group = names.container_group(self.layout, pod_group, container_id)
        if group is None:
            raise LookupError(f"a container of {pod_group} has no id")
        return group


def _status(running: RunningPod, status: objects.PodStatus) -> objects.PodStatus:
    """`status` with phase, QoS class and container ids."""
    statuses = tuple(
        objects.ContainerStatus(
            name=spec.name,
            container_id=spec.id,
            state={"waiting": {"reason": "RunContainerError", "message": why}} if why else {"running": {}},
            restart_count=running.restarts.get(spec.name, 0),
        )
        for spec in running.containers
        for why in (running.waiting.get(spec.name),)
    )
    qos_class = str(running.described.kube_qos)
    phase = "Pending" if running.waiting and not running.workloads else "Running"
    return structs.replace(status, phase=phase, qos_class=qos_class, container_statuses=statuses)
