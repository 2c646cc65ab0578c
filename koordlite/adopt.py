"""Taking over a node that another agent left: which values are its, and what would stand there without it.

koordlet gives nothing back when it stops. The next agent would find what it wrote as if it had always been there, and
would be put back when that one stops. `recognise` tells such values, `seed` notes in the undo journal what kubelet
would have written in their place. Nothing else is written: the agent goes on from there as after a run of its own.

The strategies are asked what they would write on the same machine if kubelet alone had written before. Where that value
stands already, it is koordlet's, as the rules are the same. Limits that follow the load are recognised by where they
stand and by their form instead. Whatever else differs from what kubelet writes stays, and is listed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import cast

import msgspec

from koordlite import strategies
from koordlite.changes import cgroup, published, resctrl
from koordlite.changes.cgroup import PLACE, CgroupChange
from koordlite.changes.published import (
    NodeAnnotation,
    NodeAnnotationChange,
    NodeResource,
    NodeResourceChange,
    ZoneAmount,
    ZoneResourceChange,
)
from koordlite.changes.resctrl import GroupEntry, ResctrlGroupChange
from koordlite.formulas.cpu import burst
from koordlite.host import procfs
from koordlite.host.bundle import Host
from koordlite.host.journal.journal import FileEntry, Journal
from koordlite.model import cpuset, keys, nrt
from koordlite.model.cgroup_fields import MIN_SHARES, CgroupField, shares_of_weight, weight_of_shares
from koordlite.model.change import Entry
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.errors import InputError
from koordlite.model.picture.groups import Cgroup, MemoryCharge
from koordlite.model.place import Place
from koordlite.model.pod import resctrl_protocol
from koordlite.model.pod.qos import KubeQoS
from koordlite.model.pod.values import Pod
from koordlite.model.settings import StrategySettings
from koordlite.model.slo import pod_overrides
from koordlite.model.snapshot import Snapshot, pods_with_groups
from koordlite.numa.koordinator import assignments
from koordlite.ports import Files
from koordlite.resctrl.values import MON_GROUPS

LEAST_BE_QUOTA_US = 2000
"""Koordlet's smallest quota of best effort."""
UNLIMITED = -1
Value = CPUSet | int
Values = Mapping[CgroupField, Value]
_KERNEL: dict[CgroupField, int] = {
    "cpu.burst": 0,
    "cpu.idle": 0,
    "cpu.bvt_warp_ns": 0,
    "memory.min": 0,
    "memory.low": 0,
    "memory.high": UNLIMITED,
    "memory.wmark_ratio": 0,
    "memory.wmark_scale_factor": 50,
    "memory.wmark_min_adj": 0,
    "memory.priority": 0,
    "memory.use_priority_oom": 0,
    "memory.pagecache_limit.enable": 0,
    "memory.pagecache_limit.size": 0,
    "memory.pagecache_limit.sync": 0,
}
"""Initial values of the kernel, also of Anolis' own fields. `memory.oom.group` is missing: kubelet writes it."""
_BEST_EFFORT: dict[CgroupField, int] = {"cpu.shares": MIN_SHARES, "memory.limit": UNLIMITED}
"""Values that kubelet writes for a pod with batch resources: to it such a pod requests nothing."""


class Trace(msgspec.Struct, frozen=True):
    """A value that koordlet left."""

    place: Place
    present: str
    before: Value | None
    """Value without koordlet; None where the thing itself goes."""
    strategy: str
    """Strategy that owns the place from now on."""


class Recognition(msgspec.Struct, frozen=True):
    """Result of a look at the node."""

    traces: tuple[Trace, ...]
    others: tuple[tuple[Place, str, str], ...]
    """Place, present value and what kubelet would have, of values that neither kubelet nor the protocol's rules give:
    they are not touched."""


def recognise(snapshot: Snapshot, settings: Mapping[str, StrategySettings], *, with_node: bool = True) -> Recognition:
    """Find what koordlet left on the node in this picture, which has to show all that strategies read.
    `with_node`: whether the Node's batch and mid resources and ratios go as well; they stay while Koordinator's manager
    writes them."""
    enforced = {name: dataclasses.replace(section, mode="enforce") for name, section in settings.items()}
    of_kubelet = dict(_values_of_kubelet(snapshot))
    decisions = strategies.decide_all(_neutral(snapshot, of_kubelet), enforced)
    strategy_of = {
        (change.place, _settled(snapshot, change)): decision.strategy
        for decision in decisions
        for change in decision.changes
        if isinstance(change, CgroupChange)
    }
    forms = _Forms(snapshot)
    traces: list[Trace] = []
    others: list[tuple[Place, str, str]] = []
    for group, expected in of_kubelet.items():
        present = _present(snapshot.cgroups.get(group, Cgroup()))
        if present.get("cpu.idle"):
            present.pop("cpu.shares", None)  # The kernel's own number for idle groups.
        for field, value in present.items():
            place, before = PLACE.place(group, field), expected.get(field, value)
            if value == before:
                continue
            strategy = strategy_of.get((place, value)) or forms.strategy(group, field, value, before)
            if not strategy:
                others.append((place, _shown(value), _shown(before)))
                continue
            traces.append(Trace(place, _shown(value), before, strategy))
            if field == "cpu.idle" and group.startswith(snapshot.layout.besteffort):
                # The kernel forgets the shares of an idle group; kubelet gave it the least.
                traces.append(Trace(PLACE.place(group, "cpu.shares"), "(idle)", MIN_SHARES, strategy))
    of_node = _of_cluster(snapshot) if with_node else ()
    return Recognition((*traces, *_resctrl(snapshot), *of_node), tuple(others))


def _values_of_kubelet(snapshot: Snapshot) -> Iterator[tuple[str, Values]]:
    """Values that kubelet or the kernel would have, by group of kubelet, a pod or a container. CPU sets and quotas are
    left out where kubelet's static CPU manager policy may have written them."""
    layout, whole = snapshot.layout, _whole(snapshot)
    yield layout.kubepods, _KERNEL
    yield layout.burstable, _KERNEL
    yield layout.besteffort, {**_KERNEL, "cpuset.cpus": whole, "cpu.quota": UNLIMITED}
    for pod, place in pods_with_groups(snapshot):
        is_best_effort = pod.kube_qos is KubeQoS.BEST_EFFORT
        common: dict[CgroupField, Value] = {**_KERNEL, **(_BEST_EFFORT if is_best_effort else {})}
        # Under its static policy kubelet writes the set of every container itself, and again every ten seconds.
        if snapshot.kubelet.cpu_manager_policy != "static" or is_best_effort:
            common["cpuset.cpus"] = whole
        limits = {each.name: each.limits["cpu"].milli for each in pod.containers if "cpu" in each.limits}
        quotas = {place.group: assignments.cpu_limit_milli(pod) or 0}
        quotas |= {group: limits.get(name, 0) for name, group in place.containers.items()}
        # Kubelet itself lifts the quota of pods to which it gave CPUs alone.
        has_own_cpus = any(cpus.uid == pod.uid for cpus in snapshot.kubelet.pod_cpus)
        for group, milli in quotas.items():
            yield group, common if has_own_cpus else {**common, "cpu.quota": burst.base_quota(limit_milli=milli)}
        yield from ((group, common) for group in place.sandboxes)


def _whole(snapshot: Snapshot) -> CPUSet:
    """The set of a group that nobody narrowed: on v2 none, which means the parent's; on v1 that of kubelet's top
    group, which kubelet copies."""
    if snapshot.layout.version == 2:
        return EMPTY
    top = snapshot.cgroups.get(snapshot.layout.kubepods, Cgroup()).cpuset
    return top or snapshot.topology.cpuset


def _neutral(snapshot: Snapshot, of_kubelet: Mapping[str, Values]) -> Snapshot:
    """The same machine as kubelet alone would have it: with its values by group, and nothing of ours.
    Its groups use no memory, so that no limit waits for what a container uses today."""
    top = snapshot.cgroups.get(snapshot.layout.kubepods, Cgroup())
    cgroups = {group: _with(each, of_kubelet.get(group, {}), top.effective) for group, each in snapshot.cgroups.items()}
    unused = dict.fromkeys(cgroups, MemoryCharge(total=0, file_cache=0))
    return dataclasses.replace(
        snapshot, cgroups=cgroups, ours=frozenset(), found={}, remembered={}, refused_writes={}, memory_held=unused
    )


def _present(group: Cgroup) -> dict[CgroupField, Value]:
    """All that the picture shows of a group."""
    values: dict[str, Value | None] = {**group.values, "cpuset.cpus": group.cpuset, "cpu.quota": group.quota_us}
    return {cast(CgroupField, field): value for field, value in values.items() if value is not None}


def _with(group: Cgroup, expected: Values, inherited: CPUSet | None) -> Cgroup:
    """Replace values of fields that the machine has. `inherited` are the CPUs of a group without a set of its own."""
    values = {field: expected.get(field, value) for field, value in _present(group).items()}
    cpus, quota_us = values.pop("cpuset.cpus", None), values.pop("cpu.quota", None)
    replaced = msgspec.structs.replace(group, cpuset=cpus, quota_us=quota_us, values=values)
    if cpus is None or "cpuset.cpus" not in expected:
        return replaced
    return msgspec.structs.replace(replaced, effective=cpus or inherited)


def _settled(snapshot: Snapshot, change: CgroupChange) -> Value:
    """Value that is read after it was written: v2 rounds shares to weights."""
    if change.field == "cpu.shares" and isinstance(change.value, int) and snapshot.layout.version == 2:
        return shares_of_weight(weight_of_shares(change.value))
    return change.value


class _Forms:
    """Values that follow the load or an earlier moment: recognised by their place and form."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._narrow = _narrow_set(snapshot)
        self._pools = _published_pools(snapshot)
        self._owners = {
            group: pod
            for pod, place in pods_with_groups(snapshot)
            for group in (place.group, *place.containers.values())
        }
        qos = snapshot.slo.resource_qos
        classes = (qos.lsr_class, qos.ls_class, qos.be_class)
        self._identities = {each.cpu_qos.group_identity for each in classes if each.cpu_qos.enable}

    def strategy(self, group: str, field: CgroupField, value: Value, before: Value) -> str:
        """Name the strategy that a value belongs to; empty when its form is not koordlet's."""
        besteffort = self._snapshot.layout.besteffort
        if field == "cpuset.cpus":
            if group == besteffort or group.startswith(f"{besteffort}/"):
                return "cpuSuppress" if value == self._narrow else ""
            return "cpusetPools" if value in self._pools else ""
        if field == "cpu.quota" and isinstance(value, int) and isinstance(before, int):
            if group == besteffort:
                period_us = self._snapshot.cgroups.get(besteffort, Cgroup()).period_us
                return "cpuSuppress" if value >= LEAST_BE_QUOTA_US and period_us == burst.PERIOD_US else ""
            return self._of_quota(self._owners.get(group), value, before)
        if field == "cpu.bvt_warp_ns":
            return "cpuIdentity" if value in self._identities else ""
        return ""

    def _of_quota(self, pod: Pod | None, value: int, before: int) -> str:
        """A limit that was raised for a burst, or divided by what a CPU of this node is worth."""
        if pod is None or before <= 0 or value <= 0:
            return ""
        ratio, limit_milli = self._snapshot.notes.cpu_normalization or 1.0, before * 1000 // burst.PERIOD_US
        if ratio > 1 and value == burst.base_quota(limit_milli=limit_milli, ratio=ratio):
            return "normalizedQuota"
        settings, _ = pod_overrides.cpu_burst(pod, self._snapshot.slo.cpu_burst)
        raised = before < value <= before * settings.cfs_quota_burst_percent // 100
        return "cpuBurst" if raised and settings.policy in ("auto", "cfsQuotaBurstOnly") else ""


def _narrow_set(snapshot: Snapshot) -> CPUSet | None:
    """The one set that koordlet gives to all of best effort, or under kubelet's static policy to its containers."""
    root = snapshot.layout.besteffort
    sets = {name: each.cpuset for name, each in snapshot.cgroups.items() if f"{name}/".startswith(f"{root}/")}
    narrowed = {cpus for cpus in sets.values() if cpus and cpus != _whole(snapshot)}
    if sets.get(root) in narrowed:
        return sets[root]
    return narrowed.pop() if len(narrowed) == 1 else None


def _published_pools(snapshot: Snapshot) -> frozenset[CPUSet]:
    """CPUs that koordlet last published as shared by LS pods: whole, and by NUMA node."""
    text = snapshot.published.topology.get(keys.LS_SHARED_POOLS, "")
    try:
        pools = [pool.cpus for pool in nrt.decode_pools(text, "noderesourcetopology")] if text else []
    except InputError:
        return frozenset()
    return frozenset((cpuset.union(pools), *pools)) - {cpuset.EMPTY}


def _resctrl(snapshot: Snapshot) -> Iterator[Trace]:
    """Groups of the classes and of pods. They are named as ours, and koordlet alone names groups so."""
    for group in snapshot.resctrl.group_names:
        if resctrl_protocol.may_be_ours(group) and MON_GROUPS not in group:
            yield Trace(ResctrlGroupChange(group).place, "a group", None, "resctrl")


def _of_cluster(snapshot: Snapshot) -> Iterator[Trace]:
    """Resources and annotations of the Node, and resources of its zones."""
    by_name = {name: rule.name for rule in strategies.discover() for name in rule.publishes}
    for name, amount in snapshot.published.node_resources.items():
        if amount is not None:
            yield Trace(NodeResourceChange(name, None).place, str(amount), None, by_name[name])
    batch = by_name[keys.BATCH_CPU]
    annotations = snapshot.node.annotations if snapshot.node else {}
    for key, strategy in {**by_name, keys.ORIGIN_ALLOCATABLE: batch}.items():
        if key in annotations:
            yield Trace(NodeAnnotationChange(key, None).place, annotations[key], None, strategy)
    for zone in snapshot.published.zones:
        for resource in zone.resources or ():
            if resource.name in (keys.BATCH_CPU, keys.BATCH_MEMORY):
                place = ZoneResourceChange(zone.name, resource.name, None).place
                yield Trace(place, str(resource.allocatable), None, batch)


def _shown(value: CPUSet | int) -> str:
    return str(value) or "(the parent's)"


def seed(host: Host, journal: Journal, traces: Iterable[Trace]) -> tuple[Trace, ...]:
    """Note what stands in each place without koordlet; the traces that were noted. Places that the journal has already
    keep their entry. JournalError when the journal cannot be written: then nothing was adopted."""
    fresh = tuple(trace for trace in traces if trace.place not in journal.places)
    journal.record(entry for trace in fresh for entry in _entry(host, trace))
    return fresh


def _entry(host: Host, trace: Trace) -> Iterator[Entry]:
    place, strategy = trace.place, trace.strategy
    if place.kind is cgroup.PLACE:
        assert trace.before is not None
        group, field = place.part("cgroup"), cast(CgroupField, place.part("field"))
        # The text that the kernel would show.
        raw = host.cgroups.encode(field, trace.before).rstrip(b"\n")
        if field == "cpu.quota" and host.cgroups.layout.version == 2:
            raw += b" %d" % host.cgroups.state(group).period_us
        path, wall = host.cgroups.path(group, field), host.clock.wall()
        yield FileEntry.of(path=path, group=group, field=field, raw=raw + b"\n", found_at=wall, strategy=strategy)
    elif place.kind is resctrl.GROUP:
        yield GroupEntry(group=place.part("group"))
    elif place.kind is published.NODE_RESOURCE:
        yield NodeResource(resource=place.part("resource"), previous=None, strategy=strategy)
    elif place.kind is published.NODE_ANNOTATION:
        yield NodeAnnotation(key=place.part("key"), previous=None, strategy=strategy)
    elif place.kind is published.ZONE_RESOURCE:
        parts = {"zone": place.part("zone"), "resource": place.part("resource")}
        yield ZoneAmount(**parts, previous=None, strategy=strategy)


NAME = "koordlet"


def koordlet_pid(files: Files) -> int | None:
    """The id of a process called koordlet; None where there is none. Two agents would write the same files."""
    numbers = (name.rstrip("/") for name in files.list("/proc"))
    for pid in sorted(int(name) for name in numbers if name.isdigit()):
        try:
            process = procfs.process(files, pid)
        except ValueError:
            continue  # No process has such a form; whatever it is, it is not koordlet.
        if process and process.name == NAME and not process.has_ended:
            return pid
    return None
