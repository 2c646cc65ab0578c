"""`check-config`, `check-node`, `default-config`, `completion`: read, report, change nothing."""

from __future__ import annotations

import argparse
import pathlib
from collections.abc import Callable, Iterable

from koordlite import cli, commandline, config
from koordlite.cli import machine as machines
from koordlite.cli import profile
from koordlite.cli.node_check import findings
from koordlite.clock import RealClock
from koordlite.config import Settings
from koordlite.kube.folder.manifests import ManifestCluster
from koordlite.model import keys, printable
from koordlite.model.errors import ConfigError, InputError, Problem
from koordlite.model.slo import config as slo_config


def check_config(args: argparse.Namespace) -> int:
    """Print every mistake. 0 when there is none, 1 otherwise."""
    problems: list[Problem] = []
    warnings: list[str] = []
    if not args.file and not args.cluster:
        raise ConfigError(
            Problem("command line", "FILE", "", "nothing to check", "name koordlite.yaml or --cluster DIR")
        )
    off = config.off(config.default())
    if args.file:
        problems_of_file, warnings, off = _settings_problems(pathlib.Path(args.file))
        problems += problems_of_file
    profiles: list[str] = []
    if args.cluster:
        problems += _cluster_problems(pathlib.Path(args.cluster), args.node, off)
        profiles, wrong = profile.takers(pathlib.Path(args.cluster))
        problems += wrong
    warnings += _refused_pods(pathlib.Path(args.cluster), args.node) if args.cluster else ()
    count = "1 problem" if len(problems) == 1 else f"{len(problems) or 'no'} problems"
    commandline.print_answer(
        args.output,
        "koordlite-check-config",
        {"problems": problems, "warnings": warnings, "profiles": profiles},
        (*map(str, problems), *(f"warning: {warning}" for warning in warnings), *profiles, count),
    )
    return 1 if problems else 0


def check_node(args: argparse.Namespace) -> int:
    """Print what the machine offers. 1 when the agent could not work here."""
    settings = machines.settings(args)
    answers = list(findings(args, settings))
    width, lines = max(len(finding.what) for finding in answers), list[str]()
    for finding in answers:
        lines.append(f"{finding.answer:<4} {finding.what:<{width}}  {finding.detail}")
        lines += [f"{'':<5}{'':<{width}}  → {finding.do}"] if finding.do else []
    commandline.print_answer(args.output, "koordlite-check-node", {"findings": answers}, lines)
    return 1 if any(finding.answer == "NO" for finding in answers) else 0


def default_config(args: argparse.Namespace) -> int:
    """Print koordlite.yaml with every default."""
    print(printable.lines(config.print_default()), end="")
    return 0


def completion(args: argparse.Namespace) -> int:
    """Print the script for a shell."""
    print(printable.lines(commandline.completion(cli.parser(), args.shell)))
    return 0


def _settings_problems(path: pathlib.Path) -> tuple[Iterable[Problem], list[str], frozenset[str]]:
    """The mistakes of the file, what is allowed and has not the effect it seems to have, and the strategies that are
    off."""
    try:
        settings = config.load(path)
    except InputError as error:
        return error.problems, [], config.off(config.default())
    return (), [f"{path}: {warning}" for warning in _without_effect(settings)], config.off(settings)


def _without_effect(settings: Settings) -> Iterable[str]:
    if settings.publish.node_resources == "agent":
        return
    for name in config.yielded_to_manager(settings):
        yield f"strategies.{name}.mode = 'enforce': it observes, since publish.nodeResources is manager"
    if settings.publish.node_metric == "off":
        yield (
            "publish.nodeResources = 'manager': Koordinator's manager takes batch resources back degradeTimeMinutes"
            " after the last NodeMetric; set publish.nodeMetric to on"
        )


def _cluster_problems(folder: pathlib.Path, name: str | None, off: frozenset[str]) -> Iterable[Problem]:
    """Problems of the files, of the ConfigMap, and of every annotation the agent reads."""
    from koordlite.model import node
    from koordlite.model.picture import node_notes
    from koordlite.model.pod import pod_reader

    view = ManifestCluster(folder, node_name=name, clock=RealClock()).view()
    yield from view.problems
    this_node = node.from_wire(view.node) if view.node else None
    if this_node:
        yield from this_node.problems
        notes, owner = this_node.annotations, f"node/{this_node.name}"
        yield from _reservation_problems(notes.get(keys.RESERVATION, ""), owner)
        yield from _refused(lambda: node.parse_system_qos(notes.get(keys.SYSTEM_QOS), owner))
        unread: list[Problem] = []
        node_notes.parse(notes, owner, last=node_notes.NodeNotes(), problems=unread)
        yield from unread
    labels, notes = (this_node.labels, this_node.annotations) if this_node else ({}, {})
    owner = f"node/{this_node.name}" if this_node else "node"
    slo = slo_config.effective(view.config, labels=labels, annotations=notes, node_owner=owner)
    yield from (*slo.problems, *slo_config.unused_problems(slo, node_owner=owner, off=off))
    for obj in view.pods:
        yield from pod_reader.from_wire(obj).problems


def _reservation_problems(text: str, owner: str) -> Iterable[Problem]:
    """Reason why the reservation cannot be read, else each name in it that means nothing."""
    from koordlite.model import node

    try:
        written = node.parse_reservation(text, owner)
    except InputError as error:
        return error.problems
    ignored = written.ignored if written else ()
    return [Problem(owner, keys.RESERVATION, text, why, "correct the annotation") for why in ignored]


def _refused_pods(folder: pathlib.Path, name: str | None) -> Iterable[str]:
    """Pods that run here but that Koordinator's webhook would refuse in a cluster."""
    from koordlite.formulas.admission import admission
    from koordlite.model.pod import pod_reader

    for obj in ManifestCluster(folder, node_name=name, clock=RealClock()).view().pods:
        pod = pod_reader.from_wire(obj)
        for refusal in admission.refusals(pod):
            yield f"pod/{pod.key}: Koordinator's webhook refuses it: {refusal}"


def _refused(read: Callable[[], object]) -> Iterable[Problem]:
    try:
        read()
    except InputError as error:
        return error.problems
    return ()
