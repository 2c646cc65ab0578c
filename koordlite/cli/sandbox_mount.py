"""`koordlite sandbox mount DIR`: an emulated resctrl for other programs."""

from __future__ import annotations

import argparse
import os
import pathlib

from koordlite.model.errors import InputError, Problem
from koordlite.sandbox import fuse_mount
from koordlite.sandbox.machine import shapes


def mount(args: argparse.Namespace) -> int:
    """Serve it until Ctrl-C or SIGTERM; 0 when it was unmounted."""
    folder = pathlib.Path(args.folder)
    if not folder.is_dir() or any(folder.iterdir()):
        do = "name one that is there, for example after mkdir"
        raise InputError(Problem("command line", "DIR", str(folder), "no empty folder", do))
    if args.machine not in shapes.shapes():
        do = f"write one of: {', '.join(shapes.shapes())}"
        raise InputError(Problem("command line", "--machine", args.machine, "no such machine", do))

    def tell() -> None:
        print(f"{args.machine} is mounted on {folder}; Ctrl-C or SIGTERM to {os.getpid()} ends it", flush=True)

    fuse_mount.serve(shapes.machine(args.machine), str(folder), options=args.options, mounted=tell)
    return 0
