"""Every number in a sentence is the one in the evidence, in the formula's terms."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from koordlite.model.decision import Decision
from koordlite.report.sentence import headline, sentence, sentences, terms

BUDGET = {
    "capacity_milli": 32000,
    "threshold_percent": 65,
    "prod_milli": 10100,
    "host_milli": 0,
    "system_milli": 1400,
    "budget_milli": 9300,
}


@pytest.mark.parametrize(
    ("decision", "said"),
    [
        pytest.param(
            Decision(
                "besteffort",
                "shrink",
                "BECPUBudget",
                {**BUDGET, "present_cpus": 12, "target_cpus": 10, "cpuset": "4-13"},
            ),
            "BE may use 9.3 cores: 32.0 × 65 % − LS 10.1 − system 1.4; shrinks 12 → 10 CPUs: 4-13",
            id="a shrinking cpuset names both sizes",
        ),
        pytest.param(
            Decision("besteffort", "hold", "BECPUBudget", {**BUDGET, "quota_us": 930_000}),
            "BE may use 9.3 cores: 32.0 × 65 % − LS 10.1 − system 1.4; quota stays at 930 ms per 100 ms",
            id="a steady quota is said once",
        ),
        pytest.param(
            Decision(
                "besteffort",
                "shrink",
                "BECPUBudget",
                {
                    **BUDGET,
                    "host_milli": 500,
                    "min_percent": 10,
                    "raised_to_milli": 9300,
                    "present_quota_us": -1,
                    "quota_us": 930_000,
                },
            ),
            "BE may use 9.3 cores: 32.0 × 65 % − LS 10.1 − host applications 0.5 − system 1.4, "
            "raised to 9.3: 10 % of the node; shrinks quota unlimited → 930 ms per 100 ms",
            id="host applications and the floor appear when there are any",
        ),
        pytest.param(
            Decision("besteffort", "hold", "NoMetrics", {"ageSeconds": 4}),
            "no usage data for 4 s; current values stay for now",
            id="camelCase evidence has units too",
        ),
        pytest.param(
            Decision(
                "node/kubernetes.io/batch-memory",
                "set",
                "BatchAllocatable",
                {"result": 3 << 30, "capacity": 8 << 30, "margin": 2 << 30, "system": 1 << 30, "hp": 2 << 30},
            ),
            "3.0 GiB = capacity 8.0 GiB − margin 2.0 GiB − system 1.0 GiB − high-priority pods 2.0 GiB",
            id="terms about memory are bytes",
        ),
        pytest.param(
            Decision("resctrl/BE", "set", "ClassSchemata", {"L3": "L3:0=f", "MB": "MB:0=50"}),
            "the class gets L3:0=f MB:0=50",
            id="schemata as the kernel writes them",
        ),
        pytest.param(
            Decision("node", "hold", "SomethingNew", {"spare_milli": 1500, "count": 3}),
            "something new: spare 1.5 cores, count 3",
            id="an unknown reason lists its evidence",
        ),
        pytest.param(
            Decision("besteffort", "shrink", "BECPUBudget", {"budget_milli": 9300}),
            "BECPU budget: budget 9.3 cores",
            id="a known reason without its terms lists what there is",
        ),
        pytest.param(Decision("node", "skip", "NoNode"), "the Node object has not been seen yet", id="no evidence"),
    ],
)
def test_sentence(decision: Decision, said: str) -> None:
    assert sentence(decision) == said


@pytest.mark.parametrize("reason", sorted(sentences()))
def test_a_template_with_all_its_fields_leaves_no_brace_behind(reason: str) -> None:
    fields = re.findall(r"\{(\w+)!?\}", sentences()[reason])
    name, _, verdict = reason.partition("/")
    # 7 KiB: a number that shows its 7 in cores, bytes and percent alike.
    evidence = {field: 7168 for field in fields if field != "does"}
    said = sentence(Decision("node", "hold" if verdict else "set", name, evidence))
    assert not re.search(r"[{}\[\]]", said)
    assert said.count("7") >= len(set(evidence)), said


def test_a_value_with_braces_is_not_taken_for_a_field() -> None:
    decision = Decision("node", "refuse", "BadReservation", {"why": "{count} [x]", "reservedCPUs": "0-1"})
    assert sentence(decision) == "the reservation annotation was rejected: {count} [x]; reserved: 0-1"


def test_headline_and_terms_name_what_the_sentence_is_about() -> None:
    decision = Decision(
        "node/kubernetes.io/batch-cpu", "hold", "BatchAllocatable", {"hp_used": 2500, "policy": "usage"}
    )
    assert headline(decision).startswith("node/kubernetes.io/batch-cpu: hold, BatchAllocatable: ")
    assert terms(decision) == [("hp used", "2.5 cores"), ("policy", "usage")]


@given(st.integers(1, 51), st.integers(1, 100), st.lists(st.integers(0, 60_000), min_size=3, max_size=3))
def test_the_figures_of_the_budget_add_up_as_they_are_printed(tens: int, percent: int, parts: list[int]) -> None:
    """With capacities in tens of CPUs the product is a tenth of a CPU, as it is printed."""
    capacity = tens * 10_000
    budget = capacity * percent // 100 - sum(parts)
    assume(budget >= 0)
    names = dict(zip(("prod_milli", "host_milli", "system_milli"), parts, strict=True))
    evidence = {"budget_milli": budget, "capacity_milli": capacity, "threshold_percent": percent, **names}
    said = sentence(Decision("besteffort", "hold", "BECPUBudget", evidence))
    result, whole, share, *terms = (float(number) for number in re.findall(r"\d+(?:\.\d+)?", said.partition(";")[0]))
    assert round(result + sum(terms), 1) == round(whole * share / 100, 1), said


@given(st.integers(8 << 30, 1 << 40), st.lists(st.integers(1 << 30, 2 << 30), min_size=3, max_size=3))
def test_so_do_those_of_what_is_offered(capacity: int, parts: list[int]) -> None:
    margin, system, hp = parts
    evidence = {"result": capacity - sum(parts), "capacity": capacity, "margin": margin, "system": system, "hp": hp}
    said = sentence(Decision("node/kubernetes.io/batch-memory", "set", "BatchAllocatable", evidence))
    result, whole, *terms = (round(10 * float(number)) for number in re.findall(r"(\d+\.\d) GiB", said))
    assert result == whole - sum(terms), said
