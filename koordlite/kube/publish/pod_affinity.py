"""Writing what `numaAffinity` measured of the node, on request: which pods talk to each other, and where they run."""

from __future__ import annotations

from collections.abc import Mapping

from koordlite.kube.publish.background_report import spec_kind
from koordlite.model.picture.affinity import Talk
from koordlite.model.pod.values import Pod
from koordlite.model.snapshot import Snapshot, container_cpus
from koordlite.model.wire import pod_affinity
from koordlite.model.wire.pod_affinity import Container, Pair, PodAffinityObject, PodAffinitySpec, PodRow

MOST_PAIRS = 200
"""An object of the API server is no database: 200 pairs are some 60 KiB."""


def spec(snapshot: Snapshot) -> PodAffinitySpec:
    """The last count of connections, between pods that are there now; empty before the first one has ended.

    Connections are given as powers of two: a busy service opens and closes some all the time, and each new number would
    be a write.
    """
    pods = {pod.uid: pod for pod in snapshot.pods if pod.active}
    talks = snapshot.affinity.connections.talks if snapshot.affinity.connections else ()
    both = [talk for talk in talks if talk.first in pods and talk.second in pods][:MOST_PAIRS]
    nodes = {uid: _numa_node(snapshot, pods[uid]) for talk in both for uid in (talk.first, talk.second)}
    return PodAffinitySpec(
        connections=sum(map(_rounded, both)),
        apart=sum(_rounded(talk) for talk in both if _apart(nodes, talk)),
        pairs=tuple(Pair(pods[talk.first].key, pods[talk.second].key, _rounded(talk)) for talk in both) or None,
        pod_affinity=tuple(_row(snapshot, pods[uid], nodes[uid]) for uid in sorted(nodes, key=lambda u: pods[u].key))
        or None,
    )


def _rounded(talk: Talk) -> int:
    """The largest power of two that is no more than the connections."""
    return 1 << (talk.connections.bit_length() - 1) if talk.connections > 0 else 0


def _apart(nodes: Mapping[str, int], talk: Talk) -> bool:
    first, second = nodes[talk.first], nodes[talk.second]
    return first != second or first < 0


def _numa_node(snapshot: Snapshot, pod: Pod) -> int:
    homes = snapshot.topology.numa_of(container_cpus(snapshot, pod.uid))
    return min(homes) if len(homes) == 1 else -1


def _row(snapshot: Snapshot, pod: Pod, numa_node: int) -> PodRow:
    place = snapshot.places.get(pod.uid)
    ids = {container.name: container.id for container in pod.containers}
    containers = []
    for name, group in sorted(place.containers.items()) if place else ():
        cgroup, memory = snapshot.cgroups.get(group), snapshot.memory_places.get(group)
        cpus = str(cgroup.effective) if cgroup and cgroup.effective else ""
        containers.append(Container(name, ids.get(name, ""), cpus, str(memory.mems) if memory else ""))
    return PodRow(numa_node, pod.name, pod.namespace, tuple(containers) or None)


POD_AFFINITY = spec_kind(
    name="podaffinity",
    path=pod_affinity.PATH,
    resource="podaffinities.numa.koordlite.io",
    no_kind="install the CRD of manifests/crds/podaffinity, or set publish.podAffinity: off",
    head=(pod_affinity.API_VERSION, pod_affinity.KIND),
    type=PodAffinityObject,
    wanted=spec,
)
