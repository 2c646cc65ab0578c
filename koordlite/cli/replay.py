"""`koordlite replay`: a flight record judged again, with its own settings or with others."""

from __future__ import annotations

import argparse
import pathlib
import sys
from collections.abc import Mapping

import msgspec

from koordlite import commandline, config
from koordlite.cli import asking, recorded
from koordlite.cli import machine as machines
from koordlite.kube.folder import manifest_files
from koordlite.model import printable
from koordlite.model.errors import InputError, Problem
from koordlite.model.reading import declared
from koordlite.model.settings import Mode
from koordlite.model.slo import config as slo_config
from koordlite.model.slo.settings import Threshold
from koordlite.model.wire import objects as wire
from koordlite.record.reader import Record
from koordlite.replay import compare, html, json, text, verify
from koordlite.replay.what_if import Other
from koordlite.report import units
from koordlite.report.json.run_report import encode

_THRESHOLD = "resource-threshold-config"


def replay(args: argparse.Namespace) -> int:
    """Without other settings: 1 when a decision does not come out as recorded. With others: what would differ."""
    other = _other(args)
    record = Record(pathlib.Path(args.record or asking.record_folder(config.FlightRecord().folder)))
    covered = recorded.period(record)
    since, note = recorded.begin(args.since, covered) if args.since else (None, "")
    if args.output == "text":
        period = f"{units.moment(since or covered[0])} to {units.moment(covered[1])}"
        print(printable.lines(f"{record.path}: {period}"))
    if note:
        print(printable.lines(note), file=sys.stdout if args.output == "text" else sys.stderr)
    if other is None:
        with commandline.progress("deciding again"):
            found = verify.check(record.moments(since=since))
        _print(args.output, check=found, record=record)
        return 0 if found.same else 1
    with commandline.progress("deciding with other settings"):
        compared = compare.compare(record.moments(since=since), other)
    _print(args.output, compared=compared, record=record)
    return 0


def _print(
    output: str, *, record: Record, check: verify.Verification | None = None, compared: compare.Comparison | None = None
) -> None:
    """Exactly one of `check` and `compared` is there."""
    title = f"koordlite replay of {record.path.name}"
    if output == "json":
        found = json.check(check, record.problems) if check else None
        sys.stdout.buffer.write(encode(found or json.comparison(_there(compared), record.problems)))
    elif output == "html":
        shown = html.check(check, record.problems, title=title) if check else None
        print(printable.lines(shown or html.comparison(_there(compared), record.problems, title=title)))
    else:
        shown = text.check(check, record.problems) if check else None
        print(printable.lines(shown or text.comparison(_there(compared), record.problems)), end="")


def _there(compared: compare.Comparison | None) -> compare.Comparison:
    assert compared is not None
    return compared


def _other(args: argparse.Namespace) -> Other | None:
    """Changes by the options; None when they change nothing."""
    if not (args.config or args.set or args.mode or args.strategy):
        return None
    data: Mapping[str, str] | None = None
    chosen: config.Settings | None = None
    for path in map(pathlib.Path, args.config):
        read = _config_map(path)
        if read is None:
            chosen = config.load(path)
        else:
            data = read
    return Other(
        settings=chosen.strategies if chosen else None,
        modes=_modes(args),
        config=data,
        threshold=_threshold(args.set),
    )


def _modes(args: argparse.Namespace) -> Mapping[str, Mode]:
    """Modes by `--mode` and `--strategy`, by strategy."""
    chosen = machines.with_modes(config.default(), args)
    named = {text.partition("=")[0] for text in args.strategy}
    return {name: section.mode for name, section in chosen.strategies.items() if args.mode or name in named}


def _config_map(path: pathlib.Path) -> Mapping[str, str] | None:
    """data of the ConfigMap in a manifest; None when the file is something else: a koordlite.yaml."""
    try:
        objects = manifest_files.read(path)
    except InputError:
        return None
    return next((found.data or {} for found in objects if isinstance(found, wire.ConfigMapObject)), None)


def _threshold(given: list[str]) -> dict[str, object]:
    """`cpuSuppressThresholdPercent=70` and the like as fields of `Threshold`, read as the ConfigMap would be."""
    names = {declared.camel(name): name for name in Threshold.__struct_fields__}
    for pair in given:
        if pair.partition("=")[0] not in names:
            do = f"write NAME=VALUE with NAME one of {', '.join(names)}"
            raise InputError(Problem("command line", "--set", pair, "no field of resource-threshold-config", do))
    values = {name: _value(text) for name, _, text in (pair.partition("=") for pair in given)}
    document = msgspec.json.encode({"clusterStrategy": values}).decode()
    read = slo_config.effective({_THRESHOLD: document}, labels={}, annotations={}, owner="command line")
    if read.problems:
        raise InputError(read.problems)
    return {names[name]: getattr(read.threshold, names[name]) for name in values}


def _value(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
