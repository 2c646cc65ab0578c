"""The scheduler service as its manifest starts it, under strangers: it keeps to its memory, and judges."""

from __future__ import annotations

import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import cyaml
import pytest
import slices
from apibench import CRD, until
from apiserver import ApiServer
from control_plane import free_port
from realnode import tree
from self_signed import certificate

from koordlite.model.quantity import Quantity
from tests.scheduler.builders import pod

MANIFEST = pathlib.Path(__file__).parents[2] / "manifests/components/scheduler-service/deployment.yaml"
IDLE, BODIES, BODY_BYTES = 200, slices.amount(120, 60), 10 << 20
BODY = json.dumps({"Pod": pod("p"), "Nodes": None, "NodeNames": ["a"]}).encode()


class Deployed:
    """The process that the manifest describes, with its options, on loopback."""

    def __init__(self, folder: pathlib.Path, kubeconfig: pathlib.Path) -> None:
        own, self._client = certificate(folder, "server"), certificate(folder, "kube-scheduler")
        container = cyaml.safe_load(MANIFEST.read_text())["spec"]["template"]["spec"]["containers"][0]
        self.most_bytes = int(Quantity.parse(container["resources"]["limits"]["memory"]).value)
        self.port, self._health = free_port(), free_port()
        files = {"--tls-cert-file": own[0], "--tls-private-key-file": own[1], "--client-ca-file": self._client[0]}
        given = {"--listen": f"127.0.0.1:{self.port}", "--health-listen": f"127.0.0.1:{self._health}", **files}
        options = [option for option in container["command"] if option.startswith("--")]
        options = [f"{name}={given.get(name, value)}" for name, _, value in (each.partition("=") for each in options)]
        command = [sys.executable, "-m", "koordlite", "scheduler-extender", f"--kubeconfig={kubeconfig}"]
        self.group = _limited(self.most_bytes)
        inside = ["sh", "-c", f'echo $$ > {self.group}/cgroup.procs && exec "$@"', "sh"] if self.group else []
        self.process = subprocess.Popen([*inside, *command, *(each.removesuffix("=") for each in options)])

    def ready(self) -> bool:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self._health, timeout=5)) as made:
            try:
                made.request("GET", "/readyz")
                return made.getresponse().status == 200
            except OSError:
                return False

    def connection(self, *, certified: bool, source: str) -> http.client.HTTPSConnection:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if certified:
            context.load_cert_chain(*self._client)
        address = (source, 0)
        return http.client.HTTPSConnection("127.0.0.1", self.port, context=context, timeout=20, source_address=address)

    def post(self, body: bytes, *, certified: bool, source: str) -> int:
        """The status; 0 where the connection was ended."""
        with contextlib.closing(self.connection(certified=certified, source=source)) as made:
            try:
                made.request("POST", "/filter", body)
                return made.getresponse().status
            except (OSError, http.client.HTTPException):
                return 0

    def judges(self) -> float:
        """Seconds until a good client had its answer."""
        began = time.monotonic()
        assert self.post(BODY, certified=True, source="127.0.0.1") == 200
        return time.monotonic() - began

    def killed(self) -> int:
        """Processes that the kernel has killed for the memory limit of their group."""
        words = (self.group / "memory.oom_control").read_text().split() if self.group else ["oom_kill", "0"]
        return int(words[words.index("oom_kill") + 1])

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)
        if self.group:
            until(lambda: not (self.group / "cgroup.procs").read_text(), 10.0)
            self.group.rmdir()

    def peak_bytes(self) -> int:
        """The most that all processes of it ever had, together."""
        return sum(_peak_kib(pid) << 10 for pid in _family(self.process.pid))


@pytest.fixture
def deployed(tmp_path: pathlib.Path) -> Iterator[Deployed]:
    node = {"metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "110"}}}
    with ApiServer(seed=1) as server:
        server.objects.load(cyaml.safe_load(CRD.read_text()), {"apiVersion": "v1", "kind": "Node", **node})
        (tmp_path / "kubeconfig").write_text(server.kubeconfig("admin"))
        made = Deployed(tmp_path, tmp_path / "kubeconfig")
        try:
            until(made.ready, 60.0)
            yield made
        finally:
            made.stop()


@pytest.mark.sliced
def test_large_bodies_and_idle_connections_take_no_more_memory_than_the_manifest_gives(deployed: Deployed) -> None:
    before, large = deployed.peak_bytes(), bytes(BODY_BYTES)
    with contextlib.ExitStack() as stack, concurrent.futures.ThreadPoolExecutor(40) as clients:
        for number in range(IDLE):
            source = (f"127.0.1.{1 + number % 50}", 0)
            stack.enter_context(socket.create_connection(("127.0.0.1", deployed.port), 5, source_address=source))
        assert deployed.judges() < 5.0

        def sent(number: int, *, certified: bool) -> int:
            return deployed.post(large, certified=certified, source=f"127.0.2.{1 + number % 50}")

        for certified, statuses in ((False, {0}), (True, {0, 400, 413, 503})):
            asked: list[Any] = [clients.submit(sent, number, certified=certified) for number in range(BODIES)]
            slowest = max(deployed.judges() for _ in range(3))
            found = {each.result() for each in asked}
            assert found <= statuses, (certified, found)
            assert certified or slowest < 5.0
        deployed.judges()
    assert before < deployed.peak_bytes() < deployed.most_bytes, deployed.peak_bytes() >> 20
    assert deployed.killed() == 0


def _limited(most_bytes: int) -> pathlib.Path | None:
    """A memory group (v1) with the limit of the manifest; None where there can be none: the peak is measured anyhow."""
    version, points = tree.mounts()
    if version != 1 or "memory" not in points or not os.access(points["memory"], os.W_OK):
        return None
    group = points["memory"] / f"{tree.PREFIX}memory-{os.getpid()}-{time.monotonic_ns()}"
    group.mkdir()
    (group / "memory.limit_in_bytes").write_text(str(most_bytes))
    return group


def _family(pid: int) -> list[int]:
    """The process and all that it started."""
    parents = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found


def _peak_kib(pid: int) -> int:
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1])
