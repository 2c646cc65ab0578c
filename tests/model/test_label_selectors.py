"""Label selectors."""

from __future__ import annotations

from typing import Any

import pytest

from koordlite.model import label_selectors
from koordlite.model.reading.declared import JSONDocument
from koordlite.model.wire import objects

LABELS = {"pool": "batch", "zone": "a"}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def read(value: Any) -> tuple[objects.LabelSelector, JSONDocument]:
    document = JSONDocument("configmap/x", "doc", "the last one stays")
    return label_selectors.read(document, value, "nodeSelector"), document


@pytest.mark.parametrize(
    ("given", "matched"),
    [
        pytest.param({}, True, id="an empty one everything"),
        pytest.param({"matchLabels": {"pool": "batch"}}, True, id="equal"),
        pytest.param({"matchLabels": {"pool": "batch", "zone": "b"}}, False, id="all must be equal"),
        pytest.param({"matchLabels": {"absent": ""}}, False, id="an absent label is not empty"),
        pytest.param(expression("pool", "In", "web", "batch"), True, id="In"),
        pytest.param(expression("absent", "In", "x"), False, id="In with an absent label"),
        pytest.param(expression("pool", "NotIn", "web"), True, id="NotIn"),
        pytest.param(expression("pool", "NotIn", "batch"), False, id="NotIn with a listed value"),
        pytest.param(expression("absent", "NotIn", "x"), True, id="NotIn with an absent label"),
        pytest.param(expression("pool", "Exists"), True, id="Exists"),
        pytest.param(expression("absent", "Exists"), False, id="Exists with an absent label"),
        pytest.param(expression("absent", "DoesNotExist"), True, id="DoesNotExist"),
        pytest.param({"matchLabels": {"zone": "a"}, **expression("pool", "In", "web")}, False, id="both parts hold"),
        pytest.param({"matchLabels": None, "matchExpressions": None}, True, id="null is unset"),
    ],
)
def test_matches(given: Any, matched: bool) -> None:
    found, document = read(given)
    assert label_selectors.matches(found, LABELS) is matched
    assert not document.problems


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (expression("pool", "out", "x"), "'out'"),
        (expression("pool", "In"), "needs values"),
        (expression("pool", "Exists", "x"), "takes no values"),
        ({"matchExpressions": [{"operator": "Exists"}]}, "is not a label key"),
        ({"matchLabels": {"absent": "x"}, **expression("pool", "out")}, "'out'"),
        ({"matchLabels": {"two words": "x"}}, "is not a label key"),
        ({"matchLabels": {"a/b/c": "x"}}, "is not a label key"),
        ({"matchLabels": {"/name": "x"}}, "is not a label key"),
        ({"matchLabels": {"pool": "-"}}, "is not the value of a label"),
        ({"matchLabels": {"pool": "x" * 64}}, "is not the value of a label"),
    ],
)
def test_what_means_nothing_is_refused_even_when_it_would_not_match(given: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        label_selectors.matches(read(given)[0], LABELS)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ([], "doc.nodeSelector"),
        ({"matchLabels": {"pool": 1}}, "doc.nodeSelector.matchLabels.pool"),
        ({"matchLabels": []}, "doc.nodeSelector.matchLabels"),
        ({"matchExpressions": {}}, "doc.nodeSelector.matchExpressions"),
        ({"matchExpressions": ["x"]}, "doc.nodeSelector.matchExpressions[0]"),
        ({"matchExpressions": [{"key": "a", "values": "x"}]}, "doc.nodeSelector.matchExpressions[0].values"),
    ],
)
def test_a_value_of_the_wrong_type_spoils_the_document(given: Any, field: str) -> None:
    _, document = read(given)
    assert document.broken
    assert document.problems[0].field == field


def test_names_are_read_without_regard_to_case() -> None:
    found, _ = read({"MatchLabels": {"pool": "batch"}})
    assert label_selectors.matches(found, LABELS)
    assert not label_selectors.matches(found, {"pool": "web"})
