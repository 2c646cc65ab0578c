"""`kubectl koordlite`: the questions of `koordlite`, asked of the agents of a cluster from anywhere that kubectl works.

The agent answers inside its own pod, by `kubectl exec`: who may do that is decided by the cluster, and nothing else has
to be opened. The API server's proxy would not do, since it takes away the caller's token, and beyond its own pod the
agent answers nobody without one.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from koordlite import __version__, commandline
from koordlite.model import printable
from koordlite.model.errors import InputError, KoordliteError, Problem

T = TypeVar("T")
SELECTOR = "app.kubernetes.io/name=koordlite"
CONTAINER = "koordlite"
AT_ONCE = 8
PATIENCE_SECONDS = 60.0
_HEAD = ("NODE", "STATUS", "CPU", "LS", "BE", "BE LIMIT", "BATCH-CPU", "WHY")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the plugin. Exit codes are those of `koordlite`, and those of kubectl where it fails."""
    commandline.replace_unprintable()
    return commandline.exit_code("kubectl koordlite", lambda: _command(parser().parse_args(argv)))


def parser() -> argparse.ArgumentParser:
    """Every command and option."""
    top = commandline.CommandParser(
        prog="kubectl-koordlite", description="Asks the agents of koordlite in a cluster, by kubectl."
    )
    top.add_argument("--version", action="version", version=f"kubectl-koordlite {__version__}")
    top.add_argument("--kubeconfig", metavar="FILE", help="for kubectl")
    top.add_argument("--context", metavar="NAME", help="for kubectl")
    _namespace(top, default=None)
    top.add_argument(
        "--agents-namespace", metavar="NAME", default="koordlite-system", help="of the agents (default: %(default)s)"
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    status = commands.add_parser("status", help="one screen about a node")
    status.add_argument("node", metavar="NODE")
    commandline.add_output(status)
    explain = commands.add_parser("explain", help="why a value of a node, a pod or many nodes is what it is")
    explain.add_argument(
        "subject",
        nargs="+",
        help="pod [NAMESPACE/]NAME, or NODE and what `koordlite explain` takes: besteffort, cpu 3, …; with --all or -l "
        "without NODE",
    )
    _namespace(explain, default=argparse.SUPPRESS)
    _add_node_options(explain)
    explain.add_argument("--since", metavar="TIME", help="compare with that time, like 24h")
    explain.add_argument("--at", metavar="TIME", help="at that time")
    explain.add_argument("--who", action="store_true", help="name the pods whose use moved the budget")
    commandline.add_output(explain)
    replay = commands.add_parser("replay", help="decide again over the flight records of nodes")
    replay.add_argument("node", nargs="*", metavar="NODE")
    _add_node_options(replay)
    replay.add_argument("--since", metavar="TIME", help="only from that time on")
    replay.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], help="another setting")
    replay.add_argument("--strategy", metavar="NAME=MODE", action="append", default=[], help="another mode")
    commandline.add_output(replay)
    pause = commands.add_parser("pause", help="stop agents from writing for a while")
    pause.add_argument("duration", metavar="DURATION", help="45m, 2h: the pause ends by itself")
    pause.add_argument("--because", metavar="TEXT", required=True, help="shown wherever the pause is shown")
    pause.add_argument("--release", action="store_true", help="also restore what was found")
    resume = commands.add_parser("resume", help="end the pause")
    restore = commands.add_parser("restore", help="list what would be put back; `pause --release` puts it back")
    restore.add_argument("--dry-run", action="store_true", help="print the list")
    for each in (pause, resume, restore):
        each.add_argument("node", nargs="*", metavar="NODE")
        _add_node_options(each)
        each.add_argument("--yes", action="store_true", help="act on more than one node")
    live = commands.add_parser("top", help="a node, live")
    live.add_argument("node", metavar="NODE")
    fleet = commands.add_parser("fleet", help="one line a node")
    commandline.add_output(fleet, listing=True)
    return top


def _namespace(command: argparse.ArgumentParser, default: str | None) -> None:
    command.add_argument(
        "-n", "--namespace", metavar="NAME", default=default, help="of the pod (default: that of the context)"
    )


def _add_node_options(command: argparse.ArgumentParser) -> None:
    """Options that choose nodes."""
    nodes = command.add_mutually_exclusive_group()
    nodes.add_argument("-l", "--selector", metavar="SELECTOR", help="the nodes with these labels")
    nodes.add_argument("--all", action="store_true", help="every node with an agent")


def _command(args: argparse.Namespace) -> int:
    kubectl = Kubectl(args)
    match args.command:
        case "fleet":
            return commandline.in_form(args, lambda: _fleet(kubectl, args.output))
        case "top":
            # A terminal of its own in the pod, when this one is a terminal.
            return kubectl.ask(kubectl.agent(args.node), "top", terminal=sys.stdout.isatty())
        case "status":
            return kubectl.ask(kubectl.agent(args.node), "status", "-o", args.output)
        case "explain":
            return _explain(kubectl, args)
        case "replay":
            settings = [
                word for name in ("set", "strategy") for each in getattr(args, name) for word in (f"--{name}", each)
            ]
            since = ["--since", args.since] if args.since else []
            return _each(kubectl, _chosen(kubectl, args), ["replay", *since, *settings, "-o", args.output])
        case "restore" if not args.dry_run:
            why = "an agent that runs would write again at once"
            do = (
                "`kubectl koordlite pause DURATION --release` puts everything back for a while; manifests/restore does "
            )
            raise InputError(
                Problem("command line", "restore", "", why, do + "so for good, once the agents are removed")
            )
    return _act(kubectl, args)


def _explain(kubectl: Kubectl, args: argparse.Namespace) -> int:
    words = list(args.subject)
    options = [word for name in ("since", "at") if getattr(args, name) for word in (f"--{name}", getattr(args, name))]
    options += ["--who"] if args.who else []
    if args.selector is None and not args.all:
        if words[0] == "pod" and len(words) == 2:
            node, words[1] = kubectl.node_of(words[1], args.namespace)
        else:
            node = words.pop(0)
        return kubectl.ask(kubectl.agent(node), "explain", *(words or ["node"]), *options, "-o", args.output)
    agents = _chosen(kubectl, args)
    if words != ["besteffort"] or not args.since:
        return _each(kubectl, agents, ["explain", *words, *options, "-o", args.output])
    question = ["explain", *words, *options, "-o", "json"]
    answers = _at_once(agents, lambda agent: kubectl.answer(agent, question))
    nights = [_night(node, *answer) for node, answer in zip(agents, answers, strict=True)]
    nights.sort(key=lambda night: (-(night["heldBackSeconds"] or 0.0), night["node"]))
    if args.output == "json":
        _print_json("koordlite-nights", nodes=nights)
    else:
        _print_table([_NIGHT, *(_night_row(night) for night in nights)])
    return 0 if all(not night["error"] for night in nights) else 1


_NIGHT = ("NODE", "HELD BACK", "OF", "DEEPEST", "LOST", "EVICTED", "MOST BY")


def _night(node: str, code: int, out: str, err: str) -> dict[str, Any]:
    """A node's time with best effort held back, of the agent's `heldBack`."""
    try:
        held_back = json.loads(out)["heldBack"] if not code else None
    except (ValueError, KeyError, TypeError):
        held_back = None
    if not isinstance(held_back, dict):
        why = _last_line(err) or "its record has no time in which best effort had a limit"
        return {"node": node, "heldBackSeconds": None, "error": why}
    cause = held_back["causes"][0] if held_back["causes"] else None
    return {
        "node": node,
        "heldBackSeconds": held_back["held_back_seconds"],
        "seconds": held_back["seconds"],
        "deepestMilli": held_back["deepest_milli"],
        "lostCoreHours": held_back["lost_milli_seconds"] / 3.6e6,
        "evicted": len(held_back["evicted"]),
        "cause": cause and {"name": cause["name"], "part": cause["part"]},
        "error": "",
    }


def _night_row(night: dict[str, Any]) -> tuple[str, ...]:
    if night["error"]:
        return night["node"], "–", "–", "–", "–", "–", printable.one_line(night["error"])
    cause = night["cause"]
    return (
        night["node"],
        f"{night['heldBackSeconds'] / 60:.0f} min",
        f"{night['seconds'] / 60:.0f} min",
        _cores(night["deepestMilli"]) if night["heldBackSeconds"] else "–",
        f"{night['lostCoreHours']:.1f} core-h",
        str(night["evicted"]),
        printable.one_line(f"{cause['name']} {100 * cause['part']:.0f} %") if cause else "–",
    )


def _chosen(kubectl: Kubectl, args: argparse.Namespace) -> dict[str, str]:
    """The agents' pods of the chosen nodes. InputError when no node is named, or one has no agent."""
    agents, named = kubectl.agents(), getattr(args, "node", [])
    if args.all:
        named = list(agents)
    elif args.selector is not None:
        named = [name for name in kubectl.nodes(args.selector) if name in agents]
    if not named:
        do = "name nodes, or choose them with -l SELECTOR or --all"
        raise InputError(Problem("command line", "NODE", args.selector or "", "no node with an agent is chosen", do))
    return {node: agents.get(node) or kubectl.agent(node) for node in sorted(named)}


def _act(kubectl: Kubectl, args: argparse.Namespace) -> int:
    agents = _chosen(kubectl, args)
    words = [args.command]
    if args.command == "pause":
        words += [args.duration, "--because", args.because, *(["--release"] if args.release else [])]
    words += ["--dry-run"] if args.command == "restore" else []
    print(printable.lines(f"{args.command} on {len(agents)} nodes: {', '.join(agents)}"), flush=True)
    if len(agents) > 1 and not args.yes and args.command != "restore":
        raise InputError(Problem("command line", "--yes", "", "more than one node", "add --yes to act on all of them"))
    return _each(kubectl, agents, words)


def _each(kubectl: Kubectl, agents: dict[str, str], question: Sequence[str]) -> int:
    """Ask every agent, and print the answers in the order of the nodes; the largest exit code."""
    answers = _at_once(agents, lambda agent: kubectl.answer(agent, question))
    for node, (code, out, err) in zip(agents, answers, strict=True):
        if len(agents) > 1:
            print(printable.lines(f"== {node}{f', exit code {code}' if code else ''}"))
        print(printable.lines(out), end="")
        print(printable.lines(err), end="", file=sys.stderr)
    return max(code for code, _, _ in answers)


def _at_once(agents: dict[str, str], ask: Callable[[str], T]) -> list[T]:
    """Answers of all agents, in their order."""
    asking = commandline.progress(f"asking {len(agents)} agents")
    with asking, concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(ask, agents.values()))


class Kubectl:
    """The cluster, by the kubectl on the PATH."""

    def __init__(self, args: argparse.Namespace) -> None:
        options = {"--kubeconfig": args.kubeconfig, "--context": args.context}
        self._options = [word for name, value in options.items() if value for word in (name, value)]
        self._namespace = args.agents_namespace

    def agents(self) -> dict[str, str]:
        """Name of the agent's pod by node; KoordliteError in kubectl's words."""
        document = json.loads(self._run("get", "pods", "-n", self._namespace, "-l", SELECTOR, "-o", "json"))
        pods = [pod for pod in document["items"] if "deletionTimestamp" not in pod["metadata"]]
        return {pod["spec"]["nodeName"]: pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName")}

    def agent(self, node: str) -> str:
        """The agent's pod of this node. InputError when there is none."""
        agents = self.agents()
        if node not in agents:
            named = ", ".join(sorted(agents)[:5]) or "none"
            do = f"nodes with one: {named}; the namespace is --agents-namespace {self._namespace}"
            raise InputError(Problem("command line", "NODE", node, "no agent runs there", do))
        return agents[node]

    def nodes(self, selector: str) -> list[str]:
        """Names of the nodes with these labels."""
        listed = json.loads(self._run("get", "nodes", "-l", selector, "-o", "json"))
        return [str(node["metadata"]["name"]) for node in listed["items"]]

    def node_of(self, pod: str, namespace: str | None) -> tuple[str, str]:
        """The node of a pod, and the pod as NAMESPACE/NAME. InputError when it has no node, or the name is none."""
        named, _, name = pod.rpartition("/")
        where = ["-n", named or namespace] if named or namespace else []
        document = json.loads(self._run("get", f"pod/{name}", *(word for word in where if word), "-o", "json"))
        node = str(document["spec"].get("nodeName") or "")
        if not node:
            raise InputError(
                Problem(f"pod/{pod}", "spec.nodeName", "", "it has no node yet", "ask once it is scheduled")
            )
        return node, f"{document['metadata'].get('namespace') or named or namespace or 'default'}/{name}"

    def ask(self, agent: str, *question: str, terminal: bool = False) -> int:
        """Let the agent's pod answer on this terminal; the exit code."""
        return subprocess.run(self._exec(agent, question, terminal=terminal), check=False).returncode

    def answer(self, agent: str, question: Sequence[str]) -> tuple[int, str, str]:
        """Exit code, output and errors of a command in the agent's pod."""
        command = self._exec(agent, question, terminal=False)
        try:
            done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            return 2, "", f"no answer within {PATIENCE_SECONDS:.0f} s\n"
        return done.returncode, done.stdout, done.stderr

    def _exec(self, agent: str, question: Sequence[str], *, terminal: bool) -> list[str]:
        options = ["-it"] if terminal else []
        where = ["-n", self._namespace, agent, "-c", CONTAINER]
        return [*self._words("exec"), *options, *where, "--", "koordlite", *question]

    def _run(self, *words: str) -> str:
        try:
            done = subprocess.run(self._words(*words), check=False, capture_output=True, text=True)
        except FileNotFoundError:
            raise KoordliteError("kubectl is not on the PATH; install it, or ask the agents with koordlite") from None
        if done.returncode:
            raise KoordliteError(_last_line(done.stderr) or f"kubectl ended with {done.returncode}")
        return done.stdout

    def _words(self, *words: str) -> list[str]:
        return [os.environ.get("KUBECTL", "kubectl"), *self._options, *words]


def _fleet(kubectl: Kubectl, output: str) -> int:
    """0 while every agent is well, 1 when one is degraded or does not answer."""
    agents = dict(sorted(kubectl.agents().items()))
    if not agents:
        raise KoordliteError("there are no agents in this namespace; name another with --agents-namespace")
    answers = _at_once(agents, lambda agent: _state(kubectl, agent))
    if output == "json":
        nodes = [{"node": node, **answer} for node, answer in zip(agents, answers, strict=True)]
        _print_json("koordlite-fleet", nodes=nodes)
    elif output == "name":
        print(printable.lines("\n".join(f"node/{node}" for node in agents)))
    else:
        rows = [_HEAD, *(_row(node, answer) for node, answer in zip(agents, answers, strict=True))]
        if output == "wide":
            rows = [(*row, agent) for row, agent in zip(rows, ("AGENT", *agents.values()), strict=True)]
        _print_table(rows)
    return 0 if all(answer["status"] in ("enforcing", "observing", "paused") for answer in answers) else 1


def _print_json(kind: str, **parts: object) -> None:
    """The same as `commandline.print_json`, of plain values: krew's archive has no msgspec."""
    print(printable.in_json(json.dumps({"version": 1, "kind": kind, **parts}, indent=1, ensure_ascii=False)))


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, [*widths, 0], strict=True)]
        print(printable.lines("  ".join(cells).rstrip()))


_FIELDS = ("nodeCpu", "prodCpu", "beCpu", "beLimit", "batchCpu", "wouldLimit", "wouldBatchCpu")


def _state(kubectl: Kubectl, agent: str) -> dict[str, Any]:
    """Values of a line; amounts in millicores, null where unknown, with the words of kubectl or the agent."""
    _, out, err = kubectl.answer(agent, ("status", "-o", "json"))
    try:
        state, why = json.loads(out), "what answers is no agent"
    except ValueError:
        state, why = None, _last_line(err) or "no answer"
    if not isinstance(state, dict):
        return {"status": "unknown", "because": why, **dict.fromkeys(_FIELDS)}
    return {name: state.get(name) for name in ("status", "because", *_FIELDS)}


def _row(node: str, answer: dict[str, Any]) -> tuple[str, ...]:
    would = answer["status"] == "observing"
    limit = answer["wouldLimit"] if would else answer["beLimit"]
    batch = answer["wouldBatchCpu"] if would else answer["batchCpu"]
    mark = "would be " if would else ""
    amounts = [_cores(answer[name]) for name in ("nodeCpu", "prodCpu", "beCpu")]
    why = printable.one_line(str(answer["because"] or ""))
    return (
        printable.one_line(node),
        printable.one_line(str(answer["status"])),
        *amounts,
        mark + _cores(limit) if limit is not None else "–",
        mark + _cores(batch) if batch is not None else "–",
        why,
    )


def _cores(milli: Any) -> str:
    return f"{milli / 1000:.1f}" if isinstance(milli, int | float) else "–"


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "")
