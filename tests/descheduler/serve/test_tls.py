"""The descheduler's metrics over TLS, to a token that is bound to its audience, as Prometheus asks for them."""

from __future__ import annotations

import contextlib
import http.client
import logging
import pathlib
import socket
import ssl
from collections.abc import Iterator

import pytest
from apiserver import ApiServer
from apiserver.users import ADMIN, MASTERS, User
from self_signed import certificate

from descheduler import cli
from descheduler.cli import service
from descheduler.policy.watched_file import PolicyFile
from koordlite.kube.client import access
from koordlite.model.errors import InputError

TOKENS = {
    "descheduler": ADMIN,
    "wide": User("prometheus", (MASTERS,)),
    "bound": User("prometheus", (MASTERS,), audiences=("koordlite",)),
}
NAME = "descheduler.koordlite-system.svc"
"""What the certificate is for: Prometheus asks at the address of the pod, for this name."""


@contextlib.contextmanager
def served(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture, *options: str) -> Iterator[int]:
    """The port of a descheduler with these options, which asks an API server about tokens."""
    args = cli.parser().parse_args(["run", "--listen", "0.0.0.0:0", "--token-audience", "koordlite", *options])
    with ApiServer(tokens=TOKENS) as server, caplog.at_level(logging.INFO):
        (tmp_path / "kubeconfig").write_text(server.kubeconfig("descheduler"))
        api = access.connect(str(tmp_path / "kubeconfig"), None, user_agent="test")
        with service._served(args, service._addresses(args, PolicyFile(None)), 60.0, api):
            yield int(next(text for text in caplog.messages if "listening on" in text).rpartition(":")[2])


class Scrape(http.client.HTTPSConnection):
    """Connects to this machine, and verifies the certificate for `NAME`, as `serverName` of a ServiceMonitor does."""

    def connect(self) -> None:
        made = socket.create_connection(("127.0.0.1", self.port), timeout=5)
        self.sock = self._context.wrap_socket(made, server_hostname=self.host)  # type: ignore[attr-defined]


def scrape(port: int, trusted: str, token: str, name: str = NAME) -> tuple[int, str]:
    with contextlib.closing(Scrape(name, port, context=ssl.create_default_context(cafile=trusted))) as connection:
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"} if token else {})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def test_prometheus_reads_over_tls_with_a_bound_token(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    cert, key = certificate(tmp_path, "ours", f"DNS:{NAME}")
    other, _ = certificate(tmp_path, "other", f"DNS:{NAME}")
    with served(tmp_path, caplog, "--tls-cert-file", cert, "--tls-private-key-file", key) as port:
        status, text = scrape(port, cert, "bound")
        assert (status, "descheduler_build_info" in text) == (200, True)
        assert {scrape(port, cert, token)[0] for token in ("wide", "", "made up")} == {401}
        for trusted, name in ((other, NAME), (cert, "descheduler.elsewhere.svc")):
            with pytest.raises(ssl.SSLCertVerificationError):
                scrape(port, trusted, "bound", name)
        with socket.create_connection(("127.0.0.1", port), timeout=5) as plain:
            plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answered = b""
            with contextlib.suppress(ConnectionResetError):
                answered = plain.recv(100)
            assert answered == b"", "plain HTTP is not answered"
    assert not [text for text in caplog.messages if "in the clear" in text]


def test_tokens_in_the_clear_are_worth_a_warning(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    with served(tmp_path, caplog):
        assert [text for text in caplog.messages if "in the clear" in text and "--tls-cert-file" in text]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param(["--tls-cert-file", "/absent.crt"], "--tls-cert-file.*No such file", id="no file"),
        pytest.param(["--tls-private-key-file", "/a.key"], "--tls-private-key-file.*no certificate", id="key alone"),
    ],
)
def test_a_certificate_that_cannot_be_used_is_a_clear_error(options: list[str], words: str) -> None:
    args = cli.parser().parse_args(["run", "--listen", "127.0.0.1:0", *options])
    with (
        pytest.raises(InputError, match=words),
        service._served(args, service._addresses(args, PolicyFile(None)), 60.0, None),
    ):
        pytest.fail("it listens all the same")
