"""`koordlite status` and `koordlite explain`: ask a running agent, or take one look at the machine that is named."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import urllib.error
import urllib.parse
import urllib.request

from koordlite import config
from koordlite.agent import Agent
from koordlite.cli import machine as machines
from koordlite.model.errors import InputError, KoordliteError, Problem
from koordlite.report import text
from koordlite.report.explain import explain
from koordlite.report.json import encode, state
from koordlite.report.tick import Tick

TIMEOUT_SECONDS = 5.0


def ask(args: argparse.Namespace) -> int:
    """Print the answer. 1 when the agent is degraded."""
    if args.url or not (args.sandbox or args.recorded or args.cluster or args.kubeconfig):
        return _ask_running(args)
    tick = _look(args)
    if not tick.node:
        raise InputError(tick.problems or _no_node(args))
    if args.command == "explain":
        print(_explain(" ".join(args.subject), tick, args.output), end="")
    elif args.output == "json":
        sys.stdout.buffer.write(encode(state(tick)))
    else:
        print(text.status(tick), end="")
    return 1 if tick.status == "degraded" else 0


def _no_node(args: argparse.Namespace) -> Problem:
    return Problem(str(args.cluster), "Node", "", "there is no Node object", "write its manifest, or name it by --node")


def _look(args: argparse.Namespace) -> Tick:
    """Two looks a second apart, since usage is a rate; nothing is written."""
    settings = config.with_modes(machines.settings(args), "observe")
    machine = machines.machine(args, settings)
    with contextlib.closing(machine):
        agent = Agent(machine.host, machine.cluster, settings)
        agent.tick()
        machine.host.clock.wait(1.0)
        return agent.tick()


def _explain(subject: str, tick: Tick, output: str) -> str:
    try:
        return explain(subject, tick, output=output)
    except ValueError as error:
        raise InputError(Problem("command line", "SUBJECT", subject, str(error), "name one of these")) from error


def _ask_running(args: argparse.Namespace) -> int:
    base = (args.url or f"http://127.0.0.1:{config.Http().port}").rstrip("/")
    if args.command == "explain":
        query = urllib.parse.urlencode({"subject": " ".join(args.subject), "output": args.output})
        print(_get(f"{base}/explain?{query}"), end="")
        return 0
    page = _get(f"{base}/state" if args.output == "json" else f"{base}/status")
    print(page, end="")
    found = json.loads(page if args.output == "json" else _get(f"{base}/state"))
    return 1 if found.get("status") == "degraded" else 0


def _get(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        raise KoordliteError(error.read().decode().strip() or str(error)) from error
    except urllib.error.URLError as error:
        do = "start `koordlite run`, give its --url, or name a machine to look at (--cluster, --sandbox)"
        raise KoordliteError(f"no agent answers at {url}: {error.reason}; {do}") from error
