"""Alignment to single NUMA nodes: zones with what is available, pods with what they ask."""

from __future__ import annotations

import pytest

from koordlite.model.quantity import Quantity
from koordlite.numa.nrt import filter as nrt

Amounts = dict[str, int]


def amounts(**texts: str) -> Amounts:
    return {name.replace("_", "/"): Quantity.parse(text).nano for name, text in texts.items()}


ALLOCATABLE = amounts(cpu="16", memory="32Gi", vendor_nic="8")
ZONES = {0: amounts(cpu="4", memory="8Gi", vendor_nic="4"), 1: amounts(cpu="8", memory="8Gi")}


def ask(
    *app: Amounts, init: tuple[Amounts, ...] = (), own: bool = True, overhead: Amounts | None = None
) -> nrt.AlignedRequest:
    listed = [*(("init", "", each) for each in init), *(("app", "", each) for each in app)]
    return nrt.request(listed, guaranteed=own, overhead=overhead or {})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wanted", "scope", "nodes", "why_not"),
    [
        pytest.param(ask(amounts(cpu="2")), "container", (0,), "", id="the lowest node that has enough"),
        pytest.param(ask(amounts(cpu="6")), "container", (1,), "", id="the next one when the first is too small"),
        pytest.param(ask(amounts(cpu="9")), "container", (), "cannot align container", id="no single node has it"),
        pytest.param(ask(amounts(cpu="4"), amounts(cpu="4")), "container", (0, 1), "", id="containers one by one"),
        pytest.param(ask(amounts(cpu="4"), amounts(cpu="4")), "pod", (1,), "", id="the pod as a whole"),
        pytest.param(ask(amounts(cpu="6"), amounts(cpu="4")), "pod", (), "cannot align pod", id="too big as a whole"),
        pytest.param(
            ask(amounts(cpu="4"), init=(amounts(cpu="9"),)), "container", (), "cannot align init container", id="init"
        ),
        pytest.param(ask(amounts(cpu="4"), init=(amounts(cpu="4"),)), "container", (0,), "", id="init takes nothing"),
        pytest.param(ask(amounts(cpu="6", vendor_nic="1")), "pod", (), "cannot align pod", id="CPU here, device there"),
        pytest.param(ask(amounts(cpu="99"), own=False), "container", (0,), "", id="shared CPUs are not counted"),
        pytest.param(
            ask(amounts(vendor_nic="5"), own=False), "pod", (), "cannot align pod", id="devices are, for everybody"
        ),
        pytest.param(ask(amounts(other_thing="1")), "pod", (), "cannot align pod", id="the node does not have it"),
        pytest.param(ask(amounts(storage="1", cpu="1")), "pod", (0,), "", id="storage belongs to no NUMA node"),
        pytest.param(ask(amounts(cpu="0")), "pod", (0,), "", id="nothing asked fits anywhere"),
    ],
)
def test_align(wanted: nrt.AlignedRequest, scope: str, nodes: tuple[int, ...], why_not: str) -> None:
    found = nrt.align(wanted, zones=ZONES, allocatable=ALLOCATABLE, scope=scope)
    assert (found.nodes, found.why_not) == (nodes, why_not)


@pytest.mark.parametrize("resource", ["cpu", "hugepages-2Mi", "kubernetes.io/batch-cpu", "vendor.com/nic"])
def test_kubelet_aligns_devices_of_shared_pods_and_no_resource_of_kubernetes(resource: str) -> None:
    alone = nrt.aligned_by_kubelet([("app", "", {resource: nrt.NANO})], guaranteed=False)
    assert bool(alone.whole.requests) is (resource == "vendor.com/nic")


def test_a_numa_node_gives_no_more_than_it_has() -> None:
    left = nrt.without(ZONES, (0,), amounts(cpu="4", memory="1Gi"))
    assert left == {0: amounts(cpu="0", memory="7Gi", vendor_nic="4"), 1: ZONES[1]}
    assert nrt.without(ZONES, (7,), amounts(cpu="4")) == ZONES, "there is no such NUMA node"
    assert nrt.without(ZONES, (1,), amounts(vendor_nic="1")) == ZONES, "it lists no such resource"
    assert nrt.without(ZONES, (0,), amounts(cpu="5"))[0] == {**ZONES[0], **amounts(cpu="0")}
