"""Annotations on nodes that are emptied, and on pods whose owners should remove them in an order.

A node takes no more pods while it is emptied, and is opened again when that comes to nothing: a cordon of ours carries
an annotation. It says `asked` until a pod leaves the node, then `kept`: the node is given up,
and opening it again is for people, or for whoever removes it. A cordon that still says `asked` in a later cycle is of a
process that ended, or lost its lease, in between; it is lifted unless that cycle empties the node.

The order is written as `controller.kubernetes.io/pod-deletion-cost`. A cost of ours carries a mark with the same
number. A cost without it, or with another number, is another program's and stays. Pods that leave the order lose both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from descheduler.evictors.migration import Progress
from descheduler.evictors.migration_api import MERGE, Api
from descheduler.framework import PodView
from descheduler.plan import Attempt, EvictionPlan
from descheduler.utilization.levels import DELETION_COST
from koordlite.kube.client.answers import ApiError, ApiUnreachable

MARK = "descheduler.koordlite.io/cordon"
"""Annotation of a Node that the descheduler has cordoned."""
ASKED = "asked"
"""Its pods were to be asked to leave."""
KEPT = "kept"
"""Pods have left it for good."""

Tell = Callable[[Progress], None]


def close(plan: EvictionPlan, api: Api, tell: Tell) -> tuple[str, ...]:
    """Cordon the nodes that the plan empties; those that others have cordoned are theirs. What an earlier cycle left
    closed is taken over, or opened again. What goes wrong is reported."""
    emptied = {outcome.pod.node for outcome in plan.evict}
    targets = [name for name in plan.cordon if name in emptied]
    unfinished = [
        name for name, node in plan.view.nodes.items() if (node.object.metadata.annotations or {}).get(MARK) == ASKED
    ]
    for name in unfinished:
        if name not in targets:
            _open(api, name, tell, "it was cordoned in a cycle that did not end, and this one does not empty it")
    shut = {name for name, node in plan.view.nodes.items() if node.object.spec.unschedulable}
    return tuple(name for name in targets if (name in unfinished if name in shut else _cordon(api, name, tell)))


def settle(closed: Iterable[str], plan: EvictionPlan, attempts: Iterable[Attempt], api: Api, tell: Tell) -> None:
    """Uncordon those of the nodes that no pod leaves; the others stay closed for good."""
    nodes = {outcome.pod.uid: outcome.pod.node for outcome in plan.evict}
    emptied = {nodes.get(attempt.uid, "") for attempt in attempts if attempt.goes}
    for name in closed:
        if name in emptied:
            _write(api, name, KEPT, tell, "marked as given up")
        else:
            _open(api, name, tell, "no pod leaves it")


def _cordon(api: Api, name: str, tell: Tell) -> bool:
    done = _write(api, name, ASKED, tell, "cordoned", spec={"unschedulable": True})
    if done:
        tell(Progress("", "", "Cordoned", f"node {name}"))
    return done


def _open(api: Api, name: str, tell: Tell, why: str) -> None:
    if _write(api, name, None, tell, "opened again", spec={"unschedulable": None}):
        tell(Progress("", "", "Uncordoned", f"node {name}: {why}"))


def _write(api: Api, name: str, mark: str | None, tell: Tell, what: str, **changes: Any) -> bool:
    body = {"metadata": {"annotations": {MARK: mark}}, **changes}
    try:
        api.request("PATCH", f"/api/v1/nodes/{name}", body=body, content_type=MERGE)
    except (ApiError, ApiUnreachable) as error:
        tell(Progress("", "", "Failed", f"node {name} cannot be {what}: {error}"))
        return False
    return True


COST_MARK = "descheduler.koordlite.io/deletion-cost"
"""Annotation with the cost that we wrote."""
_MOST_FAILURES = 20
"""Number of refusals after which the rest waits for the next cycle: the right to patch pods is missing, or the server
is."""


def write_costs(plan: EvictionPlan, api: Api, tell: Tell, *, stopped: Callable[[], bool] = lambda: False) -> None:
    """Write the costs that differ, and remove ours from pods that have none any more. Ends early when `stopped`."""
    costs = {cost.pod: str(cost.cost) for cost in plan.deletion_costs}
    changes = [(pod, costs.get(pod.uid)) for pod in plan.view.pods() if _differs(pod, costs.get(pod.uid))]
    failures = 0
    for pod, cost in changes:
        if stopped():
            return
        failures += not _patch(api, pod, cost, tell)
        if failures == _MOST_FAILURES:
            remaining = len(changes) - failures
            tell(Progress("", "", "Failed", f"deletion costs: {remaining} more pods wait for the next cycle"))
            return


def _differs(pod: PodView, cost: str | None) -> bool:
    notes = pod.pod.annotations
    present, ours = notes.get(DELETION_COST), notes.get(COST_MARK)
    if present is not None and present != ours:
        return False  # Another program's; our mark beside it says nothing.
    return present != cost


def _patch(api: Api, pod: PodView, cost: str | None, tell: Tell) -> bool:
    """A pod that was replaced meanwhile is another one: its uid is part of the request."""
    meta: dict[str, Any] = {"uid": pod.uid, "annotations": {DELETION_COST: cost, COST_MARK: cost}}
    path = f"/api/v1/namespaces/{pod.pod.namespace}/pods/{pod.pod.name}"
    try:
        api.request("PATCH", path, body={"metadata": meta}, content_type=MERGE)
    except (ApiError, ApiUnreachable) as error:
        if isinstance(error, ApiError) and error.status in (404, 422):
            return True  # Gone, or another pod of that name: there is no cost to write.
        tell(Progress("", pod.key, "Failed", f"its deletion cost cannot be written: {error}"))
        return False
    return True
