"""Where MigrationController answers differently on purpose."""

from __future__ import annotations

from typing import Any


def sibling_moves(given: Any, wanted: Any, found: Any) -> bool:
    """A pod of the same workload, but of another controller below it, is on the move; it counts with us."""
    if given.get("filter") != "filterMaxMigratingOrUnavailablePerWorkload" or found["result"] or not wanted["result"]:
        return False
    own = _controller(given["pod"])
    moving = {job["spec"]["podRef"]["uid"] for job in given["jobs"]}
    siblings = [pod for pod in given["workload"]["pods"] if pod["metadata"]["uid"] in moving]
    return any(_controller(pod) != own for pod in siblings)


def _controller(pod: Any) -> Any:
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((owner["uid"] for owner in owners if owner.get("controller")), None)
