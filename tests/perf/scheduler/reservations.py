"""What the reservation controller costs: `python tests/perf/scheduler/reservations.py`.

100,000 running pods on 5,000 nodes, 500 Reservations that are held, 200 pods that no node has room for.
"""

from __future__ import annotations

import pathlib
import time
from typing import Any

import msgspec

from koordlite.model.wire.objects import NodeObject, PodObject
from koordlite.model.wire.reservation import ReservationObject
from koordlite.reservation import step
from koordlite.reservation.placeholder import PlaceholderSettings
from koordlite.reservation.world import World

NODES, PODS, RESERVATIONS, WAITING = 5_000, 100_000, 500, 200


def pod(name: str, node: str, cpu: str, **meta: Any) -> PodObject:
    """Off the wire, as a watch brings it."""
    status: dict[str, Any] = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
    if not node:
        said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        status = {"phase": "Pending", "conditions": [said]}
    raw = {
        "metadata": {"name": name, "namespace": "default", "uid": name, **meta},
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
        "status": status,
    }
    return msgspec.json.decode(msgspec.json.encode(raw), type=PodObject)


def reservation(name: str, node: str) -> ReservationObject:
    """Held on the node."""
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "4"}}}]}}
    raw = {
        "metadata": {"name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"template": template, "owners": [{"labelSelector": {"matchLabels": {"app": name}}}], "ttl": "0s"},
        "status": {"phase": "Available", "nodeName": node, "allocatable": {"cpu": "4"}},
    }
    return msgspec.convert(raw, ReservationObject)


def resident_mib() -> int:
    """Of this process."""
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4 // 1024


def main() -> None:
    """Print the figures."""
    world, before, began = World(), resident_mib(), time.process_time()
    for number in range(NODES):
        allocatable = {"cpu": "64", "memory": "256Gi", "pods": "110"}
        raw = {"metadata": {"name": f"n{number}"}, "status": {"allocatable": allocatable}}
        world.put_node(msgspec.convert(raw, NodeObject))
    for number in range(PODS):
        world.put_pod(pod(f"p{number}", f"n{number % NODES}", f"{100 + number % 20}m"))
    print(f"listed: {time.process_time() - began:.1f} s of CPU time, {resident_mib() - before} MiB")
    for number in range(RESERVATIONS):
        name, owner = (
            f"r{number}",
            {"kind": "Reservation", "name": f"r{number}", "uid": f"r{number}", "controller": True},
        )
        world.put_reservation(reservation(name, f"n{number}"))
        labels = {"reservation.koordlite.io/uid": name}
        world.put_pod(pod(f"reservation-{name}-1", f"n{number}", "4", labels=labels, ownerReferences=[owner]))
    for number in range(WAITING):
        world.put_pod(pod(f"w{number}", "", "99"))
    for _ in range(3):
        began = time.process_time()
        assert not list(step.plan(world, PlaceholderSettings(), time.time()))
        print(f"a round in which nothing is to do: {time.process_time() - began:.2f} s of CPU time")


if __name__ == "__main__":
    main()
