"""A tenant says of his pod that it mirrors a static one, or comes from a file: nobody takes his word for it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from apibench import opened, pod, until
from emulated import Emulated

from koordlite.changes.eviction import EvictPod
from koordlite.kube.kubelet import static_pods
from koordlite.kube.kubelet.static_pods import PodsOnNode
from koordlite.model.pod.pod_reader import from_wire
from koordlite.model.wire.objects import PodObject
from koordlite.observe.places import Places

MIRROR, SOURCE = "kubernetes.io/config.mirror", "kubernetes.io/config.source"
HASH = "0a1b2c3d4e5f60718293a4b5c6d7e8f9"
VICTIM = "11111111-2222-4333-8444-555555555555"
RUNNING = [{"name": "main", "containerID": "containerd://c1"}]


def wire(
    name: str, uid: str, *, notes: dict[str, str] | None = None, runs: bool = True, created: str = ""
) -> PodObject:
    """A pod as the API server shows it; one that `runs` has a status that kubelet wrote."""
    meta: dict[str, Any] = {"name": name, "namespace": "ns", "uid": uid, "annotations": notes or {}}
    status = {"phase": "Running", "qosClass": "Burstable", "containerStatuses": RUNNING if runs else []}
    spec = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}
    made = {"metadata": meta | ({"creationTimestamp": created} if created else {}), "spec": spec, "status": status}
    return msgspec.convert(made, PodObject)


def uids(pods: Sequence[PodObject], of: PodsOnNode | None = None) -> dict[str, str]:
    """The uids by name that the pods go by on the node."""
    found = (of or PodsOnNode()).of({f"ns/{each.metadata.name}": each for each in pods})
    return {each.metadata.name: each.metadata.uid for each in found}


def test_a_mirror_that_kubelet_runs_goes_by_its_uid_on_the_node() -> None:
    assert uids([wire("etcd-n1", "api-1", notes={MIRROR: HASH})]) == {"etcd-n1": HASH}


@pytest.mark.parametrize(
    "claimed",
    [
        VICTIM,
        f"{HASH}/../../../system.slice",
        f"{HASH}.slice/../../../system",
        "../../kubepods",
        "..",
        "x",
        HASH.upper(),
        f"{HASH}\n",
        HASH + "0",
        "a" * 250_000,
    ],
    ids=lambda text: text[:40],
)
def test_a_claim_that_is_no_free_uid_is_refused_and_reported(claimed: str) -> None:
    on_node = PodsOnNode()
    found = uids([wire("victim", VICTIM), wire("evil", "api-2", notes={MIRROR: claimed})], on_node)
    assert found == {"victim": VICTIM, "evil": "api-2"}
    (problem,) = on_node.problems
    assert (problem.object, problem.field) == ("pod/ns/evil", MIRROR)
    assert len(problem.value) <= 80


def test_the_uid_of_a_static_pod_is_not_given_twice_whoever_comes_first_in_the_list() -> None:
    old = wire("etcd-n1", "api-1", notes={MIRROR: HASH}, created="2026-01-01T00:00:00Z")
    evil = wire("a-evil", "api-2", notes={MIRROR: HASH}, created="2026-01-02T00:00:00Z")
    for pods in ([old, evil], [evil, old]):
        on_node = PodsOnNode()
        assert uids(pods, on_node) == {"etcd-n1": HASH, "a-evil": "api-2"}
        assert [problem.object for problem in on_node.problems] == ["pod/ns/a-evil"]


def test_a_mirror_without_a_status_of_kubelets_takes_nothing_from_the_real_one_that_is_younger() -> None:
    evil = wire("a-evil", "api-2", notes={MIRROR: HASH}, runs=False, created="2026-01-01T00:00:00Z")
    real = wire("etcd-n1", "api-1", notes={MIRROR: HASH}, created="2026-01-02T00:00:00Z")
    assert uids([evil, real]) == {"etcd-n1": HASH, "a-evil": "api-2"}


@pytest.mark.parametrize("seed", range(20))
def test_whatever_tenants_claim_uids_stay_unique_and_nobody_else_changes(seed: int) -> None:
    chance = random.Random(seed)
    honest = [wire(f"p{number}", f"{number:032x}") for number in range(8)]
    claims = [*(each.metadata.uid for each in honest), HASH, "..", "", "f" * 32]
    evil = [
        wire(f"e{n}", f"api-{n}", notes={MIRROR: chance.choice(claims)}, runs=chance.random() < 0.7) for n in range(8)
    ]
    pods = [*honest, *evil]
    chance.shuffle(pods)
    found = uids(pods)
    assert len(set(found.values())) == len(found)
    assert all(found[each.metadata.name] == each.metadata.uid for each in honest)


def test_a_claimed_group_is_not_acted_on_unless_a_container_of_the_pod_is_in_it(tmp_path: Path) -> None:
    node = Emulated("small", tmp_path)
    node.pod("static", "LS", "1", uid=HASH, request="1")
    cgroups = node.host().cgroups
    (known,) = node.cluster.view().pods
    own = Places(cgroups)
    own.begin(0.0)
    assert HASH in own.find([from_wire(known)])
    evil = wire("evil", "api-2", notes={MIRROR: HASH})
    (claimed,) = PodsOnNode().of({"ns/evil": evil})
    assert claimed.metadata.uid == HASH
    places = Places(cgroups)
    places.begin(0.0)
    assert places.find([from_wire(claimed)]) == {}


def test_a_source_that_a_tenant_wrote_does_not_keep_his_pod_from_being_evicted(tmp_path: Path) -> None:
    with opened(tmp_path) as bench:
        bench.server.objects.load(pod("evil", uid="u-evil", annotations={SOURCE: "file", MIRROR: HASH}))
        cluster = bench.cluster()
        until(lambda: any(each.metadata.name == "evil" for each in cluster.view().pods))
        cluster.evict(EvictPod("default", "evil", "u-evil", "memory is short"))
        assert bench.asked("create", "pods/eviction") == 1


def test_of_kubelets_own_pods_the_source_is_kubelets_word() -> None:
    static = wire("etcd", HASH, notes={SOURCE: "file"})
    assert static_pods.is_static(static, by_kubelet=True)
    assert not static_pods.is_static(static, by_kubelet=False)
    assert not static_pods.is_static(wire("a", VICTIM, notes={SOURCE: "api"}), by_kubelet=True)
