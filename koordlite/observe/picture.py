"""Takes the picture: one look at the cluster and the machine, one Snapshot."""

from __future__ import annotations

import dataclasses
import datetime
import types
from collections.abc import Iterable, Mapping

from koordlite.formulas import host_place
from koordlite.host import procfs, sysfs
from koordlite.host.bundle import Host
from koordlite.model import keys, slo, snapshot
from koordlite.model.nrt import CPUBasicInfo
from koordlite.model.topology import Topology
from koordlite.observe import places
from koordlite.observe.inputs import Inputs, Known
from koordlite.observe.usage import Sampler
from koordlite.ports import Cluster, ClusterView

ONLINE = "/sys/devices/system/cpu/online"


class Observer:
    """Looks at one node. Keeps what needs memory: counters, last good inputs, the topology while CPUs stay the same."""

    def __init__(self, host: Host, cluster: Cluster, *, tasks_seconds: float) -> None:
        self._files, self._cgroups, self._resctrl = host.files, host.cgroups, host.resctrl
        self._cluster, self._clock = cluster, host.clock
        self._tasks_seconds = tasks_seconds
        self._tasks_at: float | None = None
        self._inputs = Inputs()
        self._sampler = Sampler(host.files, host.cgroups, host.clock)
        self._topology: tuple[bytes, Topology] | None = None
        self._processor: procfs.Processor | None = None
        self._placement: tuple[str | None, float | None] | None = None

    def observe(
        self,
        *,
        ours: frozenset[str] = frozenset(),
        found: Mapping[str, snapshot.Found] = types.MappingProxyType({}),
        last_sync: Mapping[str, float] = types.MappingProxyType({}),
    ) -> snapshot.Snapshot:
        """The node at this instant. `ours` are the places in the undo journal, `found` what stood in the cgroup files
        among them, `last_sync` when we last published which amount, by place."""
        view, topology = self._cluster.view(), self._look_at_topology()
        known = self._inputs.read(view, topology)
        pods = places.find(self._cgroups, known.pods)
        hosts = {app.name: host_place.group(app, self._cgroups.layout) for app in known.slo.host_applications}
        self._sampler.sample(
            pods={uid: place.group for uid, place in pods.items()},
            host_apps=hosts,
            seconds=(slo.metric_policy(known.slo.colocation) or slo.DEFAULT_METRIC_POLICY).aggregate_seconds,
        )
        resctrl = self._look_at_resctrl(known, pods, ours)
        return snapshot.Snapshot(
            time=self._clock.monotonic(),
            taken_at=rfc3339(self._clock.wall()),
            node=known.node,
            notes=known.notes,
            slo=known.slo,
            topology=topology,
            reserved=known.reserved,
            system_qos=known.system_qos,
            kubelet=known.kubelet,
            layout=self._cgroups.layout,
            pods=known.pods,
            places=pods,
            cgroups=places.states(self._cgroups, pods.values(), (*hosts.values(), *_groups(found))),
            usage=self._sampler.last(),
            average=self._sampler.average(),
            resctrl=resctrl,
            cpu_info=self._look_at_cpus(topology, resctrl),
            published=_published(view, known, last_sync),
            host_groups=hosts,
            ours=ours,
            found=found,
            ages=self._ages(view),
            problems=(*known.problems, *self._sampler.problems),
        )

    def _look_at_topology(self) -> Topology:
        online = self._files.read(ONLINE)
        if self._topology is None or self._topology[0] != online:
            self._topology = online, sysfs.topology(self._files)
        return self._topology[1]

    def _look_at_cpus(self, topology: Topology, resctrl: snapshot.Resctrl) -> CPUBasicInfo:
        """The model is read once; turbo can be switched at any time."""
        if self._processor is None:
            self._processor = procfs.processor(self._files)
        cores = {cpu.core for cpu in topology.cpus}
        cache = next((resctrl.caches[name] for name in ("L3", "L3CODE") if name in resctrl.caches), None)
        return CPUBasicInfo(
            model=self._processor.model,
            hyper_threads=sysfs.smt_active(self._files) or len(cores) < len(topology.cpus),
            turbo=sysfs.turbo_enabled(self._files),
            cache_mask=f"{cache.cbm_mask:x}" if cache else "",
            vendor=self._processor.vendor,
        )

    def _look_at_resctrl(
        self, known: Known, found: Mapping[str, snapshot.Place], ours: frozenset[str]
    ) -> snapshot.Resctrl:
        """Threads are looked at less often than the rest: there may be thousands. In groups of ours also when no class
        is enabled any more, since they have to go back."""
        now = self._clock.monotonic()
        due = self._tasks_at is None or now - self._tasks_at >= self._tasks_seconds
        used = any(config.enable for config in known.slo.resctrl.values())
        wanted = due and (used or any(place.startswith("resctrl/") for place in ours))
        read = self._resctrl.read(with_tasks=[str(c) for c in slo.RESCTRL_CLASSES] if wanted else None)
        if read.absent or not wanted:
            return read
        self._tasks_at = now
        groups = [g for place in found.values() for g in (*place.containers.values(), *place.sandboxes)]
        return dataclasses.replace(read, threads={group: self._threads(group) for group in groups})

    def _threads(self, group: str) -> tuple[int, ...]:
        try:
            return self._cgroups.threads(group)
        except OSError:
            return ()  # Gone since we listed it.

    def _ages(self, view: ClusterView) -> dict[str, float]:
        now = self._clock.monotonic()
        text = (view.topology.metadata.annotations or {}).get(keys.PLACEMENT) if view.topology else None
        if self._placement is None:
            # What stood there before this run is of unknown age, and so is to be published anew.
            self._placement = text, None
        elif text != self._placement[0]:
            self._placement = text, now
        since = self._placement[1]
        return {**view.ages, "usage": self._sampler.age, **({} if since is None else {"placement": now - since})}


def _published(view: ClusterView, known: Known, last_sync: Mapping[str, float]) -> snapshot.Published:
    allocatable = known.node.allocatable if known.node else {}
    amounts = {name: allocatable[name].value if name in allocatable else None for name in keys.PROMISED_RESOURCES}
    topology = view.topology
    return snapshot.Published(
        node_resources=amounts,
        topology=(topology.metadata.annotations or {}) if topology else {},
        zones=(topology.zones or ()) if topology else (),
        topology_policies=(topology.topology_policies or ()) if topology else (),
        topology_labels=(topology.metadata.labels or {}) if topology else {},
        last_sync=dict(last_sync),
    )


def _groups(found: Iterable[str]) -> set[str]:
    """Groups of the places that hold a value of ours, also when nothing names them any more."""
    return {place.rpartition("/")[0] for place in found}


def rfc3339(wall: float) -> str:
    """Seconds since the epoch as `2026-01-01T00:00:00Z`."""
    return datetime.datetime.fromtimestamp(wall, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
