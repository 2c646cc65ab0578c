"""The commands of `koordlite`, and their options."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Mapping

from koordlite import commandline
from koordlite.cli.options import (
    EXTENDER_URL,
    LEVELS,
    MODES,
    SHAPES,
    SUBJECTS,
    Option,
    duration,
    flag,
    group,
    log_format,
    one_of,
    option,
    repeated,
    seconds,
    text,
)
from koordlite.model import defaults

OUTPUT: Option = commandline.add_output
LISTING: Option = functools.partial(commandline.add_output, listing=True)
API_SERVER = (
    option("--kubeconfig FILE", "kubeconfig (default: the cluster of this pod)"),
    option("--context NAME", "context of the kubeconfig (default: its current context)"),
)
MACHINE = group(
    "machine and cluster",
    one_of(
        option("--sandbox SHAPE", f"an emulated node instead of this machine: {', '.join(SHAPES)}"),
        option("--recorded DIR", "a captured /sys, /proc and cgroup tree, read-only", nargs="+"),
    ),
    option("--cluster DIR", "folder of YAML manifests in place of a cluster; edits are picked up"),
    *API_SERVER,
    option("--node --node-name NAME", "name of this machine's Node (default: $NODE_NAME)", dest="node"),
    option("--kubepods GROUP", "kubelet's top cgroup, if it is not kubepods"),
    option("--config FILE", "koordlite.yaml (default: what KOORDLITE_CONFIG names)"),
)
STRATEGY_MODES = (
    option("--mode", "mode of all strategies but those off by default", choices=MODES),
    repeated("--strategy NAME=MODE", "mode of one strategy; may be repeated"),
)
JOURNAL = option("--state-dir DIR", "folder of the undo journal")
AGENT_STATE = (
    option("--state-dir DIR", "folder of the agent's undo journal"),
    option("--config FILE", "koordlite.yaml, for its stateDir"),
)
_AGENT = "a running agent (default: $KOORDLITE_URL, else http://127.0.0.1:9316"
AGENT = option("--url", f"{_AGENT})")
AGENT_OR_MACHINE = (option("--url", f"{_AGENT}, unless you name a machine)"), OUTPUT, MACHINE)
RUN_TIME = duration("--for", "stop after 90s, 5m, …", dest="seconds")
MASK = flag("--mask", "replace names and labels by pseudonyms, consistently")
MEMORY = flag(
    "--memory", "of `numa NAMESPACE/POD`: where its pages lie, by kind, why some are remote, and what a move would cost"
)
MAKE_ROOM = flag(
    "--make-room",
    "of a pod that waits: groups of nodes by what is against them, and the fewest moves by which it would fit",
)
EXTENDER = (option("--url", "a running extender (default: %(default)s)", default=EXTENDER_URL), OUTPUT)
SCORING = option(
    "--strategy",
    "how nodes are scored",
    choices=("LeastAllocated", "MostAllocated", "BalancedAllocation", "LeastNUMANodes"),
    default="LeastAllocated",
)
HEALTH = text(
    "--health-listen ADDRESS:PORT", "answer health there, for kubelet's probes, and /metrics to tokens that may get it"
)
SERVICE_LOG = (option("--log-level", choices=LEVELS[1:], default="info"), log_format("text"))
NUMA_PAGE = (
    text("--prometheus-url URL", "for the charts of the NUMA page, and its REST query"),
    flag("--allow-policy-changes", "let PUT requests switch policies (default: read-only)"),
    text("--prometheus-token-file FILE", "bearer token for it"),
    text("--prometheus-ca-file FILE", "who signs its certificate"),
)
PLACEHOLDERS = group(
    "reservation controller",
    option(
        "--placeholder-image IMAGE",
        "what placeholder pods run; it has only to stay (default: %(default)s)",
        default="registry.k8s.io/pause:3.10",
    ),
    option(
        "--placeholder-priority-class NAME",
        "PriorityClass of placeholder pods; empty: the cluster's default (default: %(default)s)",
        default="koordlite-reservation",
    ),
    option(
        "--placeholder-scheduler NAME",
        "places the placeholders of templates that name no scheduler (default: %(default)s)",
        default="default-scheduler",
    ),
    repeated(
        "--placeholder-namespace NAME",
        "make placeholders only there; repeatable (default: everywhere but in kube-system, kube-public, "
        "kube-node-lease and koordlite-system)",
    ),
    repeated(
        "--guarded-scheduler NAME",
        "schedulerName that asks our extender, which keeps its pods off what is being handed over; repeatable "
        "(default: koordlite-scheduler)",
    ),
    option("--lease-namespace NAMESPACE", "of the lease of the active one", default="koordlite-system"),
)


def token_audience(when: str = "") -> Option:
    """The option about the tokens that count; `when` begins the help."""
    return text("--token-audience NAME", f"{when}what tokens have to be bound to")


def scheduler_service(audience: str, token: str) -> tuple[Option, ...]:
    """Options of every server of the scheduler's side. `audience` begins the help about tokens of callers; `token` is
    what --state-dir is for."""
    return (
        *API_SERVER,
        token_audience(audience),
        text("--tls-cert-file FILE", "serve HTTPS with this certificate (PEM)"),
        text("--tls-private-key-file FILE", "its key (default: same file)"),
        duration(
            "--max-age",
            "answer from what is known for so long while the API server is away (default: 5m)",
            default=300.0,
        ),
        option(
            "--max-numa-nodes NUMBER",
            "do not use reports of more NUMA nodes: the time to judge doubles with each. At most "
            f"{defaults.MOST_NUMA_NODES}, default {defaults.NUMA_NODES}",
            type=_numa_nodes,
            default=defaults.NUMA_NODES,
        ),
        text("--state-dir DIR", f"where {token} is written"),
        *SERVICE_LOG,
    )


def _numa_nodes(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 4 else 0
    if not 1 <= number <= defaults.MOST_NUMA_NODES:
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is no number from 1 to {defaults.MOST_NUMA_NODES}")
    return number


SCHEDULER_DEPLOY = (
    option("file FILE", "what kubectl kustomize printed; - is standard input", nargs="+"),
    *API_SERVER,
)


class Command:
    """A command, or an action of one: how it is listed, what it takes, and what carries it out.

    `place` is `module:function` in this package; the function takes the options and returns the exit code. `examples`
    are without the leading `koordlite`; a test runs those that need neither a cluster nor root. A command that has
    actions takes no options itself.
    """

    def __init__(
        self,
        name: str,
        place: str,
        help: str,
        *options: Option,
        examples: tuple[str, ...] = (),
        actions: tuple[Command, ...] = (),
    ) -> None:
        self.name, self.place, self.help, self.options = name, place, help, options
        self.examples, self.actions = examples, actions


COMMANDS: Mapping[str, tuple[Command, ...]] = {
    "Ask the agent, and watch it": (
        Command(
            "status",
            "questions:status",
            "one screen about a running agent, or about a machine you name",
            *AGENT_OR_MACHINE,
            examples=("status", "status --sandbox small", "status -o json"),
        ),
        Command(
            "explain",
            "questions:explain",
            "why a value is what it is, with the numbers, and who changed it",
            option("subject", f"{', '.join(SUBJECTS)}, a strategy, a reason", nargs="+"),
            option("--record PATH", "ask a flight record instead of the agent (a folder or a file)"),
            option("--at TIME", "at that time: 24h ago is 24h; or 2026-01-31T03:00:00Z"),
            option("--since TIME", "compare with that time, and name the numbers that differ"),
            flag("--who", "name the pods whose use moved the budget"),
            flag(
                "--why-pending",
                "SUBJECT is a NAMESPACE/POD that waits for a node: what is against how many nodes, and what would make "
                "room. Asks the scheduler extender at --url, or judges by the manifests of --cluster, or lists by "
                "--kubeconfig",
            ),
            MEMORY,
            *AGENT_OR_MACHINE,
            examples=(
                "explain node",
                "explain besteffort --since 12h",
                "explain file shop/cache-0/cpu.max",
                "explain --why-pending shop/report --cluster configs/tour-scheduling",
            ),
        ),
        Command(
            "top",
            "questions:top",
            "a running agent, live: node, pods, decisions; with keys",
            AGENT,
            duration("--interval", "(default: 1s)", default=1.0),
            flag("--once", "print one frame and stop (the default when the output is not a terminal)"),
            examples=("top", "top --once"),
        ),
        Command(
            "replay",
            "recorded:replay",
            "decide again over a flight record, with the same or with other settings",
            option("record PATH", "a file or a folder (default: the agent's record)", nargs="?"),
            option("--since TIME", "only from that time on: 8h ago is 8h; or a time"),
            option("-o --output", choices=("text", "json", "html"), default="text"),
            group(
                "what to change; without any of these, check that every decision is the same as recorded",
                repeated("--config FILE", "another koordlite.yaml, or another ConfigMap"),
                repeated("--set NAME=VALUE", "for example cpuSuppressThresholdPercent=70"),
                *STRATEGY_MODES,
            ),
            examples=("replay --since 12h --set cpuSuppressThresholdPercent=70",),
        ),
        Command(
            "numa",
            "questions:numa",
            "why a pod is or is not aligned to NUMA nodes, with the numbers",
            option("action", "is the pod aligned, and which causes keep it from that", choices=("explain",)),
            option("pod NAMESPACE/POD", "a pod of this node"),
            MEMORY,
            *AGENT_OR_MACHINE,
            examples=("numa explain shop/cache-0",),
        ),
        Command(
            "resctrl",
            "resctrl_command:resctrl",
            "cache and memory bandwidth: what there is, who has it, what is planned",
            option("action", "show needs no cluster; neither of them writes", choices=("show", "plan")),
            OUTPUT,
            MACHINE,
            examples=("resctrl show --sandbox intel-2s-ht",),
        ),
    ),
    "Run the agent, and control it": (
        Command(
            "run",
            "run:run",
            "run the agent on this machine, on an emulated one, or over a recording",
            MACHINE,
            *STRATEGY_MODES,
            RUN_TIME,
            flag("--once", "run two ticks, print the status, stop"),
            duration("--interval", "time between two ticks"),
            option(
                "--speed N",
                "sandbox: simulated seconds per real second (default: as fast as it can with --for, else 1)",
                type=float,
            ),
            option("--chaos SEED", "sandbox: inject faults (failing files, vanishing groups, other writers)", type=int),
            option("--report DIR", "write run.json and run.html here when the run ends"),
            option("--record DIR", "keep the flight record here (default: section record of koordlite.yaml)"),
            option("--published DIR", "where a folder cluster stores what the agent publishes"),
            JOURNAL,
            option(
                "--on-stop", "leave values in force when the agent stops, or restore them", choices=("keep", "restore")
            ),
            flag("--no-http", "do not start the HTTP server"),
            option("--port", "HTTP port, for /metrics, /healthz, /state, /explain, /loglevel", type=int),
            option("--http-address ADDRESS", "HTTP address (default: loopback; others need a token)"),
            option("--tls-cert-file FILE", "serve HTTPS with this certificate (http.tlsCertFile)"),
            option("--tls-private-key-file FILE", "its key (default: in the same file; http.tlsKeyFile)"),
            log_format(),
            flag("-q --quiet", "no live view, log problems only"),
            examples=("run --sandbox small --once", "run --cluster DIR --strategy cpuSuppress=enforce"),
        ),
        Command(
            "pause",
            "acting:pause",
            "stop the agent from writing for a while; it goes on deciding",
            option("duration DURATION", "45m, 2h, 1h30m: the pause ends by itself", type=seconds("DURATION")),
            option("--because TEXT", "why; shown wherever the pause is shown", required=True),
            flag("--release", "also restore what was found (default: leave it in force)"),
            flag("--before-start", "pause an agent that is not running yet"),
            *AGENT_STATE,
            examples=('pause 2h --because "kernel upgrade"',),
        ),
        Command("resume", "acting:resume", "end the pause", *AGENT_STATE, examples=("resume",)),
        Command(
            "restore",
            "undo:undo",
            "put back every value as it was before the first write",
            MACHINE,
            JOURNAL,
            option("--published DIR", "where a folder cluster stores what the agent published"),
            flag("--dry-run", "print what would be restored"),
            OUTPUT,
            examples=("restore --dry-run", "restore"),
        ),
        Command(
            "verify",
            "traces:verify",
            "after an uninstall: what is left on this machine and in its cluster; read-only",
            MACHINE,
            JOURNAL,
            OUTPUT,
            examples=("verify", "verify --kubeconfig FILE"),
        ),
        Command(
            "adopt",
            "traces:adopt",
            "take over what another agent left here, so that it can be put back",
            option("agent", "the agent that ran here before", choices=("koordlet",)),
            MACHINE,
            JOURNAL,
            flag("--dry-run", "print the list and change nothing"),
            OUTPUT,
            examples=("adopt koordlet --dry-run",),
        ),
        Command(
            "log-level",
            "questions:log_level",
            "show or change which decisions a running agent logs",
            option("level", "leave it out to show the levels", nargs="?", choices=LEVELS),
            one_of(
                text("--strategy NAME", "only of this strategy"),
                text("--pod NAMESPACE/NAME", "only of decisions about this pod"),
            ),
            duration("--for", "then go back to the old level", dest="seconds"),
            AGENT,
            option("--state-dir DIR", "the agent's state folder, which holds its token"),
            OUTPUT,
            examples=("log-level", "log-level debug --pod shop/cache-0 --for 10m"),
        ),
    ),
    "Try, record and check": (
        Command(
            "simulate",
            "simulate:simulate",
            "run scenarios on an emulated node, faster than real time",
            option("scenario SCENARIO", "YAML files; see configs/scenarios", nargs="+"),
            option("--config FILE", "use this koordlite.yaml instead of the scenario's settings"),
            option(
                "--compare FILE",
                "compare two configurations: each a koordlite.yaml or a ConfigMap slo-controller-config",
                nargs=2,
            ),
            flag(
                "--without",
                "beside it, the same where the agent only observes: what batch work would have got, and services "
                "missed",
            ),
            option("--seed", "instead of the scenario's", type=int),
            option("--mode", "instead of the scenario's", choices=("enforce", "observe", "asWritten")),
            OUTPUT,
            option("--html FILE", "also write a page with timelines here"),
            examples=("simulate configs/scenarios/spike.yaml",),
        ),
        Command(
            "record",
            "record:record",
            "write a flight record to one file: from now on, or of the past",
            one_of(
                duration("--for", "observe this long (1h), writing nothing", dest="seconds"),
                duration("--last", "copy the last 10m … of the agent's record"),
                required=True,
            ),
            option("-o --output FILE", "the file to write; it must not exist yet", required=True),
            MASK,
            option("--from PATH", "with --last: copy from this record instead of the agent's", dest="source"),
            MACHINE,
            examples=("record --last 10m -o night.record",),
        ),
        Command(
            "capture",
            "record:capture",
            "save one snapshot with the files it came from, for a bug report",
            option("-o --output DIR", "the folder to write; it must not exist yet", required=True),
            MASK,
            MACHINE,
            examples=("capture --mask -o bug-report",),
        ),
        Command(
            "check-node",
            "check:check_node",
            "what this machine supports, and what to do about the rest; read-only",
            OUTPUT,
            MACHINE,
            examples=("check-node --sandbox amd-ccd",),
        ),
        Command(
            "check-config",
            "check:check_config",
            "list every mistake in koordlite.yaml and in a folder of manifests",
            option("file", "koordlite.yaml", nargs="?"),
            option("--cluster DIR", "folder of manifests to check as well"),
            option("--node NAME", "which Node of the folder, if it has several"),
            OUTPUT,
            examples=("check-config configs/koordlite.yaml --cluster configs/tour --node tour-a",),
        ),
        Command(
            "default-config",
            "check:default_config",
            "print koordlite.yaml with every option at its default, commented",
            examples=("default-config",),
        ),
        Command(
            "kubelet",
            "kubelet_command:kubelet",
            "what another CPU manager policy would do to each pod; read-only",
            option("action", "print the change, its commands and the way back", choices=("plan",)),
            option("--policy", "cpuManagerPolicy (default: as it is)", choices=("static", "none")),
            option("--reserved-cpus LIST", "reservedSystemCPUs, such as 0-1,16-17 (default: as it is)"),
            option(
                "--options NAME=VALUE,…", "cpuManagerPolicyOptions, such as full-pcpus-only=true (default: as they are)"
            ),
            OUTPUT,
            MACHINE,
            examples=("kubelet plan --sandbox small --policy static --reserved-cpus 0",),
        ),
        Command(
            "profile",
            "profile:profile",
            "what Koordinator's ClusterColocationProfiles make of a pod; read-only",
            option("action", "print the pod as it would be admitted, and why", choices=("apply",)),
            option(
                "--profile FILE",
                "manifests of ClusterColocationProfiles, and of the Namespaces and PriorityClasses they need; "
                "repeatable",
                action="append",
                required=True,
            ),
            option("pod POD", "manifest of the pod, or of several; of a workload, its first pod"),
            OUTPUT,
            examples=("profile apply --profile configs/colocated.yaml configs/colocated.yaml",),
        ),
        Command(
            "crane",
            "crane:assign",
            "the topology result that Crane's scheduler would write for a bound pod",
            option("action", "choose NUMA nodes for a pod on the node it is bound to", choices=("assign",)),
            option("pod NS/POD", "the pod"),
            OUTPUT,
            one_of(
                flag("--dry-run", "print the result and write nothing; the default"),
                flag("--write", "put the result on the pod"),
            ),
            option("--cluster DIR", "folder of YAML manifests in place of a cluster; read-only"),
            *API_SERVER,
            examples=("crane assign shop/cache-0 --cluster DIR",),
        ),
    ),
    "Work beside a kube-scheduler": (
        Command(
            "scheduler-extender",
            "services:extender",
            "the scheduler's side: answer a stock kube-scheduler",
            option(
                "--listen ADDRESS:PORT",
                "where the scheduler asks; beyond loopback only with --client-ca-file. Default %(default)s",
                default=EXTENDER_URL.removeprefix("http://"),
            ),
            HEALTH,
            text("--client-ca-file FILE", "who signs the certificates that schedulers show"),
            repeated("--client-name NAME", "accept only these common names; repeatable"),
            option(
                "--replicas",
                "extenders in this process's care; with more than one, a front asks the next when one hangs or dies "
                "(default: 1)",
                type=int,
                choices=(1, 2, 3),
                default=1,
            ),
            flag("--behind-front", argparse.SUPPRESS),
            SCORING,
            option(
                "--cache",
                "what counts between a binding and the report that shows it",
                choices=("overreserve", "discardReserved", "passthrough"),
                default="overreserve",
            ),
            option(
                "--foreign-pods",
                "pods that another scheduler bound and no report counts yet",
                choices=("reserve", "refuse", "ignore"),
                default="reserve",
            ),
            repeated(
                "--profile NAME",
                "schedulerName that asks here; repeatable. Default: koordlite-scheduler and default-scheduler",
            ),
            flag("--skip-restricted", "let every pod pass where kubelet's policy is restricted"),
            flag("--crane", "read Crane's own NodeResourceTopologies as well"),
            text(
                "--load-aware FILE",
                "judge nodes also by what NodeMetrics measured there; FILE has Koordinator's LoadAwareSchedulingArgs",
            ),
            flag("--follow-resizes", "have CPUs that were promised follow pods whose requests are changed in place"),
            text(
                "--numa-listen ADDRESS:PORT",
                "also serve the NUMA page and its REST interface there, for example 127.0.0.1:9320",
            ),
            flag(
                "--reservation-controller",
                "also hold Reservations of Koordinator by placeholder pods, as koordlite reservation-controller does",
            ),
            PLACEHOLDERS,
            *NUMA_PAGE,
            *scheduler_service("with --health-listen: ", "the token for log levels"),
            examples=("scheduler-extender --kubeconfig FILE --reservation-controller",),
        ),
        Command(
            "scheduler",
            "",
            "ask a running extender: explain, state, log-level; or render its files",
            examples=(
                "scheduler explain shop/solver",
                "scheduler explain shop/report --make-room",
                "scheduler try configs/tour-scheduling shop/solver",
            ),
            actions=(
                Command(
                    "explain",
                    "scheduler_command:explain",
                    "every node of a pod's last attempt: why not, or its score",
                    option("pod NAMESPACE/POD"),
                    flag("--all", "list every node that is kept"),
                    MAKE_ROOM,
                    *EXTENDER,
                ),
                Command(
                    "state",
                    "scheduler_command:state",
                    "a node: report, reservations, dirty or not; without NODE all of it",
                    option("node NODE", nargs="?"),
                    *EXTENDER,
                ),
                Command(
                    "log-level",
                    "scheduler_command:log_level",
                    "show or change what a running extender logs",
                    option("level", nargs="?", choices=LEVELS),
                    one_of(
                        text("--flow NAME", "only of this verb: filter, prioritize, preempt, bind"),
                        text("--pod NAMESPACE/NAME", "only of lines about this pod"),
                    ),
                    duration("--for", "then go back", dest="seconds"),
                    text("--state-dir DIR", "folder with the extender's token"),
                    *EXTENDER,
                ),
                Command(
                    "try",
                    "scheduler_command:try_pod",
                    "ask about a pod of a folder of manifests, without a cluster",
                    option("folder DIR", "Nodes, Pods and NodeResourceTopologies"),
                    option("pod NAMESPACE/POD", "a pod of the folder that is not bound"),
                    SCORING,
                    flag("--all", "list every node"),
                    MAKE_ROOM,
                ),
                Command(
                    "render",
                    "scheduler_command:render",
                    "print the manifests or the stanza for given options",
                    option(
                        "what",
                        "configuration: of a second kube-scheduler beside the extender; stanza: for the cluster's own "
                        "scheduler",
                        choices=("configuration", "stanza"),
                    ),
                    option("--scheduler-name NAME", default="koordlite-scheduler"),
                    option("--namespace NAMESPACE", "of the scheduler's lease", default="koordlite-system"),
                    text("--url-prefix URL", "where the extender is (default: loopback)"),
                    option("--weight", "of prioritize beside the scheduler's own scores", type=int, default=10),
                    option("--http-timeout TIME", "how long the scheduler waits (default, and most: 1s)", default="1s"),
                    one_of(
                        flag(
                            "--required",
                            "pods wait while the extender is away, and none is bound without its promise (default of "
                            "configuration)",
                        ),
                        flag("--ignorable", "it is passed over while it is away (default of stanza)"),
                    ),
                    repeated("--managed-resource NAME", "ask only about pods that want it"),
                    flag("--no-bind", "let the scheduler bind: nothing can be promised then"),
                    text("--client-cert-file FILE", "what the scheduler shows, with HTTPS"),
                    text("--client-key-file FILE"),
                    text("--ca-file FILE", "by which the scheduler knows the extender"),
                ),
                Command(
                    "validate",
                    "scheduler_deploy:run",
                    "ask the API server about each object of rendered manifests, and store nothing",
                    *SCHEDULER_DEPLOY,
                ),
                Command(
                    "deploy",
                    "scheduler_deploy:run",
                    "the same, and then create or change them, unless one of them is refused",
                    *SCHEDULER_DEPLOY,
                ),
                Command(
                    "remove",
                    "scheduler_deploy:run",
                    "delete them, all but Namespaces and CustomResourceDefinitions",
                    *SCHEDULER_DEPLOY,
                    flag("--dry-run", "ask the API server, and delete nothing"),
                ),
            ),
        ),
        Command(
            "reservation-controller",
            "services:reservation_controller",
            "Koordinator's Reservations without Koordinator's scheduler",
            *API_SERVER,
            PLACEHOLDERS,
            HEALTH,
            token_audience("with --health-listen: "),
            *SERVICE_LOG,
            examples=("reservation-controller --kubeconfig FILE",),
        ),
        Command(
            "reservation",
            "",
            "list and explain Reservations of the cluster; read-only",
            examples=("reservation list", "reservation explain NAME"),
            actions=(
                Command(
                    "list",
                    "scheduler_command:reservation",
                    "every Reservation: phase, node, what it holds, owners, end, why it waits",
                    *API_SERVER,
                    LISTING,
                ),
                Command(
                    "explain",
                    "scheduler_command:reservation",
                    "who may use it, who does, what it holds, why it waits, when it ends",
                    option("name NAME"),
                    *API_SERVER,
                    OUTPUT,
                ),
            ),
        ),
    ),
    "Serve NUMA nodes, and complete commands": (
        Command(
            "numa-api",
            "services:numa_api",
            "NUMA nodes and the last night of the whole cluster: pages and REST interface",
            option(
                "--listen ADDRESS:PORT",
                "beyond loopback only with --tls-cert-file, and then reading wants a token. Default %(default)s",
                dest="numa_listen",
                default="127.0.0.1:9320",
            ),
            *NUMA_PAGE,
            *scheduler_service("", "a token for this machine"),
            examples=("numa-api --kubeconfig FILE",),
        ),
        Command(
            "numa-exporter",
            "serving:numa_exporter",
            "metrics of NUMA nodes for Prometheus, without deciding or writing",
            MACHINE,
            option("--listen ADDRESS:PORT", "where to serve /metrics (default: :9201)"),
            flag("--node-only", "ask no cluster: no containers and no violations"),
            flag("--other-names", "also the names that other NUMA exporters use"),
            log_format(),
            RUN_TIME,
            examples=("numa-exporter --node-only --listen 127.0.0.1:9201",),
        ),
        Command(
            "completion",
            "check:completion",
            "print a script that completes commands",
            commandline.add_completion,
            examples=("completion bash",),
        ),
    ),
}
"""Every command, by the heading under which --help and the manual page list it."""
