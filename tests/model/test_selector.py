"""Label selectors."""

from __future__ import annotations

from typing import Any

import pytest

from koordlite.model import selector

LABELS = {"pool": "batch", "zone": "a"}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("given", "matched"),
    [
        pytest.param(None, False, id="no selector matches nothing"),
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
    assert selector.matches(given, LABELS) is matched


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([], "not a JSON object"),
        ({"matchLabels": {"pool": 1}}, "matchLabels.pool"),
        ({"matchLabels": []}, ""),
        ({"matchExpressions": {}}, ""),
        (expression("pool", "out", "x"), "'out'"),
        (expression("pool", "In"), "at least one"),
        (expression("pool", "Exists", "x"), "takes no"),
        ({"matchExpressions": [{"operator": "Exists"}]}, "no key"),
        ({"matchExpressions": ["x"]}, "not a JSON object"),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": "x"}]}, "list of texts"),
        ({"matchLabels": {"absent": "x"}, **expression("pool", "out")}, "'out'"),
    ],
)
def test_what_is_no_selector_is_refused_even_when_it_would_not_match(given: Any, why: str) -> None:
    if not why:
        assert selector.matches(given, LABELS)
        return
    with pytest.raises(ValueError, match=why):
        selector.matches(given, LABELS)
