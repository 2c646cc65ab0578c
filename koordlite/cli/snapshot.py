"""One snapshot of the machine that options name, for commands that ask: nothing is written."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator

from koordlite import config
from koordlite.agent import Agent
from koordlite.cli import machine as machines
from koordlite.cli.machine import Machine
from koordlite.model.errors import InputError, Problem
from koordlite.report.tick import Tick


def tick(args: argparse.Namespace) -> Tick:
    """Two ticks a second apart, since usage is a rate. InputError when there is no Node object to judge."""
    with taken(args) as (_, tick):
        return tick


@contextlib.contextmanager
def taken(args: argparse.Namespace) -> Iterator[tuple[Machine, Tick]]:
    """Same as `tick`, and the machine while the block lasts."""
    settings = config.with_modes(machines.settings(args), "observe")
    machine = machines.machine(args, settings)
    with contextlib.closing(machine):
        agent = Agent(machine.host, machine.cluster, settings)
        agent.tick()
        machine.host.clock.wait(1.0)
        tick = agent.tick()
        if not tick.node:
            raise InputError(tick.problems or _no_node(args))
        yield machine, tick


def _no_node(args: argparse.Namespace) -> Problem:
    return Problem(str(args.cluster), "Node", "", "there is no Node object", "write its manifest, or name it by --node")
