"""Traces of koordlet on a node: values that the protocol's rules give there, and those that have their form.

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
from koordlite.adopt import neutral
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
from koordlite.model.cgroup_fields import CgroupField, shares_of_weight, weight_of_shares
from koordlite.model.change import Entry
from koordlite.model.cpuset import CPUSet
from koordlite.model.errors import InputError
from koordlite.model.picture.groups import Cgroup
from koordlite.model.place import Place
from koordlite.model.pod import resctrl_protocol
from koordlite.model.pod.values import Pod
from koordlite.model.settings import StrategySettings
from koordlite.model.slo import pod_overrides
from koordlite.model.snapshot import Snapshot
from koordlite.ports import Files
from koordlite.resctrl.values import MON_GROUPS

LEAST_BE_QUOTA_US = 2000
"""Koordlet's smallest quota of best effort."""


class Trace(msgspec.Struct, frozen=True):
    """A value that koordlet left."""

    place: Place
    present: str
    before: CPUSet | int | None
    """What stands there without koordlet; None where the thing itself goes."""
    strategy: str
    """Whose place it is from now on."""


class Recognition(msgspec.Struct, frozen=True):
    """Result of a look at the node."""

    traces: tuple[Trace, ...]
    others: tuple[tuple[Place, str, str], ...]
    """Place, present value and what kubelet would have, of values that neither kubelet nor the protocol's rules give:
    they are not touched."""


class _Differing(msgspec.Struct, frozen=True):
    """A file that holds something else than kubelet would write."""

    group: str
    field: CgroupField
    value: CPUSet | int
    before: CPUSet | int

    @property
    def place(self) -> Place:
        return PLACE.place(self.group, self.field)


def recognise(snapshot: Snapshot, settings: Mapping[str, StrategySettings], *, with_node: bool = True) -> Recognition:
    """Find what koordlet left on the node in this picture, which has to show all that strategies read.
    `with_node`: whether the Node's batch and mid resources and ratios go as well; they stay while Koordinator's manager
    writes them."""
    enforced = {name: dataclasses.replace(section, mode="enforce") for name, section in settings.items()}
    strategy_of = dict(_strategy_of(snapshot, enforced))
    traces: list[Trace] = []
    foreign: list[tuple[Place, str, str]] = []
    forms = _Forms(snapshot)
    for each in _differing(snapshot):
        strategy = strategy_of.get((each.place, each.value)) or forms.strategy(each)
        if strategy:
            traces.append(Trace(each.place, _shown(each.value), each.before, strategy))
            if each.field == "cpu.idle" and each.group.startswith(snapshot.layout.besteffort):
                # The kernel forgets the shares of an idle group; kubelet gave it the least.
                traces.append(Trace(PLACE.place(each.group, "cpu.shares"), "(idle)", 2, strategy))
        else:
            foreign.append((each.place, _shown(each.value), _shown(each.before)))
    of_node = _of_cluster(snapshot) if with_node else ()
    return Recognition((*traces, *_resctrl(snapshot), *of_node), tuple(foreign))


def _strategy_of(
    snapshot: Snapshot, enforced: Mapping[str, StrategySettings]
) -> Iterator[tuple[tuple[Place, CPUSet | int], str]]:
    """Place and value, to the strategy that would write it if kubelet alone had written before."""
    for decision in strategies.decide_all(neutral.picture(snapshot), enforced):
        for change in decision.changes:
            if isinstance(change, CgroupChange):
                yield (change.place, _settled(snapshot, change)), decision.strategy


def _settled(snapshot: Snapshot, change: CgroupChange) -> CPUSet | int:
    """Value that is read after it was written: v2 rounds shares to weights."""
    if change.field == "cpu.shares" and isinstance(change.value, int) and snapshot.layout.version == 2:
        return shares_of_weight(weight_of_shares(change.value))
    return change.value


def _differing(snapshot: Snapshot) -> Iterator[_Differing]:
    for group, expected in neutral.by_group(snapshot).items():
        present = neutral.present(snapshot.cgroups.get(group, Cgroup()))
        if present.get("cpu.idle"):
            present.pop("cpu.shares", None)  # The kernel's own number for idle groups.
        for field, value in present.items():
            if field in expected and value != expected[field]:
                yield _Differing(group, field, value, expected[field])


class _Forms:
    """Values that follow the load or an earlier moment: recognised by their place and form."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._narrow = _narrow_set(snapshot)
        self._pools = _published_pools(snapshot)
        self._owners = dict(_owners(snapshot))
        qos = snapshot.slo.resource_qos
        classes = (qos.lsr_class, qos.ls_class, qos.be_class)
        self._identities = {each.cpu_qos.group_identity for each in classes if each.cpu_qos.enable}

    def strategy(self, each: _Differing) -> str:
        """Name the strategy that a value belongs to; empty when its form is not koordlet's."""
        besteffort = self._snapshot.layout.besteffort
        if each.field == "cpuset.cpus":
            if each.group == besteffort or each.group.startswith(f"{besteffort}/"):
                return "cpuSuppress" if each.value == self._narrow else ""
            return "cpusetPools" if each.value in self._pools else ""
        if each.field == "cpu.quota" and isinstance(each.value, int):
            if each.group == besteffort:
                period_us = self._snapshot.cgroups.get(besteffort, Cgroup()).period_us
                return "cpuSuppress" if each.value >= LEAST_BE_QUOTA_US and period_us == burst.PERIOD_US else ""
            return self._of_quota(each)
        if each.field == "cpu.bvt_warp_ns":
            return "cpuIdentity" if each.value in self._identities else ""
        return ""

    def _of_quota(self, each: _Differing) -> str:
        """A limit that was raised for a burst, or divided by what a CPU of this node is worth."""
        assert isinstance(each.value, int) and isinstance(each.before, int)
        pod, ratio = self._owners.get(each.group), self._snapshot.notes.cpu_normalization or 1.0
        if pod is None or each.before <= 0 or each.value <= 0:
            return ""
        limit_milli = each.before * 1000 // burst.PERIOD_US
        if ratio > 1 and each.value == burst.base_quota(limit_milli=limit_milli, ratio=ratio):
            return "normalizedQuota"
        settings, _ = pod_overrides.cpu_burst(pod, self._snapshot.slo.cpu_burst)
        raised = each.before < each.value <= each.before * settings.cfs_quota_burst_percent // 100
        return "cpuBurst" if raised and settings.policy in ("auto", "cfsQuotaBurstOnly") else ""


def _narrow_set(snapshot: Snapshot) -> CPUSet | None:
    """The one set that koordlet gives to all of best effort, or under kubelet's static policy to its containers."""
    root = snapshot.layout.besteffort
    groups = [name for name in snapshot.cgroups if name == root or name.startswith(f"{root}/")]
    sets = {name: snapshot.cgroups[name].cpuset for name in groups}
    narrowed = {cpus for cpus in sets.values() if cpus and cpus != neutral.whole(snapshot)}
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


def _owners(snapshot: Snapshot) -> Iterator[tuple[str, Pod]]:
    for pod in snapshot.pods:
        place = snapshot.places.get(pod.uid)
        if place:
            yield from ((group, pod) for group in (place.group, *place.containers.values()))


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
