"""The descheduler: the objects of a cluster, its policies, and what Prometheus says.

After every cluster each part of the product tells of it: the plan, each form of the report, and `explain` for each pod.
"""

from __future__ import annotations

import functools
import json
import pathlib
from typing import Any

import msgspec
import yaml

from descheduler.cycle import planner
from descheduler.evictors import eviction_api
from descheduler.metrics_sources import gather
from descheduler.plan import EvictionPlan, Setup
from descheduler.policy import reader
from descheduler.report import document, explain, html, text
from descheduler.snapshot import assemble, files
from koordlite.model import keys
from koordlite.model.errors import InputError
from tests.descheduler.conftest import NOW, Cluster
from tests.fuzz.entries import scheduler
from tests.fuzz.frame import Entry
from tests.scheduler.builders import pod, report

ROOT = pathlib.Path(__file__).parents[3]
EVERYTHING = """
profiles:
- name: all
  pluginConfig:
  - name: RemovePodsHavingTooManyRestarts
    args: {podRestartThreshold: 1}
  - name: RemovePodsViolatingNodeAffinity
    args: {nodeAffinityType: [requiredDuringSchedulingIgnoredDuringExecution]}
  - name: PodLifeTime
    args: {maxPodLifeTimeSeconds: 60}
  - name: LowNodeUtilization
    args: {thresholds: {cpu: 20, memory: 20}, targetThresholds: {cpu: 50, memory: 50}}
  - name: LowNodeLoad
    args:
      lowThresholds: {cpu: 20}
      highThresholds: {cpu: 50}
  plugins:
    deschedule:
      enabled: [ReservedCPUs, NUMAAlignment, RemovePodsHavingTooManyRestarts, PodLifeTime, RemoveFailedPods,
        RemovePodsViolatingNodeTaints, RemovePodsViolatingNodeAffinity, RemovePodsViolatingInterPodAntiAffinity]
    balance:
      enabled: [RemoveDuplicates, RemovePodsViolatingTopologySpreadConstraint, LowNodeUtilization, LowNodeLoad]
"""


def _objects() -> list[Any]:
    """A good node with a pod that has to go, and one of everything."""
    cluster = Cluster()
    for name in ("a", "b"):
        cluster.node(name, reservation={"reservedCPUs": "0-1"}, labels={keys.NUMA_TOPOLOGY_POLICY: "Restricted"})
        cluster.report(name)
    for number in range(2):
        cluster.pinned(f"p-{number}", "a", f"{number},{number + 4}", single=True)
    cluster.budget("pdb", 1, {"app": "x"})
    named = {"metadata": {"name": "system", "labels": {"a": "b"}}}
    cluster.add({"kind": "Namespace", **named})
    cluster.add({"kind": "PriorityClass", **named, "value": 1000})
    claim = {"spec": {"volumeName": "v", "storageClassName": "system"}, "status": {"phase": "Bound"}}
    cluster.add({"kind": "PersistentVolumeClaim", "metadata": {"name": "c", "namespace": "default"}, **claim})
    measured = {"nodeMetric": {"nodeUsage": {"resources": {"cpu": "2", "memory": "1Gi"}}}, "updateTime": NOW}
    cluster.add({"kind": "NodeMetric", "metadata": {"name": "a"}, "status": measured})
    return cluster.objects


def _rich(cluster: Cluster) -> Any:
    """A pod that says something of everything."""
    made = cluster.pinned("rich", "b", "2-3", single=True)
    term = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}
    made["metadata"]["annotations"] |= scheduler.ASKS
    made["metadata"]["labels"]["app"] = "x"
    made["spec"] |= {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}]
                }
            },
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
        },
        "topologySpreadConstraints": [{"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **term}],
        "tolerations": [{"key": "a", "operator": "Exists", "tolerationSeconds": 3}],
        "nodeSelector": {"a": "b"},
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "e", "emptyDir": {}}],
    }
    state = {"restartCount": 3, "lastState": {"terminated": {"exitCode": 1, "finishedAt": NOW}}}
    made["status"] |= {"containerStatuses": [{"name": "main", **state}], "reason": "Evicted"}
    return made


def _volcano() -> Any:
    cpus = {str(number): {"numa": number // 8, "socket": number // 8, "core": number} for number in range(16)}
    policies = {"CPUManagerPolicy": "static", "TopologyManagerPolicy": "restricted"}
    given = [{"uid": "uid-p-0", "containerAllocations": [{"name": "main", "allocations": {"cpu": "0-1"}}]}]
    spec = {"cpuDetail": cpus, "policies": policies, "podAllocations": given}
    return {
        "kind": "Numatopology",
        "apiVersion": "nodeinfo.volcano.sh/v1alpha1",
        "metadata": {"name": "b"},
        "spec": spec,
    }


GOOD = [msgspec.json.encode(each) for each in _objects()]
SEEDS = [
    *GOOD,
    msgspec.json.encode(_rich(Cluster())),
    msgspec.json.encode(_volcano()),
    msgspec.json.encode(
        {"kind": "NodeResourceTopology", "apiVersion": "topology.crane.io/v1alpha1", **scheduler.CRANE}
    ),
    *(msgspec.json.encode({"kind": "NodeResourceTopology", **each}) for each in scheduler.REPORTS),
    msgspec.json.encode({"kind": "NodeResourceTopology", **report("b", scheduler.ZONE, policy="restricted")}),
    msgspec.json.encode({"kind": "Pod", **pod("q", node="b", phase="Running")}),
    msgspec.json.encode({"kind": "Pod", **pod("r", node="nowhere", phase="Failed", reason="TopologyAffinityError")}),
]


@functools.cache
def _setup() -> Setup:
    return reader.setup(reader.parse(EVERYTHING, "policy.yaml"))


def _plan(raw: list[bytes], setup: Setup, explained: str = "") -> EvictionPlan:
    objects = files.Objects()
    for each in raw:
        files.take(objects, each, "hostile.json")
    return planner.plan(assemble.view(objects, NOW), setup, explained=explained)


def _cluster(data: bytes) -> str:
    plan = _plan([*GOOD, data], _setup(), "p-1")
    assert (
        {outcome.pod.uid for outcome in plan.outcomes} & {"uid-p-0", "uid-p-1"} or b"uid-p-" in data or b'"a"' in data
    )
    text.render(plan)
    html.render(plan)
    document.encode(plan, eviction_api.prepare(plan), dry=True)
    for uid, each in list(plan.view.by_uid.items())[:4] if data not in GOOD else ():
        answered = _plan([*GOOD, data], _setup(), each.pod.name) if uid not in ("uid-p-0", "uid-p-1") else plan
        explain.render(answered, each.key)
        msgspec.json.encode(explain.document(answered, each.key))
    return f"{len(plan.outcomes)} {len(plan.notes)} {sorted(problem.why[:20] for problem in plan.view.problems)}"


def _policy(data: bytes) -> str:
    words = data.decode("utf-8", "strict")
    setup = reader.setup(reader.parse(words, "policy.yaml", []))
    plan = _plan(GOOD, setup)
    return f"{len(plan.outcomes)} {sorted(note.reason for note in plan.notes)}"


def _policies() -> list[bytes]:
    texts = [EVERYTHING, (ROOT / "configs/descheduler.yaml").read_text()]
    documents = [yaml.safe_load(each) for each in texts]
    return [*(each.encode() for each in texts), *(json.dumps(each).encode() for each in documents)]


VECTOR = {
    "status": "success",
    "data": {"resultType": "vector", "result": [{"metric": {"instance": "a:9100"}, "value": [1.5, "0.3"]}]},
}

ENTRIES = (
    Entry(name="descheduler-cluster", seeds=SEEDS, run=_cluster, refusals=(InputError,), weight=2.0),
    Entry(name="descheduler-policy", seeds=_policies(), run=_policy, refusals=(InputError, UnicodeDecodeError)),
    Entry(
        name="descheduler-prometheus",
        seeds=[json.dumps(VECTOR).encode()],
        run=lambda data: gather.read(data).absent[:20],
    ),
)
