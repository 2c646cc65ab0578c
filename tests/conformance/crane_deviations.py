"""Where Crane's rules are answered differently on purpose."""

from __future__ import annotations

from typing import Any

from koordlite.model.cpuset import CPUSet
from tests.conformance.deviation import Deviation


def _numa_widened(given: Any, wanted: Any, found: Any) -> bool:
    """After a removal, containers of policy numa have more CPUs than Crane gives them before its next round; nothing
    else differs."""
    numa = {(step["pod"], step["container"]) for step in given["steps"] if step.get("cpuPolicy") == "numa"}
    removed = False
    for step, theirs, ours in zip(given["steps"], wanted["results"], found["results"], strict=True):
        removed = removed or step["op"] == "remove"
        if theirs["error"] != ours["error"] or theirs["defaultCPUSet"] != ours["defaultCPUSet"]:
            return False
        for key, cpus in _sets(theirs).items():
            other = _sets(ours).get(key)
            if other != cpus and not (removed and key in numa and other is not None and cpus <= other):
                return False
    return removed


def _sets(result: Any) -> dict[tuple[str, str], CPUSet]:
    assigned = result["assignments"]
    return {(pod, name): CPUSet.parse(text) for pod, theirs in assigned.items() for name, text in theirs.items()}


def _reused(given: Any, wanted: Any, found: Any) -> bool:
    """A container's result is as large as what its pod has, and another pod was placed, or the pod lost a container,
    in between: Crane then chooses by what it remembers, not by what the pod has."""
    last: str | None = None
    for step in given["steps"]:
        interrupted = step["op"] == "remove" or (last is not None and step["pod"] != last)
        last = step["pod"]
        if interrupted and sum(other["pod"] == step["pod"] for other in given["steps"]) > 1:
            return True
    return False


def _carried(given: Any, wanted: Any, found: Any) -> bool:
    """Only what is left on a NUMA node differs, and more is reserved than the first one has."""
    return bool(given.get("reserved")) and [zone["name"] for zone in wanted["zones"]] == [
        zone["name"] for zone in found["zones"]
    ]


DEVIATIONS: tuple[Deviation, ...] = (
    Deviation(("crane.allocate",), _numa_widened, "crane-numa-widened"),
    Deviation(("crane.allocate",), _reused, "crane-pod-divided"),
    Deviation(("crane.build_zones",), _carried, "crane-carry-over"),
)
