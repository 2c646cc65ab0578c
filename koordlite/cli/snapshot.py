"""One snapshot of the machine that options name, for commands that ask: nothing is written."""

from __future__ import annotations

import argparse
import contextlib

from koordlite import config
from koordlite.agent import Agent
from koordlite.cli import machine as machines
from koordlite.model.errors import InputError, Problem
from koordlite.report.tick import Tick


def tick(args: argparse.Namespace) -> Tick:
    """Two ticks a second apart, since usage is a rate. InputError when there is no Node object to judge."""
    settings = config.with_modes(machines.settings(args), "observe")
    machine = machines.machine(args, settings)
    with contextlib.closing(machine):
        agent = Agent(machine.host, machine.cluster, settings)
        agent.tick()
        machine.host.clock.wait(1.0)
        tick = agent.tick()
    if not tick.node:
        raise InputError(tick.problems or _no_node(args))
    return tick


def _no_node(args: argparse.Namespace) -> Problem:
    return Problem(str(args.cluster), "Node", "", "there is no Node object", "write its manifest, or name it by --node")
