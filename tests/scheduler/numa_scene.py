"""A cluster for the NUMA page: a node with placements, a stale one, one that cannot be read, one without a report."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from koordlite.model import keys, times
from koordlite.model.wire.objects import NRTObject as NRT
from tests.scheduler.builders import Clock, Scene, pod, report

CPUS = [{"id": n, "core": n % 8, "socket": n % 8 // 4, "node": n % 8 // 4} for n in range(16)]
"""Two NUMA nodes: 0-3,8-11 and 4-7,12-15."""
FREE = ({"cpu": "2", "memory": "8Gi"}, {"cpu": "6", "memory": "24Gi"})
TOTALS = {"cpu": "8", "memory": "32Gi"}


def container(name: str, **fields: Any) -> dict[str, Any]:
    """An entry of the placement annotation; promised CPUs 0-3 on NUMA node 0, and there."""
    return {
        "namespace": "shop",
        "pod": name,
        "uid": f"uid-{name}",
        "container": "main",
        "source": "kubelet",
        "exclusive": True,
        "singleNUMA": True,
        "scope": "container",
        "promisedCPUs": "0-3",
        "promisedNodes": [],
        "cpuset": "0-3",
        "mems": "0",
        "cpusByNUMA": {"0": "0-3"},
        "memoryByNUMA": {"0": 1 << 30},
        "devices": [],
        "fixFailed": False,
        **fields,
    }


def notes(*containers: dict[str, Any], wall: float) -> dict[str, str]:
    """Annotations of a report of `wall`."""
    placement = {"observedAt": times.show(wall), "generation": 1, "containers": list(containers)}
    return {
        keys.CPU_TOPOLOGY: json.dumps({"detail": CPUS}),
        keys.PLACEMENT: json.dumps(placement),
        keys.CPU_MANAGER_POLICY: json.dumps({"policy": "static"}),
        keys.RESERVATION: json.dumps({"reservedCPUs": "8"}),
    }


def four(clock: Clock) -> dict[str, str]:
    """Annotations of a report with four NUMA nodes of four CPUs; shop/spread runs on the first two."""
    spread = container("spread", singleNUMA=False, promisedCPUs="0,4", cpuset="0,4", cpusByNUMA={"0": "0", "1": "4"})
    detail = [{"id": n, "core": n, "socket": n // 4, "node": n // 4} for n in range(16)]
    return {**notes(spread, wall=clock.wall), keys.CPU_TOPOLOGY: json.dumps({"detail": detail})}


def scene() -> Scene:
    """Nodes good, old, broken and bare; on good, shop/astray runs on both NUMA nodes."""
    created = Scene()
    astray = container("astray", promisedCPUs="4-5", cpuset="3-5", cpusByNUMA={"0": "3", "1": "4-5"})
    here = notes(
        container("web", promisedCPUs="0-2", cpuset="0-2", cpusByNUMA={"0": "0-2"}), astray, wall=created.clock.wall
    )
    created.node("good")
    created.cluster.put_report(
        msgspec.convert(with_distances(report("good", *FREE, totals=TOTALS, annotations=here)), NRT)
    )
    created.node("old", *FREE, totals=TOTALS, annotations=notes(astray, wall=created.clock.wall - 3600))
    created.node("broken", *FREE, totals=TOTALS, annotations={keys.CPU_TOPOLOGY: "{"})
    created.node("bare")
    for name in ("web", "astray"):
        created.put(placed(name, "good"))
    return created


def with_distances(created: Any) -> Any:
    """The same report with 21 between its NUMA nodes."""
    for zone in created["zones"]:
        zone["costs"] = [{"name": f"node-{n}", "value": 10 if zone["name"] == f"node-{n}" else 21} for n in range(2)]
    return created


def placed(name: str, node: str) -> Any:
    """A pod of shop on `node`, running."""
    obj = pod(name, "2", "1Gi")
    obj["metadata"] = {"namespace": "shop", "name": name, "uid": f"uid-{name}"}
    obj["spec"]["nodeName"] = node
    obj["status"] = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
    return obj
