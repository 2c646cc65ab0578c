"""`koordlite log-level`: show or change which decisions a running agent logs."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from koordlite.cli import asking
from koordlite.model import printable
from koordlite.model.defaults import LONGEST_LOG_SECONDS, STATE_DIR
from koordlite.model.errors import InputError, KoordliteError, Problem


def log_level(args: argparse.Namespace) -> int:
    """Print the levels in force, after the change if one is asked for."""
    if args.seconds is not None and not 0 < args.seconds <= LONGEST_LOG_SECONDS:
        do = f"write a number more than 0 and at most {LONGEST_LOG_SECONDS}"
        raise InputError(Problem("command line", "--for", str(args.seconds), "out of range", do))
    url = f"{(args.url or asking.default_url()).rstrip('/')}/loglevel"
    emulated = None if args.state_dir else asking.emulated_node(args.url or "")
    folder = args.state_dir or (emulated.state if emulated else STATE_DIR)
    if args.level is None:
        found = asking.get(url, folder)
    else:
        about = asking.folders(args.url or "")
        whose = f"{about.machine}{f'; node {about.node}' if about.node else ''}; " if about else ""
        print(printable.lines(f"{whose}agent at {url.removesuffix('/loglevel')}"), file=sys.stderr)
        request = {"level": args.level, "strategy": args.strategy, "pod": args.pod, "forSeconds": args.seconds}
        found = asking.put(url, request, folder)
    shown = _shown(found, url)
    print(printable.in_json(found) if args.output == "json" else printable.lines("\n".join(shown)))
    return 0


def _shown(found: str, url: str) -> list[str]:
    try:
        return _lines(json.loads(found))
    except (ValueError, KeyError, TypeError) as error:
        raise KoordliteError(f"what answers at {url} is no agent of this version: {error}") from error


def _lines(levels: dict[str, Any]) -> list[str]:
    rows = {"everything else": levels["default"]}
    rows |= {f"strategy {name}": held for name, held in levels["strategies"].items()}
    rows |= {f"pod {name}": held for name, held in levels["pods"].items()}
    return [f"{name}: {held['level']}{_rest(held)}" for name, held in rows.items()]


def _rest(held: dict[str, Any]) -> str:
    return f" for {held['forSeconds']:.0f} s more" if "forSeconds" in held else ""
