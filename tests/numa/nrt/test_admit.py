"""Admission by amounts against admission with CPU ids: the first knows less, and is never too kind."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from koordlite.model.cpuset import CPUSet
from koordlite.model.picture.kubelet import MemoryBlock
from koordlite.model.topology import CPU, NUMANode, Topology
from koordlite.numa.kubelet import merge
from koordlite.numa.kubelet.admit import KubeletNode, admit, empty_node, free_amounts, free_cpus
from koordlite.numa.kubelet.device_manager import DeviceState
from koordlite.numa.kubelet.memory_manager import first_state
from koordlite.numa.kubelet.requests import ContainerRequest, PodRequest
from koordlite.numa.nrt import filter as nrt

GIB = 2**30
NIC = "vendor.com/nic"
CPUS = tuple(CPU(core + thread * 6, core, core // 3, core // 3) for thread in range(2) for core in range(6))
NODES = tuple(NUMANode(i, CPUSet(c.id for c in CPUS if c.node == i), 8 * GIB) for i in (0, 1))
EMPTY = empty_node(
    Topology(CPUS, NODES),
    policy="single-numa-node",
    reserved=CPUSet((0,)),
    memory=first_state((0, 1), [MemoryBlock("memory", size, (node,)) for node, size in ((0, 7 * GIB), (1, 8 * GIB))]),
    devices=DeviceState({NIC: {f"n{i}": frozenset({i % 2}) for i in range(4)}}),
)


def request(pod: PodRequest) -> nrt.AlignedRequest:
    def of(container: ContainerRequest) -> dict[str, int]:
        wanted = {"cpu": container.cpus, **container.memory, **container.devices}
        return {name: amount * nrt.NANO for name, amount in wanted.items()}

    containers = [(c.kind, c.name, of(c)) for c in pod.containers]
    return nrt.aligned_by_kubelet(containers, guaranteed=True)


def zones(node: KubeletNode) -> dict[int, dict[str, int]]:
    by_resource = {"cpu": free_cpus(node), "memory": free_amounts(node, "memory"), NIC: free_amounts(node, NIC)}
    return {i: {name: free[i] * nrt.NANO for name, free in by_resource.items()} for i in (0, 1)}


def align(pod: PodRequest, node: KubeletNode, reserved: Sequence[PodRequest] = ()) -> nrt.Fit:
    """By what the node had before the reserved pods came, less all that they can hold, from every NUMA node."""
    most = least = zones(node)
    for other in reserved:
        for container in other.containers:
            wanted = {"cpu": container.cpus, **container.memory, **container.devices}
            least = {
                i: {name: max(0, left - wanted.get(name, 0) * nrt.NANO) for name, left in zone.items()}
                for i, zone in least.items()
            }
    policy: nrt.Policy = "restricted" if node.managers.policy == "restricted" else "single-numa-node"
    return nrt.admit(request(pod), policy, zones=least, at_most=most, totals=zones(EMPTY), scope=node.managers.scope)


def ask(name: str, kind: str) -> st.SearchStrategy[ContainerRequest]:
    return st.builds(
        ContainerRequest,
        st.just(name),
        cpus=st.integers(0, 6),
        memory=st.integers(1, 7).map(lambda n: {"memory": n * GIB}),
        devices=st.integers(0, 2).map(lambda n: {NIC: n} if n else {}),
        kind=st.just(kind),
    )


early = st.lists(st.sampled_from(["init", "sidecar"]), max_size=2)


@st.composite
def pods(draw: st.DrawFn) -> PodRequest:
    kinds = [*draw(early), *["app"] * draw(st.integers(1, 3))]
    return PodRequest("pod", tuple(draw(ask(f"c{i}", kind)) for i, kind in enumerate(kinds)))


@st.composite
def occupied(draw: st.DrawFn) -> KubeletNode:
    now = EMPTY
    for number in range(draw(st.integers(0, 4))):
        now = admit(now, PodRequest(str(number), (draw(ask("c", "app")),))).node
    return now


@given(node=occupied(), pod=pods(), scope=st.sampled_from(merge.SCOPES))
def test_what_fits_by_amounts_is_admitted(node: KubeletNode, pod: PodRequest, scope: merge.Scope) -> None:
    node = msgspec.structs.replace(node, managers=msgspec.structs.replace(node.managers, scope=scope))
    if not align(pod, node).why_not:
        assert admit(node, pod).admitted


@given(node=occupied(), pod=pods(), scope=st.sampled_from(merge.SCOPES))
def test_what_is_admitted_fits_by_amounts_but_for_cpus_used_again(
    node: KubeletNode, pod: PodRequest, scope: merge.Scope
) -> None:
    node = msgspec.structs.replace(node, managers=msgspec.structs.replace(node.managers, scope=scope))
    again = any(c.kind == "init" and c.cpus for c in pod.containers)
    if again and sum(c.kind != "init" and c.cpus > 0 for c in pod.containers) > 1:
        return
    answer = admit(node, pod)
    used = {id_ for each in answer.allocations for block in each.memory for id_ in block.nodes}
    if answer.admitted and (scope == "container" or len(used) == 1):
        assert not align(pod, node).why_not


@given(node=occupied(), coming=st.lists(pods(), min_size=1, max_size=3), pod=pods())
def test_what_fits_beside_pods_on_their_way_is_admitted_after_them(
    node: KubeletNode, coming: list[PodRequest], pod: PodRequest
) -> None:
    after, reserved = node, []
    for number, other in enumerate(coming):
        own = msgspec.structs.replace(other, uid=f"other-{number}")
        answer = admit(after, own)
        after, reserved = answer.node, [*reserved, own]
    if not align(pod, node, reserved).why_not:
        assert admit(after, pod).admitted


def test_a_container_that_may_go_to_a_lower_numa_node_must_fit_there_with_the_next_one() -> None:
    small = PodRequest("small", (ContainerRequest("s", cpus=1, devices={NIC: 2}),))
    node = admit(EMPTY, small).node
    lower, upper = (
        PodRequest("a", (ContainerRequest("c", cpus=2),)),
        PodRequest("b", (ContainerRequest("c", cpus=1, devices={NIC: 1}),)),
    )
    after = admit(admit(node, lower).node, upper).node
    assert [zones(after)[i]["cpu"] // nrt.NANO for i in (0, 1)] == [2, 5]
    pod = PodRequest("pod", (ContainerRequest("i", cpus=2, kind="init"), ContainerRequest("a", cpus=3)))
    assert not admit(after, pod).admitted, "the init container goes to NUMA node 0 and keeps the other one there"
    assert align(pod, node, [lower, upper]).why_not
    assert not align(PodRequest("pod", pod.containers[1:]), node, [lower, upper]).why_not


def test_an_app_container_stays_where_its_init_container_was() -> None:
    init, app = ContainerRequest("i", cpus=2, kind="init"), ContainerRequest("a", cpus=6)
    for pod, fits in ((PodRequest("pod", (init, app)), False), (PodRequest("pod", (app,)), True)):
        assert admit(EMPTY, pod).admitted is fits
        assert bool(align(pod, EMPTY).why_not) is not fits
