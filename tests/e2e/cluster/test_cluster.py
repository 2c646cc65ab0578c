"""Scenarios on 24 emulated nodes: with the tests' own control plane always, with a real one where it is to be had."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable, Iterator

import pytest
from slices import long

from tests.e2e.cluster import bench as benches
from tests.e2e.cluster import processes, scenarios
from tests.e2e.cluster.bench import SCHEDULER, Bench
from tests.e2e.cluster.nodes import Nodes
from tests.e2e.cluster.scenarios import Trouble
from tests.e2e.cluster.workload import Replicas
from tests.support.topocluster.kubelets import Delays, Shape

SETTLE_SECONDS = 2.0
"""Until a scheduler that was just started knows the nodes."""
Open = Callable[[Callable[[Nodes], None]], Bench]


@pytest.fixture(params=["double", "real"])
def on(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[Open]:
    """Opens a cluster, with nodes that the test adds."""
    opened = []

    def open_(add: Callable[[Nodes], None]) -> Bench:
        made = benches.bench(tmp_path, real=request.param == "real", add=add)
        bench = made.__enter__()
        opened.append(made)
        return bench

    yield open_
    for made in opened:
        made.__exit__(None, None, None)


POLICY = f"""
kind: DeschedulerConfiguration
leaderElection: {{leaderElect: false}}
profiles:
- name: p
  pluginConfig:
  - name: MigrationController
    args:
      schedulerNames: [{SCHEDULER}]
      # Successors may exchange places: then the last job waits for a pod that has gone elsewhere until it times out.
      defaultJobTTL: 1m
      maxMigratingPerNode: 3
      maxMigratingPerWorkload: 3
      maxUnavailablePerWorkload: 3
      objectLimiters: {{workload: {{duration: 1s, maxMigrating: 3}}}}
  plugins: {{deschedule: {{enabled: [{{name: RemovePodsViolatingNodeTaints}}]}}}}
"""


def kubelets(nodes: Nodes) -> None:
    """Nodes on which kubelet's managers decide, and whose reports come up to three seconds late."""
    nodes.add(24, Shape(), Delays(report=(0.5, 3.0)))


def agents(nodes: Nodes) -> None:
    """Nodes on which our agent carries out what was promised."""
    nodes.add(24, Shape(), Delays(), agents=True)


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("nodes", "count"), [(24, 118), long(100, 500, id="500-pods")])
def test_a_burst_is_placed_without_a_refusal_though_reports_are_late(on: Open, nodes: int, count: int) -> None:
    bench = on(lambda known: known.add(nodes, Shape(), Delays(report=(0.5, 3.0))))
    extender, port = bench.extender()
    with processes.running(extender), bench.plane.scheduler(bench.configuration(port), SCHEDULER):
        time.sleep(SETTLE_SECONDS)
        outcome = scenarios.burst(bench, count if bench.plane.is_real else count * 3 // 5, 180.0)
    assert outcome["refused"] == {}
    # The extender waits 50 ms for the binding of the pod before; a machine busy with other work may take longer.
    assert extender.log.count("taken meanwhile") <= count // 30


@pytest.mark.timeout(240)
def test_without_the_extender_kubelets_refuse_pods(on: Open) -> None:
    """Or the other scenarios say nothing."""
    bench = on(kubelets)
    with bench.plane.scheduler(bench.configuration(), SCHEDULER):
        time.sleep(SETTLE_SECONDS)
        bench.pods.burst(160)  # Nine tenths of all CPUs: of 118 pods one run in ten places all.
        bench.until(lambda: bench.accounting.refused["TopologyAffinityError"] > 0, 60.0)


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("trouble", "replica"),
    [
        long("killed", False, id="killed"),
        long("hung", False, id="hung"),
        long("slow", False, id="slow"),
        long("killed", True, id="replica-killed"),
        ("hung", True),
    ],
)
def test_no_pod_is_bound_without_its_promise(on: Open, trouble: Trouble, replica: bool) -> None:
    bench = on(agents)
    extender, port = bench.extender("extender", f"--replicas={2 if replica else 1}")
    with processes.running(extender), bench.plane.scheduler(bench.configuration(port), SCHEDULER):
        time.sleep(SETTLE_SECONDS)
        outcome = scenarios.promised(bench, 80 if bench.plane.is_real else 30, extender, trouble, replica=replica)
    assert outcome["bound without a promise"] == outcome["CPUs promised twice"] == 0, outcome


@pytest.mark.timeout(240)
def test_where_the_extender_is_passed_over_the_promise_comes_later(on: Open) -> None:
    bench = on(agents)
    extender, port = bench.extender()
    configuration = bench.configuration(port, ignorable=True)
    with processes.running(extender), bench.plane.scheduler(configuration, SCHEDULER):
        time.sleep(SETTLE_SECONDS)
        outcome = scenarios.promised(bench, 80 if bench.plane.is_real else 30, extender, "killed", replica=False)
    assert outcome["bound without a promise"] == outcome["of these promised later"] > 0, outcome  # type: ignore[operator]
    assert outcome["CPUs promised twice"] == 0, outcome


@pytest.mark.timeout(240)
def test_the_other_controller_takes_over_in_five_seconds(on: Open) -> None:
    bench = on(kubelets)
    extender, port = bench.extender()
    controllers = [bench.controller(f"controller-{number}") for number in range(2)]
    configuration = bench.configuration(port)
    with processes.running(extender, *controllers), bench.plane.scheduler(configuration, SCHEDULER):
        time.sleep(SETTLE_SECONDS)
        outcome = scenarios.taken_over(bench, controllers, 4 if bench.plane.is_real else 1)
    # Placing what was reserved, without a takeover, takes one or two seconds of them.
    assert max(outcome["seconds"]) < 7.5, outcome  # type: ignore[call-overload]


@pytest.mark.timeout(240)
def test_a_pod_that_waits_only_for_a_report_is_tried_when_the_report_comes(on: Open) -> None:
    """Nothing that kube-scheduler watches happens then: without a word of the extender it would wait five minutes."""
    delays = Delays(end=(0.1, 0.2), report=(2.0, 2.0))
    bench = on(lambda nodes: nodes.add(1, Shape(), delays, placements=False))
    extender, port = bench.extender()
    with processes.running(extender), bench.plane.scheduler(bench.configuration(port), SCHEDULER):
        first = [bench.pods.create(("10", "1Gi")) for _ in range(2)]
        bench.until(lambda: bench.accounting.running == 2, 60.0, what="the first pods run")
        time.sleep(3.0)  # Their report is out.
        last = f"default/{bench.pods.create(('7', '1Gi'))}"  # There are ten CPUs, four and six on a NUMA node.
        bench.until(lambda: last in bench.accounting.pods and bench.accounting.pods[last].status.conditions, 30.0)
        bench.pods.delete(first[0])
        bench.until(lambda: last not in bench.accounting.pending, 30.0, what="the last pod is bound")


@pytest.mark.timeout(240)
@pytest.mark.parametrize("count", [long(320, id="320-nodes")])
def test_a_pod_finds_the_node_that_its_scheduler_looks_at_last(on: Open, count: int) -> None:
    """It looks at half of the nodes at a time, tries twice, and then waits."""

    def add(nodes: Nodes) -> None:
        nodes.add(count, Shape(cores=4), Delays())
        nodes.add(1, Shape(), Delays(), prefix="zone")

    bench = on(add)
    extender, port = bench.extender()
    configuration = bench.configuration(port).replace("percentageOfNodesToScore: 100", "percentageOfNodesToScore: 0")
    with processes.running(extender), bench.plane.scheduler(configuration, SCHEDULER):
        time.sleep(SETTLE_SECONDS)
        name = bench.pods.create(("9", "1Gi"))  # No NUMA node of the others has so many.
        bench.until(lambda: bench.accounting.running == 1, 60.0, what="the pod runs")
    assert bench.accounting.pods[f"default/{name}"].spec.node_name == "zone-00"


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("nodes", "count", "latest"), [(2, 16, 1.0), long(24, 200, 3.0, id="200-owners")])
def test_every_owner_gets_the_room_that_was_reserved_for_it(on: Open, nodes: int, count: int, latest: float) -> None:
    """Four fifths of the CPUs are reserved, so that many owners wait for their placeholder to go."""
    bench = on(lambda known: known.add(nodes, Shape(), Delays(report=(0.5, latest))))
    extender, port = bench.extender()
    controller = bench.controller("controller")
    with processes.running(extender, controller), bench.plane.scheduler(bench.configuration(port), SCHEDULER):
        time.sleep(SETTLE_SECONDS)
        outcome = scenarios.owned(bench, count)
    assert outcome["owners in their room"] == count, outcome
    assert outcome["refused"] == {}, outcome


@pytest.mark.timeout(400)
@pytest.mark.long
def test_every_pod_has_moved_though_descheduler_and_controller_die(on: Open) -> None:
    """tests/descheduler/migration/test_reserved_loop.py has them die at every write, in one process."""
    bench, deaths = on(lambda known: known.add(5, Shape(), Delays(report=(0.5, 3.0)))), 8
    replicas = Replicas(bench.plane.api(), "web", 12, "2", scheduler=SCHEDULER, node="node-00")
    bench.nodes.listeners.append(replicas)
    extender, port = bench.extender()
    mortals = [bench.descheduler(POLICY), bench.controller("controller")]
    with processes.running(extender, *mortals), bench.plane.scheduler(bench.configuration(port), SCHEDULER):
        outcome = scenarios.migrated(bench, replicas, mortals, deaths)
    assert outcome["pods elsewhere"] == 12, outcome
    assert outcome["settled"], outcome
    assert outcome["deaths while jobs were under way"] >= deaths // 2, outcome  # type: ignore[operator]
    assert outcome["refused"] == {}, outcome


@pytest.mark.timeout(400)
@pytest.mark.long
def test_a_budget_holds_pods_where_they_are_and_a_lost_node_costs_its_job_only(on: Open) -> None:
    bench = on(lambda known: known.add(5, Shape(), Delays(report=(0.5, 3.0))))
    replicas = Replicas(bench.plane.api(), "web", 6, "2", scheduler=SCHEDULER, node="node-00")
    bench.nodes.listeners.append(replicas)
    extender, port = bench.extender()
    others = [bench.descheduler(POLICY), bench.controller("controller")]
    with processes.running(extender, *others), bench.plane.scheduler(bench.configuration(port), SCHEDULER):
        outcome = scenarios.blocked_and_lost(bench, replicas)
    assert outcome == {"evicted under the budget": [], "pods elsewhere": 6, "on the lost node": 0, "settled": True}


ROOM = f"""
kind: DeschedulerConfiguration
leaderElection: {{leaderElect: false}}
profiles:
- name: p
  pluginConfig:
  - {{name: DefaultEvictor, args: {{nodeFit: true}}}}
  - {{name: MakeRoom, args: {{evict: true, minPending: 2s, labelSelector: {{matchLabels: {{app: big}}}}}}}}
  - name: MigrationController
    args:
      schedulerNames: [{SCHEDULER}]
      maxMigratingPerNode: 3
      objectLimiters: {{workload: {{duration: 1s, maxMigrating: 3}}}}
  plugins: {{deschedule: {{enabled: [MakeRoom]}}}}
"""


@pytest.mark.timeout(400)
@pytest.mark.long
def test_room_is_made_for_a_pod_and_no_other_takes_it(on: Open) -> None:
    """Two of four pods leave a node. Others as large and as important as the one that waits come all the while. (Of
    these kubelets' pods the descheduler does not know the NUMA nodes, so there is no policy.) In one process:
    tests/descheduler/migration/test_room_kept.py."""
    bench = on(lambda known: known.add(3, Shape(policy="none"), Delays(report=(0.5, 3.0))))
    movable = [Replicas(bench.plane.api(), name, 2, "7", scheduler=SCHEDULER, node="node-00") for name in ("web", "db")]
    bench.nodes.listeners += movable
    extender, port = bench.extender()
    others = [bench.descheduler(ROOM), bench.controller("controller")]
    with processes.running(extender, *others), bench.plane.scheduler(bench.configuration(port), SCHEDULER):
        bench.until(lambda: bench.accounting.running >= 4, 60.0, what="the replicas run")
        for node, cpu in (("node-01", "14"), ("node-02", "14"), ("node-01", "9"), ("node-02", "9")):
            running = bench.accounting.running
            bench.pods.create((cpu, "1Gi"), node=node)
            bench.until(lambda: bench.accounting.running > running, 60.0, what="the others have seven CPUs each")  # noqa: B023
        outcome = scenarios.room_made(bench, movable, 8)
    assert outcome.pop("jobs") == {"Succeeded": 3}
    assert outcome == {
        "the pod is where room was made": True,
        "rivals": 8,
        "rivals that run": 0,
        "evicted": 2,
        "elsewhere": 2,
        "refused": {},
    }


@pytest.mark.timeout(240)
def test_two_fronts_behind_one_address_promise_no_cpu_twice(on: Open) -> None:
    """The front that is asked dies, and the other one, with reservations of its own, is asked from then on."""
    bench = on(agents)
    fronts = [bench.extender(f"front-{number}", "--replicas=2") for number in range(2)]
    with (
        processes.running(*(front for front, _ in fronts)),
        processes.service([port for _, port in fronts]) as port,
        bench.plane.scheduler(bench.configuration(port), SCHEDULER),
    ):
        time.sleep(SETTLE_SECONDS)
        count = 80 if bench.plane.is_real else 30
        outcome = scenarios.promised(bench, count, fronts[0][0], "killed", replica=False)
    assert outcome["bound without a promise"] == outcome["CPUs promised twice"] == 0, outcome


@pytest.mark.timeout(400)
@pytest.mark.parametrize("count", [4, long(20, id="20-pods")])
def test_preemption_takes_no_more_pods_than_it_has_to(on: Open, count: int) -> None:
    bench = on(lambda known: known.add(4, Shape(), Delays(report=(0.5, 3.0))))
    if not bench.plane.is_real:
        pytest.skip("the stand-in preempts nobody; tests/scheduler/test_preemption_property.py plays kube-scheduler")
    extender, port = bench.extender()
    with processes.running(extender), bench.plane.scheduler(bench.configuration(port), SCHEDULER):
        time.sleep(SETTLE_SECONDS)
        outcome = scenarios.preempted(bench, count)
    assert outcome["victims"] <= outcome["least"] + count // 4, outcome  # type: ignore[operator]
