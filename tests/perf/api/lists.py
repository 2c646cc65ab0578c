"""One cycle of the descheduler over HTTP, from a server that has its lists ready, so that the server's own time counts
for little; objects carry `managedFields` as those of a real server do.

    PYTHONPATH=tests/support python tests/perf/api/lists.py [--nodes 1000] [--varied] [--cycles 3]

Prints CPU seconds, seconds and resident memory of the descheduler's process, and the CPU seconds as a multiple of a
loop that is timed beside it. `--cycles`: the same for each of so many cycles of one process; before each but the first
one pod in a hundred changes, or in `--every`: an annotation, with `--restart` the restarts of a container, which no
finding depends on, or with `--replace` the pod is gone and another one is on another node. With `--evict` what the plan
evicts is gone as well, and a new pod is where the plan expects it. Changes are watched, or with `--lists` everything is
listed each cycle; `between` is what the process used between two cycles.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import multiprocessing
import pathlib
import queue
import sys
import tempfile
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlparse

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "descheduler"), str(HERE.parents[1] / "support")]

import clusters  # noqa: E402
import measure  # noqa: E402
import varied  # noqa: E402

PATHS = {
    "nodes": "/api/v1/nodes",
    "pods": "/api/v1/pods",
    "namespaces": "/api/v1/namespaces",
    "budgets": "/apis/policy/v1/poddisruptionbudgets",
}
CHANGE = "/change"
"""Asked for when one pod in a hundred is to change."""
BOOKMARK = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}'
"""A real server sends one about each minute; kinds of which a watch hears nothing for longer are listed again."""
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


def changed(
    pods: list[Any], every: int, turn: int, moves: dict[str, str] | None, *, restart: bool
) -> Iterator[tuple[str, Any]]:
    """Change pods of a page, and tell which. `moves`: nodes by uid of pods that are gone; None: none is ever gone."""
    for number, pod in enumerate(pods):
        uid, turned = pod["metadata"]["uid"], number % every == turn % every
        if moves is not None and (turned or uid in moves):
            yield "DELETED", pod
            elsewhere = pods[(number + 37) % len(pods)]["spec"]["nodeName"]
            pods[number] = successor(pod, moves.get(uid) or elsewhere, turn)
            yield "ADDED", pods[number]
        elif turned:
            pod["metadata"] |= {"resourceVersion": str(100 + turn), "annotations": {"turn": str(turn)}}
            for state in pod["status"].get("containerStatuses", ())[: int(restart)]:
                state["restartCount"] += 1
            yield "MODIFIED", pod


def successor(pod: Any, node: str, turn: int) -> Any:
    """The pod that an owner starts for another one."""
    after = json.loads(json.dumps(pod))
    name = f"{pod['metadata']['name'].partition('--')[0]}--{turn}"
    after["metadata"] |= {"name": name, "uid": f"{pod['metadata']['uid'].partition('--')[0]}--{turn}"}
    after["metadata"] |= {"resourceVersion": str(100 + turn), "creationTimestamp": clusters.NOW}
    after["spec"]["nodeName"] = node
    after["status"] |= {"phase": "Running", "startTime": clusters.NOW}
    for state in after["status"].get("containerStatuses") or ():
        state["restartCount"] = 0
    return after


def serve(folder: pathlib.Path, port: Any, moves: Any, restart: bool) -> None:
    """Answer lists until the process ends. `moves`: a queue of what `changed` is to do."""
    ready, turns = pages(folder), itertools.count(1)
    watchers: list[tuple[str, queue.Queue[bytes]]] = []

    def change(every: int) -> None:
        turn, events, gone = next(turns), list[bytes](), moves.get()
        for about in [about for about in ready if about[0] == PATHS["pods"]]:
            page = json.loads(ready[about])
            page["metadata"]["resourceVersion"] = str(100 + turn)
            for kind, pod in changed(page["items"], every, turn, gone, restart=restart):
                event = {"type": kind, "object": {"kind": "Pod", "apiVersion": "v1", **pod}}
                event["object"]["metadata"] = {**pod["metadata"], "resourceVersion": str(100 + turn)}
                events.append(json.dumps(event, separators=(",", ":")).encode())
            ready[about] = json.dumps(page, separators=(",", ":")).encode()
        for path, waiting in watchers:
            for event in events if path == PATHS["pods"] else (BOOKMARK,):
                waiting.put(event)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked = urlparse(self.path)
            query = parse_qs(asked.query)
            if asked.path == CHANGE:
                change(int(query["every"][0]))
            if "sendInitialEvents" in query:  # As a server without WatchList.
                self.send_response(422)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            if "watch" in query:
                self.watch(asked.path)
                return
            token = query.get("continue", [""])[0]
            empty = b'{"kind":"List","metadata":{"resourceVersion":"7"},"items":[]}'
            body = ready.get((asked.path, token), empty)
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def watch(self, path: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            waiting: queue.Queue[bytes] = queue.Queue()
            watchers.append((path, waiting))
            with contextlib.suppress(OSError):
                while True:
                    line = waiting.get() + b"\n"
                    self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")

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


def again(config: str, args: argparse.Namespace, moves: Any) -> None:
    """Cycle after cycle in this process, five seconds between two of them."""
    from descheduler.cli import parser, source
    from descheduler.cycle import planner
    from descheduler.policy import reader

    document = reader.load(str(measure.POLICY))
    setup = reader.setup(document)
    options = parser().parse_args(["plan", "--kubeconfig", config, "--now", clusters.NOW])
    pictures, plan = source.PictureSource(options, repeated=True, watch=not args.lists), None
    print("cycle     between cpu    read cpu  decide cpu   loops   evict   MiB now  MiB most")
    done = time.process_time()
    for number in range(args.cycles):
        ended = done
        if number:
            assert pictures.api is not None
            evicted = {outcome.pod.uid: outcome.target for outcome in (plan.evict if plan and args.evict else ())}
            moves.put(evicted if args.replace or args.evict else None)
            pictures.api.request("GET", CHANGE, query=(("every", str(args.every)),), timeout=(3.0, 120.0))
            time.sleep(5.0)
        began = time.process_time()
        with source.no_collection():
            view = pictures.view(document, setup)
            read = time.process_time()
            plan = planner.plan(view, setup)
        done = time.process_time()
        loops = (done - ended) / measure.reference()
        spent = [f"{seconds:12.3f}" for seconds in (began - ended, read - began, done - read)]
        sizes = [f"{measure.mib(name):10.0f}" for name in ("VmRSS", "VmHWM")]
        print(f"{number:<9}{''.join(spent)}{loops:8.2f}{len(plan.evict):8}{''.join(sizes)}", flush=True)
        del view
        done = time.process_time()


def main() -> None:
    """Make the cluster, serve it, and run one cycle in a process of its own."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--varied", action="store_true", help="the cluster of varied.py")
    parser.add_argument("--cycles", type=int, default=0, help="so many, in one process")
    parser.add_argument("--lists", action="store_true", help="list everything each cycle, watch nothing")
    parser.add_argument("--replace", action="store_true", help="pods do not change: others come for them")
    parser.add_argument("--restart", action="store_true", help="a container of the pods that change was restarted")
    parser.add_argument("--evict", action="store_true", help="what the plan evicts is gone; --replace as well")
    parser.add_argument("--every", type=int, default=100, help="one pod in so many changes between two cycles")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="descheduler-lists-") as name:
        folder = pathlib.Path(name)
        (varied if args.varied else clusters).write(folder, args.nodes)
        port: Any = multiprocessing.Queue()
        moves: Any = multiprocessing.Queue()
        server = multiprocessing.Process(target=serve, args=(folder, port, moves, args.restart), daemon=True)
        server.start()
        (folder / "kubeconfig").write_text(kubeconfig(port.get()))
        if args.cycles:
            again(str(folder / "kubeconfig"), args, moves)
            server.terminate()
            return
        measure.headings()
        measure.row(
            f"{args.nodes} nodes over HTTP",
            measure.measured(["--kubeconfig", str(folder / "kubeconfig"), "--now", clusters.NOW]),
        )
        server.terminate()


if __name__ == "__main__":
    main()
