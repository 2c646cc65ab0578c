"""CPUs that were promised follow a pod that is resized in place, by the resize subresource of a real API server."""

from __future__ import annotations

import contextlib
import functools
import json
import pathlib
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from typing import Any

import control_plane
import cyaml
from apibench import until

from koordlite.kube.client.access import Api, ApiError
from koordlite.model import keys
from koordlite.model.cpuset import CPUSet
from tests.e2e.test_load_aware import PODS, ROOT, _answers, _put, node, pod
from tests.scheduler.test_protocols import CPUS, LSR

REPORTS = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
STATUS = keys.RESOURCE_STATUS


def test_promised_cpus_follow_the_resize_subresource(tmp_path: pathlib.Path) -> None:
    with control_plane.control_plane(tmp_path) as plane:
        api = plane.api()
        kind = cyaml.safe_load((ROOT / "manifests/crds/noderesourcetopologies.yaml").read_text())
        api.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body=kind)
        api.request("POST", "/api/v1/namespaces", body={"metadata": {"name": "shop"}})
        made = node("a")
        made["status"]["allocatable"] = made["status"]["capacity"] = {"cpu": "16", "memory": "64Gi", "pods": "110"}
        _put(api, "/api/v1/nodes", made)
        until(functools.partial(_is_made, api), 30.0)
        with serving(plane, tmp_path) as port:
            for name in ("db", "cache"):
                api.request("POST", PODS, body=lsr(name))
                until(lambda name=name: bool(cpus(api, name)), 60.0)  # type: ignore[misc]
            first, other = cpus(api, "db"), cpus(api, "cache")
            assert (len(first), len(other), first & other) == (4, 4, CPUSet())
            resize(api, "db", "6")
            until(lambda: len(cpus(api, "db")) == 6, 30.0)
            grown = cpus(api, "db")
            assert first <= grown and not grown & other
            assert len({cpu // 8 for cpu in grown}) == 1, "on the NUMA node it is on"
            resize(api, "db", "2")
            until(lambda: len(cpus(api, "db")) == 2, 30.0)
            assert cpus(api, "db") <= grown
            resize(api, "cache", "12")
            until(lambda: "cannot follow its resize" in json.dumps(explained(port, "cache")), 30.0)
            assert cpus(api, "cache") == other
            until(lambda: any(each["reason"] == "CannotGrow" for each in events(api)), 30.0)


def _is_made(api: Api) -> bool:
    """The report is written as soon as its kind is served."""
    try:
        api.request("POST", REPORTS, body=report())
    except ApiError as error:
        if error.status != 404:
            raise
        return False
    return True


@contextlib.contextmanager
def serving(plane: Any, folder: pathlib.Path) -> Iterator[int]:
    """Our extender and a real kube-scheduler that asks it."""
    port = control_plane.free_port()
    words = [sys.executable, "-m", "koordlite", "scheduler-extender", f"--kubeconfig={plane.kubeconfig()}"]
    words += [f"--listen=127.0.0.1:{port}", "--follow-resizes"]
    rendered = [sys.executable, "-m", "koordlite", "scheduler", "render", "configuration"]
    configuration = cyaml.safe_load(subprocess.run(rendered, capture_output=True, text=True, check=True).stdout)
    configuration["extenders"][0]["urlPrefix"] = f"http://127.0.0.1:{port}"
    configuration["leaderElection"] = {"leaderElect": False}
    with (
        open(folder / "extender.log", "wb") as log,
        subprocess.Popen(words, stderr=log) as process,
        plane.scheduler(configuration),
    ):
        try:
            until(lambda: _answers(port), 60.0)
            yield port
        finally:
            process.terminate()


def lsr(name: str) -> dict[str, Any]:
    made = pod(name)
    made["metadata"]["labels"] = LSR
    amounts = {"cpu": "4", "memory": "64Mi"}
    made["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
    return made


def report() -> dict[str, Any]:
    resources = [{"name": "cpu", "capacity": "8", "allocatable": "8", "available": "8"}]
    zones = [{"name": f"node-{number}", "type": "Node", "resources": resources} for number in (0, 1)]
    head = {"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology"}
    return {**head, "metadata": {"name": "a", "annotations": CPUS}, "zones": zones, "topologyPolicies": []}


def resize(api: Api, name: str, cpu: str) -> None:
    amounts = {"cpu": cpu, "memory": "64Mi"}
    body = {"spec": {"containers": [{"name": "c", "resources": {"requests": amounts, "limits": amounts}}]}}
    kind = "application/strategic-merge-patch+json"
    api.request("PATCH", f"{PODS}/{name}/resize", body=body, content_type=kind)


def cpus(api: Api, name: str) -> CPUSet:
    meta = json.loads(api.request("GET", f"{PODS}/{name}").body)["metadata"]
    text = (meta.get("annotations") or {}).get(STATUS)
    return CPUSet.parse(json.loads(text)["cpuset"]) if text else CPUSet()


def events(api: Api) -> Any:
    return json.loads(api.request("GET", "/apis/events.k8s.io/v1/namespaces/shop/events").body)["items"]


def explained(port: int, name: str) -> Any:
    return json.loads(urllib.request.urlopen(f"http://127.0.0.1:{port}/explain/shop/{name}").read())["events"]
