"""Takes the picture: one look at the cluster and the machine, one Snapshot."""

from __future__ import annotations

import datetime
import types
from collections.abc import Iterable, Mapping

from koordlite.formulas import host_place, measured
from koordlite.host import procfs, sysfs
from koordlite.host.bundle import Host
from koordlite.model import keys, slo, snapshot
from koordlite.model.nrt import CPUBasicInfo
from koordlite.model.pod import Pod
from koordlite.model.qos import QoSClass
from koordlite.model.resctrl import Resctrl
from koordlite.model.topology import Topology
from koordlite.observe import resctrl as resctrl_look
from koordlite.observe import system, wants
from koordlite.observe.inputs import Inputs, Known
from koordlite.observe.places import Places
from koordlite.observe.usage import Sampler, Subjects
from koordlite.ports import Cluster, ClusterView

ONLINE = "/sys/devices/system/cpu/online"


class Observer:
    """Looks at one node. Keeps what needs memory: counters, last good inputs, the topology while CPUs stay the same."""

    def __init__(
        self,
        host: Host,
        cluster: Cluster,
        *,
        tasks_seconds: float,
        monitor_seconds: float = 0.0,
        wanted: wants.Asked = wants.nothing,
    ) -> None:
        """`wanted` says what strategies ask to see besides the usual; seconds: see `observe.resctrl`."""
        self._host, self._files, self._cgroups = host, host.files, host.cgroups
        self._cluster, self._clock = cluster, host.clock
        self._wanted = wanted
        self._resctrl = resctrl_look.Look(host, tasks_seconds=tasks_seconds, monitor_seconds=monitor_seconds)
        self._inputs, self._places = Inputs(), Places(host.cgroups)
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
        self._places.begin(self._clock.monotonic())
        pods = self._places.find(known.pods)
        hosts = {app.name: host_place.group(app, self._cgroups.layout) for app in known.slo.host_applications}
        wanted = self._wanted(known.slo)
        cgroups = self._places.states(pods.values(), (*hosts.values(), *_groups(found)), fields=wanted.fields)
        self._sampler.sample(
            Subjects(
                pods={uid: place.group for uid, place in pods.items()},
                host_apps=hosts,
                containers=_containers(pods.values()) if wanted.containers else (),
                best_effort_request=_best_effort_request(known.pods),
                best_effort_limit=_best_effort_limit(cgroups.get(self._cgroups.layout.besteffort)),
            ),
            seconds=(slo.metric_policy(known.slo.colocation) or slo.DEFAULT_METRIC_POLICY).aggregate_seconds,
            windows=wanted.windows,
        )
        resctrl = self._resctrl.look(resctrl_look.Subjects(known.slo, known.pods, pods, hosts, ours))
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
            cgroups=cgroups,
            usage=self._sampler.last(),
            average=self._sampler.average(),
            windows=self._sampler.means(wanted.windows),
            resctrl=resctrl,
            system=system.settings(self._files, wanted.reads),
            oom_scores=system.oom_scores(self._host, known.pods, pods, reads=wanted.reads, ours=ours),
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
            self._places.forget()
        return self._topology[1]

    def _look_at_cpus(self, topology: Topology, resctrl: Resctrl) -> CPUBasicInfo:
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


def _containers(found: Iterable[snapshot.Place]) -> tuple[str, ...]:
    return tuple(group for place in found for group in place.containers.values())


def _best_effort_request(pods: Iterable[Pod]) -> int:
    """Pods that say they are BE and are not over; source: Koordinator `getBECPURequestMilliCores`."""
    return sum(pod.request_value(keys.BATCH_CPU) for pod in pods if pod.raw_qos is QoSClass.BE and pod.active)


def _best_effort_limit(root: snapshot.Cgroup | None) -> int | None:
    if root is None or root.effective is None or root.quota_us is None:
        return None
    return measured.be_limit_milli(cpus=len(root.effective), quota_us=root.quota_us, period_us=root.period_us)


def _groups(found: Iterable[str]) -> set[str]:
    """Groups of the places that hold a value of ours, also when nothing names them any more."""
    kernel = ("system/", "oom_score_adj/")
    return {place.rpartition("/")[0] for place in found if not place.startswith(kernel)}


def rfc3339(wall: float) -> str:
    """Seconds since the epoch as `2026-01-01T00:00:00Z`."""
    return datetime.datetime.fromtimestamp(wall, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
