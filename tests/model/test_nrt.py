"""What the agent publishes: JSON as Koordinator prints it, and read back as it was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.model import keys, nrt
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.errors import InputError
from koordlite.model.topology import CPU, NUMANode, Topology

cpusets = st.frozensets(st.integers(0, 300), max_size=12).map(CPUSet)
names = st.text(min_size=1, max_size=12)
containers = st.builds(
    nrt.ContainerPlacement,
    namespace=names,
    pod=names,
    uid=names,
    container=names,
    source=st.sampled_from(["kubelet", "koordinator", "none"]),
    promised_cpus=cpusets,
    promised_nodes=st.lists(st.integers(0, 7), max_size=3).map(tuple),
    cpuset=cpusets,
    cpus_by_numa=st.dictionaries(st.integers(0, 7), cpusets, max_size=3),
    memory_by_numa=st.dictionaries(st.integers(0, 7), st.integers(0, 2**40), max_size=3),
    devices=st.lists(st.builds(nrt.Device, id=names, numa=st.integers(-1, 7)), max_size=2).map(tuple),
    single_numa=st.booleans(),
    fix_failed=st.booleans(),
)
TOPOLOGY = Topology((CPU(0, 0, 0, 0), CPU(1, 1, 1, 1)), (NUMANode(0, CPUSet([0]), 0), NUMANode(1, CPUSet([1]), 0)))


@given(st.lists(containers, max_size=3))
def test_a_placement_reads_back_as_it_was(placed: list[nrt.ContainerPlacement]) -> None:
    placement = nrt.Placement(observed_at="2026-01-01T00:00:00Z", generation=3, containers=tuple(placed))
    assert nrt.decode_placement(nrt.encode(placement), "node") == placement


def test_a_placement_is_compact_escaped_and_has_every_field() -> None:
    one = nrt.ContainerPlacement(namespace="a", pod="b", uid="u", container="c<", cpuset=CPUSet([1, 2]))
    text = nrt.encode(nrt.Placement(observed_at="t", generation=1, containers=(one,)))
    assert text == (
        '{"observedAt":"t","generation":1,"containers":[{"namespace":"a","pod":"b","uid":"u","container":"c\\u003c",'
        '"source":"none","exclusive":false,"singleNUMA":false,"scope":"container","promisedCPUs":"","promisedNodes":[],'
        '"cpuset":"1-2","mems":"","cpusByNUMA":{},"memoryByNUMA":{},"devices":[],"fixFailed":false}]}'
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("[", "JSON is malformed|Expected|truncated", id="broken JSON"),
        pytest.param('{"observedAt":1,"generation":1}', "observedAt", id="a time that is a number"),
        pytest.param(
            '{"observedAt":"t","generation":1,"containers":[{"namespace":"","pod":"","uid":"","container":"","cpuset":"0-x"}]}',
            "0-x",
            id="a CPU list that is none",
        ),
    ],
)
def test_a_broken_placement_names_the_object_and_the_annotation(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        nrt.decode_placement(text, "noderesourcetopology/a")
    assert caught.value.problems[0].object == "noderesourcetopology/a"
    assert caught.value.problems[0].field == keys.PLACEMENT


def test_pools_keep_an_emptied_entry_without_its_cpuset() -> None:
    text = nrt.encode([nrt.pool(0, 0, CPUSet([2, 3])), nrt.pool(1, 1, EMPTY)])
    assert text == '[{"socket":0,"node":0,"cpuset":"2-3"},{"socket":1,"node":1}]'
    assert [pool.cpus for pool in nrt.decode_pools(text, "node")] == [CPUSet([2, 3]), EMPTY]


def test_allocs_are_null_when_there_are_none_and_sorted_by_uid_else() -> None:
    assert nrt.encode_pod_cpu_allocs([]) == "null"
    two = [nrt.PodCPUAlloc(uid=uid, cpuset=CPUSet([1]), managed_by_kubelet=True) for uid in ("b", "a")]
    text = nrt.encode_pod_cpu_allocs(two)
    assert text.startswith('[{"uid":"a","cpuset":"1","managedByKubelet":true},{"uid":"b"')


def test_cpu_topology_writes_zeros_and_reads_back() -> None:
    text = nrt.encode_cpu_topology(TOPOLOGY)
    assert text == '{"detail":[{"id":0,"core":0,"socket":0,"node":0},{"id":1,"core":1,"socket":1,"node":1}]}'
    assert nrt.decode_cpu_topology(text, "node") == TOPOLOGY


def test_the_old_word_without_a_scope_means_containers() -> None:
    assert nrt.kubelet_topology_manager("SingleNUMANode") == ("single-numa-node", "container")
    assert nrt.kubelet_topology_manager("Whatever") == ("none", "container")


@pytest.mark.parametrize(
    ("name", "node"),
    [("node-0", 0), ("node-10", 10), ("node-64", None), ("node-", None), ("10", None), ("node-a", None)],
)
def test_the_numa_node_is_in_the_zones_name(name: str, node: int | None) -> None:
    assert nrt.numa_node_of_zone(name) == node


def test_cpus_are_split_by_numa_node_and_strangers_left_out() -> None:
    assert nrt.by_numa_node(TOPOLOGY, CPUSet([1, 9])) == {1: CPUSet([1])}
