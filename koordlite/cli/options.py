"""Options of the commands of `koordlite` that are about a node; shared ones are written once, by idea."""

from __future__ import annotations

import argparse

from koordlite import commandline
from koordlite.cli import times

SHAPES = (
    "intel-2s-ht",
    "amd-ccd",
    "arm",
    "small",
    "anolis",
    "intel-cdp",
    "intel-mbps",
    "intel-unmounted",
    "intel-1s",
    "intel-nomba",
    "intel-l2",
    "intel-snc",
    "amd-milan",
    "amd-genoa",
    "arm-mpam",
)
_AGENT = "a running agent (default: $KOORDLITE_URL, else http://127.0.0.1:9316)"
_MODES = ("off", "observe", "enforce")


def cluster(group: argparse._ActionsContainer) -> None:
    """Options that name an API server."""
    group.add_argument("--kubeconfig", metavar="FILE", help="kubeconfig (default: the cluster of this pod)")
    group.add_argument("--context", metavar="NAME", help="context of the kubeconfig (default: its current context)")


def modes(command: argparse._ActionsContainer) -> None:
    """Options that set modes of strategies."""
    command.add_argument("--mode", choices=_MODES, help="mode of all strategies but those off by default")
    command.add_argument(
        "--strategy", metavar="NAME=MODE", action="append", default=[], help="mode of one strategy; may be repeated"
    )


def log_format(command: argparse._ActionsContainer, *, default: str | None = None) -> None:
    """The option about the form of the log. `default`: None leaves it to agent.logFormat."""
    means = "default: agent.logFormat, else text" if default is None else f"default: {default}"
    command.add_argument(
        "--log-format", choices=("text", "json"), default=default, help=f"form of the log on stderr ({means})"
    )


def seconds(command: argparse._ActionsContainer, help: str) -> None:
    """The option --for, in seconds."""
    command.add_argument("--for", dest="seconds", metavar="DURATION", type=times.duration("--for"), help=help)


def mask(command: argparse.ArgumentParser) -> None:
    """The option that hides names."""
    command.add_argument("--mask", action="store_true", help="replace names and labels by pseudonyms, consistently")


def machine(command: argparse.ArgumentParser) -> None:
    """Options that name the machine and the cluster."""
    group = command.add_argument_group("machine and cluster")
    machine = group.add_mutually_exclusive_group()
    machine.add_argument(
        "--sandbox", metavar="SHAPE", help=f"an emulated node instead of this machine: {', '.join(SHAPES)}"
    )
    machine.add_argument(
        "--recorded", metavar="DIR", nargs="+", help="a captured /sys, /proc and cgroup tree, read-only"
    )
    group.add_argument(
        "--cluster", metavar="DIR", help="folder of YAML manifests in place of a cluster; edits are picked up"
    )
    cluster(group)
    group.add_argument(
        "--node", "--node-name", dest="node", metavar="NAME", help="name of this machine's Node (default: $NODE_NAME)"
    )
    group.add_argument("--kubepods", metavar="GROUP", help="kubelet's top cgroup, if it is not kubepods")
    group.add_argument("--config", metavar="FILE", help="koordlite.yaml (default: what KOORDLITE_CONFIG names)")


def run(command: argparse.ArgumentParser) -> None:
    machine(command)
    modes(command)
    seconds(command, "stop after 90s, 5m, …")
    command.add_argument("--once", action="store_true", help="run two ticks, print the status, stop")
    command.add_argument(
        "--interval", metavar="DURATION", type=times.duration("--interval"), help="time between two ticks"
    )
    command.add_argument(
        "--speed",
        metavar="N",
        type=float,
        help="sandbox: simulated seconds per real second (default: as fast as it can with --for, else 1)",
    )
    command.add_argument(
        "--chaos",
        metavar="SEED",
        type=int,
        help="sandbox: inject faults (failing files, vanishing groups, other writers)",
    )
    command.add_argument("--report", metavar="DIR", help="write run.json and run.html here when the run ends")
    command.add_argument(
        "--record", metavar="DIR", help="keep the flight record here (default: section record of koordlite.yaml)"
    )
    command.add_argument("--published", metavar="DIR", help="where a folder cluster stores what the agent publishes")
    command.add_argument("--state-dir", metavar="DIR", help="folder of the undo journal")
    command.add_argument(
        "--on-stop", choices=("keep", "restore"), help="leave values in force when the agent stops, or restore them"
    )
    command.add_argument("--no-http", action="store_true", help="do not start the HTTP server")
    command.add_argument("--port", type=int, help="HTTP port, for /metrics, /healthz, /state, /explain, /loglevel")
    command.add_argument(
        "--http-address", metavar="ADDRESS", help="HTTP address (default: loopback; others need a token)"
    )
    command.add_argument("--tls-cert-file", metavar="FILE", help="serve HTTPS with this certificate (http.tlsCertFile)")
    command.add_argument(
        "--tls-private-key-file", metavar="FILE", help="its key (default: in the same file; http.tlsKeyFile)"
    )
    log_format(command)
    command.add_argument("-q", "--quiet", action="store_true", help="no live view, log problems only")


def ask(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--url", help="a running agent (default: $KOORDLITE_URL, else http://127.0.0.1:9316, unless you name a machine)"
    )
    commandline.add_output(command)
    machine(command)


def explain(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "subject",
        nargs="+",
        help="node, pod NAME, numa NAMESPACE/POD, cpu N, file PATH, allocatable, config, resctrl, besteffort, pools, "
        "a strategy, a reason",
    )
    command.add_argument(
        "--record", metavar="PATH", help="ask a flight record instead of the agent (a folder or a file)"
    )
    command.add_argument("--at", metavar="TIME", help="at that time: 24h ago is 24h; or 2026-01-31T03:00:00Z")
    command.add_argument("--since", metavar="TIME", help="compare with that time, and name the numbers that differ")
    command.add_argument("--who", action="store_true", help="name the pods whose use moved the budget")
    command.add_argument(
        "--why-pending",
        action="store_true",
        help="SUBJECT is a NAMESPACE/POD that waits for a node: what is against how many nodes, and what would make "
        "room. Asks the scheduler extender at --url, or judges by the manifests of --cluster, or lists by --kubeconfig",
    )
    _memory(command)
    ask(command)


def _memory(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--memory",
        action="store_true",
        help="of `numa NAMESPACE/POD`: where its pages lie, by kind, why some are remote, and what a move would cost",
    )


def top(command: argparse.ArgumentParser) -> None:
    command.add_argument("--url", help=_AGENT)
    command.add_argument(
        "--interval", metavar="DURATION", type=times.duration("--interval"), default=1.0, help="(default: 1s)"
    )
    command.add_argument(
        "--once", action="store_true", help="print one frame and stop (the default when the output is not a terminal)"
    )


def log_level(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "level", nargs="?", choices=("off", "warning", "info", "debug"), help="leave it out to show the levels"
    )
    whose = command.add_mutually_exclusive_group()
    whose.add_argument("--strategy", default="", metavar="NAME", help="only of this strategy")
    whose.add_argument("--pod", default="", metavar="NAMESPACE/NAME", help="only of decisions about this pod")
    seconds(command, "then go back to the old level")
    command.add_argument("--url", help=_AGENT)
    command.add_argument("--state-dir", metavar="DIR", help="the agent's state folder, which holds its token")
    commandline.add_output(command)


def replay(command: argparse.ArgumentParser) -> None:
    command.add_argument("record", nargs="?", metavar="PATH", help="a file or a folder (default: the agent's record)")
    command.add_argument("--since", metavar="TIME", help="only from that time on: 8h ago is 8h; or a time")
    command.add_argument("-o", "--output", choices=("text", "json", "html"), default="text")
    other = command.add_argument_group(
        "what to change; without any of these, check that every decision is the same as recorded"
    )
    other.add_argument(
        "--config", metavar="FILE", action="append", default=[], help="another koordlite.yaml, or another ConfigMap"
    )
    other.add_argument(
        "--set", metavar="NAME=VALUE", action="append", default=[], help="for example cpuSuppressThresholdPercent=70"
    )
    modes(other)


def record(command: argparse.ArgumentParser) -> None:
    what = command.add_mutually_exclusive_group(required=True)
    seconds(what, "observe this long (1h), writing nothing")
    what.add_argument(
        "--last",
        metavar="DURATION",
        type=times.duration("--last"),
        help="copy the last 10m … of the agent's record",
    )
    command.add_argument(
        "-o", "--output", metavar="FILE", required=True, help="the file to write; it must not exist yet"
    )
    mask(command)
    command.add_argument(
        "--from", dest="source", metavar="PATH", help="with --last: copy from this record instead of the agent's"
    )
    machine(command)


def capture(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "-o", "--output", metavar="DIR", required=True, help="the folder to write; it must not exist yet"
    )
    mask(command)
    machine(command)


def restore(command: argparse.ArgumentParser) -> None:
    machine(command)
    command.add_argument("--state-dir", metavar="DIR", help="folder of the undo journal")
    command.add_argument("--published", metavar="DIR", help="where a folder cluster stores what the agent published")
    command.add_argument("--dry-run", action="store_true", help="print what would be restored")
    commandline.add_output(command)


def verify(command: argparse.ArgumentParser) -> None:
    machine(command)
    command.add_argument("--state-dir", metavar="DIR", help="folder of the undo journal")
    commandline.add_output(command)


def adopt(command: argparse.ArgumentParser) -> None:
    command.add_argument("agent", choices=("koordlet",), help="the agent that ran here before")
    machine(command)
    command.add_argument("--state-dir", metavar="DIR", help="folder of the undo journal")
    command.add_argument("--dry-run", action="store_true", help="print the list and change nothing")
    commandline.add_output(command)


def simulate(command: argparse.ArgumentParser) -> None:
    command.add_argument("scenario", metavar="SCENARIO", nargs="+", help="YAML files; see configs/scenarios")
    command.add_argument("--config", metavar="FILE", help="use this koordlite.yaml instead of the scenario's settings")
    command.add_argument(
        "--compare",
        metavar="FILE",
        nargs=2,
        help="compare two configurations: each a koordlite.yaml or a ConfigMap slo-controller-config",
    )
    command.add_argument(
        "--without",
        action="store_true",
        help="beside it, the same where the agent only observes: what batch work would have got, and services missed",
    )
    command.add_argument("--seed", type=int, help="instead of the scenario's")
    command.add_argument("--mode", choices=("enforce", "observe", "asWritten"), help="instead of the scenario's")
    commandline.add_output(command)
    command.add_argument("--html", metavar="FILE", help="also write a page with timelines here")


def profile(command: argparse.ArgumentParser) -> None:
    command.add_argument("action", choices=("apply",), help="print the pod as it would be admitted, and why")
    command.add_argument(
        "--profile",
        metavar="FILE",
        action="append",
        required=True,
        help="manifests of ClusterColocationProfiles, and of the Namespaces and PriorityClasses they need; repeatable",
    )
    command.add_argument("pod", metavar="POD", help="manifest of the pod, or of several; of a workload, its first pod")
    commandline.add_output(command)


def crane(command: argparse.ArgumentParser) -> None:
    command.add_argument("action", choices=("assign",), help="choose NUMA nodes for a pod on the node it is bound to")
    command.add_argument("pod", metavar="NS/POD", help="the pod")
    commandline.add_output(command)
    what = command.add_mutually_exclusive_group()
    what.add_argument("--dry-run", action="store_true", help="print the result and write nothing; the default")
    what.add_argument("--write", action="store_true", help="put the result on the pod")
    command.add_argument("--cluster", metavar="DIR", help="folder of YAML manifests in place of a cluster; read-only")
    cluster(command)


def pause(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "duration", metavar="DURATION", type=times.duration("DURATION"), help="45m, 2h, 1h30m: the pause ends by itself"
    )
    command.add_argument("--because", metavar="TEXT", required=True, help="why; shown wherever the pause is shown")
    command.add_argument(
        "--release", action="store_true", help="also restore what was found (default: leave it in force)"
    )
    command.add_argument("--before-start", action="store_true", help="pause an agent that is not running yet")
    state(command)


def kubelet(command: argparse.ArgumentParser) -> None:
    command.add_argument("action", choices=("plan",), help="print the change, its commands and the way back")
    command.add_argument("--policy", choices=("static", "none"), help="cpuManagerPolicy (default: as it is)")
    command.add_argument(
        "--reserved-cpus", metavar="LIST", help="reservedSystemCPUs, such as 0-1,16-17 (default: as it is)"
    )
    command.add_argument(
        "--options",
        metavar="NAME=VALUE,…",
        help="cpuManagerPolicyOptions, such as full-pcpus-only=true (default: as they are)",
    )
    commandline.add_output(command)
    machine(command)


def numa(command: argparse.ArgumentParser) -> None:
    """`numa explain NS/POD` is `explain numa NS/POD`."""
    command.add_argument("action", choices=("explain",), help="is the pod aligned, and which causes keep it from that")
    command.add_argument("pod", metavar="NAMESPACE/POD", help="a pod of this node")
    _memory(command)
    ask(command)


def numa_exporter(command: argparse.ArgumentParser) -> None:
    machine(command)
    command.add_argument("--listen", metavar="ADDRESS:PORT", help="where to serve /metrics (default: :9201)")
    command.add_argument("--node-only", action="store_true", help="ask no cluster: no containers and no violations")
    command.add_argument("--other-names", action="store_true", help="also the names that other NUMA exporters use")
    log_format(command)
    seconds(command, "stop after 90s, 5m, …")


def state(command: argparse.ArgumentParser) -> None:
    command.add_argument("--state-dir", metavar="DIR", help="folder of the agent's undo journal")
    command.add_argument("--config", metavar="FILE", help="koordlite.yaml, for its stateDir")


def ask_machine(command: argparse.ArgumentParser) -> None:
    """Options of a question that only a machine can answer."""
    commandline.add_output(command)
    machine(command)


def resctrl(command: argparse.ArgumentParser) -> None:
    """Question about resctrl, and the machine it is asked of."""
    command.add_argument("action", choices=("show", "plan"), help="show needs no cluster; neither of them writes")
    ask_machine(command)


def check_config(command: argparse.ArgumentParser) -> None:
    """Files to check."""
    command.add_argument("file", nargs="?", help="koordlite.yaml")
    command.add_argument("--cluster", metavar="DIR", help="folder of manifests to check as well")
    command.add_argument("--node", metavar="NAME", help="which Node of the folder, if it has several")
    commandline.add_output(command)
