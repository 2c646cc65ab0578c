"""From kubelet's socket and checkpoints to the object in the cluster, without waiting for the next tick."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc_server
import msgspec
import pytest
from apibench import Bench, until

from koordlite import config
from koordlite.agent import Agent
from koordlite.clock import RealClock
from koordlite.host import bundle, sysfs
from koordlite.host.files import RealFiles
from koordlite.host.journal.journal import Journal
from koordlite.kube.cluster import KubeCluster
from koordlite.kube.settings import ClusterSettings
from koordlite.lab import Sandbox

# As a kubelet 1.36 answered: CPU 1 may be given out, and a pod has it; then the pod was gone.
ALLOCATABLE = "EgEB"
PINNED = "CjYKDHN0LWV4Y2x1c2l2ZRILcmVjLWt1YmVsZXQaGQoBYxoBASIRCgZtZW1vcnkQgICAIBoCCgA="
GONE = ""
INTERVAL_SECONDS = 30.0
"""Between two ticks: longer than the test."""


class Kubelet:
    """Its socket, and its CPU manager's checkpoint."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.listed = folder, GONE

    def admit(self, listed: str, state: dict[str, Any]) -> None:
        """Answer so from now on, and write the checkpoint as kubelet does."""
        self.listed = listed
        fresh = self.folder / ".cpu_manager_state1"
        fresh.write_text(json.dumps(state))
        fresh.rename(self.folder / "cpu_manager_state")


@pytest.fixture
def kubelet() -> Iterator[Kubelet]:
    # The name of a socket has 107 bytes at most, and a test's own folder may have more.
    with tempfile.TemporaryDirectory(prefix="kubelet-") as folder:
        made = Kubelet(Path(folder))
        (made.folder / "pod-resources").mkdir()
        handlers: dict[str, grpc_server.Handler] = {
            "List": lambda *_: base64.b64decode(made.listed),
            "GetAllocatableResources": lambda *_: base64.b64decode(ALLOCATABLE),
        }
        with grpc_server.serving(f"{folder}/pod-resources/kubelet.sock", "v1.PodResourcesLister", handlers):
            yield made


@contextlib.contextmanager
def agent(bench: Bench, kubelet: Kubelet, state: Path) -> Iterator[None]:
    """An agent with the machine of a sandbox, in real time, that only reports the topology."""
    machine = Sandbox("small")
    clock = RealClock(bench.stop)
    cluster = KubeCluster(
        bench.api(),
        ClusterSettings(kubelet="off", kubelet_folder=str(kubelet.folder)),
        node_name="n1",
        files=RealFiles(),
        topology=sysfs.topology(machine.files),
        clock=clock,
        user_agent="koordlite/test",
        pod_resources=True,
        stop=bench.stop,
    )
    chosen = config.with_modes(config.default(), "off", frozenset(config.default().strategies))
    chosen = config.with_modes(chosen, "enforce", frozenset({"topologyReport"}))
    chosen = msgspec.structs.replace(chosen, agent=dataclasses.replace(chosen.agent, interval_seconds=INTERVAL_SECONDS))
    with contextlib.ExitStack() as stack:
        cluster.start(10.0)
        stack.callback(cluster.stop)
        journal = stack.enter_context(Journal.open(str(state), boot_id="boot"))
        host = bundle.bind(machine.files, clock)
        made = Agent(host, cluster, chosen, journal)
        thread = threading.Thread(target=made.run, args=(lambda tick: None,))
        thread.start()
        stack.callback(thread.join)
        stack.callback(bench.stop.set)
        yield


def available(bench: Bench) -> list[str]:
    """CPUs by zone."""
    zones = (bench.topology() or {}).get("zones") or ()
    return [r["available"] for zone in zones for r in zone["resources"] if r["name"] == "cpu"]


def test_a_pod_that_kubelet_admits_or_forgets_is_published_at_once(
    bench: Bench, kubelet: Kubelet, tmp_path: Path
) -> None:
    kubelet.admit(GONE, {"policyName": "static", "defaultCpuSet": "0-7", "checksum": 1})
    with agent(bench, kubelet, tmp_path / "state"):
        until(lambda: available(bench))
        began = time.monotonic()
        (whole, *_) = available(bench)
        assert whole == "1"
        pinned = {"entries": {"u": {"c": "1"}}, "defaultCpuSet": "0,2-7", "policyName": "static", "checksum": 1}
        kubelet.admit(PINNED, pinned)
        until(lambda: available(bench)[0] == "0")
        kubelet.admit(GONE, {"policyName": "static", "defaultCpuSet": "0-7", "checksum": 1})
        until(lambda: available(bench)[0] == "1")
        assert time.monotonic() - began < INTERVAL_SECONDS
        print(f"two changes were published within {time.monotonic() - began:.2f} s")
    attributes = {each["name"]: each["value"] for each in (bench.topology() or {})["attributes"]}
    assert attributes["nodeTopologyPodsFingerprint"].startswith("pfp0v001")
