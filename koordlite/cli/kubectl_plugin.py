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
from collections.abc import Sequence
from typing import Any

from koordlite import __version__, commandline
from koordlite.model import printable
from koordlite.model.errors import InputError, KoordliteError, Problem

SELECTOR = "app.kubernetes.io/name=koordlite"
CONTAINER = "koordlite"
AT_ONCE = 8
PATIENCE_SECONDS = 30.0
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
    top.add_argument(
        "-n", "--namespace", metavar="NAME", default="koordlite-system", help="of the agents (default: %(default)s)"
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    status = commands.add_parser("status", help="one screen about a node")
    status.add_argument("node", metavar="NODE")
    commandline.add_output(status)
    explain = commands.add_parser("explain", help="why a value of a node or pod is what it is")
    explain.add_argument(
        "subject",
        nargs="+",
        help="pod NAMESPACE/NAME, or NODE and what `koordlite explain` takes: besteffort, cpu 3, …",
    )
    explain.add_argument("--since", metavar="TIME", help="compare with that time, like 24h")
    commandline.add_output(explain)
    live = commands.add_parser("top", help="a node, live")
    live.add_argument("node", metavar="NODE")
    fleet = commands.add_parser("fleet", help="one line a node")
    commandline.add_output(fleet)
    return top


def _command(args: argparse.Namespace) -> int:
    kubectl = Kubectl(args)
    if args.command == "fleet":
        return _fleet(kubectl, args.output)
    if args.command == "top":
        # A terminal of its own in the pod, when this one is a terminal.
        return kubectl.ask(kubectl.agent(args.node), "top", terminal=sys.stdout.isatty())
    if args.command == "status":
        return kubectl.ask(kubectl.agent(args.node), "status", "-o", args.output)
    words = args.subject
    node = kubectl.node_of(words[1]) if words[0] == "pod" and len(words) == 2 else words.pop(0)
    since = ["--since", args.since] if args.since else []
    return kubectl.ask(kubectl.agent(node), "explain", *(words or ["node"]), *since, "-o", args.output)


class Kubectl:
    """The cluster, by the kubectl on the PATH."""

    def __init__(self, args: argparse.Namespace) -> None:
        given = {"--kubeconfig": args.kubeconfig, "--context": args.context}
        self._options = [word for name, value in given.items() if value for word in (name, value)]
        self._namespace = args.namespace

    def agents(self) -> dict[str, str]:
        """Name of the agent's pod by node; KoordliteError in kubectl's words."""
        found = json.loads(self._run("get", "pods", "-n", self._namespace, "-l", SELECTOR, "-o", "json"))
        pods = [pod for pod in found["items"] if "deletionTimestamp" not in pod["metadata"]]
        return {pod["spec"]["nodeName"]: pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName")}

    def agent(self, node: str) -> str:
        """The agent's pod of this node. InputError when there is none."""
        agents = self.agents()
        if node not in agents:
            do = f"nodes with one: {', '.join(sorted(agents)[:5]) or 'none'}; the namespace is -n {self._namespace}"
            raise InputError(Problem("command line", "NODE", node, "no agent runs there", do))
        return agents[node]

    def node_of(self, pod: str) -> str:
        """The node of a pod. InputError when it has none, or the name is none."""
        namespace, _, name = pod.rpartition("/")
        path = f"pod/{name}"
        found = json.loads(self._run("get", path, "-n", namespace or "default", "-o", "json"))
        node = str(found["spec"].get("nodeName") or "")
        if not node:
            raise InputError(
                Problem(f"pod/{pod}", "spec.nodeName", "", "it has no node yet", "ask once it is scheduled")
            )
        return node

    def ask(self, agent: str, *question: str, terminal: bool = False) -> int:
        """Let the agent's pod answer on this terminal; the exit code."""
        return subprocess.run(self._exec(agent, question, terminal=terminal), check=False).returncode

    def state(self, agent: str) -> dict[str, Any]:
        """The agent's state; KoordliteError in the words of kubectl or of the agent."""
        command = self._exec(agent, ("status", "-o", "json"), terminal=False)
        try:
            done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            raise KoordliteError(f"no answer within {PATIENCE_SECONDS:.0f} s") from None
        try:
            found = json.loads(done.stdout)
        except ValueError:
            raise KoordliteError(_last_line(done.stderr) or "no answer") from None
        if not isinstance(found, dict):
            raise KoordliteError("what answers is no agent")
        return found

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
    agents = sorted(kubectl.agents().items())
    if not agents:
        raise KoordliteError("there are no agents in this namespace; name another with -n")
    asking = commandline.progress(f"asking {len(agents)} agents")
    with asking, concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(lambda agent: _state(kubectl, agent[1]), agents))
    if output == "json":
        nodes = [{"node": node, **answer} for (node, _), answer in zip(agents, answers, strict=True)]
        commandline.print_json("koordlite-fleet", nodes=nodes)
    else:
        rows = [_HEAD, *(_row(node, answer) for (node, _), answer in zip(agents, answers, strict=True))]
        widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD) - 1)]
        for row in rows:
            cells = [cell.ljust(width) for cell, width in zip(row, [*widths, 0], strict=True)]
            print(printable.lines("  ".join(cells).rstrip()))
    return 0 if all(answer["status"] in ("enforcing", "observing", "paused") for answer in answers) else 1


_FIELDS = ("nodeCpu", "prodCpu", "beCpu", "beLimit", "batchCpu", "wouldLimit", "wouldBatchCpu")


def _state(kubectl: Kubectl, agent: str) -> dict[str, Any]:
    """Values of a line; amounts in millicores, null where unknown."""
    try:
        found = kubectl.state(agent)
    except KoordliteError as error:
        return {"status": "unknown", "because": str(error), **dict.fromkeys(_FIELDS)}
    return {name: found.get(name) for name in ("status", "because", *_FIELDS)}


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
