"""One pod in words: what was found and decided, or what is known of a pod that nothing is wrong with."""

from __future__ import annotations

from collections.abc import Iterator

from descheduler.framework import PodView, View
from descheduler.plan import EvictionPlan
from descheduler.report import text
from koordlite.model import printable
from koordlite.model.errors import InputError, Problem


def render(plan: EvictionPlan, name: str) -> str:
    """Everything about the pods called `name` (`namespace/name`, or a bare name); InputError when there is none."""
    found = [pod for pod in _all(plan.view) if pod.is_called(name)]
    if not found:
        raise InputError(_unknown_pod(plan.view, name))
    return "\n".join(printable.one_line(line) for pod in found for line in _pod(plan, pod)) + "\n"


def _all(view: View) -> Iterator[PodView]:
    for node in view.nodes.values():
        yield from node.all_pods
    yield from view.unbound


def _unknown_pod(view: View, name: str) -> Problem:
    bare = name.rpartition("/")[2]
    close = sorted(pod.key for pod in _all(view) if bare in pod.key)[:3]
    do = f"did you mean {', '.join(close)}?" if close else "write namespace/name as in the snapshot"
    return Problem("command line", "pod", name, "no pod of this name is in the snapshot", do)


def _pod(plan: EvictionPlan, pod: PodView) -> Iterator[str]:
    answer = next((o for o in plan.outcomes if o.pod.uid == pod.uid), None)
    if answer:
        yield from text.outcome(answer, f"{answer.verdict.upper()}  ")
        yield from text.nodes(answer.search) if answer.search else ()
        return
    unjudged = _unjudged(plan.view, pod)
    yield f"{'NOT JUDGED' if unjudged else 'NOTHING WRONG'}  {pod.key}  on {pod.node or 'no node'}"
    yield from [f"    {unjudged}"] if unjudged else _known(plan, pod)


def _unjudged(view: View, pod: PodView) -> str:
    """Why no plugin looks at the pod; empty when one may."""
    if not pod.node:
        return "it waits for a node: only pods that have one are judged"
    node = view.nodes.get(pod.node)
    if node is None:
        return f"its node {pod.node} is not in the snapshot"
    return "" if node.ready else f"its node {pod.node} is not ready"


def _known(plan: EvictionPlan, pod: PodView) -> Iterator[str]:
    for container in pod.containers:
        fact = "runs on" if pod.observed else "was given"
        promise = "one NUMA node" if container.single_numa else "CPUs of its own" if container.exclusive else "nothing"
        by = f" by {container.source}" if container.source != "none" else ""
        yield f"    container {container.container}: promised {promise}{by}, {fact} CPUs {container.cpuset or 'none'}"
    for cost in plan.deletion_costs:
        if cost.pod == pod.uid:
            yield f"    its deletion cost is to be {cost.cost}: {cost.why}"
    if pod.pod.finished:
        yield f"    it has ended: {pod.pod.phase}"
    elif not pod.containers:
        yield "    nothing was promised to it: it runs in the shared pool, and may span NUMA nodes by design"
    for note in plan.notes:
        if note.node == pod.node:
            yield f"    but {note.plugin} could not judge its node: {note.reason}: {note.text}"
