"""The agent and the descheduler as processes against the emulated API server, with churn and faults.

    PYTHONPATH=tests/support python tests/perf/api/products.py --minutes 10 --speed 5

The server's time and the churn run `--speed` times faster than life; the two programs live in real time, and so their
requests are counted by the minute of life. Prints requests by program and memory of each; 1 when the agent does not see
at the end what the server holds, when the descheduler came to no plan of it, or when memory grew.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import yaml
from apiserver import ApiServer
from apiserver.users import ADMIN, User
from churn import Churn, FastClock, faults, started
from control_plane import free_port

ROOT = pathlib.Path(__file__).parents[3]
NODE = "n1"
SETTLE_SECONDS = 60.0
CYCLE_SECONDS = 10
_GROUPS = ADMIN.groups
TOKENS = {"admin": ADMIN, "agent": User("agent", _GROUPS), "descheduler": User("descheduler", _GROUPS)}


@dataclasses.dataclass
class Program:
    """One of the two, with what it wrote about itself."""

    name: str
    process: subprocess.Popen[bytes]
    log: pathlib.Path
    memory_mib: list[float] = dataclasses.field(default_factory=list)

    def weigh(self) -> None:
        """Note its resident memory."""
        lines = pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        kib = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
        self.memory_mib.append(kib / 1024)

    @property
    def growth(self) -> float:
        """Part by which memory grew after the first third; what comes before is warming up."""
        late = self.memory_mib[len(self.memory_mib) // 3 :]
        return max(late) / late[0] - 1 if late else 0.0


@contextlib.contextmanager
def programs(server: ApiServer, folder: pathlib.Path, port: int) -> Iterator[list[Program]]:
    """Both, running."""
    for name in TOKENS:
        (folder / name).write_text(server.kubeconfig(name))
    agent = ["koordlite", "run", "--sandbox", "intel-2s-ht", "--speed", "1", "--node-name", NODE, "--mode", "enforce"]
    agent += ["--kubeconfig", str(folder / "agent"), "--port", str(port), "--quiet"]
    agent += ["--state-dir", str(folder / "state")]
    other = ["descheduler", "run", "--kubeconfig", str(folder / "descheduler"), "--listen", "off"]
    other += ["--descheduling-interval", f"{CYCLE_SECONDS}s", "--report", str(folder / "report")]
    with contextlib.ExitStack() as stack:
        yield [_started(stack, folder, command) for command in (agent, other)]


def _started(stack: contextlib.ExitStack, folder: pathlib.Path, command: list[str]) -> Program:
    log = folder / f"{command[0]}.log"
    written = stack.enter_context(log.open("wb"))
    process = subprocess.Popen([sys.executable, "-m", *command], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=written)
    stack.callback(process.wait, 60)
    stack.callback(process.terminate)
    return Program(command[0], process, log)


def prepared(server: ApiServer) -> None:
    """What both need besides nodes and pods."""
    crd = ROOT / "manifests/crds/noderesourcetopologies.yaml"
    settings = yaml.safe_load((ROOT / "configs/tour/2-slo-controller-config.yaml").read_text())
    server.objects.load(yaml.safe_load(crd.read_text()), settings)


def run(minutes: float, speed: float, nodes: int, rate: float, fault_seconds: float) -> int:
    """The demonstration; 0 when everything holds."""
    clock = FastClock(speed)
    with ApiServer(clock=clock, tokens=TOKENS, seed=1, history=3000) as server, tempfile.TemporaryDirectory() as name:
        churn = Churn(server, nodes=nodes, rate=rate)
        prepared(server)
        churn.fill()
        port = free_port()
        with programs(server, pathlib.Path(name), port) as both:
            begun = time.monotonic()
            _churned(server, churn, clock, both, minutes=minutes, fault_seconds=fault_seconds)
            lived = time.monotonic() - begun
            asked = list(server.requests)
            server.faults.clear()
            wrong = [*_agent_differs(server, port), *_plan_differs(server, pathlib.Path(name, "report"))]
            wrong += [f"{p.name} has ended with {p.process.poll()}" for p in both if p.process.poll() is not None]
        _tell(asked, both, lived)
    wrong += [f"memory of {p.name} grew by {p.growth:.0%}" for p in both if p.growth > 0.25]
    print("; ".join(wrong) or "the agent sees what the server holds, and the descheduler planned with it")
    return 1 if wrong else 0


def _churned(
    server: ApiServer, churn: Churn, clock: FastClock, both: list[Program], *, minutes: float, fault_seconds: float
) -> None:
    begun, done, next_fault, next_look = clock.monotonic(), 0.0, fault_seconds, 60.0
    while done < minutes * 60:
        passed = clock.monotonic() - begun
        churn.step(passed - done)
        done = passed
        if passed >= next_fault:
            server.faults.add(*faults(passed))
            server.cut_connections()
            next_fault += fault_seconds
        if passed >= next_look:
            for each in both:
                each.weigh()
            next_look += 60.0
        time.sleep(0.02)


def _agent_differs(server: ApiServer, port: int) -> list[str]:
    """How the agent's last picture differs from the server, once it had time to catch up."""
    end = time.monotonic() + SETTLE_SECONDS
    wanted = _on_node(server)
    while (seen := _seen(port)) != wanted and time.monotonic() < end:
        time.sleep(0.5)
    node = server.objects.get("Node", NODE, api_version="v1") or {}
    promised = node["status"]["allocatable"].get("kubernetes.io/batch-cpu")
    return [
        *([] if seen == wanted else [f"the agent sees {len(seen)} pods, the server holds {len(wanted)}"]),
        *([] if promised else ["nothing was published"]),
    ]


def _on_node(server: ApiServer) -> set[str]:
    pods = server.objects.all("Pod", api_version="v1")
    return {pod["metadata"]["uid"] for pod in pods if pod["spec"].get("nodeName") == NODE}


def _seen(port: int) -> set[str]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/state?picture=true", timeout=10) as answer:
        picture = json.load(answer)["picture"] or {"pods": []}
    return {pod["uid"] for pod in picture["pods"]}


def _plan_differs(server: ApiServer, report: pathlib.Path) -> list[str]:
    """Whether a plan is written that saw every pod, within some cycles of the churn's end."""
    end, wanted, found = time.monotonic() + SETTLE_SECONDS, len(server.objects.all("Pod", api_version="v1")), None
    while found != wanted and time.monotonic() < end:
        time.sleep(1.0)
        with contextlib.suppress(OSError, ValueError, KeyError):
            found = int(json.loads((report / "plan.json").read_text())["summary"]["pods"])
    return [] if found == wanted else [f"the last plan saw {found} pods, the server holds {wanted}"]


def _tell(asked: list[Any], both: list[Program], lived: float) -> None:
    by_user = collections.Counter(each.user for each in asked)
    print(f"{lived:.0f} s of life")
    for each in both:
        user = "agent" if each.name == "koordlite" else each.name
        rate = by_user[user] / lived * 60
        print(f"{each.name}: {by_user[user]} requests, {rate:.0f} a minute")
        print(f"  MiB by minute: {' '.join(f'{mib:.1f}' for mib in each.memory_mib)} ({each.growth:+.1%})")
        kinds = collections.Counter(f"{a.verb} {a.resource} {a.status}" for a in asked if a.user == user)
        print("  " + ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()))


if __name__ == "__main__":
    sys.exit(started(run, sys.argv[1:], speed=5.0))
