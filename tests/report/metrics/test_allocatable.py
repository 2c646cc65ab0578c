"""The terms of what best-effort pods may request, as series."""

from __future__ import annotations

from reported import tick_of

from koordlite.model.decision import Decision
from koordlite.report.metrics import node

CPU = {"result": 3400, "capacity": 32000, "margin": 8000, "system": 2000, "hp": 18600, "policy": "usage"}


def _series(*decisions: Decision) -> dict[tuple[str, str], float]:
    family = node.batch_terms(tick_of(time=0.0, node="n", decisions=decisions))
    return {(each.labels["resource"], each.labels["term"]): each.value for each in family.samples}


def test_the_terms_of_cpu_are_cores_and_add_up():
    found = {term: value for (_, term), value in _series(_decided("node/kubernetes.io/batch-cpu", CPU)).items()}
    assert found == {"capacity": 32.0, "margin": 8.0, "system": 2.0, "hp": 18.6, "result": 3.4}


def test_the_terms_of_memory_are_bytes():
    assert _series(_decided("node/kubernetes.io/batch-memory", {"result": 7})) == {
        ("kubernetes.io/batch-memory", "result"): 7.0
    }


def test_other_decisions_about_the_node_have_no_terms():
    other = Decision("node/kubernetes.io/batch-cpu", "hold", "Disabled", {"capacity": 1})
    assert _series(other, _decided("node/kubernetes.io/mid-cpu", CPU)) == {}


def _decided(subject: str, evidence: dict[str, object]) -> Decision:
    return Decision(subject, "hold", "BatchAllocatable", evidence)
