"""Names of core groups: pods share one only when labels, namespace and class say so."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.formulas.cpu import core_groups

LABELS = st.from_regex(r"\A(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,20}[A-Za-z0-9])?)?\Z") | st.sampled_from(
    ["", "a", "a-expeller", "expeller", "default", "uid", "x.expeller"]
)
NAMESPACES = st.from_regex(r"\A[a-z0-9](?:[a-z0-9-]{0,10}[a-z0-9])?\Z") | st.sampled_from(["default", "uid", "a"])
PODS = st.fixed_dictionaries(
    {
        "namespace": NAMESPACES,
        "group_id": LABELS,
        "exclusive_uid": st.sampled_from(["", "", "a", "0f3c"]),
        "expeller": st.booleans(),
        "shared_ids": st.sampled_from([(), ("a",)]),
    }
)


def meant(pod: dict[str, Any]) -> tuple[object, ...]:
    """Whom a pod shares a core with, as a value of its own form."""
    if pod["exclusive_uid"]:
        return ("alone", pod["exclusive_uid"], pod["expeller"])
    if not pod["group_id"]:
        return ("class", pod["expeller"])
    if pod["group_id"] in pod["shared_ids"]:
        return ("everywhere", pod["group_id"], pod["expeller"])
    return ("namespace", pod["namespace"], pod["group_id"], pod["expeller"])


@given(PODS, PODS)
def test_two_pods_share_a_name_exactly_when_they_are_meant_to(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert (core_groups.name(**first) == core_groups.name(**second)) == (meant(first) == meant(second))


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("", True),
        ("db", True),
        ("a.b_c-d", True),
        ("-a", False),
        ("a/b", False),
        ("a:expeller", False),
        ("a" * 64, False),
    ],
)
def test_what_may_be_a_label(text: str, good: bool) -> None:
    assert core_groups.is_label(text) is good


@pytest.mark.parametrize(("counts", "cookie"), [({}, 0), ({7: 1, 5: 3}, 5), ({9: 2, 4: 2}, 4)])
def test_most_processes_decide(counts: dict[int, int], cookie: int) -> None:
    assert core_groups.cookie(counts) == cookie
