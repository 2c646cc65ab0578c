"""Pods and containers as Prometheus metrics: extended resources, pressure, cycles, burst, OOM queue, cookies, and pods
that talk to each other.

Names and labels are Koordinator's (`pkg/koordlet/metrics`: resource_summary, psi, cpi, cpu_burst). Worked out when
someone scrapes, from the picture of the last tick: a tick costs nothing for it.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping, Sequence

from prometheus_client.core import Metric

from koordlite.changes import cgroup as cgroup_change
from koordlite.changes import core_cookie
from koordlite.model import keys
from koordlite.model.picture.usage import Pressure
from koordlite.model.pod.values import ContainerInfo, Pod
from koordlite.model.snapshot import Snapshot, pods_with_groups
from koordlite.report.metrics.families import Sample, gauge, single
from koordlite.report.tick import Tick

_SUMMARY = ("resource", "unit", "pod_uid", "pod_name", "pod_namespace", "container_id", "container_name")
_CONTAINER = ("container_id", "container_name", "pod_uid", "pod_name", "pod_namespace")
_STALL = ("psi_resource_type", "psi_precision", "psi_degree", "cpu_full_supported")
_POD = ("pod_uid", "pod_name", "pod_namespace")
_BURST = ("pod_namespace", "pod_name", "container_id", "container_name")
_OOM = ("pod_name", "pod_namespace", "pod_uid", "container_name")
_COOKIE = (*_OOM, "container_id", "core_sched_group", "core_sched_cookie")
_PSI_WORDS = {"cpu": "cpu", "memory": "mem", "io": "io"}
_MEANS = ("avg10", "avg60", "avg300")


def families(tick: Tick, *, longer_psi: bool) -> Iterator[Metric]:
    """All families; no series for what the kernel does not report or nothing asks for. `longer_psi`: also the means
    over 60 and 300 s."""
    snapshot = tick.snapshot
    # batch-cpu and mid-cpu count in millicores, memory in bytes: integers both, and so is the label.
    for which in ("requests", "limits"):
        amounts = (
            ([resource, "integer", pod.uid, pod.name, pod.namespace, container.id, container.name], amount.value)
            for pod in snapshot.pods
            for container in pod.containers
            for resource, amount in getattr(container, which).items()
            if resource in keys.PROMISED_RESOURCES
        )
        meaning = f"Extended resources in the {which} of a container"
        yield gauge(f"koordlet_container_resource_{which}", meaning, _SUMMARY, amounts)
    yield from _pressure(snapshot, _MEANS if longer_psi else _MEANS[:1])
    meaning = "Part of the time a pod's threads want a CPU that they wait for one, throttling by its own limit left out"
    waits = ((_owner(pod), wait.share) for pod in snapshot.pods if (wait := snapshot.cpu_waits.get(pod.uid)))
    yield gauge("koordlite_cpu_contention_ratio", meaning, _POD, waits)
    ratios = (
        ([*_owner(pod), goal.query], goal.value / goal.most)
        for pod in snapshot.pods
        if (goal := snapshot.objectives.get(pod.uid)) and goal.is_current(snapshot.time)
        if goal.value is not None and goal.most > 0
    )
    value = "Value that a pod's objective limits, as part of it (suppress.koordlite.io/objective)"
    yield gauge("koordlite_objective_ratio", f"{value}; above 1 it is missed", (*_POD, "query"), ratios)
    counts = (
        ([container.id, container.name, *_owner(pod), field], getattr(counts_of_group, field))
        for pod, container, group in _placed(snapshot)
        if (counts_of_group := snapshot.hardware_counts.get(group))
        for field in ("cycles", "instructions")
    )
    meaning = "Cycles and instructions of a container in a window of some seconds"
    yield gauge("koordlet_container_cpi", meaning, (*_CONTAINER, "cpi_field"), counts)
    for name, field in (("burst", "cpu.burst"), ("quota", "cpu.quota")):
        meaning = f"CPU {name} in µs that the agent gave a container"
        yield gauge(f"koordlet_container_scaled_cfs_{name}_us", meaning, _BURST, _scaled(snapshot, field))
    meaning = "Place of a container's processes in the queue of the OOM killer"
    scores = (
        ([pod.name, pod.namespace, pod.uid, c.name], min(processes, key=lambda each: each.pid).oom_score_adj)
        for pod, c, group in _placed(snapshot)
        if (processes := snapshot.oom_scores.get(group))
    )
    yield gauge("koordlet_container_oom_score_adj", meaning, _OOM, scores)
    meaning = "1 for each cookie of core scheduling that we gave processes of a container"
    yield gauge("koordlet_container_core_sched_cookie", meaning, _COOKIE, _cookies(snapshot))
    yield from _connections(tick)


def _owner(pod: Pod) -> list[str]:
    return [pod.uid, pod.name, pod.namespace]


def _pressure(snapshot: Snapshot, means: Sequence[str]) -> Iterator[Metric]:
    of_pods = [(_owner(pod), place.group) for pod, place in pods_with_groups(snapshot)]
    of_containers = [([c.id, c.name, *_owner(pod)], group) for pod, c, group in _placed(snapshot)]
    for whose, labels, owners in (("pod", _POD, of_pods), ("container", _CONTAINER, of_containers)):
        meaning = f"Percent of the last 10, 60 or 300 s that the {whose} waited"
        samples = (s for owner, group in owners for s in _waiting(owner, snapshot.pressure.get(group, {}), means))
        yield gauge(f"koordlet_{whose}_psi", meaning, (*labels, *_STALL), samples)


def _waiting(owner: Sequence[str], by_resource: Mapping[str, Pressure], means: Sequence[str]) -> Iterator[Sample]:
    full = "true" if "cpu" in by_resource and by_resource["cpu"].full else "false"
    for resource, pressure in by_resource.items():
        for degree, stall in (("some", pressure.some), ("full", pressure.full)):
            for mean in means if stall else ():
                yield [*owner, _PSI_WORDS[resource], mean, degree, full], getattr(stall, mean)


def _scaled(snapshot: Snapshot, field: str) -> Iterator[Sample]:
    """Containers of which the file holds a value of ours."""
    for pod, container, group in _placed(snapshot):
        cgroup = snapshot.cgroups.get(group)
        if cgroup is None or cgroup_change.PLACE.place(group, field) not in snapshot.ours:
            continue
        value = cgroup.quota_us if field == "cpu.quota" else cgroup.values.get(field)
        if value is not None:
            yield [pod.namespace, pod.name, container.id, container.name], value


def _cookies(snapshot: Snapshot) -> Iterator[Sample]:
    if snapshot.core_sched.missing:
        return
    places = (place for place in snapshot.found if place.kind is core_cookie.COOKIE)
    groups = {core_cookie.cookie_of(place): place.part("core_group") for place in places}
    for pod, container, group in _placed(snapshot):
        tasks = snapshot.core_sched.tasks.get(group, ())
        for cookie in sorted({task.cookie for task in tasks if task.cookie in groups}):
            owner = [pod.name, pod.namespace, pod.uid, container.name, container.id]
            yield [*owner, groups[cookie], str(cookie)], 1


def _placed(snapshot: Snapshot) -> Iterator[tuple[Pod, ContainerInfo, str]]:
    for pod, place in pods_with_groups(snapshot):
        yield from ((pod, c, place.containers[c.name]) for c in pod.containers if c.name in place.containers)


_ON_ONE_NODE = frozenset({"NUMAAffinity", "NUMAAffinityDeclared", "NUMAAffinityNamed", "NUMAAffinityFading"})
"""Reasons of pods that are on one NUMA node."""


def _connections(tick: Tick) -> Iterator[Metric]:
    """Result and cost of the last count of connections, and the pods placed by NUMA node."""
    count = tick.snapshot.affinity.connections
    values = (sum(count.totals.values()), len(count.talks), len(count.uncounted), count.cost_seconds) if count else ()
    connections, pairs, uncounted, seconds = values or (None, None, None, None)
    yield single("koordlite_affinity_connections", "TCP connections that leave their pod", connections)
    yield single("koordlite_affinity_pairs", "Pairs of pods of the node that talk to each other", pairs)
    yield single("koordlite_affinity_uncounted_pods", "Pods whose connections are not known", uncounted)
    yield single("koordlite_affinity_count_seconds", "Time that the last count of connections took", seconds)
    nodes = collections.Counter(str(d.evidence["numa_node"]) for d in tick.decisions if d.reason in _ON_ONE_NODE)
    samples = (([node], pods) for node, pods in sorted(nodes.items()))
    yield gauge("koordlite_affinity_pods", "Pods kept on a NUMA node", ("numa_node",), samples)
