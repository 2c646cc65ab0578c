"""Static pods go by kubelet's uid on the node, and nobody evicts them."""

from __future__ import annotations

import pytest
from apibench import Bench, pod, until

from koordlite.changes.eviction import EvictPod
from koordlite.kube.cluster import KubeCluster
from koordlite.model.errors import EvictionRefused

HASH = "0a1b2c3d4e5f60718293a4b5c6d7e8f9"
STATIC = pod("etcd-n1", annotations={"kubernetes.io/config.mirror": HASH, "kubernetes.io/config.source": "file"})
STATIC["status"]["containerStatuses"] = [{"name": "main", "containerID": "containerd://c1"}]


def _uids(cluster: KubeCluster) -> dict[str, str]:
    return {each.metadata.name: each.metadata.uid for each in cluster.view().pods}


def test_a_mirror_goes_by_the_uid_that_its_cgroup_has(bench: Bench) -> None:
    bench.server.objects.load(STATIC)
    uids = _uids(bench.cluster())
    assert uids["etcd-n1"] == HASH
    found = bench.server.objects.get("Pod", "a", "default", api_version="v1")
    assert found is not None
    assert uids["a"] == found["metadata"]["uid"], "any other pod keeps its own"


def test_a_pod_that_did_not_change_stays_the_same_object(bench: Bench) -> None:
    bench.server.objects.load(STATIC)
    cluster = bench.cluster()
    before = {each.metadata.name: each for each in cluster.view().pods}
    bench.server.objects.load(pod("fresh"))
    until(lambda: "fresh" in _uids(cluster))
    after = {each.metadata.name: each for each in cluster.view().pods}
    assert all(after[name] is before[name] for name in before)


def test_a_static_pod_is_not_evicted_and_the_reason_is_told(bench: Bench) -> None:
    bench.server.objects.load(STATIC)
    cluster = bench.cluster()
    with pytest.raises(EvictionRefused, match="change its file on the node"):
        cluster.evict(EvictPod("default", "etcd-n1", HASH, "memory is short"))
    assert bench.asked("create", "pods/eviction") == 0
