"""What the tests against a real server need of their own set-up, where there is none."""

from __future__ import annotations

import http.server
import json
import pathlib
import ssl
import threading
from typing import Any

from koordlite.kube.client import access


class _Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """Ready."""
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


def test_a_client_verifies_the_certificate_of_the_real_server_without_a_warning(
    certified: Any, tmp_path: pathlib.Path
) -> None:
    certificate, key, document = certified
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with http.server.HTTPServer(("127.0.0.1", 0), _Ready) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        path = tmp_path / "kubeconfig"
        path.write_text(json.dumps(document(server.server_port)))
        assert access.connect(str(path), None, user_agent="e2e").request("GET", "/readyz").body == b"ok"
        server.shutdown()
        thread.join()
