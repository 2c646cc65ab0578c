"""A real control plane as processes: etcd, kube-apiserver, and on demand kube-controller-manager and kube-scheduler.

The programs are those in the folder that `KUBEBUILDER_ASSETS` names; without it a test is skipped, with the reason.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from koordlite.kube.client import access
from koordlite.kube.client.access import Api, ApiError, ApiUnreachable

ASSETS = "KUBEBUILDER_ASSETS"
_ADMIN = "e2e-admin"
_START_SECONDS = 60.0
_AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """One request as the API server's audit log has it."""

    user: str
    verb: str
    group: str
    resource: str
    """With the subresource: `pods/status`."""
    namespace: str
    name: str
    status: int
    uri: str


@dataclasses.dataclass(frozen=True)
class ControlPlane:
    """A running API server, and ways to ask it as somebody."""

    folder: pathlib.Path
    port: int
    assets: str

    @property
    def certificate(self) -> pathlib.Path:
        """The serving certificate, which vouches for itself."""
        return self.folder / "serving.crt"

    def kubeconfig(self, token: str = _ADMIN) -> pathlib.Path:
        """A kubeconfig for a token, by default an administrator's."""
        path = self.folder / f"{abs(hash(token)):x}.kubeconfig"
        path.write_text(json.dumps(document(self.port, self.certificate, {"token": token})))
        return path

    def api(self, token: str = _ADMIN) -> Api:
        """A client with that access."""
        return access.connect(str(self.kubeconfig(token)), None, user_agent="e2e")

    def kubectl(self, *words: str, token: str = _ADMIN, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run the real kubectl."""
        command = ["kubectl", f"--kubeconfig={self.kubeconfig(token)}", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert not check or done.returncode == 0, done.stderr
        return done

    def token(self, account: str, namespace: str = "koordlite-system", *more: str) -> str:
        """A token of a ServiceAccount, as kubelet would ask for one; `more` as for `kubectl create token`."""
        return self.kubectl("create", "token", account, "-n", namespace, *more).stdout.strip()

    def requests(self, user: str = "") -> list[Request]:
        """The requests for resources so far, of a user or of all."""
        lines = (self.folder / "audit.log").read_text().splitlines()
        found = [_request(json.loads(line)) for line in lines if line.endswith("}")]
        return [each for each in found if each.resource and user in ("", each.user)]

    @contextlib.contextmanager
    def scheduler(
        self, configuration: dict[str, Any], token: str = _ADMIN, *options: str
    ) -> Iterator[subprocess.Popen[bytes]]:
        """kube-scheduler with this KubeSchedulerConfiguration, and a token to ask with; its log is `scheduler.log`."""
        written = configuration | {"clientConnection": {"kubeconfig": str(self.kubeconfig(token))}}
        path = self.folder / f"scheduler-{free_port()}.json"
        path.write_text(json.dumps(written))
        words = [f"--config={path}", f"--secure-port={free_port()}", "--bind-address=127.0.0.1", *options]
        words.append(f"--cert-dir={self.folder / 'scheduler-certificates'}")
        with contextlib.ExitStack() as stack:
            yield _running(stack, self.folder / "scheduler.log", f"{self.assets}/kube-scheduler", *words)


@contextlib.contextmanager
def control_plane(
    folder: pathlib.Path, *, controllers: Sequence[str] = (), admission: bool = False
) -> Iterator[ControlPlane]:
    """etcd and kube-apiserver, with RBAC, and an audit log.

    `controllers`: those of kube-controller-manager that run, named as by `--controllers`; none: it is not started.
    `admission`: pods need their ServiceAccount, as in a cluster; without it they are taken as they are written.
    """
    assets = os.environ.get(ASSETS)
    if not assets:
        pytest.skip(f"{ASSETS} does not name a folder with etcd and kube-apiserver")
    etcd, peer, port = free_port(), free_port(), free_port()
    subprocess.run(["openssl", "genrsa", "-out", str(folder / "sa.key"), "2048"], check=True, capture_output=True)
    make_certificate(folder / "serving.crt", folder / "serving.key")
    (folder / "tokens.csv").write_text(f"{_ADMIN},admin,admin,system:masters\n")
    (folder / "audit.json").write_text(json.dumps(_AUDIT))
    with contextlib.ExitStack() as stack:
        _running(stack, folder / "etcd.log", f"{assets}/etcd", *_etcd(folder, etcd, peer))
        words = _apiserver(folder, etcd=etcd, port=port, admission=admission)
        server = _running(stack, folder / "apiserver.log", f"{assets}/kube-apiserver", *words)
        plane = ControlPlane(folder, port, assets)
        _wait_until_ready(plane, server)
        if controllers:
            listen = free_port()
            words = _controllers(plane, controllers, listen)
            manager = _running(stack, folder / "controllers.log", f"{assets}/kube-controller-manager", *words)
            _wait_until_listening(manager, listen, folder / "controllers.log")
        yield plane


def make_certificate(certificate: pathlib.Path, key: pathlib.Path) -> None:
    """One for loopback that vouches for itself: clients verify it, as an unverified connection is a warning."""
    words = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=e2e -addext subjectAltName=IP:127.0.0.1"
    subprocess.run([*words.split(), "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)


def document(port: int, certificate: pathlib.Path, user: dict[str, str] | None = None) -> dict[str, Any]:
    """A kubeconfig for a server on this port of loopback."""
    cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority": str(certificate)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "e2e", "cluster": cluster}],
        "users": [{"name": "e2e", "user": {"token": _ADMIN} if user is None else user}],
        "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": "e2e"}}],
        "current-context": "e2e",
    }


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _etcd(folder: pathlib.Path, port: int, peer: int) -> list[str]:
    client, other = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer}"
    names = {"data-dir": str(folder / "etcd"), "listen-client-urls": client, "advertise-client-urls": client}
    names |= {"listen-peer-urls": other, "initial-advertise-peer-urls": other, "initial-cluster": f"default={other}"}
    # Nothing here has to survive the machine.
    return [*(f"--{name}={value}" for name, value in names.items()), "--unsafe-no-fsync"]


def _apiserver(folder: pathlib.Path, *, etcd: int, port: int, admission: bool) -> list[str]:
    names = {
        "etcd-servers": f"http://127.0.0.1:{etcd}",
        "bind-address": "127.0.0.1",
        "secure-port": str(port),
        "tls-cert-file": str(folder / "serving.crt"),
        "tls-private-key-file": str(folder / "serving.key"),
        "service-account-issuer": "https://e2e.invalid",
        "service-account-key-file": str(folder / "sa.key"),
        "service-account-signing-key-file": str(folder / "sa.key"),
        "api-audiences": "https://e2e.invalid",
        "service-cluster-ip-range": "10.0.0.0/24",
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "NodeRestriction",
        "token-auth-file": str(folder / "tokens.csv"),
        "audit-policy-file": str(folder / "audit.json"),
        "audit-log-path": str(folder / "audit.log"),
        "audit-log-mode": "blocking",
        "allow-privileged": "true",
    }
    if not admission:
        names["disable-admission-plugins"] = "ServiceAccount"
    return [f"--{name}={value}" for name, value in names.items()]


def _controllers(plane: ControlPlane, names: Sequence[str], port: int) -> list[str]:
    options = {
        "kubeconfig": str(plane.kubeconfig()),
        "controllers": ",".join(names),
        "service-account-private-key-file": str(plane.folder / "sa.key"),
        "root-ca-file": str(plane.certificate),
        "use-service-account-credentials": "false",
        "leader-elect": "false",
        "bind-address": "127.0.0.1",
        "secure-port": str(port),
        "cert-dir": str(plane.folder / "controller-certificates"),
    }
    return [f"--{name}={value}" for name, value in options.items()]


def _request(entry: dict[str, Any]) -> Request:
    ref, status = entry.get("objectRef") or {}, entry.get("responseStatus") or {}
    resource = ref.get("resource", "")
    whole = f"{resource}/{ref['subresource']}" if ref.get("subresource") else resource
    return Request(
        user=entry["user"].get("username", ""),
        verb=entry["verb"],
        group=ref.get("apiGroup", ""),
        resource=whole,
        namespace=ref.get("namespace", ""),
        name=ref.get("name", ""),
        status=status.get("code", 0),
        uri=entry["requestURI"],
    )


def _running(stack: contextlib.ExitStack, log: pathlib.Path, *command: str) -> subprocess.Popen[bytes]:
    """A process that ends with the stack."""
    file = stack.enter_context(log.open("ab"))
    process = subprocess.Popen(command, stdout=file, stderr=file)
    stack.callback(_end, process)
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)


def _wait_until_ready(plane: ControlPlane, server: subprocess.Popen[bytes]) -> None:
    api, end = plane.api(), time.monotonic() + _START_SECONDS
    while time.monotonic() < end and server.poll() is None:
        with contextlib.suppress(ApiError, ApiUnreachable):
            api.request("GET", "/readyz")
            return
        time.sleep(0.3)
    pytest.fail(f"the API server did not become ready: {_tail(plane.folder / 'apiserver.log')}")


def _wait_until_listening(process: subprocess.Popen[bytes], port: int, log: pathlib.Path) -> None:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return
        time.sleep(0.1)
    pytest.fail(f"{log.stem} did not start: {_tail(log)}")


def _tail(log: pathlib.Path) -> str:
    return log.read_text(errors="replace")[-2000:]
