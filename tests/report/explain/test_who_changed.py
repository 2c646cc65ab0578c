"""Whose use moved a budget: the pods with the largest change by name, the rest summed, and nothing that is not so."""

from __future__ import annotations

import dataclasses

import pytest
from reported import tick_of

from koordlite.model.decision import CPULimit, Decision
from koordlite.model.picture.usage import Usage, Use
from koordlite.model.pod.qos import KubeQoS, QoSClass
from koordlite.model.pod.values import Pod
from koordlite.model.snapshot import Snapshot
from koordlite.report.explain import who_changed
from koordlite.report.explain.subject import explain
from koordlite.report.history import History
from koordlite.report.tick import UNSEEN

NAMES = ("a", "b", "c", "d", "e", "job")


def using(picture: Snapshot, **used: int) -> Snapshot:
    """Pods of LS, and a job of best effort, with their use in millicores."""
    pods = tuple(
        Pod(namespace="ns", name=name, uid=name, raw_qos=QoSClass.LS, kube_qos=KubeQoS.BURSTABLE) for name in NAMES[:-1]
    )
    job = Pod(namespace="ns", name="job", uid="job", raw_qos=QoSClass.BE)
    usage = Usage(None, {name: Use(milli, milli << 20) for name, milli in used.items()}, {})
    return dataclasses.replace(picture, pods=(*pods, job), usage=usage, average=usage)


def limit(milli: int) -> Decision:
    outcome = CPULimit(budget_milli=milli - 100, present_milli=0, limit_milli=milli, by_quota=False)
    return Decision("besteffort", "shrink", f"B{milli}", {}, (), "cpuSuppress", outcome=outcome)


def offer(resource: str, amount: int) -> Decision:
    return Decision(f"node/kubernetes.io/{resource}", "set", f"O{amount}", {"result": amount}, (), "beAllocatable")


@pytest.mark.parametrize(
    ("decisions", "then", "now", "said"),
    [
        pytest.param((offer("batch-cpu", 11400), offer("batch-cpu", 3200)), {"a": 1000}, {"a": 9200},
                     "batch-cpu fell 11.4 → 3.2 because ns/a used 8.2 cores more", id="one pod"),
        pytest.param((limit(4000), limit(9000)), {"a": 5000, "b": 3000}, {"a": 1000, "b": 2000, "c": 400},
                     "the limit of BE rose 4.0 → 9.0 because ns/a used 4.0 cores less, ns/b 1.0 cores less, "
                     "ns/c 0.4 cores more", id="three, with their signs"),
        pytest.param((limit(9000), limit(4000)), {}, {"a": 2000, "b": 1000, "c": 900, "d": 500, "e": 300},
                     "the limit of BE fell 9.0 → 4.0 because ns/a used 2.0 cores more, ns/b 1.0 cores more, "
                     "ns/c 0.9 cores more, 2 others 0.8 cores more", id="the rest summed"),
        pytest.param((offer("batch-memory", 3 << 30), offer("batch-memory", 1 << 30)), {}, {"a": 2048},
                     "batch-memory fell 3.0 GiB → 1.0 GiB because ns/a used 2.0 GiB more", id="memory"),
        pytest.param((limit(9000), limit(4000)), {"a": 4000}, {"a": 1000}, "", id="use moved the other way: not they"),
        pytest.param((limit(9000), limit(4000)), {}, {"job": 5000}, "", id="best effort is no cause of its limit"),
        pytest.param((limit(9000), limit(9000)), {}, {"a": 5000}, "", id="nothing moved"),
        pytest.param((limit(9000), limit(8000)), {}, {"a": 20, "b": 20}, "", id="too little to explain anything"),
        pytest.param((Decision("node", "set", "x", {}, (), "resctrl"), Decision("node", "set", "y", {}, (), "resctrl")),
                     {}, {"a": 5000}, "", id="a decision that does not depend on use"),
    ],
)  # fmt: skip
def test_events_name_whose_use_moved_the_budget(
    picture: Snapshot, decisions: tuple[Decision, Decision], then: dict[str, int], now: dict[str, int], said: str
) -> None:
    run = History({}, {})
    pictures = using(picture, **then), using(picture, **now)
    for second, (seen, decision) in enumerate(zip(pictures, decisions, strict=True)):
        news = run.add(tick_of(time=float(second), snapshot=seen, decisions=(decision,)))
    assert (news[0].because if news else "") == said
    assert run.decisions[0].because == "", "there is nothing to compare the first with"


def test_explain_lists_it_when_asked(picture: Snapshot) -> None:
    run = History({}, {})
    for second, (milli, used) in enumerate(((9000, 0), (4000, 5000), (4000, 5000))):
        tick = tick_of(time=60.0 * second, snapshot=using(picture, a=used), decisions=(limit(milli),))
        run.add(tick)
    moved = "  1:00  the limit of BE fell 9.0 → 4.0 because ns/a used 5.0 cores more\n"
    remembered = run.remembered()
    assert explain("besteffort", tick, remembered, who=True).endswith(f"whose use moved it:\n{moved}")
    assert moved in explain("node", tick, remembered, who=True), "of the node: every budget"
    assert "whose use" not in explain("besteffort", tick, remembered)
    assert '"because": "the limit of BE fell' in explain("besteffort", tick, remembered, who=True, output="json")
    assert who_changed.mark(limit(1), UNSEEN) is None
