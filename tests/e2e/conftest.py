"""API servers to run the products against: the tests' own always, a real one where KUBEBUILDER_ASSETS names it."""

from __future__ import annotations

import contextlib
import functools
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import control_plane
import cyaml
import pytest
from apiserver import ApiServer

from koordlite.kube.client import access
from koordlite.kube.client.access import Api, ApiError

ROOT = pathlib.Path(__file__).parents[2]
_PLURALS = {
    "NodeResourceTopology": "noderesourcetopologies",
    "CustomResourceDefinition": "customresourcedefinitions",
    "PriorityClass": "priorityclasses",
}
_CLUSTER_WIDE = frozenset({"Namespace", "Node", "NodeResourceTopology", "CustomResourceDefinition", "PriorityClass"})


@pytest.fixture(params=["sandbox", "real"])
def kubeconfig(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Access to an empty cluster."""
    path = tmp_path / "kubeconfig"
    with contextlib.ExitStack() as stack:
        if request.param == "sandbox":
            server = stack.enter_context(ApiServer(controllers=True))
            path.write_text(server.kubeconfig())
        else:
            path = stack.enter_context(control_plane.control_plane(tmp_path)).kubeconfig()
        yield path


@pytest.fixture
def tour(api: Api) -> Api:
    """The cluster of the tour, set up through the API."""
    objects = documents("configs/tour")
    classes = {item["spec"]["priorityClassName"]: item["spec"]["priority"] for item in objects if _is_classed(item)}
    for name, value in classes.items():
        head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        create(api, head | {"value": value})
    for item in [*documents("manifests/crds"), *objects]:
        if item["kind"] in ("NodeResourceTopology", "Kustomization", "KubeletConfiguration"):
            continue  # The twin's, of an older version of the kind, which the agent writes itself; files of programs.
        if _is_classed(item):
            del item["spec"]["priority"]  # A pod has the priority of its class, and may not say so itself.
        create(api, item)
    return api


@pytest.fixture
def api(kubeconfig: pathlib.Path) -> Api:
    """The test's own access."""
    return access.connect(str(kubeconfig), None, user_agent="e2e")


@pytest.fixture
def put(api: Api) -> Callable[[dict[str, Any]], None]:
    """Create an object with its status."""
    return functools.partial(create, api)


def _is_classed(item: dict[str, Any]) -> bool:
    return "priorityClassName" in (item.get("spec") or {})


def create(api: Api, item: dict[str, Any]) -> None:
    """Create an object, its namespace, and its status where only the subresource takes one."""
    meta = item["metadata"]
    if item["kind"] not in _CLUSTER_WIDE:
        _create_namespace(api, meta.setdefault("namespace", "default"))
    item["metadata"] = {key: value for key, value in meta.items() if key not in ("uid", "creationTimestamp")}
    _until_served(api, collection(item), {key: value for key, value in item.items() if key != "status"})
    if "status" in item:
        body = {"status": item["status"]}
        merge = "application/merge-patch+json"
        api.request("PATCH", f"{collection(item)}/{meta['name']}/status", body=body, content_type=merge)


def collection(item: dict[str, Any]) -> str:
    """Where objects of its kind are."""
    group, _, version = item["apiVersion"].rpartition("/")
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    where = "" if item["kind"] in _CLUSTER_WIDE else f"/namespaces/{item['metadata']['namespace']}"
    return f"{root}{where}/{_PLURALS.get(item['kind'], item['kind'].lower() + 's')}"


def _create_namespace(api: Api, name: str) -> None:
    item = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    with contextlib.suppress(ApiError):  # It is there already.
        api.request("POST", "/api/v1/namespaces", body=item)


def _until_served(api: Api, path: str, item: dict[str, Any]) -> None:
    """Create; a kind that has just been defined takes a moment to be served."""
    end = time.monotonic() + 10.0
    while True:
        try:
            api.request("POST", path, body=item)
        except ApiError as error:
            if error.status != 404 or time.monotonic() > end:
                raise
            time.sleep(0.2)
        else:
            return


@pytest.fixture
def certified(tmp_path: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path, Callable[[int], dict[str, Any]]]:
    """A certificate as the real server gets one, its key, and how the kubeconfig for a port names it."""
    certificate, key = tmp_path / "serving.crt", tmp_path / "serving.key"
    control_plane.make_certificate(certificate, key)
    return certificate, key, lambda port: control_plane.document(port, certificate)


def documents(folder: str) -> list[dict[str, Any]]:
    """The objects of a folder of manifests."""
    texts = [path.read_text() for path in sorted((ROOT / folder).glob("*.yaml"))]
    return [item for text in texts for item in cyaml.safe_load_all(text) if item]
