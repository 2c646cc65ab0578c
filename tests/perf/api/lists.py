"""One cycle of the descheduler over HTTP, from a server that has its lists ready, so that the server's own time counts
for little; objects carry `managedFields` as those of a real server do.

    PYTHONPATH=tests/support python tests/perf/api/lists.py [--nodes 1000] [--varied]

Prints CPU seconds, seconds and resident memory of the descheduler's process, and the CPU seconds as a multiple of a
loop that is timed beside it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import pathlib
import sys
import tempfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlparse

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "descheduler"), str(HERE.parents[1] / "support")]
PATHS = {
    "nodes": "/api/v1/nodes",
    "pods": "/api/v1/pods",
    "namespaces": "/api/v1/namespaces",
    "budgets": "/apis/policy/v1/poddisruptionbudgets",
}
LIMIT = 500
MANAGED = [
    {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {f"f:{part}": {f"f:field-{number}": {} for number in range(24)} for part in ("metadata", "spec")},
    }
    for manager in ("kube-controller-manager", "kubelet")
]


def pages(folder: pathlib.Path) -> dict[tuple[str, str], bytes]:
    """Every page by path and token."""
    found = {}
    for name, path in PATHS.items():
        items = json.loads((folder / f"{name}.json").read_text())["items"]
        parts = list(_parts(items))
        for number, part in enumerate(parts):
            meta = {"resourceVersion": "7", **({"continue": str(number + 1)} if number + 1 < len(parts) else {})}
            body = {"kind": "List", "apiVersion": "v1", "metadata": meta, "items": part}
            found[(path, str(number) if number else "")] = json.dumps(body, separators=(",", ":")).encode()
    return found


def _parts(items: list[Any]) -> Iterator[list[Any]]:
    for start in range(0, max(1, len(items)), LIMIT):
        part = items[start : start + LIMIT]
        for item in part:
            item["metadata"]["managedFields"] = MANAGED
        yield part


def serve(folder: pathlib.Path, port: Any) -> None:
    """Answer lists until the process ends."""
    ready = pages(folder)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked = urlparse(self.path)
            token = parse_qs(asked.query).get("continue", [""])[0]
            empty = b'{"kind":"List","metadata":{"resourceVersion":"7"},"items":[]}'
            body = ready.get((asked.path, token), empty)
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    port.put(server.server_address[1])
    server.serve_forever()


def kubeconfig(port: int) -> str:
    """A file that names the server."""
    cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}
    user, context = {"name": "u", "user": {"token": "t"}}, {"name": "x", "context": {"cluster": "c", "user": "u"}}
    parts = {"clusters": [cluster], "users": [user], "contexts": [context], "current-context": "x"}
    return json.dumps({"apiVersion": "v1", "kind": "Config", **parts})


def main() -> None:
    """Make the cluster, serve it, and run one cycle in a process of its own."""
    import clusters
    import measure
    import varied

    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--varied", action="store_true", help="the cluster of varied.py")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="descheduler-lists-") as name:
        folder = pathlib.Path(name)
        (varied if args.varied else clusters).write(folder, args.nodes)
        port: Any = multiprocessing.Queue()
        server = multiprocessing.Process(target=serve, args=(folder, port), daemon=True)
        server.start()
        (folder / "kubeconfig").write_text(kubeconfig(port.get()))
        measure.headings()
        measure.row(
            f"{args.nodes} nodes over HTTP",
            measure.measured(["--kubeconfig", str(folder / "kubeconfig"), "--now", clusters.NOW]),
        )
        server.terminate()


if __name__ == "__main__":
    main()
