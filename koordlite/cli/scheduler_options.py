"""The commands of the scheduler's side, with the options of all but `koordlite reservation…`."""

from __future__ import annotations

import argparse

from koordlite import commandline
from koordlite.cli import reservation_options, times
from koordlite.model import defaults

PORT = 9318
LISTEN = f"127.0.0.1:{PORT}"
NUMA_LISTEN = "127.0.0.1:9320"
STRATEGIES = ("LeastAllocated", "MostAllocated", "BalancedAllocation", "LeastNUMANodes")


def add_commands(commands: argparse._SubParsersAction[commandline.CommandParser]) -> None:
    """The commands of the scheduler's side: that run beside a kube-scheduler, or ask one that does."""
    extender(commands.add_parser("scheduler-extender", help="the scheduler's side: answer a stock kube-scheduler"))
    numa_api(
        commands.add_parser("numa-api", help="NUMA nodes of the whole cluster: monitoring page and REST interface")
    )
    scheduler(
        commands.add_parser("scheduler", help="ask a running extender: explain, state, log-level; or render its files")
    )
    reservation_options.controller(
        commands.add_parser("reservation-controller", help="Koordinator's Reservations without Koordinator's scheduler")
    )
    reservation_options.reservation(
        commands.add_parser("reservation", help="list and explain Reservations of the cluster; read-only")
    )


def extender(command: argparse.ArgumentParser) -> None:
    """The service."""
    command.add_argument(
        "--listen",
        metavar="ADDRESS:PORT",
        default=LISTEN,
        help=f"where the scheduler asks; beyond loopback only with --client-ca-file. Default {LISTEN}",
    )
    reservation_options.health_listen(command)
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
    reservation_options.shared(command)
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
    command.add_argument("--kubeconfig", metavar="FILE", help="kubeconfig (default: the cluster of this pod)")
    command.add_argument("--context", metavar="NAME", help="context of the kubeconfig (default: its current context)")
    reservation_options.token_audience(command, audience)
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
    command.add_argument("--log-level", choices=("warning", "info", "debug"), default="info")


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
        deploy.add_argument("--kubeconfig", metavar="FILE", help="kubeconfig (default: the cluster of this pod)")
        deploy.add_argument(
            "--context", metavar="NAME", help="context of the kubeconfig (default: its current context)"
        )
        if name == "remove":
            deploy.add_argument("--dry-run", action="store_true", help="ask the API server, and delete nothing")


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
