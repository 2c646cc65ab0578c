"""`koordlite capture`: one picture with the files it came from."""

from __future__ import annotations

import argparse
import contextlib
import pathlib

import msgspec

from koordlite import config
from koordlite.agent import Agent
from koordlite.cli import machine as machines
from koordlite.cli import recording
from koordlite.host import bundle
from koordlite.model import printable
from koordlite.model.errors import InputError, KoordliteError, Problem
from koordlite.record import capture as captures
from koordlite.record import store
from koordlite.record.mask import Mask, Names
from koordlite.record.round_record import RoundRecord
from koordlite.replay import verify


def capture(args: argparse.Namespace) -> int:
    """Observe twice, a second apart, and keep what was seen. Nothing on the machine is changed."""
    folder = pathlib.Path(args.output)
    if folder.exists():
        raise InputError(Problem("command line", "--output", args.output, "it exists", "name a folder to be made"))
    settings = config.with_modes(machines.settings(args), "observe")
    machine = machines.machine(args, settings)
    with contextlib.closing(machine):
        machines.need_node(args, machine.cluster)
        watching = captures.Watching(machine.host.files)
        host = bundle.bind(watching, machine.host.clock, kubepods=settings.agent.kubepods)
        host = msgspec.structs.replace(host, cookies=machine.host.cookies)
        agent = Agent(host, machine.cluster, settings)
        tick, moment = machines.two_ticks(agent, host), agent.last_round
        if moment is None:
            raise KoordliteError(tick.because)
        mask = _mask(moment) if args.mask else None
        captures.write(folder, watching, machine.cluster.view(), mask.value if mask else None)
        path = folder / captures.MOMENT
        head = recording.head(machine, settings)
        if mask:
            store.masked(path, head, lambda: [moment], decide=verify.decided_again())
        else:
            store.write(path, head, [moment])
    print(printable.lines(f"{folder}: {len(watching.items)} files, one moment{', masked' if mask else ''}"))
    return 0


def _mask(moment: RoundRecord) -> Mask:
    names = Names()
    names.take_in(moment.snapshot)
    return Mask(names)
