"""Kubelet over HTTP: its pods, its configuration, and what holds while it refuses."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import subprocess
import threading
import warnings
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from apibench import NoFiles
from handclock import HandClock
from tinyapi import Reply, Request, client, kubeconfig

from koordlite.kube.client import access
from koordlite.kube.client.access import ApiError, ApiUnreachable
from koordlite.kube.kubelet import http as kubelet_http
from koordlite.kube.kubelet.http import KubeletHttp
from koordlite.kube.kubelet.state import KubeletState
from koordlite.kube.settings import ClusterSettings
from koordlite.model.cpuset import CPUSet
from koordlite.model.nrt import Device
from koordlite.model.topology import CPU, Topology

CAPTURES = os.environ.get("KUBELET_CAPTURES", "")
needs_captures = pytest.mark.skipif(not CAPTURES, reason="KUBELET_CAPTURES does not name a folder of captures")

CONFIGZ = {"kubeletconfig": {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}}
PODS = {"kind": "PodList", "items": [{"metadata": {"name": "a", "namespace": "x"}, "status": {"phase": "Running"}}]}
TOPOLOGY = Topology((CPU(0, 0, 0, 0), CPU(1, 0, 0, 0)), ())


def _answer(request: Request) -> Reply:
    return Reply(body=CONFIGZ if request.path.endswith("/configz") else PODS)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signed itself, as kubelet's does, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=kubelet -addext subjectAltName=IP:127.0.0.1"
    made = ["-keyout", str(folder / "key"), "-out", str(folder / "cert")]
    subprocess.run([*command.split(), *made], check=True, capture_output=True)
    return folder / "cert", folder / "key"


@contextlib.contextmanager
def _tls_kubelet(certificate: tuple[Path, Path], token: str) -> Iterator[int]:
    """A kubelet with TLS that wants a token; gives its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            allowed = self.headers.get("Authorization") == f"Bearer {token}"
            body = (json.dumps(CONFIGZ) if allowed else "Unauthorized").encode()
            self.send_response(200 if allowed else 401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that does not trust us goes away."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*map(str, certificate))
    server = Quiet(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.socket.shutdown(socket.SHUT_RDWR)  # Wakes the loop.
        server.shutdown()
        thread.join()
        server.server_close()


def _direct(tmp_path: Path, node_name: str = "n1", **settings: Any) -> KubeletHttp:
    token = tmp_path / "token"
    token.write_text("right\n")
    api = client(tmp_path / "kubeconfig", "http://127.0.0.1:1")
    chosen = ClusterSettings(kubelet_token_file=str(token), **settings)
    made = kubelet_http.connect(chosen, "127.0.0.1", node_name=node_name, api=api, user_agent="test")
    assert made is not None
    return made


def test_kubelet_is_asked_with_tls_and_the_token_of_the_file(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    with _tls_kubelet(certificate, "right") as port:
        config = _direct(tmp_path, kubelet_port=port, kubelet_ca_file=str(certificate[0])).config()
    assert (config.cpu_manager_policy, config.listed_reserved_cpus) == ("static", CPUSet((0,)))


def test_a_certificate_nobody_vouches_for_is_refused(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    with _tls_kubelet(certificate, "right") as port, pytest.raises(ApiUnreachable, match="CERTIFICATE_VERIFY_FAILED"):
        _direct(tmp_path, kubelet_port=port).config()


def test_verification_can_be_given_up_in_words(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    with _tls_kubelet(certificate, "right") as port, warnings.catch_warnings(record=True) as warned:
        assert _direct(tmp_path, kubelet_port=port, kubelet_verify=False).config().cpu_manager_policy == "static"
    assert not warned, "the library says nothing at each request"


@pytest.fixture(scope="module")
def self_signed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """What kubelet serves with when it has no other: signed by a CA of its own, its only name DNS:n1 (recorded of
    Kubernetes 1.36)."""
    folder = tmp_path_factory.mktemp("kubelet-pki")

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    (folder / "san").write_text("subjectAltName=DNS:n1\nbasicConstraints=critical,CA:FALSE\n")
    new = ("-newkey", "rsa:2048", "-nodes")
    openssl("req", "-x509", *new, "-days", "2", "-subj", "/CN=n1-ca@1", "-keyout", "ca.key", "-out", "ca.crt")
    openssl("req", *new, "-subj", "/CN=n1@1", "-keyout", "kubelet.key", "-out", "kubelet.csr")
    signing = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "san")
    openssl("x509", "-req", "-in", "kubelet.csr", *signing, "-out", "leaf.crt")
    (folder / "kubelet.crt").write_text((folder / "leaf.crt").read_text() + (folder / "ca.crt").read_text())
    return folder / "kubelet.crt", folder / "kubelet.key"


def test_a_certificate_for_the_nodes_name_is_good_at_its_address(
    tmp_path: Path, self_signed: tuple[Path, Path]
) -> None:
    with _tls_kubelet(self_signed, "right") as port:
        made = _direct(tmp_path, kubelet_port=port, kubelet_ca_file=str(self_signed[0]))
        assert made.config().cpu_manager_policy == "static"
        named = _direct(tmp_path, kubelet_port=port, kubelet_ca_file=str(self_signed[0]), kubelet_address="127.0.0.1")
        assert named.config().cpu_manager_policy == "static"


def test_a_certificate_of_another_node_is_refused(tmp_path: Path, self_signed: tuple[Path, Path]) -> None:
    with (
        _tls_kubelet(self_signed, "right") as port,
        pytest.raises(ApiUnreachable, match="certificate is not valid for"),
    ):
        _direct(tmp_path, node_name="n2", kubelet_port=port, kubelet_ca_file=str(self_signed[0])).config()


def test_outside_a_pod_the_credentials_of_the_kubeconfig_are_kubelets_too(
    tmp_path: Path, self_signed: tuple[Path, Path]
) -> None:
    path = kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:1", token="right")
    api = access.connect(str(path), None, user_agent="test/1")
    with _tls_kubelet(self_signed, "right") as port:
        chosen = ClusterSettings(kubelet_port=port, kubelet_ca_file=str(self_signed[0]))
        made = kubelet_http.connect(chosen, "127.0.0.1", node_name="n1", api=api, user_agent="test")
        assert made is not None and made.config().cpu_manager_policy == "static"


def test_a_wrong_token_is_kubelet_s_own_refusal(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    with _tls_kubelet(certificate, "other") as port, pytest.raises(ApiError, match="Unauthorized") as caught:
        _direct(tmp_path, kubelet_port=port, kubelet_ca_file=str(certificate[0])).config()
    assert caught.value.status == 401


@pytest.mark.parametrize(("content", "words"), [("", "empty"), (None, "No such file")])
def test_a_token_that_cannot_be_read_is_said_so(tmp_path: Path, content: str | None, words: str) -> None:
    made = _direct(tmp_path, kubelet_port=1)
    if content is None:
        (tmp_path / "token").unlink()
    else:
        (tmp_path / "token").write_text(content)
    with pytest.raises(ApiUnreachable, match=words):
        made.config()


def test_through_the_api_server_the_path_is_that_of_its_proxy(serve: Any) -> None:
    server, api = serve(_answer)
    settings = ClusterSettings(kubelet="proxy")
    made = kubelet_http.connect(settings, "", node_name="n1", api=api, user_agent="test")
    assert made is not None
    made.config()
    assert server.requests[0].path == "/api/v1/nodes/n1/proxy/configz"


def test_the_read_only_port_is_asked_for_pods_only_when_it_is_allowed(serve: Any, tmp_path: Path) -> None:
    server, _ = serve(_answer)
    port = int(server.url.rpartition(":")[2])
    with pytest.raises(ApiUnreachable):
        _direct(tmp_path, kubelet_port=1).pods()
    assert len(_direct(tmp_path, kubelet_port=1, kubelet_read_only_port=port).pods()) == 1
    assert "authorization" not in server.requests[0].headers


@pytest.mark.parametrize(("kubelet", "address"), [("off", "127.0.0.1"), ("direct", "")])
def test_kubelet_is_not_asked_when_it_is_off_or_its_address_is_unknown(
    tmp_path: Path, kubelet: Any, address: str
) -> None:
    api = client(tmp_path / "k", "http://127.0.0.1:1")
    settings = ClusterSettings(kubelet=kubelet)
    assert kubelet_http.connect(settings, address, node_name="n1", api=api, user_agent="test") is None


class OneFile(NoFiles):
    """A machine with kubelet's checkpoint."""

    content: bytes | None = None
    devices: bytes | None = None
    memory: bytes | None = None

    def read(self, path: str) -> bytes:
        files = {
            "cpu_manager_state": self.content,
            "device-plugins/kubelet_internal_checkpoint": self.devices,
            "memory_manager_state": self.memory,
        }
        found = files[path.removeprefix("/var/lib/kubelet/")]
        return super().read(path) if found is None else found


def _state(http: Callable[[], KubeletHttp | None], *, files: Any = None, with_pods: bool = False) -> Any:
    clock = HandClock(0.0)
    made = KubeletState(
        http,
        files=files or NoFiles(),
        folder="/var/lib/kubelet",
        topology=TOPOLOGY,
        with_pods=with_pods,
        monotonic=clock,
    )
    return made, clock


STATE = b'{"policyName":"static","defaultCpuSet":"0","entries":{"u":{"main":"1"}},"checksum":1}'


def test_policies_and_exclusive_cpus_make_one_picture(serve: Any) -> None:
    _, api = serve(_answer)
    files = OneFile()
    files.content = STATE
    made, _ = _state(lambda: KubeletHttp(api), files=files)
    made.round()
    kubelet = made.view().kubelet
    assert (kubelet.cpu_manager_policy, kubelet.reserved_cpus) == ("static", CPUSet((0,)))
    assert kubelet.pod_cpus[0].cpus == CPUSet((1,))


MEMORY = b"""{"policyName": "Static", "entries": {"u": {"main": [
    {"numaAffinity": [1], "type": "memory", "size": 1024}, {"numaAffinity": [0, 1], "type": "hugepages-2Mi", "size": 4}
]}}}"""


def test_memory_that_kubelet_promised_is_in_the_picture_with_its_nodes() -> None:
    files = OneFile()
    files.memory = MEMORY
    made, _ = _state(lambda: None, files=files)
    made.round()
    assert made.view().kubelet.memory_nodes == {("u", "main"): (0, 1)}
    files.memory = MEMORY[:40]
    made.round()
    view = made.view()
    assert view.kubelet.memory_nodes == {("u", "main"): (0, 1)}, "what was read before holds"
    assert [problem.field for problem in view.problems] == ["memory_manager_state"]


def test_without_an_answer_the_checkpoint_says_the_policy() -> None:
    files = OneFile()
    files.content = STATE
    made, _ = _state(lambda: None, files=files)
    made.round()
    assert made.view().kubelet.cpu_manager_policy == "static"


def test_a_checkpoint_half_written_does_not_change_what_holds() -> None:
    files = OneFile()
    files.content = STATE
    made, _ = _state(lambda: None, files=files)
    made.round()
    files.content = STATE[:40]
    made.round()
    view = made.view()
    assert view.kubelet.pod_cpus[0].cpus == CPUSet((1,))
    assert view.problems
    files.content = STATE
    made.round()
    assert made.view().problems == ()


def test_devices_of_containers_have_their_numa_node_or_none() -> None:
    files = OneFile()
    entry = {"PodUID": "u", "ContainerName": "m", "ResourceName": "r", "DeviceIDs": {"1": ["a"], "-1": ["b"]}}
    files.devices = json.dumps({"Data": {"PodDeviceEntries": [entry]}}).encode()
    made, _ = _state(lambda: None, files=files)
    made.round()
    view = made.view()
    assert view.kubelet.devices == {("u", "m"): (Device(id="a", numa=1), Device(id="b", numa=-1))}
    assert view.problems == ()


def test_pods_are_asked_for_every_other_second_and_have_an_age(serve: Any) -> None:
    server, api = serve(_answer)
    made, clock = _state(lambda: KubeletHttp(api), with_pods=True)
    assert made.view().pods is None, "nothing was told yet"
    for clock.now in (0.0, 1.0, 2.0, 3.0, 4.0):
        made.round()
    assert [request.path for request in server.requests].count("/pods") == 3
    assert [request.path for request in server.requests].count("/configz") == 1
    clock.now = 5.5
    view = made.view()
    assert [pod.metadata.name for pod in view.pods] == ["a"]
    assert {state.name: state.age_seconds for state in view.states} == {"kubelet": 5.5, "kubelet pods": 1.5}


def test_a_refusing_kubelet_is_asked_ever_more_slowly_and_its_last_pods_stay(serve: Any) -> None:
    refuse = False
    server, api = serve(lambda request: Reply(403, b"Forbidden (user=x)") if refuse else _answer(request))
    made, clock = _state(lambda: KubeletHttp(api), with_pods=True)
    made.round()
    refuse, asked = True, len(server.requests)
    for second in range(1, 121):
        clock.now = float(second)
        made.round()
    assert len(server.requests) - asked < 20
    view = made.view()
    assert [pod.metadata.name for pod in view.pods] == ["a"]
    assert any("nodes/proxy" in str(problem) for problem in view.problems)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        pytest.param(401, "cluster.kubeletTokenFile", id="it does not know the token"),
        pytest.param(403, "nodes/proxy", id="it knows it, and says no"),
        pytest.param(0, "cluster.kubeletCaFile", id="it does not answer, or is not to be trusted"),
    ],
)
def test_who_does_not_get_at_kubelet_is_told_what_to_look_at(
    serve: Any, tmp_path: Path, status: int, words: str
) -> None:
    if status:
        _, api = serve(lambda request: Reply(status, b"Unauthorized"))
    else:
        api = client(tmp_path / "kubeconfig", "http://127.0.0.1:1")
    made, _ = _state(lambda: KubeletHttp(api))
    made.round()
    (problem,) = made.view().problems
    assert words in problem.do


def test_null_items_are_no_pods(serve: Any) -> None:
    _, api = serve(lambda request: Reply(body={"kind": "PodList", "items": None}))
    assert KubeletHttp(api).pods() == []


@needs_captures
@pytest.mark.parametrize("policy", ["static", "none"])
def test_a_real_kubelet_s_answers_are_read(serve: Any, policy: str) -> None:
    folder = Path(CAPTURES) / policy

    def answer(request: Request) -> Reply:
        name = request.path.strip("/")
        captured = json.loads((folder / f"{name}.json").read_bytes())
        return Reply(body=captured)

    _, api = serve(answer)
    files = OneFile()
    files.content = (folder / "var_lib_kubelet/cpu_manager_state").read_bytes()
    made, _ = _state(lambda: KubeletHttp(api), files=files, with_pods=True)
    made.round()
    view = made.view()
    assert view.problems == ()
    assert view.kubelet.cpu_manager_policy == policy
    assert {pod.metadata.name for pod in view.pods} >= {"gu-lsr", "be-batch", "crash", "done"}
    assert bool(view.kubelet.pod_cpus) is (policy == "static")


def test_a_checkpoint_of_another_policy_counts_at_once_and_kubelet_is_asked_again(serve: Any) -> None:
    """kubelet restarts with the static policy, and does not answer for the first seconds."""
    policy, down = "none", False

    def answer(_request: Request) -> Reply:
        return Reply(500, b"starting") if down else Reply(200, configz(policy))

    def configz(name: str) -> bytes:
        more = {"reservedSystemCPUs": "0"} if name == "static" else {}
        return json.dumps({"kubeletconfig": {"cpuManagerPolicy": name, **more}}).encode()

    _, api = serve(answer)
    files = OneFile()
    files.content = STATE.replace(b"static", b"none").replace(b'{"u":{"main":"1"}}', b"{}")
    made, clock = _state(lambda: KubeletHttp(api), files=files)
    made.round()
    assert made.view().kubelet.cpu_manager_policy == "none"
    clock.now, down, files.content = 5.0, True, STATE
    made.round()
    kubelet = made.view().kubelet
    assert (kubelet.cpu_manager_policy, kubelet.pod_cpus[0].cpus) == ("static", CPUSet((1,)))
    policy, down, clock.now = "static", False, 9.0
    made.round()
    assert made.view().kubelet.reserved_cpus == CPUSet((0,)), "its configuration is known four seconds later"
    policy, clock.now = "none", 70.0
    made.round()
    assert made.view().kubelet.cpu_manager_policy == "none", "what it answers later counts"
