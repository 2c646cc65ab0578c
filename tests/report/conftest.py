"""An invented node and an invented run: load rises and falls, best-effort gives way and comes back."""

from __future__ import annotations

import html.parser
import math
from collections.abc import Callable

import pytest
from reported import tick_of

from koordlite import changes
from koordlite.changes.cgroup import CgroupChange
from koordlite.model.cpuset import CPUSet
from koordlite.model.decision import CPULimit, Decision, Verdict
from koordlite.model.errors import Problem
from koordlite.model.node import Node, ResolvedReservation, SystemQoS
from koordlite.model.picture.groups import Cgroup, Layout, PodGroups
from koordlite.model.picture.kubelet import Kubelet
from koordlite.model.picture.published import Published
from koordlite.model.picture.usage import Usage, Use
from koordlite.model.pod.qos import KubeQoS, QoSClass
from koordlite.model.pod.values import Pod, ResourceStatus
from koordlite.model.quantity import Quantity
from koordlite.model.slo.settings import SLO, Threshold
from koordlite.model.snapshot import Snapshot
from koordlite.model.status import AppliedStep, ForeignWrite
from koordlite.model.topology import CPU, NUMANode, Topology
from koordlite.report.history import History
from koordlite.report.node_figures import CPUCell
from koordlite.report.tick import Tick
from koordlite.resctrl.values import ControlGroup, Resctrl

BE_SET = "kubepods/besteffort/cpuset.cpus"


def owner(cpu: int) -> str:
    pinned = {4: "LSE", 5: "LSE", 6: "LSR", 7: "LSR", 8: "system"}
    return "reserved" if cpu < 2 else pinned.get(cpu, "LS")


def suppress(*, prod: int, present: int, target: int) -> Decision:
    terms = {"capacity_milli": 32000, "threshold_percent": 65, "prod_milli": prod, "host_milli": 0}
    budget = 32000 * 65 // 100 - prod - 1400
    cpus = f"9-{8 + target}"
    evidence: dict[str, int | float | str] = {
        **terms,
        "system_milli": 1400,
        "present_cpus": present,
        "target_cpus": target,
        "cpuset": cpus,
    }
    limit = CPULimit(budget_milli=budget, present_milli=present * 1000, limit_milli=target * 1000, by_quota=False)
    changes = () if present == target else (CgroupChange("kubepods/besteffort", "cpuset.cpus", CPUSet.parse(cpus)),)
    verdict: Verdict = "hold" if present == target else "shrink" if target < present else "grow"
    return Decision("besteffort", verdict, "BECPUBudget", evidence, changes, "cpuSuppress", outcome=limit)


def offered(amount: int) -> Decision:
    evidence = {"result": amount, "capacity": 32000, "margin": 12800, "system": 2000, "hp": 17200 - amount}
    return Decision("node/kubernetes.io/batch-cpu", "hold", "BatchAllocatable", evidence, (), "beAllocatable")


def tick_at(second: int, before: int) -> Tick:
    """The tick of one second; best-effort held `before` CPUs until then."""
    prod = round(6000 + 5000 * math.sin(second / 20))
    wanted = max(2, min((32000 * 65 // 100 - prod - 1400) // 1000, before + 4))
    decision = suppress(prod=prod, present=before, target=wanted)
    used = min(before * 1000, 18000)
    step = AppliedStep(changes.parse(BE_SET), f"9-{8 + wanted}", seconds=0.0002)
    problem = Problem("node/node-a", "reservation", '{"cpu":', "the JSON ends too early", "fix it")
    return tick_of(
        time=float(second),
        wall=1_790_000_000.0 + second,
        node="node-a",
        status="enforcing",
        capacity_milli=32000,
        threshold_milli=20800,
        node_cpu=prod + used + 1400,
        node_memory=64 << 30,
        prod_cpu=prod,
        be_cpu=used,
        be_limit=wanted * 1000,
        be_budget=20800 - prod - 1400,
        batch_cpu=8000 - prod // 2,
        batch_memory=(40 << 30) - second * (32 << 20),
        be_cpuset=f"9-{8 + wanted}",
        ls_pool="2-3,8-31",
        be_pool="2-3,6-31",
        schemata={"(root)": "L3:0=fff;1=fff MB:0=100;1=100", "BE": "L3:0=f;1=f MB:0=50;1=50"},
        cpus=tuple(CPUCell(cpu, cpu // 8 % 2, owner(cpu), 9 <= cpu < 9 + wanted) for cpu in range(32)),
        decisions=(decision, offered(8000 - prod // 2)),
        modes={"cpuSuppress": "enforce", "beAllocatable": "observe"},
        applied=(step,) if decision.changes else (),
        foreign=(ForeignWrite(changes.parse(BE_SET), "9-12", "0-31"),) if second == 70 else (),
        problems=(problem,) if 30 <= second < 60 else (),
        ages={"node": 0.5, "pods": 0.5, "config": 3.0, "usage": 0.0},
        tick_seconds=0.004,
    )


@pytest.fixture(scope="session")
def ticks() -> tuple[Tick, ...]:
    """Four minutes, one tick a second."""
    held, made = 12, []
    for second in range(241):
        made.append(tick_at(second, held))
        held = (made[-1].figures.be_limit or 0) // 1000
    return tuple(made)


@pytest.fixture
def history(ticks: tuple[Tick, ...]) -> History:
    """The run as reports get it."""
    run = History({"cpuSuppress.mode": "enforce"}, {"koordlite": "0.1.0", "machine": "intel-2s-ht"})
    for tick in ticks:
        run.add(tick)
    return run


BATCH = "kubepods/besteffort/podb1"
WEB = Pod(namespace="shop", name="web", uid="w1", raw_qos=QoSClass.LS, kube_qos=KubeQoS.BURSTABLE)
CACHE = Pod(
    namespace="shop",
    name="cache",
    uid="c1",
    raw_qos=QoSClass.LSR,
    kube_qos=KubeQoS.GUARANTEED,
    resource_status=ResourceStatus(CPUSet.parse("1-2")),
)
CRUNCH = Pod(namespace="lab", name="crunch", uid="b1", raw_qos=QoSClass.BE)


@pytest.fixture
def picture() -> Snapshot:
    """Eight CPUs on two NUMA nodes; CPU 0 reserved, 1-2 pinned, best-effort on 4-7, 65 % suppression."""
    four_to_seven = Cgroup(CPUSet.parse("4-7"), CPUSet.parse("4-7"), -1)
    return Snapshot(
        time=110.0,
        taken_at="2026-09-21T10:00:00Z",
        node=Node(name="node-a", capacity={"cpu": Quantity.of(8)}),
        slo=SLO(threshold=Threshold(enable=True)),
        topology=Topology(
            tuple(CPU(cpu, cpu // 2, cpu // 4, cpu // 4) for cpu in range(8)),
            (NUMANode(0, CPUSet.parse("0-3"), 1 << 33), NUMANode(1, CPUSet.parse("4-7"), 1 << 33)),
        ),
        reserved=ResolvedReservation(CPUSet([0]), source="list"),
        system_qos=SystemQoS(),
        kubelet=Kubelet(cpu_manager_policy="none"),
        layout=Layout(2, "cgroupfs", "kubepods", "kubepods/burstable", "kubepods/besteffort"),
        pods=(WEB, CACHE, CRUNCH),
        places={"b1": PodGroups(BATCH, {"main": f"{BATCH}/main"})},
        cgroups={"kubepods/besteffort": four_to_seven, BATCH: four_to_seven, f"{BATCH}/main": four_to_seven},
        usage=Usage(Use(5000, 1 << 30), {"w1": Use(1500, 0), "c1": Use(500, 0), "b1": Use(2400, 0)}, {}, 2400),
        average=Usage(None, {}, {}),
        resctrl=Resctrl(
            groups={"": ControlGroup({"L3": {0: 0xFFF}}), "BE": ControlGroup({"L3": {0: 0xF}, "MB": {0: 100}})}
        ),
        published=Published({"kubernetes.io/batch-cpu": 3000, "kubernetes.io/batch-memory": None}, {}),
        ages={"usage": 0.0},
    )


class WellFormed(html.parser.HTMLParser):
    """Checks that every element is closed in its turn, and gathers texts and attributes."""

    VOID = frozenset({"meta", "br", "hr", "link", "img", "input"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def read_html() -> Callable[[str], WellFormed]:
    """Parse a document; fails when an element is left open."""

    def read(document: str) -> WellFormed:
        parser = WellFormed()
        parser.feed(document)
        parser.close()
        assert not parser.open
        return parser

    return read
