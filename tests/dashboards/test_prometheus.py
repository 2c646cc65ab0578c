"""Debian's Prometheus scrapes both programs at work on an emulated cluster; every panel and alert finds its series."""

from __future__ import annotations

import contextlib
import json
import pathlib
import re
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import cyaml
import dashboards
import pytest
from apiserver import ApiServer
from control_plane import free_port

# One Prometheus is enough for all of these.
pytestmark = pytest.mark.xdist_group("prometheus")
ROOT = pathlib.Path(__file__).parents[2]
NODE = "tour-a"
WINDOW = "20s"
PATIENCE_SECONDS = 75.0
THRESHOLDS = {
    "clusterStrategy": {
        "enable": True,
        "cpuSuppressThresholdPercent": 65,
        "memoryEvictThresholdPercent": 30,
        "memoryEvictLowerPercent": 28,
    }
}
"""So low that best-effort pods of the tour have to go."""
AGENT = """
agent: {intervalSeconds: 1.0}
strategies:
  memoryEvict: {beMemoryEvict: true}
"""
POLICY = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
maxNoOfPodsToEvictPerNode: 1
profiles:
  - name: old
    pluginConfig:
      - {name: DefaultEvictor, args: {nodeFit: false, evictLocalStoragePods: true}}
      - {name: PodLifeTime, args: {maxPodLifeTimeSeconds: 60}}
    plugins:
      deschedule: {enabled: [PodLifeTime]}
"""


def objects() -> Iterator[dict[str, Any]]:
    """The tour with thresholds that are exceeded."""
    for folder in ("manifests/crds", "configs/tour"):
        for path in sorted((ROOT / folder).glob("*.yaml")):
            for item in cyaml.safe_load_all(path.read_text()):
                if item and item["kind"] not in ("Kustomization", "KubeletConfiguration", "NodeResourceTopology"):
                    if item["kind"] == "ConfigMap":
                        item["data"]["resource-threshold-config"] = json.dumps(THRESHOLDS)
                    yield item


@contextlib.contextmanager
def running(log: pathlib.Path, *command: str) -> Iterator[None]:
    """A program in the background; its log is shown when it ends too early."""
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
        try:
            yield
            assert process.poll() is None, log.read_text()
        finally:
            process.terminate()
            process.wait(20)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Prometheus that has scraped agent and descheduler for a while."""
    program = dashboards.tool("prometheus")
    folder = tmp_path_factory.mktemp("prometheus")
    agent, descheduler, numa, port = free_port(), free_port(), free_port(), free_port()
    exporter = f"numaExporter: {{listen: '127.0.0.1:{numa}'}}\n"
    files = {
        "kl.yaml": AGENT + exporter,
        "policy.yaml": POLICY,
        "prometheus.yml": json.dumps(_scrapes(agent, descheduler, numa)),
    }
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(ApiServer(controllers=True))
        namespaces = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in _NAMESPACES]
        server.objects.load(*namespaces, *objects())
        for name, text in (files | {"kubeconfig": server.kubeconfig()}).items():
            (folder / name).write_text(text)
        access = f"--kubeconfig={folder / 'kubeconfig'}"
        words = [f"--config={folder / 'kl.yaml'}", f"--state-dir={folder / 'state'}", f"--port={agent}", "--quiet"]
        words += ["--sandbox=intel-2s-ht", "--speed=4", "--chaos=3", "--mode=enforce", f"--node-name={NODE}", access]
        stack.enter_context(running(folder / "agent.log", sys.executable, "-m", "koordlite", "run", *words))
        words = [f"--policy={folder / 'policy.yaml'}", "--descheduling-interval=4s", "--dry-run=false", access]
        words += [f"--listen=127.0.0.1:{descheduler}"]
        stack.enter_context(running(folder / "descheduler.log", sys.executable, "-m", "descheduler", "run", *words))
        words = [f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'tsdb'}"]
        words += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"]
        stack.enter_context(running(folder / "prometheus.log", program, *words))
        base = f"http://127.0.0.1:{port}"
        wait_for(f"{base}/-/ready")
        yield base


def wait_for(address: str) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=5):
            return
        time.sleep(0.1)
    raise AssertionError(f"{address} never answered")


_NAMESPACES = ("shop", "batch", "koordinator-system", "kube-system")


def _scrapes(agent: int, descheduler: int, numa: int) -> dict[str, Any]:
    """As the ServiceMonitors: labels of the programs stay, the node is added."""
    jobs = [("koordlite", agent, {"node": NODE}), ("descheduler", descheduler, {})]
    return {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "scrape_configs": [
            {
                "job_name": name,
                "honor_labels": True,
                "static_configs": [{"targets": [f"127.0.0.1:{port}"], "labels": labels}],
            }
            for name, port, labels in jobs
        ]
        + _documented(numa),
    }


def _documented(port: int) -> list[dict[str, Any]]:
    """The scrape configuration of docs/numa.md as it is there, but for the address."""
    page = (ROOT / "docs" / "numa.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```yaml\n(scrape_configs:.*?)```", page, re.DOTALL)
    held, count = re.subn(r"numa-exporter\.volcano-system\.svc:9201", f"127.0.0.1:{port}", text)
    assert count == 1
    found: list[dict[str, Any]] = cyaml.safe_load(held)["scrape_configs"]
    return found


def answer(base: str, expression: str) -> list[Any]:
    """The series that an expression gives at this moment."""
    url = f"{base}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
    with urllib.request.urlopen(url, timeout=10) as response:
        found = json.load(response)
    assert found["status"] == "success", found
    series: list[Any] = found["data"]["result"]
    return series


def without_bounds(expression: str) -> str:
    """An alert's series without the comparison that is hardly ever true."""
    return re.sub(r"\s(?:==|>|<=)\s[0-9.]+", "", expression)


def empty(base: str, left: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Of these expressions, those without a series; an address that does not answer yet has none."""
    try:
        return {(where, expression) for where, expression in left if not answer(base, expression)}
    except OSError:
        return left


QUESTIONS = {
    (q.where, (without_bounds if q.where.startswith("alert") else str)(q.asked(node=NODE, window=WINDOW)))
    for q in dashboards.questions()
}
ONLY_IN_TROUBLE = {
    "alert KoordliteDegraded",
    "alert DeschedulerEvictionsFail",
    # The descheduler moves such pods in its first cycle, which may come before the first scrape.
    "koordlite-numa.json: Violations: {{namespace}}/{{pod}} {{code}}",
}
"""Series that come with what they report; other tests make them up."""


def test_nothing_that_a_dashboard_or_an_alert_asks_for_is_empty(prometheus):
    left = {(where, expression) for where, expression in QUESTIONS if where not in ONLY_IN_TROUBLE}
    end = time.monotonic() + PATIENCE_SECONDS
    while left and time.monotonic() < end:
        time.sleep(1.0)
        left = empty(prometheus, left)
    assert sorted(left) == []


def test_prometheus_took_every_scrape(prometheus):
    assert {(each["metric"]["job"], each["value"][1]) for each in answer(prometheus, "up")} == {
        ("koordlite", "1"),
        ("descheduler", "1"),
        ("numa-exporter", "1"),
    }
    assert answer(prometheus, "sum(scrape_samples_scraped) > 200")


def test_every_expression_is_one_that_prometheus_understands(prometheus):
    for question in dashboards.questions():
        answer(prometheus, question.asked(node=NODE, window=WINDOW))
