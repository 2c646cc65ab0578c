"""An API server with ConfigMaps, and the NUMA interface before it that lets who may `put /rest`."""

from __future__ import annotations

import contextlib
import json
import pathlib
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

from apiserver import ApiServer
from apiserver.users import User

from koordlite.http.guard import by_cluster
from koordlite.http.server import Server
from koordlite.kube.client import access
from koordlite.scheduler.numa_api.rest import RestGuard
from koordlite.scheduler.numa_api.service import NumaService
from koordlite.scheduler.numa_api.switches import Policy, Switches
from tests.scheduler.builders import Scene

TOKENS = {
    "server": User("server", groups=("system:masters",)),
    "may": User("may"),
    "reads": User("reads"),
}

_LISTS = {
    "apiGroups": ["", "topology.node.k8s.io"],
    "resources": ["nodes", "pods", "noderesourcetopologies"],
    "verbs": ["list", "watch"],
}


class World:
    """Both servers."""

    def __init__(self, server: ApiServer, folder: pathlib.Path, *, may_switch: bool = True) -> None:
        self._server, self._folder = server, folder
        self.api = self.as_user("server")
        self.scene = Scene()
        service = NumaService(
            self.scene.cluster,
            wall=lambda: 0.0,
            not_ready=lambda: "",
            switches=Switches(self.api),
            may_switch=may_switch,
        )
        guard = RestGuard(exposed=False, review=by_cluster(self.api))
        self.http = Server("127.0.0.1", 0, service.answer, change=service.put, guard=guard)
        self.http.start()

    def as_user(self, token: str) -> access.Api:
        """The API server as this user sees it."""
        path = self._folder / f"kubeconfig-{token}"
        path.write_text(self._server.kubeconfig(token))
        return access.connect(str(path), None, user_agent="test")

    def ask(self, method: str, path: str, body: Any = None, token: str = "") -> tuple[int, Any]:
        """Status and JSON of the answer to a question below /rest/scheduling/v1/."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        address = f"{self.http.url}/rest/scheduling/v1/{path}"
        request = urllib.request.Request(address, data=data, headers=headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    def create(self, policy: Policy, text: str | None) -> None:
        """The ConfigMap of a policy with this text and another key; None: without its key."""
        meta = {"name": policy.config_map, "namespace": policy.namespace}
        data = {"other": "kept"} if text is None else {policy.key: text, "other": "kept"}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}
        self.api.request("POST", f"/api/v1/namespaces/{policy.namespace}/configmaps", body=body)

    def config_map(self, policy: Policy) -> Any:
        """As it is now."""
        return json.loads(self.api.request("GET", path_of(policy)).body)

    def data(self, policy: Policy) -> Any:
        """Its texts."""
        return self.config_map(policy)["data"]

    def version(self, policy: Policy) -> str:
        """Its resourceVersion."""
        return str(self.config_map(policy)["metadata"]["resourceVersion"])


def path_of(policy: Policy) -> str:
    """Where its ConfigMap is."""
    return f"/api/v1/namespaces/{policy.namespace}/configmaps/{policy.config_map}"


@contextlib.contextmanager
def world(folder: pathlib.Path) -> Iterator[World]:
    """With both namespaces, and permission for the user `may`."""
    with ApiServer(seed=1, tokens=TOKENS) as server:
        opened = World(server, folder)
        for name in ("volcano-system", "koordinator-system"):
            opened.api.request("POST", "/api/v1/namespaces", body=_object("Namespace", "v1", name))
        put = {"nonResourceURLs": ["/rest"], "verbs": ["put"]}
        _allow(opened.api, "may", put)
        _allow(opened.api, "reads", _LISTS)
        yield opened
        opened.http.close()


def _allow(api: access.Api, user: str, rule: dict[str, Any]) -> None:
    group, kind = "/apis/rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io"
    role = _object("ClusterRole", f"{kind}/v1", user, rules=[rule])
    api.request("POST", f"{group}/clusterroles", body=role)
    binding = {
        "roleRef": {"apiGroup": kind, "kind": "ClusterRole", "name": user},
        "subjects": [{"apiGroup": kind, "kind": "User", "name": user}],
    }
    api.request(
        "POST", f"{group}/clusterrolebindings", body=_object("ClusterRoleBinding", f"{kind}/v1", user, **binding)
    )


def _object(kind: str, version: str, name: str, **more: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **more}
