"""Parts of every server of the scheduler's side: its address, its log, who may ask, and health for probes."""

from __future__ import annotations

import argparse
import contextlib
import logging
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from koordlite.model.errors import InputError, Problem

if TYPE_CHECKING:
    from koordlite.http.server import Ask
    from koordlite.kube.client.access import Api
    from koordlite.report.log_levels import LogLevels
    from koordlite.scheduler.watches import Watches

LOG = logging.getLogger("koordlite.scheduler")


def settled(watches: Watches, stop: threading.Event) -> None:
    """Wait until everything was listed."""
    from koordlite.scheduler.service import settle_memory

    while not stop.is_set() and watches.age() is None:
        stop.wait(0.05)
    settle_memory()
    LOG.info("ready")


def listen_address(text: str, option: str) -> tuple[str, int]:
    """Address and port in the value of `option`; InputError without either."""
    address, _, port = text.rpartition(":")
    if not address or not port.isdigit():
        do = "write it like 127.0.0.1:9318, or [::1]:9318"
        raise InputError(Problem("command line", option, text, "no address with a port", do))
    return address.strip("[]"), int(port)


@contextlib.contextmanager
def health(args: argparse.Namespace, api: Api, answer: Ask) -> Iterator[None]:
    """A listener of its own for probes, which come from outside the pod, and for Prometheus, where one is asked for."""
    if not args.health_listen:
        yield
        return
    from koordlite.http.guard import Guard, by_cluster
    from koordlite.http.local_token import is_loopback
    from koordlite.http.server import Server

    address, port = listen_address(args.health_listen, "--health-listen")
    guard = Guard(exposed=not is_loopback(address), review=by_cluster(api, args.token_audience))
    server = Server(address, port, answer, guard=guard)
    with server.serving(LOG, "health on %s"):
        yield


def start_log(
    args: argparse.Namespace, *, flows: tuple[str, ...] = ("filter", "prioritize", "preempt", "bind")
) -> LogLevels:
    """Log to standard error as the options say."""
    from koordlite.report import log_format
    from koordlite.report.log_levels import LogLevels

    levels = LogLevels(now=time.monotonic, default=args.log_level, flows=flows)
    log_format.start(args.log_format, logging.INFO, levels)
    return levels
