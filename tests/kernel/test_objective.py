"""A service's own objective on the real kernel: its p99 is measured, asked for over HTTP, and moves the quota."""

from __future__ import annotations

import dataclasses
import json
import math
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
import tinyprometheus
from realnode.manifests import threshold
from realnode.pods import Pod
from realnode.waiting import until

from koordlite.model.keys import OBJECTIVE
from koordlite.record.reader import Record
from tests.kernel.conftest import Rig

STRICT = Pod("service", "Burstable", "LS", notes=((OBJECTIVE, "p99 <= 0.001"),))
LOOSE = dataclasses.replace(STRICT, notes=((OBJECTIVE, "p99"),))
BATCH = Pod("batch")
_ECHO = """
import socket
listener = socket.socket(type=socket.SOCK_DGRAM)
listener.bind(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    data, sender = listener.recvfrom(64)
    sum(range(5000))
    listener.sendto(data, sender)
"""


class Client:
    """Asks a service again and again, and keeps how long each answer took."""

    def __init__(self, port: int) -> None:
        self._port, self._stop = port, threading.Event()
        self._latencies: list[tuple[float, float]] = []
        self._thread = threading.Thread(target=self._ask, name="client")
        self._thread.start()

    def _ask(self) -> None:
        with socket.socket(type=socket.SOCK_DGRAM) as asker:
            asker.connect(("127.0.0.1", self._port))
            asker.settimeout(30)
            while not self._stop.wait(0.005):
                begun = time.monotonic()
                asker.send(b"x")
                asker.recv(64)
                self._latencies.append((begun, (time.monotonic() - begun) * 1000))

    def p99_ms(self) -> float:
        """p99 of the last second; NaN of no answers."""
        now = time.monotonic()
        recent = sorted(ms for begun, ms in list(self._latencies) if begun > now - 1)
        return recent[math.ceil(len(recent) * 0.99) - 1] if recent else math.nan

    def stop(self) -> None:
        """End."""
        self._stop.set()
        self._thread.join()


@pytest.fixture
def client(rig: Rig) -> Iterator[Client]:
    """A client of a service in the pod's container."""
    for pod in (STRICT, BATCH):
        rig.tree.add(pod)
    with subprocess.Popen([sys.executable, "-c", _ECHO], stdout=subprocess.PIPE, text=True) as service:
        for point in set(rig.tree.points.values()):
            (point / rig.tree.container(STRICT, "main") / "cgroup.procs").write_text(str(service.pid))
        assert service.stdout
        asker = Client(int(service.stdout.readline()))
        try:
            yield asker
        finally:
            asker.stop()
            service.kill()


def test_a_missed_objective_lowers_the_quota_and_a_met_one_raises_it(rig: Rig, client: Client) -> None:
    rig.manifests.node()
    rig.manifests.config(threshold=threshold("guided", percent=65))
    for pod in (STRICT, BATCH):
        rig.manifests.pod(pod)
    served: list[str] = []

    def body() -> bytes:
        served.append(f"{client.p99_ms():.4g} ms")
        return tinyprometheus.vector({("default", "service"): served[-1].removesuffix(" ms")})

    query = {"query": "p99[1s]", "most": 1e6, "unit": "ms", "windowSeconds": 1}
    config, record = rig.manifests.folder.parent / "koordlite.yaml", rig.manifests.folder.parent / "record"
    group = rig.tree.qos("BestEffort")
    with tinyprometheus.serving(body) as server:
        section = {"prometheusUrl": server.url, "intervalSeconds": 1, "queries": {"p99": query}}
        config.write_text(json.dumps({"objectives": section}))
        words = ["--config", str(config), "--record", str(record), "--mode", "enforce", "--no-http", "-q"]
        agent = rig.start("run", *rig.options, *words, "--interval", "0.5")
        until(record.exists, "the agent has begun")
        rig.tree.load(BATCH)
        whole = len(rig.tree.effective(group)) * 100_000 * 0.98
        until(lambda: 0 < rig.tree.quota_us(group) < 0.9 * whole, "the strict objective has lowered the quota")
        low = rig.tree.quota_us(group)
        rig.manifests.pod(LOOSE)
        until(lambda: rig.tree.quota_us(group) > low, "the loose objective has raised the quota")
        assert agent.stop() == 0, agent.said()
    decisions = [d for moment in Record(record).rounds() for d in moment.decisions if d.strategy == "cpuSuppress"]
    reasons = {d.reason for d in decisions}
    assert {"ServiceObjective", "ObjectiveMissed", "ObjectiveMet"} <= reasons, reasons
    limiting = [d.evidence["value"] for d in decisions if d.reason == "ServiceObjective"]
    assert set(limiting) <= set(served), "the limit goes by what the service's clients measured"
