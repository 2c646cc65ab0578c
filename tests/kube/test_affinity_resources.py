"""Oenuma and Whitelist: read where that is configured, and what they say."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from apibench import Bench, until
from apiserver import Fault
from hypothesis import given
from hypothesis import strategies as st

from koordlite.model.wire import affinity
from koordlite.model.wire.affinity import OenumaObject, WhitelistObject
from koordlite.record.mask import Mask, Names

VERSION = "resource.sop.huawei.com/v1alpha1"
PODS = [
    {"podName": "front", "namespace": "shop", "numaNum": 1},
    {"podName": "twice", "namespace": "shop", "numaNum": 0},
    {"podName": "twice", "namespace": "shop", "numaNum": 1},
    {"podName": "never", "namespace": "shop", "numaNum": -3},
]
SPEC = {"node": [{"name": "n1", "podAffinity": PODS}, {"name": "n2", "podAffinity": [{**PODS[0], "podName": "far"}]}]}


def crd(kind: str, plural: str) -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    group, version = VERSION.split("/")
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    versions = [{"name": version, "served": True, "storage": True, "schema": schema}]
    spec = {"group": group, "names": names, "scope": "Namespaced", "versions": versions}
    meta = {"name": f"{plural}.{group}"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": meta,
        "spec": spec,
    }


def written(kind: str, name: str, spec: object, namespace: str = "tcs") -> dict[str, Any]:
    return {"apiVersion": VERSION, "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec}


@pytest.fixture
def openeuler(bench: Bench) -> Bench:
    """A cluster with both kinds; a tenant has an Oenuma of his own."""
    tcs = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tcs"}}
    bench.server.objects.load(tcs, crd("Oenuma", "oenumas"), crd("Whitelist", "whitelists"))
    theirs = {"node": [{"name": "n1", "podAffinity": [{**PODS[0], "podName": "stolen"}]}]}
    bench.server.objects.load(written("Oenuma", "podafi", SPEC), written("Oenuma", "podafi", theirs, "default"))
    return bench


def test_only_the_objects_of_the_configured_namespace_count(openeuler: Bench) -> None:
    assert openeuler.cluster().view().oenuma is None
    cluster = openeuler.cluster(affinity_namespace="tcs")
    view = cluster.view()
    assert affinity.numa_nodes(view.oenuma, "n1") == {"shop/front": 1}
    assert (view.whitelist, view.whitelist_known, view.problems) == (None, True, ())
    names = {"effectiveflag": True, "targetPods": [{"namespace": "shop", "names": ["front", "a\n b"]}]}
    openeuler.server.objects.load(written("Whitelist", "whitelist", names))
    until(lambda: cluster.view().whitelist is not None)
    assert affinity.allowed(cluster.view().whitelist) == {"shop/front", "shop/a", "shop/b"}


def test_a_cluster_without_the_kinds_is_no_problem(bench: Bench) -> None:
    view = bench.cluster(affinity_namespace="tcs").view()
    assert (view.oenuma, view.whitelist, view.whitelist_known, view.problems) == (None, None, True, ())


def test_what_may_not_be_read_is_not_taken_for_absent(openeuler: Bench) -> None:
    openeuler.server.faults.add(Fault(resource="whitelists", status=403, times=None))
    view = openeuler.cluster(affinity_namespace="tcs").view()
    assert not view.whitelist_known
    assert "watch of whitelist" in str(view.problems)


@pytest.mark.parametrize("flag", [{}, {"effectiveflag": False}])
def test_a_whitelist_that_is_not_in_effect_is_none(flag: dict[str, bool]) -> None:
    obj = msgspec.convert({"spec": {**flag, "targetPods": [{"namespace": "a", "names": ["b"]}]}}, WhitelistObject)
    assert affinity.allowed(obj) is None


ENTRY = st.fixed_dictionaries(
    {}, optional={"podName": st.sampled_from(["a", "b", ""]), "namespace": st.just("ns"), "numaNum": st.integers(-2, 3)}
)
ITEMS = st.none() | st.lists(
    st.fixed_dictionaries(
        {}, optional={"name": st.sampled_from(["n1", "n2", ""]), "podAffinity": st.none() | st.lists(ENTRY, max_size=5)}
    ),
    max_size=3,
)


@given(ITEMS)
def test_no_oenuma_puts_a_pod_in_two_places(items: list[dict[str, Any]] | None) -> None:
    obj = msgspec.convert({"spec": {"node": items}}, OenumaObject)
    for key, node in affinity.numa_nodes(obj, "n1").items():
        assert node >= 0
        said = [e for each in items or () if each.get("name") == "n1" for e in each.get("podAffinity") or ()]
        mine = [e.get("numaNum", -1) for e in said if f"{e.get('namespace', '')}/{e.get('podName', '')}" == key]
        assert {number for number in mine if number >= 0} == {node}
    assert affinity.numa_nodes(obj, "") == {}


def test_masked_they_name_no_pod_and_say_the_same() -> None:
    names = Names(node={"n1"}, namespace={"shop"}, pod={"front"})
    spec = {"effectiveflag": True, "targetPods": [{"namespace": "shop", "names": ["front secret"]}]}
    masked = Mask(names).value(
        [msgspec.convert({"spec": SPEC}, OenumaObject), msgspec.convert({"spec": spec}, WhitelistObject)]
    )
    assert not any(word in repr(masked) for word in ("front", "shop", "far", "twice", "secret", "n2"))
    assert affinity.numa_nodes(masked[0], "node-1") == {"namespace-1/pod-1": 1}
    assert affinity.allowed(masked[1]) == {"namespace-1/pod-1", "namespace-1/pod-elsewhere"}
