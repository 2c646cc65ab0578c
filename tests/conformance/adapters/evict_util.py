"""What evictions are made of: amounts, annotations, the walk through the candidates, the eviction itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from koordlite.apply.evictions import Evictions
from koordlite.changes.eviction import EvictPod
from koordlite.formulas.eviction import evict_walk
from koordlite.formulas.eviction.evict_walk import Task
from koordlite.model import keys
from koordlite.model.change import ClusterChange
from koordlite.model.errors import EvictionRefused
from koordlite.model.pod import eviction
from koordlite.model.pod.qos import QoSClass
from koordlite.model.pod.values import ContainerInfo, Pod
from koordlite.model.quantity import Quantity
from koordlite.ports import ClusterView
from tests.conformance.adapters import NotCovered, adapter, mappings, shapes


@adapter("evict_util.task_check")
def task_check(given: Any, expect: Any) -> tuple[Any, Any]:
    task = given["task"] or {}
    released = (given.get("released") or {}).get(task.get("releaseTarget"))
    left = evict_walk.remaining(_nano(shapes.quantities(task.get("toRelease"))), _nano(shapes.quantities(released)))
    return {"finished": not left, "remaining": left}, {
        **expect,
        "remaining": _nano(shapes.quantities(expect["remaining"])),
    }


@adapter("evict_util.sub_no_negative")
def less(given: Any, expect: Any) -> tuple[Any, Any]:
    return _two(evict_walk.remaining, given), _nano(shapes.quantities(expect["result"]))


@adapter("evict_util.merge_max")
def larger(given: Any, expect: Any) -> tuple[Any, Any]:
    return _two(evict_walk.larger, given), _nano(shapes.quantities(expect["result"]))


def _two(formula: Callable[..., dict[str, int]], given: Any) -> dict[str, int]:
    return formula(_nano(shapes.quantities(given.get("a"))), _nano(shapes.quantities(given.get("b"))))


mappings(
    {
        "evict_util.is_zero": lambda given: {"result": not any(_nano(shapes.quantities(given["a"])).values())},
        "evict_util.priority_label": lambda given: {
            "value": eviction.sub_priority(shapes.pod_of(given["pod"]), given["default"])
        },
    }
)


@adapter("evict_util.request_from_pod")
def request(given: Any, expect: Any) -> tuple[Any, Any]:
    if not given["resource"]:
        raise NotCovered
    found = eviction.request(shapes.pod_of(given["pod"]), given["resource"])
    scale = 10**6 if given["resource"] == "cpu" and "cpu" in found else 10**9
    return {n: amount * scale for n, amount in found.items()}, _nano(shapes.quantities(expect["resourceList"]))


@adapter("evict_util.eviction_policy_allowed")
def policy(given: Any, expect: Any) -> tuple[Any, Any]:
    """No pod is one without annotations."""
    annotations = {} if given["podIsNil"] else given["annotations"] or {}
    return {"allowed": eviction.allows(annotations, given["policy"])}, expect


@adapter("evict_util.default_executor")
def executor(given: Any, expect: Any) -> tuple[Any, Any]:
    """There is but one way: the Eviction API."""
    asked = Evictions(_Answering(given["evictionAPISucceeds"]), _NoClock())
    (step,) = asked.take([EvictPod("ns", "pod", "uid", "why")], time=0.0)
    return {"result": step.ok}, expect


class _NoClock:
    def monotonic(self) -> float:
        return 0.0

    wall = monotonic

    def wait(self, seconds: float) -> bool:
        return False


class _Answering:
    """A cluster that lets every pod go, or none."""

    def __init__(self, lets_go: bool) -> None:
        self.lets_go = lets_go

    def view(self) -> ClusterView:
        raise AssertionError

    def publish(self, changes: Sequence[ClusterChange]) -> None:
        raise AssertionError(changes)

    def evict(self, pod: EvictPod) -> None:
        if not self.lets_go:
            raise EvictionRefused(str(pod.place), "no")


@adapter("evict_util.kill_and_evict")
def walk(given: Any, expect: Any) -> tuple[Any, Any]:
    tasks = [
        Task(str(number), row["releaseTarget"], row["toRelease"] or {}, row["sortedPods"], contributions(given, row))
        for number, row in enumerate(given["tasks"] or ())
        if row
    ]
    found = evict_walk.walk(tasks, leaving=given.get("alreadyEvicted") or ())
    evicted = [name for name in given["pods"] if any(found.fates.get((t.feature, name)) == "chosen" for t in tasks)]
    wanted = {**expect, "evicted": sorted(expect["evicted"] or ())}
    released = {target: dict(amounts) for target, amounts in found.released.items()}
    return {"newlyEvicted": bool(evicted), "evicted": sorted(evicted), "released": released}, wanted


def contributions(given: Any, row: Any) -> dict[str, dict[str, int]]:
    """What goes with each pod of a case of KillAndEvictPods, as one of its tasks counts."""
    return {name: _released(name, pod, row["contribution"]) for name, pod in given["pods"].items()}


def _released(name: str, row: Any, contribution: str) -> dict[str, int]:
    memory = "memory" in contribution.lower()
    resource = "memory" if memory else "cpu"
    if "request" not in contribution:
        return {resource: row.get("memoryUsed" if memory else "milliCPUUsed") or 0}
    asked = eviction.request(_described(name, row), resource)
    return {n: amount for n, amount in asked.items() if n in eviction.promised(resource)}


def _described(name: str, row: Any) -> Pod:
    requests = {resource: Quantity.of(amount) for resource, amount in (row.get("requests") or {}).items()}
    labels = {keys.PRIORITY_CLASS: row["priorityClass"]} if row.get("priorityClass") else {}
    qos = QoSClass.of_label(row.get("qos"))
    containers = (ContainerInfo("main", "", True, requests, {}),)
    told = {"labels": labels, "raw_qos": qos, "priority": row.get("priority")}
    return Pod(namespace="", name=name, uid=name, containers=containers, **told)


def _nano(amounts: dict[str, Quantity]) -> dict[str, int]:
    return {name: amount.nano for name, amount in amounts.items()}
