"""The ways to share a machine that are compared, each by its name.

alone                       no batch work
plain                       the groups of Kubernetes and nothing else: `cpu.shares` 2 for best effort
idle                        `cpu.idle` 1 on the besteffort group
slices:MS                   EEVDF slices of batch threads
static[:CPUS][,period=MS]   a quota that never changes; the mean of the formula's budget unless it is named
koordinator:POLICY          Koordinator's algorithm, by `cpuset` or `cfsQuota`
agent:POLICY[,KEY=VALUE]    koordlite as it ships, with settings such as `agent.reaction=off` or
                            `cpuSuppress.growHoldSeconds=0`; `threshold=80` is the ConfigMap's percentage
agent:objective[,p99=1.1]   the policy `guided`, where the service has the objective of a p99 of so many times that
                            which it has alone; the client tells its p99 as a Prometheus would
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import pathlib
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import tinyprometheus
from realnode.command import Command, running
from realnode.manifests import threshold

from koordlite.formulas.cpu import be_limit, suppress
from koordlite.model.cpuset import CPUSet
from koordlite.model.keys import OBJECTIVE
from koordlite.model.topology import CPU
from tests.perf.colocation.machine import SERVICE, Machine, Usage

THRESHOLD_PERCENT = 65
P99_TO_ALONE = 1.1
WINDOW_SECONDS = 5.0
"""Time over which an objective is measured: 1,250 requests of most services."""
P99 = Callable[[float], float]
"""p99 in ms over the last so many seconds, NaN of no requests."""


@dataclasses.dataclass(frozen=True)
class Alone:
    """The service without batch work."""

    cpus: float
    """What it used, which a static quota goes by."""
    p99_ms: float
    """Its p99, which an objective goes by."""


@dataclasses.dataclass(frozen=True)
class Way:
    """A way as its name says it."""

    name: str
    kind: str
    word: str
    settings: dict[str, Any]

    @property
    def has_batch(self) -> bool:
        """Whether batch work runs."""
        return self.kind != "alone"

    @property
    def slice_us(self) -> int:
        """Slice of batch threads, 0 for the kernel's own."""
        return round(float(self.word) * 1000) if self.kind == "slices" else 0

    @property
    def has_objective(self) -> bool:
        """Whether the service names an objective."""
        return self.kind == "agent" and self.word == "objective"

    @property
    def p99_to_alone(self) -> float:
        """The objective: p99 over that which the service has alone."""
        return float(self.settings.get("p99", P99_TO_ALONE))

    @property
    def threshold_percent(self) -> int:
        """The formula's threshold."""
        return int(self.settings.get("threshold", THRESHOLD_PERCENT))


def parse(name: str) -> Way:
    """The way of this name. ValueError names what it does not know."""
    head, *pairs = name.split(",")
    kind, _, word = head.partition(":")
    if any("=" not in pair for pair in pairs):
        raise ValueError(f"way {name!r}: settings are KEY=VALUE")
    settings = dict(pair.split("=", 1) for pair in pairs)
    known = {"alone", "plain", "idle", "slices", "static", "koordinator", "agent"}
    if kind not in known:
        raise ValueError(f"way {name!r}: there is no {kind!r}; one of {', '.join(sorted(known))}")
    if kind == "koordinator" and word not in ("cpuset", "cfsQuota"):
        raise ValueError(f"way {name!r}: the policy is cpuset or cfsQuota, not {word!r}")
    if kind == "agent" and word not in ("cpuset", "cfsQuota", "guided", "objective"):
        raise ValueError(f"way {name!r}: the policy is cpuset, cfsQuota, guided or objective, not {word!r}")
    return Way(name, kind, word, {key: json.loads(v) if _is_json(v) else v for key, v in settings.items()})


def _is_json(text: str) -> bool:
    with contextlib.suppress(ValueError):
        json.loads(text)
        return True
    return False


@contextlib.contextmanager
def in_force(way: Way, machine: Machine, alone: Alone, p99: P99) -> Iterator[None]:
    """The way, from when it has taken effect. Every group is as it was made when it ends. An objective goes by what
    `p99` says."""
    before = machine.tree.content()
    with _KINDS[way.kind](way, machine, alone, p99):
        yield
    changed = machine.tree.changed(before)
    if changed:
        raise RuntimeError(f"{way.name} left behind: {changed}")


@contextlib.contextmanager
def _nothing(way: Way, machine: Machine, alone: Alone, p99: P99) -> Iterator[None]:
    yield


@contextlib.contextmanager
def _file(path: pathlib.Path, text: str) -> Iterator[None]:
    """A kernel file that holds `text` for a while."""
    before = path.read_text()
    path.write_text(text)
    yield
    path.write_text(before)


@contextlib.contextmanager
def _idle(way: Way, machine: Machine, alone: Alone, p99: P99) -> Iterator[None]:
    with _file(machine.tree.points["cpu"] / machine.tree.qos("BestEffort") / "cpu.idle", "1"):
        yield


@contextlib.contextmanager
def _static(way: Way, machine: Machine, alone: Alone, p99: P99) -> Iterator[None]:
    budget = machine.cpus * way.threshold_percent / 100 - alone.cpus
    cpus, period_us = float(way.word or max(budget, 0.02)), round(float(way.settings.get("period", 100)) * 1000)
    with _quota(machine, round(cpus * period_us), period_us):
        yield


@contextlib.contextmanager
def _quota(machine: Machine, quota_us: int, period_us: int = be_limit.PERIOD_US) -> Iterator[None]:
    limit = machine.tree.file(machine.tree.qos("BestEffort"), "cpu")
    if machine.tree.version == 2:
        with _file(limit, f"{quota_us} {period_us}"):
            yield
        return
    with _file(limit.with_name("cpu.cfs_period_us"), str(period_us)), _file(limit, str(quota_us)):
        yield


@contextlib.contextmanager
def _koordinator(way: Way, machine: Machine, alone: Alone, p99: P99) -> Iterator[None]:
    """Koordinator's rounds, one a second, from one sample: no hold, no band but its own, no reaction in between. Its
    own CPU time is not here: a round of this loop costs less than koordlet's."""
    stop = threading.Event()
    rounds = _Rounds(way, machine)
    thread = threading.Thread(target=rounds.run, args=(stop,), name="koordinator")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        rounds.put_back()
    if rounds.failure:
        raise rounds.failure


class _Rounds:
    def __init__(self, way: Way, machine: Machine) -> None:
        self._way, self._machine = way, machine
        self._tree, self._before = machine.tree, machine.tree.content()
        self.failure: Exception | None = None

    def run(self, stop: threading.Event) -> None:
        last = self._machine.usage()
        while not stop.wait(1.0):
            now = self._machine.usage()
            try:
                self._round(budget_milli(last, now, self._machine.cpus, self._way.threshold_percent))
            except OSError as error:
                self.failure = error
                return
            last = now

    def _round(self, budget: int) -> None:
        group = self._tree.qos("BestEffort")
        if self._way.word == "cfsQuota":
            target = be_limit.quota_target(
                budget_milli=budget, current_us=self._tree.quota_us(group), capacity_milli=self._machine.cpus * 1000
            )
            if target is not None:
                self._tree.file(group, "cpu").write_text(str(target))
            return
        present = self._tree.effective(group)
        count = be_limit.cpu_target(budget_milli=budget, present=len(present), cpus=self._machine.cpus)
        # No LSR and no LSE pods, nothing reserved: every CPU of the machine is in Koordinator's shared pool.
        cpus = [CPU(id=number, core=number, socket=0, node=0) for number in range(self._machine.cpus)]
        target_set = CPUSet(be_limit.spread(count, cpus))
        self._set({group: set(target_set) | present for group in self._groups()})
        self._set({group: set(target_set) for group in reversed(self._groups())})

    def _groups(self) -> list[str]:
        root = self._tree.qos("BestEffort")
        return [group for group in self._tree.groups() if group == root or group.startswith(f"{root}/")]

    def _set(self, sets: dict[str, set[int]]) -> None:
        for group, cpus in sets.items():
            if self._tree.cpus(group) != cpus:
                self._tree.file(group, "cpuset").write_text(",".join(map(str, sorted(cpus))))

    def put_back(self) -> None:
        for path, raw in self._before.items():
            if pathlib.Path(path).read_bytes() != raw:
                pathlib.Path(path).write_bytes(raw)


def budget_milli(last: Usage, now: Usage, cpus: int, threshold_percent: int) -> int:
    """What the formula gives best effort for the time between two moments: capacity × threshold − services − system."""
    seconds = now.time - last.time
    system = now.others + now.agent + now.client - last.others - last.agent - last.client
    return suppress.be_cpu_budget(
        capacity_milli=cpus * 1000,
        threshold_percent=threshold_percent,
        prod_milli=math.floor((now.service - last.service) / seconds * 1000),
        host_milli=0,
        system_milli=max(0, math.floor(system / seconds * 1000)),
    )


@contextlib.contextmanager
def _agent(way: Way, machine: Machine, alone: Alone, p99: P99) -> Iterator[None]:
    policy = "guided" if way.has_objective else way.word
    machine.manifests.config(threshold=threshold(policy, percent=way.threshold_percent))
    sections, config = configuration(way), machine.folder / "koordlite.yaml"
    with contextlib.ExitStack() as stack:
        if way.has_objective:
            sections["objectives"] = stack.enter_context(_objective(way, machine, alone, p99))
        config.write_text(json.dumps(sections))
        stack.enter_context(_running_agent(machine, config))
        yield


@contextlib.contextmanager
def _objective(way: Way, machine: Machine, alone: Alone, p99: P99) -> Iterator[dict[str, Any]]:
    """Section `objectives`, while a Prometheus answers what the client measures. The service names the objective."""
    most = alone.p99_ms * way.p99_to_alone
    machine.manifests.pod(dataclasses.replace(SERVICE, notes=((OBJECTIVE, "p99"),)))
    query = {"query": "p99", "most": most, "unit": "ms", "windowSeconds": WINDOW_SECONDS}
    try:
        with tinyprometheus.serving(
            lambda: tinyprometheus.vector({("default", SERVICE.name): p99(WINDOW_SECONDS)})
        ) as server:
            yield {"prometheusUrl": server.url, "intervalSeconds": 1, "staleSeconds": 5, "queries": {"p99": query}}
    finally:
        machine.manifests.pod(SERVICE)


@contextlib.contextmanager
def _running_agent(machine: Machine, config: pathlib.Path) -> Iterator[None]:
    options = ["--config", str(config), "--cluster", str(machine.folder / "cluster"), "--kubepods", machine.tree.top]
    options += ["--state-dir", str(machine.folder / "state"), "--on-stop", "restore", "--mode", "enforce"]
    options += ["--record", str(machine.folder / "record"), "--published", str(machine.folder / "published")]
    with running(
        ["run", *options, "--port", "0", "-q"],
        machine.folder / "agent.log",
        _is_ready,
        "the agent is ready",
        before=machine.beside("agent"),
        seconds=120,  # An emulated CPU takes its time.
    ):
        yield


def _is_ready(agent: Command) -> bool:
    url = re.search(r"listening on (\S+)", agent.said())
    if not url:
        return False
    try:
        with urllib.request.urlopen(f"{url[1]}/readyz", timeout=5):
            return True
    except urllib.error.HTTPError:
        return False


def configuration(way: Way) -> dict[str, Any]:
    """The agent's configuration: section and option by their names in koordlite.yaml."""
    sections: dict[str, Any] = {}
    for key, value in way.settings.items():
        if key not in ("threshold", "p99"):
            section, option = key.split(".")
            at = sections if section == "agent" else sections.setdefault("strategies", {})
            at.setdefault(section, {})[option] = value
    return sections


_KINDS = {
    "alone": _nothing,
    "plain": _nothing,
    "idle": _idle,
    "slices": _nothing,
    "static": _static,
    "koordinator": _koordinator,
    "agent": _agent,
}
