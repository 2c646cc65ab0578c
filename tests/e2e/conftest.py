"""API servers to run the products against: the tests' own always, a real one where KUBEBUILDER_ASSETS names it."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pathlib
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import cyaml
import pytest
from apiserver import ApiServer

from koordlite.kube.client import access
from koordlite.kube.client.access import Api, ApiError, ApiUnreachable

ROOT = pathlib.Path(__file__).parents[2]
ASSETS = "KUBEBUILDER_ASSETS"
_TOKEN = "e2e-admin"
_START_SECONDS = 60.0
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
            path.write_text(json.dumps(stack.enter_context(_real(tmp_path))))
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
        if item["kind"] in ("NodeResourceTopology", "Kustomization"):
            continue  # The twin's, of an older version of the kind, which the agent writes itself; a file for kubectl.
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
    _make_certificate(certificate, key)
    return certificate, key, lambda port: _document(port, certificate)


def documents(folder: str) -> list[dict[str, Any]]:
    """The objects of a folder of manifests."""
    texts = [path.read_text() for path in sorted((ROOT / folder).glob("*.yaml"))]
    return [item for text in texts for item in cyaml.safe_load_all(text) if item]


@contextlib.contextmanager
def _real(folder: pathlib.Path) -> Iterator[dict[str, Any]]:
    """etcd and kube-apiserver as processes; a kubeconfig for an administrator."""
    assets = os.environ.get(ASSETS)
    if not assets:
        pytest.skip(f"{ASSETS} does not name a folder with etcd and kube-apiserver")
    etcd, port = _free_port(), _free_port()
    peer = _free_port()
    key, tokens, certificate = folder / "sa.key", folder / "tokens.csv", folder / "serving.crt"
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    _make_certificate(certificate, folder / "serving.key")
    tokens.write_text(f"{_TOKEN},admin,admin,system:masters\n")
    with contextlib.ExitStack() as stack:
        _running(stack, f"{assets}/etcd", *_etcd(folder, etcd, peer))
        _running(stack, f"{assets}/kube-apiserver", *_apiserver(folder, key, tokens, etcd=etcd, port=port))
        document = _document(port, certificate)
        _wait_until_ready(folder, document)
        yield document


def _etcd(folder: pathlib.Path, port: int, peer: int) -> list[str]:
    client, other = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer}"
    names = {"data-dir": str(folder / "etcd"), "listen-client-urls": client, "advertise-client-urls": client}
    names |= {"listen-peer-urls": other, "initial-advertise-peer-urls": other, "initial-cluster": f"default={other}"}
    return [f"--{name}={value}" for name, value in names.items()]


def _apiserver(folder: pathlib.Path, key: pathlib.Path, tokens: pathlib.Path, *, etcd: int, port: int) -> list[str]:
    names = {
        "etcd-servers": f"http://127.0.0.1:{etcd}",
        "bind-address": "127.0.0.1",
        "secure-port": str(port),
        "tls-cert-file": str(folder / "serving.crt"),
        "tls-private-key-file": str(folder / "serving.key"),
        "service-account-issuer": "https://e2e.invalid",
        "service-account-key-file": str(key),
        "service-account-signing-key-file": str(key),
        "service-cluster-ip-range": "10.0.0.0/24",
        "authorization-mode": "RBAC",
        "token-auth-file": str(tokens),
        "disable-admission-plugins": "ServiceAccount",
    }
    return [f"--{name}={value}" for name, value in names.items()]


def _make_certificate(certificate: pathlib.Path, key: pathlib.Path) -> None:
    """One for loopback that vouches for itself: clients verify it, as an unverified connection is a warning."""
    words = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=e2e -addext subjectAltName=IP:127.0.0.1"
    subprocess.run([*words.split(), "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)


def _document(port: int, certificate: pathlib.Path) -> dict[str, Any]:
    cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority": str(certificate)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "e2e", "cluster": cluster}],
        "users": [{"name": "e2e", "user": {"token": _TOKEN}}],
        "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": "e2e"}}],
        "current-context": "e2e",
    }


def _running(stack: contextlib.ExitStack, *command: str) -> None:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stack.callback(process.wait, 10)
    stack.callback(process.terminate)


def _wait_until_ready(folder: pathlib.Path, document: dict[str, Any]) -> None:
    path = folder / "probe"
    path.write_text(json.dumps(document))
    api, end = access.connect(str(path), None, user_agent="e2e"), time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        with contextlib.suppress(ApiError, ApiUnreachable):
            api.request("GET", "/readyz")
            return
        time.sleep(0.3)
    pytest.fail("the API server did not become ready")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
