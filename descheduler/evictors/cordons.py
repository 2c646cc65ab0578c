"""Nodes that take no more pods while they are emptied, and are opened again when that comes to nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from descheduler.evictors.migration import Progress
from descheduler.evictors.migration_api import MERGE, Api
from descheduler.outcome import Attempt, EvictionPlan
from koordlite.kube.answers import ApiError, ApiUnreachable

Tell = Callable[[Progress], None]


def close(plan: EvictionPlan, api: Api, tell: Tell) -> tuple[str, ...]:
    """Cordon the nodes that the plan empties; those that were not cordoned before. What goes wrong is told."""
    wanted = [name for name in plan.cordon if not plan.view.nodes[name].object.spec.unschedulable]
    emptied = {outcome.pod.node for outcome in plan.evict}
    return tuple(name for name in wanted if name in emptied and _write(api, name, True, tell))


def open_again(closed: Iterable[str], plan: EvictionPlan, attempts: Iterable[Attempt], api: Api, tell: Tell) -> None:
    """Uncordon those of the nodes that no pod leaves."""
    nodes = {outcome.pod.uid: outcome.pod.node for outcome in plan.evict}
    left = {nodes.get(attempt.uid, "") for attempt in attempts if attempt.goes}
    for name in closed:
        if name not in left:
            _write(api, name, False, tell)


def _write(api: Api, name: str, closed: bool, tell: Tell) -> bool:
    body = {"spec": {"unschedulable": True if closed else None}}
    try:
        api.request("PATCH", f"/api/v1/nodes/{name}", body=body, content_type=MERGE)
    except (ApiError, ApiUnreachable) as error:
        tell(Progress("", "", "Failed", f"node {name} cannot be {'cordoned' if closed else 'opened again'}: {error}"))
        return False
    tell(Progress("", "", "Cordoned" if closed else "Uncordoned", f"node {name}"))
    return True
