"""A pod in words: what was found and decided, or what is known of a pod that nothing is wrong with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from descheduler.framework import PodView, Rooms, View
from descheduler.plan import EvictionPlan, PodAnswer
from descheduler.report import text
from koordlite.model import duration, printable
from koordlite.model.errors import InputError, Problem
from koordlite.report import make_room as room_text
from koordlite.report import paragraph


def render(plan: EvictionPlan, name: str) -> str:
    """Everything about the pods called `name` (`namespace/name`, or a bare name); InputError when there is none."""
    return (
        "\n".join(printable.one_line(line) for pod in _pods_by_name(plan.view, name) for line in _pod(plan, pod)) + "\n"
    )


def document(plan: EvictionPlan, name: str) -> list[dict[str, Any]]:
    """The same as values; InputError when there is no such pod."""
    outcomes = {outcome.pod.uid: outcome for outcome in plan.outcomes}
    values = []
    for pod in _pods_by_name(plan.view, name):
        outcome = outcomes.get(pod.uid)
        profiles = [
            {
                "profile": one.profile,
                "plugins": one.plugins,
                "refusals": one.refusals,
                "limit": one.limit,
                "fits": [place.node for place in one.search.places],
                "whyNot": one.search.by_node,
                **({"rooms": _rooms_values(one.rooms, plan.view)} if one.rooms else {}),
            }
            for one in plan.explained
            if one.pod == pod.uid
        ]
        values.append(
            {
                "pod": pod.key,
                "node": pod.node,
                "verdict": outcome.verdict if outcome else "",
                "findings": outcome.findings if outcome else (),
                "reasons": outcome.reasons if outcome else (),
                "target": outcome.target if outcome else "",
                "unjudged": _why_unjudged(plan.view, pod),
                "evictionRequest": "; ".join(_eviction_request(plan, pod)),
                "profiles": profiles,
            }
        )
    return values


def _rooms_values(rooms: Rooms[PodView], view: View) -> dict[str, Any]:
    def about(pod: PodView) -> str:
        age = view.age(pod)
        return ", ".join([pod.owner or "no owner", *([] if age is None else [f"{duration.age(age)} old"])])

    return room_text.document(rooms, about)


def _pods_by_name(view: View, name: str) -> list[PodView]:
    """Pods of this name; InputError when there is none."""
    pods = [pod for pod in view.everything() if pod.is_called(name)]
    if not pods:
        bare = name.rpartition("/")[2]
        close = sorted(pod.key for pod in view.everything() if bare in pod.key)[:3]
        do = f"did you mean {', '.join(close)}?" if close else "write namespace/name as in the snapshot"
        raise InputError(Problem("command line", "pod", name, "no pod of this name is in the snapshot", do))
    return pods


def _pod(plan: EvictionPlan, pod: PodView) -> Iterator[str]:
    yield from _verdict(plan, pod)
    for words in _eviction_request(plan, pod):
        yield from _wrap("    request  ", words)
    named = any(outcome.pod.uid == pod.uid for outcome in plan.outcomes)
    for answer in plan.explained:
        if answer.pod == pod.uid:
            yield from _answer(answer, pod, plan.view, whole=not named)


def _answer(answer: PodAnswer, pod: PodView, view: View, *, whole: bool) -> Iterator[str]:
    """Answers of a profile's plugins; with `whole` also what would become of a finding. Of a pod that waits: where it
    would fit, and what would have to move for it."""
    fits = [*_wrap("    fits       ", text.places(answer.search) or f"nowhere: {answer.search.sentence}")]
    if answer.rooms:
        yield f"ROOM FOR IT by the rules of profile {answer.profile}"
        yield from fits
        for head, words in () if answer.search.places else room_text.lines(_rooms_values(answer.rooms, view)):
            yield from _wrap(f"    {head:<11}", words)
        return
    yield f"PLUGINS of profile {answer.profile}"
    width = max((len(one.plugin) for one in answer.plugins), default=0)
    for one in answer.plugins:
        yield from _wrap(f"    {_KINDS[one.kind]:<11}{one.plugin:<{width}}  ", one.text)
    if not whole:
        return
    yield "IF ONE OF THEM NAMED IT"
    for refusal in answer.refusals:
        yield from _wrap("    kept by    ", f"{refusal.reason}: {refusal.text}")
    if not answer.refusals:
        yield "    kept by    no filter"
    if answer.limit:
        yield from _wrap("    limit      ", answer.limit)
    if pod.pod.active:
        yield from fits
        yield from text.nodes(answer.search)


_KINDS = {"found": "FOUND", "fine": "ok", "not judged": "NOT JUDGED", "not chosen": "not chosen"}


def _wrap(head: str, words: str) -> Iterator[str]:
    yield from paragraph.wrap(words, text.width(), first=head, hanging=" " * len(head))


def _verdict(plan: EvictionPlan, pod: PodView) -> Iterator[str]:
    answer = next((o for o in plan.outcomes if o.pod.uid == pod.uid), None)
    if answer:
        yield from text.outcome(answer, f"{answer.verdict.upper()}  ")
        yield from text.nodes(answer.search) if answer.search else ()
        return
    if not pod.node:
        yield f"WAITS  {pod.key}  for a node"
        return
    answers = [one for profile in plan.explained if profile.pod == pod.uid for one in profile.plugins]
    unsure = [one.plugin for one in answers if one.kind == "not judged"]
    unjudged = _why_unjudged(plan.view, pod)
    if unsure and not unjudged:
        unjudged = f"{', '.join(unsure)}: {len(unsure)} of {len(answers)} plugins could not judge it"
    yield f"{'NOT JUDGED' if unjudged else 'NO FINDINGS'}  {pod.key}  on {pod.node}"
    yield from [f"    {unjudged}"] if unjudged else ()
    yield from _placement(plan, pod) if pod.node in plan.view.nodes else ()


def _eviction_request(plan: EvictionPlan, pod: PodView) -> Iterator[str]:
    """Tell where the pod's EvictionRequest stands, and why it does not go on; nothing where there is none."""
    if pod.uid in plan.standing:
        yield f"by EvictionRequest: {plan.standing[pod.uid]}"
        why = plan.withdrawals.get(pod.uid)
        if why:
            yield f"the next cycle withdraws it: {why.reason}: {why.text}"


def _why_unjudged(view: View, pod: PodView) -> str:
    """The reason why no plugin looks at the pod; empty when one may."""
    if not pod.node:
        return "it waits for a node: only pods that have one are judged"
    node = view.nodes.get(pod.node)
    if node is None:
        return f"its node {pod.node} is not in the snapshot"
    return "" if node.ready else f"its node {pod.node} is not ready"


def _placement(plan: EvictionPlan, pod: PodView) -> Iterator[str]:
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
