"""`koordlite sandbox apiserver`: a small Kubernetes API server for tours, tests and other programs."""

from __future__ import annotations

import argparse
import os
import pathlib
import signal
import threading

from koordlite.model.errors import InputError, Problem
from koordlite.sandbox.apiserver import ApiServer

_PRIVATE = 0o600


def apiserver(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C or SIGTERM; 0 then."""
    server = ApiServer(host=args.host, port=args.port, controllers=not args.no_controllers)
    for name in args.objects:
        server.objects.load_folder(_folder(name))
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        server.start()
    except OSError as error:
        do = "choose another port, 0 for any free one"
        where = f"{args.host}:{args.port}"
        raise InputError(Problem("command line", "--port", where, str(error.strerror or error), do)) from error
    try:
        _tell(server, args.kubeconfig_out)
        stop.wait()
    finally:
        server.stop()
    return 0


def _folder(name: str) -> pathlib.Path:
    folder = pathlib.Path(name)
    if not folder.is_dir():
        raise InputError(Problem("command line", "--objects", name, "no folder", "name a folder of manifests"))
    return folder


def _tell(server: ApiServer, kubeconfig: str | None) -> None:
    print(f"serving on {server.url}; Ctrl-C or SIGTERM to {os.getpid()} ends it", flush=True)
    if kubeconfig:
        path = pathlib.Path(kubeconfig)
        path.touch(mode=_PRIVATE)
        path.write_text(server.kubeconfig())
        print(f"kubectl --kubeconfig {path} get nodes", flush=True)
