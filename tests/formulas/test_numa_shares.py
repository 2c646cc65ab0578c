"""What best-effort pods may request on each NUMA node."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.formulas.allocatable import allocatable, numa_shares
from koordlite.model.picture.usage import NO_USE, Use
from koordlite.model.pod.qos import KubeQoS, QoSClass
from koordlite.model.pod.values import Pod, ResourceStatus
from koordlite.model.quantity import Quantity
from koordlite.model.slo.settings import Colocation
from koordlite.model.wire.objects import Zone, ZoneResource

MEMORY = 1_000_000
SIZE = Use(10_000, MEMORY)
WHOLE = Colocation(cpu_reclaim_threshold_percent=100, memory_reclaim_threshold_percent=100)


def pod(milli: int, *nodes: int, qos: QoSClass = QoSClass.LS, memory: int = 0, phase: str = "Running") -> Pod:
    asked = {"cpu": Quantity.of_milli(milli), "memory": Quantity.of(memory)}
    status = ResourceStatus(numa_nodes=nodes)
    kube = KubeQoS.BURSTABLE
    return Pod(
        namespace="n",
        name="p",
        uid="u",
        raw_qos=qos,
        kube_qos=kube,
        requests=asked,
        resource_status=status,
        phase=phase,
    )


def cpus(*pods: Pod, usage: dict[str, Use] | None = None, zones: tuple[int, ...] = (0, 1), **given: Use) -> list[int]:
    """What each of these NUMA nodes of 10 CPUs offers."""
    found = numa_shares.batch(
        zones=dict.fromkeys(zones, SIZE),
        colocation=WHOLE,
        pods=pods,
        usage=usage or {},
        measured=given.get("measured", NO_USE),
        reserved=given.get("reserved", NO_USE),
    )
    return [terms.cpu.result for terms in found]


@pytest.mark.parametrize(
    ("found", "offered"),
    [
        pytest.param(cpus(), [10_000, 10_000], id="an empty machine offers all of it"),
        pytest.param(cpus(pod(4_000)), [8_000, 8_000], id="a pod that may be anywhere is charged everywhere"),
        pytest.param(cpus(pod(4_000, 1)), [10_000, 6_000], id="a promised one where it was promised"),
        pytest.param(cpus(pod(4_000, 0, 1)), [8_000, 8_000], id="evenly over what was promised"),
        pytest.param(cpus(pod(4_000, 7)), [8_000, 8_000], id="a NUMA node that is not there is no promise"),
        pytest.param(
            cpus(pod(4_000, 10), zones=(0, 2, 10)), [10_000, 10_000, 6_000], id="known by number, not by place"
        ),
        pytest.param(cpus(pod(4_000, 1), usage={"u": Use(1_000, 0)}), [10_000, 9_000], id="its use, once it is known"),
        pytest.param(
            cpus(pod(4_000, 1, qos=QoSClass.LSE), usage={"u": Use(1_000, 0)}),
            [10_000, 6_000],
            id="idle LSE CPUs are not free",
        ),
        pytest.param(cpus(pod(4_000, 1, qos=QoSClass.BE)), [10_000, 10_000], id="batch pods take nothing"),
        pytest.param(
            cpus(pod(4_000, 1, phase="Failed"), usage={"u": Use(1_000, 0)}),
            [9_500, 9_500],
            id="a finished one by its last use",
        ),
        pytest.param(cpus(usage={"gone": Use(1_000, 0)}), [9_500, 9_500], id="an unknown one too"),
        pytest.param(cpus(measured=Use(2_000, 0)), [9_000, 9_000], id="the system's use is split"),
        pytest.param(
            cpus(measured=Use(2_000, 0), reserved=Use(3_001, 0)), [8_499, 8_499], id="or the reservation, rounded up"
        ),
    ],
)
def test_cpu_by_numa_node(found: list[int], offered: list[int]) -> None:
    assert found == offered


def zone(name: str, cpu: str, memory: str = "1Gi") -> Zone:
    amounts = (("cpu", cpu), ("memory", memory))
    return Zone(name=name, resources=tuple(ZoneResource(name=n, capacity="9", allocatable=a) for n, a in amounts))


def test_sizes_are_read_by_name() -> None:
    found, unreadable = numa_shares.sizes([zone("node-10", "2"), zone("node-2", "1500m"), zone("socket-0", "9")])
    assert (found, unreadable) == ({10: Use(2000, 2**30), 2: Use(1500, 2**30)}, {})
    assert numa_shares.sizes([Zone(name="node-0")])[0] == {}, "without an amount there is nothing to work on"
    assert "neither" not in numa_shares.sizes([zone("node-0", "many")])[1]["node-0"]


SHARE = st.integers(0, 10**9)
USE = st.builds(Use, SHARE, SHARE)


@given(
    sizes=st.lists(USE, min_size=1, max_size=8),
    percent=st.integers(0, 100),
    used=USE,
    others=st.tuples(USE, USE),
    nodes=st.sets(st.integers(0, 7)),
)
def test_zones_together_never_offer_more_than_the_node(
    sizes: list[Use], percent: int, used: Use, others: tuple[Use, Use], nodes: set[int]
) -> None:
    more, measured = others
    colocation = Colocation(cpu_reclaim_threshold_percent=percent, memory_reclaim_threshold_percent=percent)
    one = pod(1000, *sorted(nodes))
    capacity = Use(sum(size.cpu for size in sizes), sum(size.memory for size in sizes))

    def offered(usage: Use) -> list[tuple[int, int]]:
        zones = numa_shares.batch(
            zones=dict(enumerate(sizes)),
            colocation=colocation,
            pods=[one],
            usage={"u": usage},
            measured=measured,
            reserved=NO_USE,
        )
        return [(terms.cpu.result, terms.memory.result) for terms in zones]

    parts, later = offered(used), offered(Use(used.cpu + more.cpu, used.memory + more.memory))
    assert all(
        0 <= a <= b for after, before in zip(later, parts, strict=True) for a, b in zip(after, before, strict=True)
    )
    assert all(
        cpu <= size.cpu and memory <= size.memory * 1000 for (cpu, memory), size in zip(parts, sizes, strict=True)
    )
    cpu, memory = allocatable.batch(
        capacity=capacity,
        colocation=colocation,
        sums=allocatable.pod_sums(pods=[one], usage={"u": used}),
        system=measured,
        host_apps=NO_USE,
        reserved=NO_USE,
    )
    if all(part != (0, 0) and 0 not in part for part in parts):
        # Parts of use are rounded up, and margins cut by zone: one unit a zone is all that can be between them.
        assert sum(part[0] for part in parts) <= cpu.result + len(sizes)
        assert sum(part[1] for part in parts) <= (memory.result + len(sizes)) * 1000
