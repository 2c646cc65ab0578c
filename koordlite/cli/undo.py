"""`koordlite restore`: put back every value that was found before the first write."""

from __future__ import annotations

import argparse
import pathlib
import sys
import threading
from collections.abc import Iterable, Sequence

from koordlite import commandline
from koordlite.apply import restore, undo_list, unlisted_entries
from koordlite.cli import acting
from koordlite.cli import machine as machines
from koordlite.clock import RealClock
from koordlite.config import Settings
from koordlite.host import bundle, procfs
from koordlite.host.bundle import Host
from koordlite.host.files import RealFiles
from koordlite.host.journal import journal
from koordlite.host.journal.journal import Journal
from koordlite.kube.cluster import KubeCluster
from koordlite.kube.kubelet import configz
from koordlite.model import printable
from koordlite.model.change import Entry
from koordlite.model.errors import ConfigError, InputError, JournalDenied, Problem
from koordlite.model.picture.kubelet import PodCPUs
from koordlite.ports import Cluster
from koordlite.report import paragraph


def undo(args: argparse.Namespace) -> int:
    """Restore, or print the undo list. 1 when something stays to be restored."""
    if args.sandbox or args.recorded:
        why = "an emulated node dies with its run and a recording is never written"
        raise ConfigError(Problem("command line", "--sandbox/--recorded", "", why, "restore works on this machine"))
    settings, files = machines.settings(args), RealFiles()
    boot = procfs.boot_id(files)
    entries: Sequence[Entry] = ()
    damaged: Sequence[Problem] = ()
    denied = None
    try:
        entries = journal.read(settings.agent.state_dir, boot_id=boot)
        damaged = journal.damaged(settings.agent.state_dir)
    except JournalDenied as error:
        denied = error
    target = acting.target(args, pathlib.Path(settings.agent.state_dir), own_values=bool(entries or damaged))
    target.show(args.output)
    if target.is_emulated and target.pid is not None:
        return acting.restore(target, dry_run=args.dry_run, output=args.output)
    if denied:
        raise denied
    if target.is_emulated and not (args.cluster or args.kubeconfig):
        # It has ended: its journal leaves values of its Node to do, if any.
        lines = [f"{target.folder} is the journal of an emulated node: this machine has nothing to restore"]
        if entries:
            lines.append(
                f"{len(entries)} values of its Node are left: name its cluster, with --cluster or --kubeconfig"
            )
        document = {"places": [], "left": len(entries)}
        commandline.print_answer(args.output, "koordlite-restore-list", document, lines)
        return 1 if entries else 0
    for problem in damaged:
        print(printable.lines(f"NOT restored: {problem}"), file=sys.stderr)
    # Kubelet, and its groups with it, may be gone already; resctrl and settings of the kernel are not.
    host = bundle.bind(files, RealClock(), kubepods=settings.agent.kubepods, required=False)
    cluster = _cluster(args, settings, host)
    lost = cluster if journal.is_missing(settings.agent.state_dir) else None
    unlisted = tuple(_unlisted(lost))
    entries = (*entries, *unlisted)
    exclusive = _exclusive(args, settings, host) if entries else ()
    if args.dry_run or not entries:
        listed = undo_list(host, entries, exclusive) if entries else []
        places = [{"place": place, "present": present, "found": value} for place, present, value in listed]
        lines = undo_lines(listed)
        commandline.print_answer(args.output, "koordlite-restore-list", {"places": places}, lines)
        return 1 if damaged and not entries else 0
    with Journal.open(settings.agent.state_dir, boot_id=boot) as undo_journal:
        undo_journal.record(unlisted)
        steps = restore(host, undo_journal, cluster, exclusive=exclusive)
    tried = {step.place for step in steps}
    remaining = sum(entry.place not in tried for entry in undo_journal.entries if not entry.dies_with_boot)
    lines = [f"{s.place}: {s.value}" if s.ok else f"{s.place}: NOT restored: {s.error}" for s in steps]
    lines.append(f"{sum(step.ok for step in steps)} of {len(steps)} places restored")
    if remaining:
        lines.append(
            f"{remaining} more of the Node stay in the journal: name its cluster, with --kubeconfig or --cluster"
        )
    commandline.print_answer(args.output, "koordlite-restore", {"steps": steps, "left": remaining}, lines)
    return 0 if all(step.ok for step in steps) and not remaining and not damaged else 1


def _cluster(args: argparse.Namespace, settings: Settings, host: Host) -> Cluster | None:
    """The cluster of the options; without one the Node's resources stay in the journal until one is named."""
    if not (args.cluster or machines.names_api_server(args, settings)):
        return None
    stop = threading.Event()
    stop.set()  # Nothing waits for this run, so the cluster may take its time.
    cluster = machines.cluster(args, settings, host.files, host.clock, stop)
    cluster.view()  # A folder knows its Node once it was read.
    return cluster


def _unlisted(cluster: Cluster | None) -> Iterable[Entry]:
    """Values that a lost journal does not list. A folder of manifests does not say who wrote what."""
    if not isinstance(cluster, KubeCluster):
        return ()
    view = cluster.published()
    if view.node is None:
        why = "the API server has not shown the Node: whether an earlier run left offers on it is not known"
        print(printable.lines(why), file=sys.stderr)
    return unlisted_entries(view)


def _exclusive(args: argparse.Namespace, settings: Settings, host: Host) -> Sequence[PodCPUs]:
    """CPUs that kubelet's static CPU manager policy has given away: by its checkpoint, or the one among the
    manifests."""
    if args.cluster:
        return machines.cluster(args, settings, host.files, host.clock).view().kubelet.pod_cpus
    path = settings.cluster.cpu_manager_state
    try:
        state = configz.parse_cpu_manager_state(host.files.read(path))
    except FileNotFoundError:
        return ()
    except (OSError, InputError) as error:
        print(
            printable.lines(f"{path}: {error}; sets are put back as they were found, exclusive CPUs or not"),
            file=sys.stderr,
        )
        return ()
    return state.pod_cpus if state.policy == configz.STATIC else ()


def undo_lines(entries: Iterable[tuple[str, str, str]]) -> list[str]:
    """Steps of restore: for each (place, value there at present, value before our first write) of the undo list."""
    rows = []
    for path, value, before in entries:
        now, then = value.strip(), before.strip()
        rows.append((path, f"stays {then!r}" if now == then else f"{now!r} → {then!r}"))
    return paragraph.columns(rows, "<") or ["nothing to restore: no file holds a value of ours"]
