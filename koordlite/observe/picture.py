"""Takes the picture: one reading of the cluster and the machine, one Snapshot."""

from __future__ import annotations

import dataclasses
import heapq
import os
import pathlib
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from koordlite.formulas import measured
from koordlite.formulas.cpu import pools
from koordlite.formulas.topology import other_writer
from koordlite.host import kept_file, procfs, sysfs
from koordlite.host.bundle import Host
from koordlite.host.files import RealFiles
from koordlite.kube.settings import ObjectiveSettings
from koordlite.model import keys, times
from koordlite.model.errors import Problem
from koordlite.model.nrt import CPUBasicInfo
from koordlite.model.picture.groups import Cgroup, PodGroups, RunState
from koordlite.model.picture.kubelet import with_promise
from koordlite.model.picture.published import OtherWriter, Published
from koordlite.model.picture.usage import CPUWait
from koordlite.model.place import Place
from koordlite.model.pod.qos import KubeQoS, QoSClass
from koordlite.model.settings import MetricsSettings, StrategySettings
from koordlite.model.slo import settings as slo
from koordlite.model.slo import without_effect
from koordlite.model.snapshot import Snapshot
from koordlite.model.status import FreshUse
from koordlite.model.topology import Topology
from koordlite.model.wire import objects
from koordlite.observe import (
    connections,
    cpi,
    crane_promises,
    fast_snapshot,
    numa,
    places,
    pressure,
    resctrl_groups,
    system,
    wants,
)
from koordlite.observe.cpu_waits import THREADS_OF_A_SURGE, Counters, CPUWaitReader
from koordlite.observe.inputs import ClusterPicture, Inputs
from koordlite.observe.objectives import ObjectiveReader, at_once
from koordlite.observe.places import Places
from koordlite.observe.prediction import Predictor
from koordlite.observe.rotation import Rotation
from koordlite.observe.usage import AT_LEAST_MEMORY, MEMORY_SECONDS, Sampler, Spans, Subjects
from koordlite.observe.wants import OwnPlaces
from koordlite.observe.windows import NodeWindows
from koordlite.ports import Cluster, ClusterView
from koordlite.resctrl.values import Resctrl
from koordlite.strategies import cpu_suppress, cpuset_pools, crane_cpu_manager, mid_allocatable, numa_affinity
from koordlite.strategies.shared import affinity
from koordlite.unchanged import Unchanged

ONLINE = "/sys/devices/system/cpu/online"


Recall = Callable[[float, Collection[str]], RunState]
"""State of the run at a time of the monotonic clock, with its evictions of the pods with these uids."""


def without_run(_time: float, _uids: Collection[str]) -> RunState:
    """Give no state of a run, for a picture that no strategy asked for."""
    return RunState()


class Observer:
    """Looks at one node. Keeps what needs memory: counters, last good inputs, the topology while CPUs stay the same."""

    def __init__(
        self,
        host: Host,
        cluster: Cluster,
        *,
        tasks_seconds: float,
        monitor_seconds: float = 0.0,
        interval_seconds: float = 1.0,
        needs_of: wants.Source = wants.nothing,
        state: pathlib.Path | None = None,
        node_metric: bool = False,
        sections: Mapping[str, StrategySettings] | None = None,
        kubelet_folder: str = "",
        metrics: MetricsSettings | None = None,
        reacts: bool = False,
        objectives: ObjectiveSettings | None = None,
    ) -> None:
        """`needs_of` says what strategies ask to see besides the usual; seconds: see `observe.resctrl_groups`. `state`
        is the folder that keeps good settings and promises for the next run. `node_metric`: whether one is reported,
        which needs use over longer times. `sections` are those of the strategies, `kubelet_folder` has crane-agent's
        checkpoint. `metrics` says what is read only to be shown; `reacts`, that `service_counters` will be asked for;
        `objectives`, where those of services are measured."""
        sections = sections or {}
        self._host, self._files, self._cgroups = host, host.files, host.cgroups
        self._cluster, self._clock = cluster, host.clock
        self._needs_of, self._interval = needs_of, interval_seconds
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")  # One object: what is worked out of it stays.
        self._resctrl = resctrl_groups.ResctrlReader(host, tasks_seconds=tasks_seconds, monitor_seconds=monitor_seconds)
        self._good = kept_file.good_settings(state)
        earlier = slo.SLO(good=self._good.value) if self._good.value else None
        placing = (name for name in (cpuset_pools.NAME, cpu_suppress.NAME) if name in sections)
        promised = crane_promises.CranePromises(
            wants.active(sections, crane_cpu_manager.NAME, crane_cpu_manager.Config),
            state,
            host,
            checkpoint=f"{kubelet_folder}/crane_cpu_manager_state",
            placed_by_others=frozenset(name for name in placing if sections[name].mode == "enforce"),
        )
        promises, pools = kept_file.cpu_promises(state), sections.get(cpuset_pools.NAME)
        # Whatever annotations name, latency-sensitive pods keep so much of the CPUs.
        floor = pools.pool_floor_percent if isinstance(pools, cpuset_pools.Config) else 0.0
        off = frozenset(n for n, each in sections.items() if each.mode == "off") if sections else without_effect.OFF
        self._inputs = Inputs(earlier, promised, off=off, promises=promises, pool_floor_percent=floor)
        self._unchanged = Unchanged()
        self._places = Places(host.cgroups)
        # Before a limit falls, what the group holds is read. Where none does, since nothing is enforced, in turns.
        enforces = any(section.mode == "enforce" for section in sections.values())
        self._memory_held = Rotation(
            self._places.memory_held,
            seconds=MEMORY_SECONDS,
            at_least=sys.maxsize if enforces else AT_LEAST_MEMORY,
        )
        self._pressure = pressure.PressureReader(host.files, host.cgroups)
        self._cpu_waits, self._reacts = CPUWaitReader(host.files, host.cgroups), reacts
        begin = None if isinstance(host.files, RealFiles) else at_once
        self._objectives = ObjectiveReader(objectives or ObjectiveSettings(), begin)
        self._cookies = system.CoreCookieReader(host.cookies)
        self._irqs = system.IRQReader(host.files)
        self._numa = numa.NumaMemoryReader(host.files, host.cgroups)
        self._memory_places = numa.MemoryPlaceReader(host.cgroups)
        predicting = wants.active(sections, "midAllocatable", mid_allocatable.Config)
        self._predictor = Predictor(predicting, state) if predicting and predicting.predict else None
        self._node_metric, self._metrics = node_metric, metrics or MetricsSettings()
        talking = wants.active(sections, numa_affinity.NAME, affinity.Config)
        self._cpi, self._connections = cpi.reader(self._metrics, host), connections.ConnectionReader(host, talking)
        self._node_windows, self._numa_use = NodeWindows(), numa.NumaUseReader(host.files, host.cgroups)
        self._sampler = Sampler(host.files, host.cgroups, host.clock)
        self._processor: procfs.Processor | None = None
        self._placement: tuple[str | None, float | None] | None = None
        self._writer_at_start: tuple[OtherWriter | None] | None = None
        self.names: Callable[[], Mapping[str, str]] = dict
        """Containers by group, where the runtime itself says so."""

    def observe(self, recall: Recall = without_run) -> Snapshot:
        """The node at this instant; `recall` gives what the run of the agent itself knows."""
        view, topology = self._cluster.view(), self._look_at_topology()
        cluster = self._inputs.read(view, topology, taken_at=times.show(self._clock.wall()))
        if view.config is not None:
            self._good.keep(cluster.slo.good)
        now, same, of = self._clock.monotonic(), self._unchanged.same, self._unchanged.of
        run = recall(now, of("uids", (cluster.pods,), lambda: frozenset(pod.uid for pod in cluster.pods)))
        self._places.begin(now)
        pods = same("places", self._places.find(cluster.pods))
        hosts = same("hosts", self._host_groups(cluster.slo))
        needs = self._needs_of(cluster.slo, cluster.pods)
        own = of("own places", (run.found,), lambda: OwnPlaces.of(run.found))
        fields_of = of("fields", (needs, pods, own), lambda: needs.fields_of(pods, own.fields))
        further = (*hosts.values(), *own.groups)
        cgroups = self._places.states(further, fields=needs.fields, fields_of=fields_of)
        limit = _best_effort_limit(cgroups.get(self._cgroups.layout.besteffort))
        self._sample(cluster, pods, hosts, needs=needs, best_effort_limit=limit)
        subjects = resctrl_groups.Subjects(cluster.slo, cluster.pods, pods, hosts, run.ours)
        resctrl = same("resctrl", self._resctrl.read(subjects))
        sees_cookies = system.CORE_SCHED in needs.reads or own.cookies
        waiting_containers = _containers(pods.values()) if self._metrics.container_psi else ()
        by_numa = "memory_places" in needs.reads
        kubelet = same("kubelet", cluster.kubelet)
        inputs = cluster.pods, kubelet
        promised = of("promised", inputs, lambda: with_promise(*inputs))
        placed = pods.values() if by_numa else [place for uid, place in pods.items() if uid in promised]
        usage, numa_memory = self._sampler.last, self._numa.read(now, topology, machine_now=by_numa)
        predictor = self._predictor
        time, policy = self._clock.monotonic(), slo.collect_policy(cluster.slo.colocation)
        state = msgspec.structs.replace(run, ours=same("ours", run.ours), remembered=same("remembered", run.remembered))
        snapshot = Snapshot(
            time=time,
            taken_at=times.show(self._clock.wall()),
            node=cluster.node,
            notes=same("notes", cluster.notes),
            slo=cluster.slo,
            topology=topology,
            reserved=cluster.reserved,
            system_qos=same("system QoS", cluster.system_qos),
            kubelet=kubelet,
            crane=same("crane", cluster.crane),
            affinity=self._connections.read(now, view, pods),
            layout=self._cgroups.layout,
            pods=cluster.pods,
            places=pods,
            cgroups=same("cgroups", cgroups),
            usage=usage,
            average=self._sampler.average(),
            use_window_left_seconds=self._sampler.window_left,
            windows=self._sampler.means(),
            percentiles=self._sampler.percentiles(),
            node_percentiles=self._sampler.node_percentiles(),
            pressure=self._pressure.read(now, (place.group for place in pods.values()), waiting_containers),
            numa_memory=numa_memory,
            memory_places=same("memory places", self._memory_places.read(now, placed)),
            resctrl=resctrl,
            system=same("system", system.settings(self._files, needs.reads, has_ours=own.settings)),
            swap_bytes=procfs.swap_bytes(self._files) if "swap" in needs.reads else 0,
            oom_scores=same(
                "oom scores", system.oom_scores(self._host, cluster.pods, pods, reads=needs.reads, has_ours=own.scores)
            ),
            irqs=same("interrupts", self._irqs.read(now, run.ours, enabled=system.IRQS in needs.reads)),
            core_sched=same("core scheduling", self._cookies.read(now, pods.values(), enabled=sees_cookies)),
            blocks=same("blocks", system.disks(self._host, cluster.slo, cluster.pods, pods, reads=needs.reads)),
            cpu_info=same("CPU info", self._look_at_cpus(topology, resctrl)),
            published=same("published", self._published(view, cluster, run.last_sync)),
            host_groups=hosts,
            prediction=predictor.read(cluster.pods, view.pods, usage, wall=self._clock.wall()) if predictor else None,
            hardware_counts=self._cpi.read(time, _containers(pods.values()), topology.cpuset) if self._cpi else {},
            node_windows=self._node_windows.read(time, usage, policy.metric_aggregate_policy.durations)
            if self._node_metric
            else (),
            # Use by NUMA node is a metric as well.
            numa_use=self._numa_use.read(
                time,
                topology,
                memory=numa_memory.get(numa.MACHINE, {}),
                seconds=policy.metric_aggregate_duration_seconds,
            )
            if self._node_metric or self._metrics.numa_system_usage
            else {},
            page_bytes=self._page_bytes,
            interval_seconds=self._interval,
            ages=self._ages(view),
            watches=view.watches,
            problems=(
                *cluster.problems,
                *self._too_deep(),
                *_without_group(cluster.slo, hosts),
                *self._sampler.problems,
                *self._good.problems,
                *(predictor.problems if predictor else ()),
                *(self._cpi.problems if self._cpi else ()),
            ),
            **_state(state),
        )
        return self._with_costly(snapshot, needs)

    def _look_at_waits(self, snapshot: Snapshot, needs: wants.Wants) -> Mapping[str, CPUWait]:
        now, places, limits = snapshot.time, snapshot.places, snapshot.cgroups
        inputs = (needs, snapshot.pods, snapshot.slo, snapshot.topology, snapshot.kubelet, snapshot.crane)
        uids = self._unchanged.of(
            "waits asked for",
            (*inputs, snapshot.reserved, snapshot.system_qos),
            lambda: frozenset(wants.of_picture(snapshot, needs.cpu_waits)),
        )
        if uids or not self._reacts:
            return self._cpu_waits.read(now, {uid: place for uid, place in places.items() if uid in uids}, limits)
        services = self._unchanged.of(
            "services",
            (snapshot.pods, places),
            lambda: [p.uid for p in snapshot.pods if p.kube_qos is not KubeQoS.BEST_EFFORT and p.uid in places],
        )
        # Those whose threads are looked at in a surge.
        use = snapshot.usage.pods
        busiest = heapq.nlargest(THREADS_OF_A_SURGE, services, key=lambda uid: use[uid].cpu if uid in use else -1)
        self._cpu_waits.follow(now, {uid: places[uid] for uid in busiest}, limits)
        return {}

    def service_counters(self, snapshot: Snapshot) -> Counters:
        """Run and wait times of services' threads so far: those of the pods that use most CPU in `snapshot`."""
        return self._cpu_waits.counters(sorted(snapshot.usage.pods, key=lambda uid: -snapshot.usage.pods[uid].cpu))

    def _host_groups(self, settings: slo.SLO) -> dict[str, str]:
        """Groups by name of the application; one that names kubelet's groups, or a group that holds them, has none."""
        layout = self._cgroups.layout
        groups = ((app.name, pools.host_group(app, layout)) for app in settings.host_applications)
        return {name: group for name, group in groups if pools.is_host_group(group, layout)}

    def _too_deep(self) -> Iterator[Problem]:
        group = self._places.too_deep
        if group:
            why = "there are more groups in it than are looked at: what runs there may keep CPUs it should give up"
            yield Problem(
                f"cgroup {group[:200]}", "depth", str(group.count("/")), why, "find out which container does so"
            )

    def _with_costly(self, snapshot: Snapshot, needs: wants.Wants) -> Snapshot:
        """Waits and objectives of services, and memory of the few groups whose limit is about to fall: to ask for them
        again costs nothing while what the answer depends on stays the same."""
        inputs = (needs, snapshot.pods, snapshot.places, snapshot.cgroups)
        groups = self._unchanged.of("memory asked for", inputs, lambda: wants.of_picture(snapshot, needs.memory_held))
        memory = self._unchanged.same("memory held", self._memory_held.turn(snapshot.time, groups))
        waits = self._unchanged.same("CPU waits", self._look_at_waits(snapshot, needs))
        node = snapshot.node.name if snapshot.node else ""
        objectives = self._unchanged.same("objectives", self._objectives.read(snapshot.time, snapshot.pods, node))
        return dataclasses.replace(snapshot, memory_held=memory, cpu_waits=waits, objectives=objectives)

    def observe_surge(self, snapshot: Snapshot, use: FreshUse, recall: Recall) -> Snapshot:
        """The picture of a round before its time: `snapshot` with the CPU use of `use`, and with the limits of best
        effort and the state of the run as they are at this instant."""
        now = self._clock.monotonic()
        run = recall(now, {pod.uid for pod in snapshot.pods})
        snapshot = fast_snapshot.with_fresh_limits(fast_snapshot.with_fresh_use(snapshot, use), self._cgroups, now)
        return dataclasses.replace(snapshot, woken=True, **_state(run))

    def observe_new(self, snapshot: Snapshot, groups: Collection[str], recall: Recall) -> Snapshot:
        """The picture of a round about new groups: `snapshot` with what is in `groups` and the groups around them now.

        Use, limits, settings and time stay those of `snapshot`: what is decided of the new groups is what was decided
        of the others. Pods may be new. On cgroup v1 the quotas of the groups above are read again: it refuses a quota
        above that of a group higher up, and the round that saw `snapshot` may have lowered it.
        """
        view = self._cluster.view()
        cluster = self._inputs.read(view, snapshot.topology, taken_at=snapshot.taken_at)
        run = recall(snapshot.time, {pod.uid for pod in cluster.pods})
        folders = {*groups, *(group.rpartition("/")[0] for group in groups)}
        pods = self._places.refresh(folders, cluster.pods)
        named = places.container_names(self._host, cluster.pods, pods, groups, runtime_names=self.names())
        if named:
            self._places.recognize(named)
            pods = self._places.refresh((), cluster.pods)
        changed = (place for uid, place in pods.items() if place is not snapshot.places.get(uid))
        fresh = {*groups, *(group for place in changed for group in place.all if group not in snapshot.cgroups)}
        needs = self._needs_of(snapshot.slo, cluster.pods)
        fields = needs.fields_of({uid: p for uid, p in pods.items() if not fresh.isdisjoint(p.all)}, {})
        present = self._places.present({group: needs.fields | fields.get(group, frozenset()) for group in fresh})
        whole = dataclasses.replace(
            snapshot,
            pods=cluster.pods,
            places=pods,
            cgroups={**snapshot.cgroups, **fast_snapshot.fresh_quotas(snapshot, self._cgroups, fresh), **present},
            kubelet=cluster.kubelet,
            core_sched=self._cookies.with_new(snapshot.core_sched, pods.values(), fresh),
            ours=run.ours,
            found=run.found,
        )
        groups = wants.of_picture(fast_snapshot.of_groups(whole, fresh), needs.memory_held)
        memory = {group: charge for group in groups if (charge := self._places.memory_held(group)) is not None}
        return dataclasses.replace(whole, memory_held={**snapshot.memory_held, **memory})

    def _sample(
        self,
        cluster: ClusterPicture,
        pods: Mapping[str, PodGroups],
        hosts: Mapping[str, str],
        *,
        needs: wants.Wants,
        best_effort_limit: int | None,
    ) -> None:
        of, all_pods = self._unchanged.of, cluster.pods
        # Pods that say they are BE and are not over; source: Koordinator `getBECPURequestMilliCores`.
        batch = (pod for pod in all_pods if pod.raw_qos is QoSClass.BE and pod.active)
        self._sampler.sample(
            Subjects(
                pods=of("groups", (pods,), lambda: {uid: place.group for uid, place in pods.items()}),
                host_apps=hosts,
                containers=_containers(place for uid, place in pods.items() if uid in needs.throttling),
                best_effort_request=of(
                    "batch", (all_pods,), lambda: sum(pod.request_value(keys.BATCH_CPU) for pod in batch)
                ),
                best_effort_limit=best_effort_limit,
            ),
            Spans(
                main=slo.collect_policy(cluster.slo.colocation).metric_aggregate_duration_seconds,
                windows=needs.windows,
                percentiles=needs.percentiles,
            ),
        )

    def _look_at_topology(self) -> Topology:
        online = self._unchanged.same("online", self._files.read(ONLINE))
        return self._unchanged.of("topology", (online,), self._topology)

    def _topology(self) -> Topology:
        """Other CPUs are online than before, and so all groups are read again."""
        self._places.forget()
        return sysfs.topology(self._files)

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

    def _published(self, view: ClusterView, cluster: ClusterPicture, last_sync: Mapping[Place, float]) -> Published:
        allocatable = cluster.node.allocatable if cluster.node else {}
        amounts = {name: allocatable[name].value if name in allocatable else None for name in keys.PROMISED_RESOURCES}
        topology = view.topology
        return Published(
            node_resources=amounts,
            topology=(topology.metadata.annotations or {}) if topology else {},
            zones=(topology.zones or ()) if topology else (),
            topology_policies=(topology.topology_policies or ()) if topology else (),
            topology_labels=(topology.metadata.labels or {}) if topology else {},
            topology_attributes={
                each.get("name", ""): each.get("value", "") for each in (topology and topology.attributes) or ()
            },
            topology_version=topology.api_version if topology else "",
            other_writer=self._other_writer(topology),
            last_sync=dict(last_sync),
        )

    def _other_writer(self, topology: objects.NRTObject | None) -> OtherWriter | None:
        """Writers of the zones since this run has begun to look."""
        if not isinstance(topology, objects.WrittenNRTObject):
            return None
        writer = other_writer.last(topology.metadata.managed_fields or ())
        if self._writer_at_start is None:
            self._writer_at_start = (writer,)
        return other_writer.at_work(writer, self._writer_at_start[0])

    def _ages(self, view: ClusterView) -> dict[str, float]:
        now = self._clock.monotonic()
        text = (view.topology.metadata.annotations or {}).get(keys.PLACEMENT) if view.topology else None
        if self._placement is None:
            # What stood there before this run is of unknown age, and so is to be published again.
            self._placement = text, None
        elif text != self._placement[0]:
            self._placement = text, now
        ages = {**view.ages, "usage": self._sampler.age}
        since = self._placement[1]
        return ages if since is None else {**ages, "placement": now - since}


def _state(run: RunState) -> dict[str, Any]:
    """State of the run, as fields of the picture; when amounts were last written is part of `Snapshot.published`."""
    state = msgspec.structs.asdict(run)
    del state["last_sync"]
    return state


def _without_group(settings: slo.SLO, groups: Mapping[str, str]) -> Iterator[Problem]:
    """Applications outside Kubernetes that name a group of kubelet's."""
    for app in settings.host_applications:
        if app.name not in groups:
            why, do = (
                "its cgroup is, or holds, one of kubelet's own",
                "name the application's own cgroup; it is left out",
            )
            yield Problem("configmap/slo-controller-config", "host-application-config", app.name, why, do)


def _containers(pods: Iterable[PodGroups]) -> tuple[str, ...]:
    return tuple(group for place in pods for group in place.containers.values())


def _best_effort_limit(root: Cgroup | None) -> int | None:
    if root is None or root.effective is None or root.quota_us is None:
        return None
    return measured.be_limit_milli(cpus=len(root.effective), quota_us=root.quota_us, period_us=root.period_us)
