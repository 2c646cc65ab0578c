"""The order in which owners should remove their pods, written as `controller.kubernetes.io/pod-deletion-cost`.

A cost of ours carries a mark with the same number. A cost without it, or with another number, is another program's and
stays. Pods that leave the order lose both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from descheduler.evictors.migration import Progress
from descheduler.evictors.migration_api import MERGE, Api
from descheduler.framework import PodView
from descheduler.plan import EvictionPlan
from koordlite.kube.client.answers import ApiError, ApiUnreachable

COST = "controller.kubernetes.io/pod-deletion-cost"
"""Annotation that ReplicaSets obey when they shrink: pods with a lower cost go first."""
MARK = "descheduler.koordlite.io/deletion-cost"
"""Annotation with the cost that we wrote."""
_MOST_FAILURES = 20
"""After so many refusals the rest waits for the next cycle: the right to patch pods is missing, or the server is."""

Tell = Callable[[Progress], None]


def write(plan: EvictionPlan, api: Api, tell: Tell, *, stopped: Callable[[], bool] = lambda: False) -> None:
    """Write the costs that differ, and remove ours from pods that have none any more. Ends early when `stopped`."""
    wanted = {cost.pod: str(cost.cost) for cost in plan.deletion_costs}
    changes = [(pod, wanted.get(pod.uid)) for pod in plan.view.pods() if _differs(pod, wanted.get(pod.uid))]
    failures = 0
    for pod, cost in changes:
        if stopped():
            return
        failures += not _patch(api, pod, cost, tell)
        if failures == _MOST_FAILURES:
            left = len(changes) - failures
            tell(Progress("", "", "Failed", f"deletion costs: {left} more pods wait for the next cycle"))
            return


def _differs(pod: PodView, cost: str | None) -> bool:
    notes = pod.pod.annotations
    present, ours = notes.get(COST), notes.get(MARK)
    if present is not None and present != ours:
        return False  # Another program's; our mark beside it says nothing.
    return present != cost


def _patch(api: Api, pod: PodView, cost: str | None, tell: Tell) -> bool:
    """A pod that was replaced meanwhile is another one: its uid is part of the request."""
    meta: dict[str, Any] = {"uid": pod.uid, "annotations": {COST: cost, MARK: cost}}
    path = f"/api/v1/namespaces/{pod.pod.namespace}/pods/{pod.pod.name}"
    try:
        api.request("PATCH", path, body={"metadata": meta}, content_type=MERGE)
    except ApiError as error:
        if error.status in (404, 422):
            return True  # Gone, or another pod of that name: nothing to write.
        tell(Progress("", pod.key, "Failed", f"its deletion cost cannot be written: {error}"))
        return False
    except ApiUnreachable as error:
        tell(Progress("", pod.key, "Failed", f"its deletion cost cannot be written: {error}"))
        return False
    return True
