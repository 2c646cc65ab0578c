"""Traces of an agent: `koordlite adopt koordlet` takes over what koordlet left on this node, so that it can be put
back; `koordlite verify` lists what is left of koordlite on this machine and in its cluster, after an uninstall."""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from koordlite import adopt as adoption
from koordlite import commandline, config
from koordlite.agent import Agent
from koordlite.apply import unlisted_entries
from koordlite.cli import acting
from koordlite.cli import machine as machines
from koordlite.cli.machine import Machine
from koordlite.config import Settings
from koordlite.formulas.topology.other_writer import OURS
from koordlite.host import procfs
from koordlite.host.files import RealFiles
from koordlite.host.journal import journal, lock
from koordlite.host.journal.journal import Journal
from koordlite.kube.watch import sources
from koordlite.model import keys, printable
from koordlite.model.errors import ConfigError, InputError, Problem
from koordlite.model.picture.kubelet import Kubelet
from koordlite.model.snapshot import Snapshot
from koordlite.model.wire import crane, metrics, numatopology, objects, pod_affinity
from koordlite.ports import ClusterView

if TYPE_CHECKING:
    from koordlite.kube.client.access import Api


def adopt(args: argparse.Namespace) -> int:
    """List what is koordlet's and what is not, then note it in the undo journal. 1 while koordlet still runs."""
    real = not (args.sandbox or args.recorded)
    if not real and not args.dry_run:
        why = "an emulated node has no koordlet, and a recording is never written"
        raise ConfigError(Problem("command line", "--sandbox/--recorded", "", why, "add --dry-run"))
    settings = machines.settings(args)
    if real:
        acting.target(args, pathlib.Path(settings.agent.state_dir)).show(args.output)
    with contextlib.closing(machines.machine(args, settings)) as machine:
        pid = adoption.koordlet_pid(machine.host.files)
        if pid is not None:
            print(printable.lines(f"koordlet runs here (process {pid}): stop it first, both write the same files"))
            if not args.dry_run:
                return 1
        snapshot, with_node = observed(args, machine, settings), settings.publish.node_resources == "agent"
        recognition = adoption.recognise(snapshot, settings.strategies, with_node=with_node)
        traces, others = recognition.traces, recognition.others
        document = {
            "traces": [
                {"place": str(t.place), "present": t.present, "before": t.before, "strategy": t.strategy}
                for t in traces
            ],
            "others": [{"place": str(place), "present": now, "kubelet": kubelet} for place, now, kubelet in others],
        }
        lines = [f"{t.place}: {t.present} → {_before(t)}  ({t.strategy})" for t in traces]
        lines.append(
            f"{len(traces)} places hold values of koordlet; → shows what comes back once nothing enforces them"
        )
        if others:
            lines += ["", "neither kubelet nor koordlet's rules give these values; they are not touched:"]
            lines += [f"{place}: {present}, kubelet would have {expected}" for place, present, expected in others]
        commandline.print_answer(args.output, "koordlite-adopt", document, lines)
        if not args.dry_run:
            with Journal.open(settings.agent.state_dir, boot_id=procfs.boot_id(machine.host.files)) as journal:
                fresh = len(adoption.seed(machine.host, journal, traces))
            before = f", {len(traces) - fresh} were in the journal already" if len(traces) > fresh else ""
            print(printable.lines(f"{fresh} places adopted{before}"))
    return 0


def observed(args: argparse.Namespace, machine: Machine, settings: Settings) -> Snapshot:
    """Two looks a second apart, since usage is a rate, with all that any strategy reads."""
    machines.need_node(args, machine.cluster)
    agent = Agent(machine.host, machine.cluster, config.with_modes(settings, "observe"))
    tick = machines.two_ticks(agent, machine.host)
    if agent.snapshot is None or agent.snapshot.node is None:
        do = "name the cluster with --kubeconfig or --cluster: what is koordlet's follows from pods and settings"
        raise InputError(tick.problems or Problem("Node", "object", "", tick.because or "there is none", do))
    return agent.snapshot


def _before(trace: adoption.Trace) -> str:
    return "(removed)" if trace.before is None else str(trace.before) or "(the parent's set)"


NAME_LABEL = "app.kubernetes.io/name"
NAMES = frozenset(
    {
        *("koordlite", "koordlite-numa", "koordlite-numa-api", "koordlite-restore", "koordlite-reservation-controller"),
        *("koordlite-scheduler", "koordlite-scheduler-extender", "descheduler", "numa-exporter"),
    }
)
"""Values of NAME_LABEL on the objects of the manifests."""
LEASES = frozenset({"descheduler", "koordlite-scheduler", "koordlite-reservation-controller"})
MEMORY = "descheduler-memory"
OBJECTS = (
    *("/api/v1/namespaces", "/api/v1/configmaps", "/api/v1/pods", "/apis/coordination.k8s.io/v1/leases"),
    *("/apis/apps/v1/daemonsets", "/apis/apps/v1/deployments", "/apis/batch/v1/cronjobs"),
    *(f"/apis/rbac.authorization.k8s.io/v1/{kind}" for kind in ("clusterroles", "clusterrolebindings")),
    *(f"/apis/rbac.authorization.k8s.io/v1/{kind}" for kind in ("roles", "rolebindings")),
    *(
        f"/apis/admissionregistration.k8s.io/{version}admission{kind}"
        for version in ("v1/validating", "v1/mutating", "v1beta1/mutating")
        for kind in ("policies", "policybindings")
    ),
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/apis/scheduling.koordinator.sh/v1alpha1/podmigrationjobs",
    *sources.RESERVATIONS.paths,
    metrics.NODE_METRICS,
    *(sources.TOPOLOGY_PATHS[0], crane.PATH, numatopology.PATH, pod_affinity.PATH),
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
)
"""Collections that may have objects of ours; one that is not served has none."""
_WRITTEN = (
    "noderesourcetopologies",
    "nodemetrics",
    "numatopologies",
    "podaffinities",
    "podmigrationjobs",
    "reservations",
)
"""Kinds whose objects have no label of ours: the API server says who wrote them."""


class Rest(NamedTuple):
    """Something that is left."""

    where: str
    what: str
    do: str


def verify(args: argparse.Namespace) -> int:
    """Look, change nothing, and end with "nothing left" or the list. 1 when something is left."""
    settings = machines.settings(args)
    api = _api(args, settings)
    remains = [*_on_machine(settings), *(_in_cluster(api) if api else ()), *_in_groups(args, settings)]
    looked = f"this machine and {api.url}" if api else "this machine"
    lines = [f"{each.where}: {each.what}; {each.do}" for each in remains]
    lines.append(f"{len(remains)} left" if remains else f"nothing left on {looked}")
    document = {"left": [each._asdict() for each in remains], "cluster": api.url if api else ""}
    commandline.print_answer(args.output, "koordlite-verify", document, lines)
    return 1 if remains else 0


def _api(args: argparse.Namespace, settings: Settings) -> Api | None:
    """The API server that options, settings or the environment name."""
    from koordlite.kube.client.access import connect

    if args.cluster or not machines.names_api_server(args, settings):
        return None
    kubeconfig = args.kubeconfig or settings.cluster.kubeconfig
    return connect(kubeconfig or None, args.context or settings.cluster.context or None, user_agent="koordlite-verify")


def _on_machine(settings: Settings) -> Iterator[Rest]:
    """The running agent, its undo journal, and its folders."""
    state = Path(settings.agent.state_dir)
    if pid := lock.holder(state):
        yield Rest("this machine", f"an agent runs (process {pid})", "stop it")
    for entry in journal.read(state, boot_id=procfs.boot_id(RealFiles())):
        yield Rest(str(entry.place), f"to be put back: {entry.describe()}", "koordlite restore")
    for problem in journal.damaged(state):
        yield Rest(str(state), str(problem), "put it back by hand")
    for folder in (state, Path(settings.record.folder)):
        if folder.exists():
            yield Rest(str(folder), "a folder of the agent", f"rm -r {folder}")


def _in_groups(args: argparse.Namespace, settings: Settings) -> Iterator[Rest]:
    """Values of cgroups, resctrl and the Node as the protocol's rules give them and kubelet does not.

    A journal that was lost cannot list them. Judged where a cluster is named, as they follow from pods and settings.
    """
    if not (args.cluster or args.node or settings.agent.node or os.environ.get("NODE_NAME")):
        return
    machine = machines.machine(args, settings)
    with contextlib.closing(machine):
        recognition = adoption.recognise(observed(args, machine, settings), settings.strategies)
    for trace in recognition.traces:
        before = "gone" if trace.before is None else str(trace.before) or "the parent's"
        yield Rest(
            str(trace.place), f"{trace.present}, without an agent {before}", "koordlite adopt koordlet, then restore"
        )


def _in_cluster(api: Api) -> Iterator[Rest]:
    """Objects of the manifests, what the processes made themselves, and what they wrote on Nodes."""
    for node in _items(api, "/api/v1/nodes"):
        yield from _of_node(node)
    for path in OBJECTS:
        kind = path.rpartition("/")[2]
        for item in _items(api, path):
            metadata = item["metadata"]
            if _is_ours(kind, metadata):
                space = f" -n {metadata['namespace']}" if metadata.get("namespace") else ""
                do = f"kubectl delete {kind} {metadata['name']}{space}"
                yield Rest(f"{kind} {metadata['name']}", "an object of koordlite", do)


def _is_ours(kind: str, metadata: dict[str, Any]) -> bool:
    """Tell whether an object is of the manifests, or made by a process of ours."""
    labels, name = metadata.get("labels") or {}, metadata["name"]
    if labels.get(NAME_LABEL) in NAMES and kind != "pods":
        return True
    if kind in _WRITTEN:
        return any(each.get("manager") in (OURS, "descheduler") for each in metadata.get("managedFields") or ())
    by_kind: dict[str, bool] = {
        "leases": name in LEASES,
        "configmaps": name == MEMORY,
        "namespaces": name == "koordlite-system",
        "pods": keys.RESERVATION_UID in labels,
        # Kinds that others may have installed as well are not counted.
        "customresourcedefinitions": name.endswith(".koordlite.io"),
    }
    return by_kind.get(kind, False)


def _of_node(node: dict[str, Any]) -> Iterator[Rest]:
    """Yield our amounts and annotations on a Node: those that this program wrote last, and those only it reads."""
    written = msgspec.convert(node, objects.WrittenNodeObject)
    view = ClusterView(node=written, pods=(), config=None, topology=None, kubelet=Kubelet())
    where = f"Node {node['metadata']['name']}"
    for entry in unlisted_entries(view):
        yield Rest(where, str(entry.place), "koordlite restore on that node, or remove it by hand")
    for key in node["metadata"].get("annotations") or {}:
        if key.partition("/")[0].endswith(".koordlite.io"):
            yield Rest(where, f"annotation {key}", f"kubectl annotate {where.lower()} {key}-")


def _items(api: Api, path: str) -> Iterator[dict[str, Any]]:
    """Every object of a collection; none where the cluster does not serve it."""
    from koordlite.kube.client.access import ApiError

    try:
        for page in api.pages(path):
            yield from map(msgspec.json.decode, page.items)
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
