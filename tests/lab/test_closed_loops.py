"""Each strategy acts on the emulated node through the whole agent, and the node answers."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import msgspec
import pytest
from emulated import Emulated

from koordlite.agent import Agent
from koordlite.config import Settings
from koordlite.lab.load.workloads import Workload
from koordlite.lab.machine.clock import LONGEST_STEP
from koordlite.report.explain.subject import explain
from koordlite.report.sentence import sentence
from koordlite.report.tick import Tick

MiB = 2**20
ROOT = "/sys/fs/cgroup"


class Node(Emulated):
    """A node whose pods also have memory, and whose agent has some rules switched on."""

    longest_step = LONGEST_STEP

    def work(
        self,
        name: str,
        qos: str,
        *,
        cpu: str = "100m",
        memory: str = "",
        annotated: dict[str, str] | None = None,
        **notes: Any,
    ) -> None:
        """A pod of a class; `limits` and `requests` are a container's, `annotated` are annotations by their keys."""
        resources = {key: notes.pop(key) for key in ("requests", "limits") if key in notes}
        annotations = {f"sandbox.koordlite.io/{key.replace('_', '-')}": text for key, text in notes.items()}
        annotations["sandbox.koordlite.io/cpu"] = cpu
        if memory:
            annotations["sandbox.koordlite.io/memory"] = memory
        annotations |= annotated or {}
        names = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "annotations": annotations}
        names["labels"] = {"koordinator.sh/qosClass": qos}
        spec = {"nodeName": "node-a", "containers": [{"name": "main", "resources": resources}]}
        self._write(f"pod-{name}", "v1", "Pod", names, spec=spec, status={"phase": "Running"})

    def threshold(self, **wanted: object) -> None:
        """The ConfigMap's thresholds."""
        self.raw_slo(
            {
                "colocation-config": {"enable": True, "metricAggregateDurationSeconds": 10},
                "resource-threshold-config": {"clusterStrategy": {"enable": True, **wanted}},
            }
        )

    def with_rules(self, name: str, **rules: object) -> Settings:
        """Everything enforced, with these options of one strategy."""
        chosen = self.settings()
        section = dataclasses.replace(chosen.strategies[name], **rules)  # type: ignore[arg-type]
        return msgspec.structs.replace(chosen, strategies={**chosen.strategies, name: section})

    def live(self, settings: Settings, seconds: int) -> list[Tick]:
        """An agent at work for that long."""
        with self.journal() as journal:
            return self.ticks(Agent(self.host(), self.cluster, settings, journal), seconds)

    def quality(self, **classes: object) -> None:
        """The ConfigMap's classes."""
        self.raw_slo({"resource-qos-config": {"clusterStrategy": classes}})

    def workload(self, name: str) -> Workload:
        """The only container of a pod."""
        self.cluster.view()
        return self.sandbox.kubelet.running[f"uid-{name}"].workloads[0]

    def pods(self) -> set[str]:
        """Who is there."""
        self.cluster.view()
        return {pod.described.name for pod in self.sandbox.kubelet.running.values()}

    def restarts(self) -> int:
        """How often the kernel killed something."""
        return sum(sum(pod.restarts.values()) for pod in self.sandbox.kubelet.running.values())


@pytest.fixture
def small(tmp_path: Path) -> Node:
    """4 CPUs, 8 GiB, cgroup v1."""
    return Node("small", tmp_path)


@pytest.fixture
def large(tmp_path: Path) -> Node:
    """16 CPUs, 64 GiB, cgroup v2."""
    return Node("arm", tmp_path)


def test_suppression_leaves_the_service_what_it_wants(small: Node) -> None:
    small.work("web", "LS", cpu="steps(0:500m,20:3)", requests={"cpu": "1"})
    small.work("crunch", "BE", cpu="greedy", requests={"kubernetes.io/batch-cpu": "4000"})
    small.threshold(cpuSuppressThresholdPercent=65)
    small.live(small.settings(), 40)
    stats = small.sandbox.stats("uid-web")
    assert stats.unmet_us < 0.02 * stats.wanted_us
    assert small.sandbox.stats("uid-crunch").used_milli <= 1000


@pytest.mark.parametrize(
    ("requests", "least", "most"),
    [
        # By the budget 4 CPUs × 65 % − 400m − 2 reserved CPUs.
        pytest.param("1", 1500, 2000, id="no service waits: all of the set"),
        pytest.param("1m", 100, 250, id="a service without shares waits: the budget"),
    ],
)
def test_best_effort_on_two_cpus_keeps_to_its_budget_while_services_wait(
    small: Node, requests: str, least: int, most: int
) -> None:
    small.node(reservation='{"reservedCPUs": "0-1"}')
    small.work("web", "LS", cpu="400m" if requests == "1" else "greedy", requests={"cpu": requests})
    small.work("crunch", "BE", cpu="greedy", requests={"kubernetes.io/batch-cpu": "4000"})
    small.threshold(cpuSuppressThresholdPercent=65)
    small.live(small.settings(), 40)
    assert least <= small.sandbox.stats("uid-crunch").used_milli <= most


def test_guided_lets_best_effort_have_what_no_service_waits_for(small: Node) -> None:
    small.work("web", "LS", cpu="1", requests={"cpu": "1"})
    small.work("crunch", "BE", cpu="greedy", requests={"kubernetes.io/batch-cpu": "4000"})
    small.threshold(cpuSuppressThresholdPercent=65, cpuSuppressPolicy="guided")
    last = small.live(small.settings(), 20)[-1]
    # By the formula 4 CPUs × 65 % − 1 = 1.6.
    assert small.sandbox.stats("uid-crunch").used_milli >= 2900
    assert small.sandbox.stats("uid-web").used_milli >= 990
    assert "no service waits too long" in explained(last)


def test_guided_takes_away_what_makes_a_service_wait(small: Node) -> None:
    # Of 10 and 2 shares, batch work gets a sixth of the CPUs that the service wants.
    small.work("web", "LS", cpu="greedy", requests={"cpu": "10m"})
    small.work("crunch", "BE", cpu="greedy", requests={"kubernetes.io/batch-cpu": "4000"})
    small.threshold(cpuSuppressThresholdPercent=65, cpuSuppressPolicy="guided")
    ticks = small.live(small.settings(), 40)
    reasons = {d.reason for tick in ticks for d in tick.decisions if d.strategy == "cpuSuppress"}
    assert {"WaitCauseUnknown", "ServicesWait"} <= reasons
    assert ticks[-1].figures.be_limit
    assert ticks[-1].figures.be_limit <= 1000


def explained(tick: Tick) -> str:
    return next(sentence(d) for d in tick.decisions if (d.strategy, d.subject) == ("cpuSuppress", "besteffort"))


def growing(node: Node) -> None:
    """A service that grows to most of the node, beside three batch pods of half a GiB to 1.5 GiB."""
    node.work("web", "LS", memory="steps(0:1Gi,10:5Gi)", requests={"cpu": "1", "memory": "6Gi"})
    for number, mib in enumerate((512, 1024, 1536)):
        requests = {"kubernetes.io/batch-memory": f"{mib}Mi"}
        node.work(f"batch-{number}", "BE", memory=f"{mib}Mi", requests=requests)
    node.threshold(memoryEvictThresholdPercent=70, memoryEvictLowerPercent=60)


def test_memory_evictions_come_before_the_kernel_kills(small: Node) -> None:
    growing(small)
    small.live(small.with_rules("memoryEvict", be_memory_evict=True), 90)
    assert small.restarts() == 0
    assert "web" in small.pods()
    assert small.pods() < {"web", "batch-0", "batch-1", "batch-2"}
    held = small.sandbox.cgroups.memory.root.anon_below
    assert held <= 0.7 * small.sandbox.machine.memory


def test_a_refused_eviction_lets_the_next_pod_go(small: Node) -> None:
    growing(small)
    requests = {"kubernetes.io/batch-memory": "1536Mi"}
    small.work("batch-2", "BE", memory="1536Mi", requests=requests, refuse_evictions="true")
    small.live(small.with_rules("memoryEvict", be_memory_evict=True), 90)
    assert "batch-2" in small.pods()
    assert small.pods() < {"web", "batch-0", "batch-1", "batch-2"}


def test_starving_best_effort_pods_are_evicted(small: Node) -> None:
    small.work("web", "LS", cpu="1900m", requests={"cpu": "1"})
    for number in range(4):
        small.work(f"batch-{number}", "BE", cpu="greedy", requests={"kubernetes.io/batch-cpu": "2000"})
    wanted = {"cpuEvictBESatisfactionLowerPercent": 40, "cpuEvictBESatisfactionUpperPercent": 50}
    small.threshold(cpuSuppressThresholdPercent=65, cpuEvictTimeWindowSeconds=10, **wanted)
    small.live(small.with_rules("cpuEvict", be_cpu_evict=True), 120)
    assert "web" in small.pods()
    assert len(small.pods()) < 5


def burst_config(node: Node, policy: str) -> None:
    node.raw_slo({"cpu-burst-config": {"clusterStrategy": {"policy": policy, "cpuBurstPercent": 1000}}})


@pytest.mark.parametrize("policy", ["none", "cpuBurstOnly", "cfsQuotaBurstOnly"])
@pytest.mark.parametrize("shape", ["small", "arm"])
def test_burst_spares_a_spiky_service_its_throttling(tmp_path: Path, shape: str, policy: str) -> None:
    node = Node(shape, tmp_path)
    node.work("web", "LS", cpu="wave(low=500m,high=1100m,period=2)", requests={"cpu": "1"}, limits={"cpu": "1"})
    burst_config(node, policy)
    node.live(node.settings(), 60)
    group = node.sandbox.cgroups.cpu.find(node.sandbox.kubelet.running["uid-web"].workloads[0].group)
    assert group is not None
    throttled = group.throttled
    assert throttled > 100 if policy == "none" else throttled < 60


def test_memory_qos_protects_a_service_from_reclaim(large: Node) -> None:
    large.work("web", "LS", memory="16Gi", requests={"cpu": "1", "memory": "20Gi"})
    large.work("batch", "BE", memory="steps(0:1Gi,5:46Gi)", requests={"kubernetes.io/batch-memory": "46Gi"})
    large.raw_slo(
        {
            "resource-qos-config": {
                "clusterStrategy": {"lsClass": {"memoryQOS": {"enable": True, "minLimitPercent": 95}}}
            }
        }
    )
    large.host()
    web = large.sandbox.cgroups.memory.find(large.sandbox.kubelet.running["uid-web"].workloads[0].group)
    assert web is not None
    cached = web.cache
    large.live(large.settings(), 30)
    assert web.cache == cached
    batch = large.sandbox.cgroups.memory.find(large.sandbox.kubelet.running["uid-batch"].workloads[0].group)
    assert batch is not None
    assert batch.cache < batch.anon // 8


def test_protection_of_children_never_exceeds_their_parents(large: Node) -> None:
    for number in range(3):
        large.work(f"web-{number}", "LS", memory="1Gi", requests={"cpu": "1", "memory": f"{number + 1}Gi"})
        large.work(f"batch-{number}", "BE", memory="1Gi", requests={"kubernetes.io/batch-memory": f"{number + 1}Gi"})
    quality = {"memoryQOS": {"enable": True, "minLimitPercent": 50, "lowLimitPercent": 30}}
    large.raw_slo({"resource-qos-config": {"clusterStrategy": {"lsClass": quality, "beClass": quality}}})
    large.live(large.settings(on_stop="keep"), 5)
    top = large.sandbox.cgroups.memory.find(large.sandbox.kubelet.layout.kubepods)
    assert top is not None
    assert top.memory_min == pytest.approx(6 * 2**30, rel=0.01)
    for group in (each for each in top.walk() if each.children):
        assert sum(child.memory_min for child in group.children.values()) <= group.memory_min
        assert sum(child.memory_low for child in group.children.values()) <= group.memory_low


READER = {"name": "vda", "type": "device", "ioCfg": {"readBPS": 100 * MiB}}


@pytest.mark.parametrize("shape", ["anolis", "arm"])
@pytest.mark.parametrize("limited", [True, False], ids=["limited", "free"])
def test_a_reader_that_is_held_back_leaves_the_disk_to_the_service(tmp_path: Path, shape: str, limited: bool) -> None:
    node = Node(shape, tmp_path)
    node.work("web", "LS", requests={"cpu": "1"}, disk_read="200Mi")
    node.work("scan", "BE", disk_read="900Mi")
    node.quality(beClass={"blkioQOS": {"enable": limited, "blocks": [READER]}})
    node.live(node.settings(), 20)
    group = node.sandbox.cgroups.io.find(node.workload("web").group)
    assert group is not None
    assert (group.read_bytes > 19 * 200 * MiB * 0.95) is limited


@pytest.mark.parametrize("asked", [True, False], ids=["with the annotation", "without"])
def test_whom_the_kernel_kills_first_follows_the_annotation(large: Node, asked: bool) -> None:
    keep, go = ({"koordinator.sh/oom-score-adj": score} if asked else {} for score in ("-900", "900"))
    large.work("database", "LS", memory="steps(0:1Gi,8:40Gi)", requests={"cpu": "1"}, annotated=keep)
    large.work("cache", "LS", memory="steps(0:1Gi,8:30Gi)", requests={"cpu": "1"}, annotated=go)
    large.live(large.with_rules("oomScore", burstable_floor=-1000), 40)
    killed = {name: sum(large.sandbox.kubelet.running[f"uid-{name}"].restarts.values()) for name in large.pods()}
    assert (killed["cache"] > 0, killed["database"] > 0) == (asked, not asked)


@pytest.mark.parametrize("factor", [0, 1250])
def test_memory_kept_free_by_the_kernel_is_taken_from_page_cache(large: Node, factor: int) -> None:
    large.work("web", "LS", memory="52Gi", requests={"cpu": "1"})
    large.raw_slo({"system-config": {"clusterStrategy": {"minFreeKbytesFactor": factor} if factor else {}}})
    large.live(large.settings(), 20)
    root = large.sandbox.cgroups.memory.root
    free = large.sandbox.machine.memory - 2**30 - root.anon_below - root.cache_below
    wanted = large.sandbox.machine.memory * factor // 10_000
    assert free == pytest.approx(wanted or 4.5 * 2**30, rel=0.01)


@pytest.mark.parametrize("enable", [True, False], ids=["ranked", "alike"])
@pytest.mark.parametrize("shape", ["anolis", "arm"])
def test_a_rank_lets_batch_work_give_way(tmp_path: Path, shape: str, enable: bool) -> None:
    node = Node(shape, tmp_path)
    node.work("web", "LS", cpu=f"{node.cpus - 1}", requests={"cpu": "100m"})
    # Of one QoS group, so that only the rank of the pod decides.
    node.work("crunch", "BE", cpu="greedy", requests={"cpu": "1", "kubernetes.io/batch-cpu": "1000"})
    node.quality(beClass={"cpuQOS": {"enable": enable, "groupIdentity": -1}})
    node.live(node.settings(), 20)
    web = node.workload("web")
    assert (web.used_us > 0.95 * web.wanted_us) is enable


# ── batch resources ──


BATCH_FILES = ("cpu.shares", "cpu.weight", "cpu.cfs_quota_us", "cpu.max", "memory.limit_in_bytes", "memory.max")


def batch_files(node: Node) -> dict[str, bytes]:
    """The files of pods and containers that batch resources are written to."""
    files = node.sandbox.files
    names = (path for path in files.paths("/sys/fs") if path.rpartition("/")[2] in BATCH_FILES)
    return {path: files.read(path) for path in names}


def batch(node: Node, name: str, cpu: int, **more: Any) -> None:
    """A greedy BE pod with as much batch-cpu, requested and as its limit, and 1 GiB of batch-memory."""
    amounts = {"kubernetes.io/batch-cpu": str(cpu), "kubernetes.io/batch-memory": "1Gi"}
    node.work(name, "BE", requests=amounts, limits=amounts, **{"cpu": "greedy", **more})


@pytest.fixture(params=["small", "arm"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Node:
    """cgroup v1 with driver cgroupfs, and v2 with driver systemd."""
    return Node(request.param, tmp_path)


def test_batch_pods_run_within_what_they_asked_for(either: Node) -> None:
    batch(either, "one", 500)
    batch(either, "two", 1500)
    either.live(either.settings(), 20)
    used = {name: either.sandbox.stats(f"uid-{name}").used_milli for name in ("one", "two")}
    assert 450 <= used["one"] <= 510 and 1400 <= used["two"] <= 1510


def test_batch_pods_share_a_full_node_by_their_requests(small: Node) -> None:
    """Four CPUs for two greedy pods that have no limit."""
    for name, cpu in (("one", "1000"), ("two", "3000")):
        small.work(name, "BE", cpu="greedy", requests={"kubernetes.io/batch-cpu": cpu})
    small.raw_slo({})
    small.live(small.settings(), 20)
    used = [small.sandbox.stats(f"uid-{name}").used_milli for name in ("one", "two")]
    assert used[1] / used[0] == pytest.approx(3, rel=0.1)


def test_batch_values_come_within_one_tick_then_nothing_is_written_and_all_goes_back(either: Node) -> None:
    batch(either, "one", 500)
    either.cluster.view()
    found = batch_files(either)
    with either.at_work() as agent:
        either.ticks(agent, 1)
        assert any(value != found[path] for path, value in batch_files(either).items())
        batch(either, "late", 700)
        first, *rest = either.ticks(agent, 6)
        late = [step for step in first.applied if "late" in str(step.place) and "cpuset" not in str(step.place)]
        assert len(late) == 6 and all(step.ok for step in late)
        assert not [step for tick in rest for step in tick.applied if "pod" in str(step.place)]
        either.remove("late")
        either.ticks(agent, 2)
        agent.put_back()
    assert batch_files(either) == found


def test_batch_observed_writes_nothing(either: Node) -> None:
    batch(either, "one", 500)
    either.cluster.view()
    found = batch_files(either)
    with either.journal() as journal:
        (tick,) = either.ticks(either.agent(journal, "observe"), 1)
    assert batch_files(either) == found
    assert [d.verdict for d in tick.decisions if d.reason == "BatchResources"] == ["set"]
    explained = explain("pod ns/one", tick)
    assert "batch-cpu 500 × 1024 / 1000 = 512 shares; limit 500 × 100 ms / 1000 = quota 50 ms" in explained
    assert "memory limit: 1.0 GiB" in explained


def test_a_memory_limit_waits_until_the_pod_fits_and_kills_nobody(either: Node) -> None:
    batch(either, "one", 500, memory="steps(0:1500Mi,10:500Mi)")
    ticks = either.live(either.settings(), 20)
    reasons = [{d.reason for d in tick.decisions} for tick in ticks]
    assert "MemoryLimitBelowUse" in reasons[1] and "MemoryLimitBelowUse" not in reasons[-1]
    assert either.restarts() == 0
    limits = {v for path, v in batch_files(either).items() if "memory" in path and v.strip() == b"1073741824"}
    assert limits


def test_batch_quotas_make_way_for_the_policy_cfs_quota_and_come_back(either: Node) -> None:
    batch(either, "one", 1500)
    with either.at_work() as agent:
        for policy in ("cpuset", "cfsQuota", "cpuset"):
            either.slo(policy=policy, resctrl=False)
            steps = [step for tick in either.ticks(agent, 15) for step in tick.applied]
            assert not [step for step in steps if not step.ok and "quota" in str(step.place)]
            host = either.host().cgroups
            group = host.layout.besteffort
            pod = f"{group}/{host.children(group)[0]}"
            quotas = (host.state(group).quota_us, host.state(pod).quota_us)
            assert (quotas[0] == -1, quotas[1]) == ((True, 150_000) if policy == "cpuset" else (False, -1))
