"""What controllers of a cluster do: status of PodDisruptionBudgets, taints of nodes, the end of terminating pods."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

from apiserver import pods, selectors
from apiserver.cluster import BUDGETS, NODES, PODS, Cluster, name_of
from apiserver.store import Object

_FORGOTTEN_SECONDS = 120
"""An eviction that did not delete its pod by then is given up."""
_SCALED = {
    "ReplicaSet": ("apps", "replicasets"),
    "StatefulSet": ("apps", "statefulsets"),
    "Deployment": ("apps", "deployments"),
    "ReplicationController": ("", "replicationcontrollers"),
}


def selected(cluster: Cluster, budget: Object) -> list[Object]:
    """The pods a budget is about; an absent selector selects none."""
    selector = (budget.get("spec") or {}).get("selector")
    home = budget["metadata"]["namespace"]
    if selector is None:
        return []
    found = (each for each in cluster.store.listed(PODS) if each["metadata"].get("namespace") == home)
    return [each for each in found if selectors.selects(selector, each["metadata"].get("labels") or {})]


def refresh(cluster: Cluster) -> None:
    """Bring every budget's status up to date."""
    for budget in cluster.store.listed(BUDGETS):
        status = counted(cluster, budget)
        if status != budget["status"]:
            cluster.store.write(BUDGETS, name_of(budget), budget | {"status": status})


def counted(cluster: Cluster, budget: Object) -> Object:
    """The status a budget should have now."""
    found = selected(cluster, budget)
    expected, desired = _wanted(cluster, budget["spec"], found)
    disrupted = dict(_disrupted(cluster, budget, found))
    healthy = sum(_counts(each, disrupted) for each in found)
    allowed = max(0, healthy - desired) if expected > 0 else 0
    status = {
        "observedGeneration": budget["metadata"].get("generation", 1),
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
    }
    if disrupted:
        status["disruptedPods"] = disrupted
    return status | {"conditions": conditions(budget, allowed, cluster.now())}


def conditions(budget: Object, allowed: int, now: str) -> list[Object]:
    """The condition DisruptionAllowed; its time changes only with its status."""
    known = (budget["status"].get("conditions") or [{}])[0]
    word = "True" if allowed else "False"
    since = known.get("lastTransitionTime", now) if known.get("status") == word else now
    return [
        {
            "type": "DisruptionAllowed",
            "status": word,
            "observedGeneration": budget["metadata"].get("generation", 1),
            "lastTransitionTime": since,
            "reason": "SufficientPods" if allowed else "InsufficientPods",
            "message": "",
        }
    ]


def _counts(pod: Object, disrupted: dict[str, str]) -> bool:
    going = pod["metadata"].get("deletionTimestamp") or pod["metadata"]["name"] in disrupted
    return not going and pods.is_ready(pod)


def _disrupted(cluster: Cluster, budget: Object, found: list[Object]) -> Iterator[tuple[str, str]]:
    """Evictions whose pods are not on their way out yet."""
    there = {each["metadata"]["name"] for each in found if not each["metadata"].get("deletionTimestamp")}
    oldest = cluster.clock.now() - datetime.timedelta(seconds=_FORGOTTEN_SECONDS)
    for name, since in (budget["status"].get("disruptedPods") or {}).items():
        if name in there and datetime.datetime.fromisoformat(since) >= oldest:
            yield name, since


def _wanted(cluster: Cluster, spec: Object, found: list[Object]) -> tuple[int, int]:
    """Expected pods and how many of them must be healthy."""
    minimum, maximum = spec.get("minAvailable"), spec.get("maxUnavailable")
    if isinstance(minimum, int):
        return len(found), minimum
    expected = _scale(cluster, found)
    if expected is None:
        return 0, 0
    if maximum is not None:
        return expected, max(0, expected - _part(maximum, expected))
    return expected, _part(minimum or 0, expected)


def _part(amount: Any, whole: int) -> int:
    """A count, or a percentage of `whole` rounded up."""
    if isinstance(amount, int):
        return amount
    return -(-whole * int(str(amount).rstrip("%")) // 100)


def _scale(cluster: Cluster, found: list[Object]) -> int | None:
    """Sum of the replicas the pods' owners want; None when a pod has no owner that can be scaled."""
    owners = set()
    for pod in found:
        references = pod["metadata"].get("ownerReferences") or ()
        owner = next((each for each in references if each.get("controller")), None)
        if owner is None or owner["kind"] not in _SCALED:
            return None
        owners.add((_SCALED[owner["kind"]], (pod["metadata"].get("namespace", ""), owner["name"])))
    known = [cluster.store.get(key, name) for key, name in owners]
    if any(each is None for each in known):
        return None
    return sum(int(each["spec"].get("replicas", 1)) for each in known if each)


def reap(cluster: Cluster) -> None:
    """Remove pods whose grace period is over, as kubelets do once the containers have ended."""
    now = cluster.clock.now()
    for pod in cluster.store.listed(PODS):
        deadline = pod["metadata"].get("deletionTimestamp")
        if deadline and datetime.datetime.fromisoformat(deadline) <= now and not pod["metadata"].get("finalizers"):
            cluster.store.write(PODS, name_of(pod), None)


def taint(cluster: Cluster) -> None:
    """Give each node the taint of its Ready condition, as the node lifecycle controller does."""
    words = {"False": "node.kubernetes.io/not-ready", "Unknown": "node.kubernetes.io/unreachable"}
    for node in cluster.store.listed(NODES):
        states = {each["type"]: each["status"] for each in node.get("status", {}).get("conditions") or ()}
        if "Ready" not in states:
            continue  # Kubelet has not said anything yet.
        taints = node["spec"].get("taints") or []
        of_state = [{"key": word, "effect": "NoSchedule"} for state, word in words.items() if states["Ready"] == state]
        wanted = [each for each in taints if each["key"] not in words.values() or each["effect"] != "NoSchedule"]
        wanted += [next((one for one in taints if one["key"] == each["key"]), each) for each in of_state]
        if wanted != taints:
            spec = {key: value for key, value in node["spec"].items() if key != "taints"}
            cluster.store.write(NODES, name_of(node), node | {"spec": spec | ({"taints": wanted} if wanted else {})})


class Controller:
    """Keeps budgets, nodes and terminating pods up to date; looks only when something has changed."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._seen = (-1, -1, -1)

    def run(self) -> None:
        """Do what is due."""
        reap(self._cluster)
        if self._state() != self._seen:
            taint(self._cluster)
            refresh(self._cluster)
            self._seen = self._state()

    def _state(self) -> tuple[int, int, int]:
        seen = self._cluster.store.seen
        return seen(PODS), seen(BUDGETS), seen(NODES)
