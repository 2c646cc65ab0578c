"""Options of the commands of the scheduler's side: those that run beside a kube-scheduler, or ask one that does."""

from __future__ import annotations

import argparse

from koordlite import commandline
from koordlite.cli import options, times
from koordlite.model import defaults

PORT = 9318
LISTEN = f"127.0.0.1:{PORT}"
NUMA_LISTEN = "127.0.0.1:9320"
STRATEGIES = ("LeastAllocated", "MostAllocated", "BalancedAllocation", "LeastNUMANodes")
IMAGE = "registry.k8s.io/pause:3.10"
PRIORITY_CLASS = "koordlite-reservation"
SCHEDULER = "koordlite-scheduler"


def extender(command: argparse.ArgumentParser) -> None:
    """The service."""
    command.add_argument(
        "--listen",
        metavar="ADDRESS:PORT",
        default=LISTEN,
        help=f"where the scheduler asks; beyond loopback only with --client-ca-file. Default {LISTEN}",
    )
    health_listen(command)
    command.add_argument(
        "--client-ca-file", metavar="FILE", default="", help="who signs the certificates that schedulers show"
    )
    command.add_argument(
        "--client-name", metavar="NAME", action="append", default=[], help="accept only these common names; repeatable"
    )
    command.add_argument(
        "--replicas",
        type=int,
        choices=(1, 2, 3),
        default=1,
        help="extenders in this process's care; with more than one, a front asks the next when one hangs or dies "
        "(default: 1)",
    )
    command.add_argument("--behind-front", action="store_true", help=argparse.SUPPRESS)
    command.add_argument("--strategy", choices=STRATEGIES, default="LeastAllocated", help="how nodes are scored")
    command.add_argument(
        "--cache",
        choices=("overreserve", "discardReserved", "passthrough"),
        default="overreserve",
        help="what counts between a binding and the report that shows it",
    )
    command.add_argument(
        "--foreign-pods",
        choices=("reserve", "refuse", "ignore"),
        default="reserve",
        help="pods that another scheduler bound and no report counts yet",
    )
    command.add_argument(
        "--profile",
        metavar="NAME",
        action="append",
        default=[],
        help="schedulerName that asks here; repeatable. Default: koordlite-scheduler and default-scheduler",
    )
    command.add_argument(
        "--skip-restricted", action="store_true", help="let every pod pass where kubelet's policy is restricted"
    )
    command.add_argument("--crane", action="store_true", help="read Crane's own NodeResourceTopologies as well")
    command.add_argument(
        "--load-aware",
        metavar="FILE",
        default="",
        help="judge nodes also by what NodeMetrics measured there; FILE has Koordinator's LoadAwareSchedulingArgs",
    )
    command.add_argument(
        "--follow-resizes",
        action="store_true",
        help="have CPUs that were promised follow pods whose requests are changed in place",
    )
    command.add_argument(
        "--numa-listen",
        metavar="ADDRESS:PORT",
        default="",
        help=f"also serve the NUMA page and its REST interface there, for example {NUMA_LISTEN}",
    )
    command.add_argument(
        "--reservation-controller",
        action="store_true",
        help="also hold Reservations of Koordinator by placeholder pods, as koordlite reservation-controller does",
    )
    shared(command)
    _numa(command)
    _shared(command, audience="with --health-listen: ", token="the token for log levels")


def numa_api(command: argparse.ArgumentParser) -> None:
    """The NUMA page and its REST interface without an extender."""
    command.add_argument(
        "--listen",
        dest="numa_listen",
        metavar="ADDRESS:PORT",
        default=NUMA_LISTEN,
        help=f"beyond loopback only with --tls-cert-file, and then reading wants a token. Default {NUMA_LISTEN}",
    )
    _numa(command)
    _shared(command, audience="", token="a token for this machine")


def _shared(command: argparse.ArgumentParser, *, audience: str, token: str) -> None:
    """Options of every server of the scheduler's side. `audience` stands before the help about tokens of
    callers; `token` is what --state-dir is for."""
    options.cluster(command)
    token_audience(command, audience)
    command.add_argument("--tls-cert-file", metavar="FILE", default="", help="serve HTTPS with this certificate (PEM)")
    command.add_argument("--tls-private-key-file", metavar="FILE", default="", help="its key (default: same file)")
    command.add_argument(
        "--max-age",
        metavar="DURATION",
        type=times.duration("--max-age"),
        default=300.0,
        help="answer from what is known for so long while the API server is away (default: 5m)",
    )
    command.add_argument(
        "--max-numa-nodes",
        metavar="NUMBER",
        type=_numa_nodes,
        default=defaults.NUMA_NODES,
        help="do not use reports of more NUMA nodes: the time to judge doubles with each. "
        f"At most {defaults.MOST_NUMA_NODES}, default {defaults.NUMA_NODES}",
    )
    command.add_argument("--state-dir", metavar="DIR", default="", help=f"where {token} is written")
    _log(command)


def _log(command: argparse.ArgumentParser) -> None:
    command.add_argument("--log-level", choices=("warning", "info", "debug"), default="info")
    options.log_format(command, default="text")


def _numa_nodes(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 4 else 0
    if not 1 <= number <= defaults.MOST_NUMA_NODES:
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is no number from 1 to {defaults.MOST_NUMA_NODES}")
    return number


def _numa(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--prometheus-url", metavar="URL", default="", help="for the charts of the NUMA page, and its REST query"
    )
    command.add_argument(
        "--allow-policy-changes", action="store_true", help="let PUT requests switch policies (default: read-only)"
    )
    command.add_argument("--prometheus-token-file", metavar="FILE", default="", help="bearer token for it")
    command.add_argument("--prometheus-ca-file", metavar="FILE", default="", help="who signs its certificate")


def scheduler(command: argparse.ArgumentParser) -> None:
    """Questions to a running extender, and the files that install one."""
    actions = command.add_subparsers(dest="action", required=True, metavar="ACTION")
    explain = actions.add_parser("explain", help="every node of a pod's last attempt: why not, or its score")
    explain.add_argument("pod", metavar="NAMESPACE/POD")
    explain.add_argument("--all", action="store_true", help="list every node that is kept")
    _make_room(explain)
    _ask(explain)
    state = actions.add_parser("state", help="a node: report, reservations, dirty or not; without NODE all of it")
    state.add_argument("node", nargs="?", metavar="NODE")
    _ask(state)
    level = actions.add_parser("log-level", help="show or change what a running extender logs")
    level.add_argument("level", nargs="?", choices=("off", "warning", "info", "debug"))
    what = level.add_mutually_exclusive_group()
    what.add_argument("--flow", default="", metavar="NAME", help="only of this verb: filter, prioritize, preempt, bind")
    what.add_argument("--pod", default="", metavar="NAMESPACE/NAME", help="only of lines about this pod")
    level.add_argument("--for", dest="seconds", type=times.duration("--for"), metavar="DURATION", help="then go back")
    level.add_argument("--state-dir", metavar="DIR", default="", help="folder with the extender's token")
    _ask(level)
    trial = actions.add_parser("try", help="ask about a pod of a folder of manifests, without a cluster")
    trial.add_argument("folder", metavar="DIR", help="Nodes, Pods and NodeResourceTopologies")
    trial.add_argument("pod", metavar="NAMESPACE/POD", help="a pod of the folder that is not bound")
    trial.add_argument("--strategy", choices=STRATEGIES, default="LeastAllocated", help="how nodes are scored")
    trial.add_argument("--all", action="store_true", help="list every node")
    _make_room(trial)
    _render(actions.add_parser("render", help="print the manifests or the stanza for given options"))
    for name, text in (
        ("validate", "ask the API server about each object of rendered manifests, and store nothing"),
        ("deploy", "the same, and then create or change them, unless one of them is refused"),
        ("remove", "delete them, all but Namespaces and CustomResourceDefinitions"),
    ):
        deploy = actions.add_parser(name, help=text)
        deploy.add_argument(
            "file", nargs="+", metavar="FILE", help="what kubectl kustomize printed; - is standard input"
        )
        options.cluster(deploy)
        if name == "remove":
            deploy.add_argument("--dry-run", action="store_true", help="ask the API server, and delete nothing")


def _make_room(command: argparse.ArgumentParser) -> None:
    text = "of a pod that waits: groups of nodes by what is against them, and the fewest moves by which it would fit"
    command.add_argument("--make-room", action="store_true", help=text)


def _ask(command: argparse.ArgumentParser) -> None:
    command.add_argument("--url", default=f"http://{LISTEN}", help=f"a running extender (default: http://{LISTEN})")
    commandline.add_output(command)


def _render(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "what",
        choices=("configuration", "stanza"),
        help="configuration: of a second kube-scheduler beside the extender; stanza: for the cluster's own scheduler",
    )
    command.add_argument("--scheduler-name", metavar="NAME", default="koordlite-scheduler")
    command.add_argument(
        "--namespace", metavar="NAMESPACE", default="koordlite-system", help="of the scheduler's lease"
    )
    command.add_argument("--url-prefix", metavar="URL", default="", help="where the extender is (default: loopback)")
    command.add_argument("--weight", type=int, default=10, help="of prioritize beside the scheduler's own scores")
    command.add_argument(
        "--http-timeout", metavar="TIME", default="1s", help="how long the scheduler waits (default, and most: 1s)"
    )
    away = command.add_mutually_exclusive_group()
    away.add_argument(
        "--required",
        action="store_true",
        help="pods wait while the extender is away, and none is bound without its promise (default of configuration)",
    )
    away.add_argument("--ignorable", action="store_true", help="it is passed over while it is away (default of stanza)")
    command.add_argument(
        "--managed-resource", metavar="NAME", action="append", default=[], help="ask only about pods that want it"
    )
    command.add_argument("--no-bind", action="store_true", help="let the scheduler bind: nothing can be promised then")
    command.add_argument("--client-cert-file", metavar="FILE", default="", help="what the scheduler shows, with HTTPS")
    command.add_argument("--client-key-file", metavar="FILE", default="")
    command.add_argument("--ca-file", metavar="FILE", default="", help="by which the scheduler knows the extender")


def controller(command: argparse.ArgumentParser) -> None:
    """The service by itself."""
    options.cluster(command)
    shared(command)
    health_listen(command)
    token_audience(command, "with --health-listen: ")
    _log(command)


def health_listen(command: argparse.ArgumentParser) -> None:
    """Address at which a program of the scheduler's side answers kubelet and Prometheus."""
    command.add_argument(
        "--health-listen",
        metavar="ADDRESS:PORT",
        default="",
        help="answer health there, for kubelet's probes, and /metrics to tokens that may get it",
    )


def token_audience(command: argparse.ArgumentParser, when: str = "") -> None:
    """Options about the tokens that count; `when` begins the help."""
    command.add_argument("--token-audience", metavar="NAME", default="", help=f"{when}what tokens have to be bound to")


def shared(command: argparse.ArgumentParser) -> None:
    """Options of the controller wherever it runs."""
    group = command.add_argument_group("reservation controller")
    group.add_argument(
        "--placeholder-image",
        metavar="IMAGE",
        default=IMAGE,
        help=f"what placeholder pods run; it has only to stay (default: {IMAGE})",
    )
    group.add_argument(
        "--placeholder-priority-class",
        metavar="NAME",
        default=PRIORITY_CLASS,
        help=f"PriorityClass of placeholder pods; empty: the cluster's default (default: {PRIORITY_CLASS})",
    )
    group.add_argument(
        "--placeholder-scheduler",
        metavar="NAME",
        default="default-scheduler",
        help="places the placeholders of templates that name no scheduler (default: default-scheduler)",
    )
    group.add_argument(
        "--placeholder-namespace",
        metavar="NAME",
        action="append",
        default=[],
        help="make placeholders only there; repeatable (default: everywhere but in kube-system, kube-public, "
        "kube-node-lease and koordlite-system)",
    )
    group.add_argument(
        "--guarded-scheduler",
        metavar="NAME",
        action="append",
        default=[],
        help=f"schedulerName that asks our extender, which keeps its pods off what is being handed over; repeatable "
        f"(default: {SCHEDULER})",
    )
    group.add_argument(
        "--lease-namespace", metavar="NAMESPACE", default="koordlite-system", help="of the lease of the active one"
    )


def reservation(command: argparse.ArgumentParser) -> None:
    """Questions about Reservations."""
    actions = command.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser(
        "list", help="every Reservation: phase, node, what it holds, owners, end, why it waits"
    )
    explain = actions.add_parser("explain", help="who may use it, who does, what it holds, why it waits, when it ends")
    explain.add_argument("name", metavar="NAME")
    for each in (listing, explain):
        options.cluster(each)
        commandline.add_output(each, listing=each is listing)
