"""Kubernetes' matching rules."""

from __future__ import annotations

import pytest

from koordlite.model import label_selectors, node_selectors
from koordlite.model.wire import objects

LABELS = {"zone": "a", "size": "10"}


def need(key: str, operator: str, *values: str) -> objects.LabelRequirement:
    return objects.LabelRequirement(key=key, operator=operator, values=values)


@pytest.mark.parametrize(
    ("requirement", "holds"),
    [
        pytest.param(need("zone", "In", "a", "b"), True, id="In finds the value"),
        pytest.param(need("other", "In", ""), False, id="In needs the label, even for an empty value"),
        pytest.param(need("zone", "NotIn", "a"), False, id="NotIn refuses the value"),
        pytest.param(need("other", "NotIn", "a"), True, id="NotIn holds without the label"),
        pytest.param(need("zone", "Exists"), True, id="Exists"),
        pytest.param(need("other", "DoesNotExist"), True, id="DoesNotExist"),
        pytest.param(need("size", "Gt", "9"), True, id="Gt compares numbers, not text"),
        pytest.param(need("size", "Lt", "9"), False, id="Lt"),
        pytest.param(need("zone", "Gt", "9"), False, id="Gt on a word holds never"),
        pytest.param(need("size", "Lt", str(2**63)), False, id="a bound beyond 64 bits holds never"),
        pytest.param(need("size", "Gt", "0" * 5000 + "9"), True, id="leading zeros"),
        pytest.param(need("size", "Gt", "9" * 5000), False, id="more digits than Python reads"),
        pytest.param(need("size", "Lt", str(2**63 - 1)), True, id="the largest bound"),
        pytest.param(need("zone", "Like", "a"), False, id="an unknown operator holds never"),
    ],
)
def test_requirement(requirement: objects.LabelRequirement, holds: bool) -> None:
    assert label_selectors.requirement_holds(requirement, LABELS) is holds


def test_no_selector_selects_nothing_and_an_empty_one_everything() -> None:
    assert not label_selectors.labels_match(None, LABELS)
    assert label_selectors.labels_match(objects.LabelSelector(), LABELS)


@pytest.mark.parametrize(
    ("terms", "matches"),
    [
        pytest.param((objects.NodeSelectorTerm(match_expressions=(need("zone", "In", "a"),)),), True, id="one term"),
        pytest.param((objects.NodeSelectorTerm(),), False, id="an empty term matches nothing"),
        pytest.param((), False, id="no terms match nothing"),
        pytest.param(
            (objects.NodeSelectorTerm(), objects.NodeSelectorTerm(match_fields=(need("metadata.name", "In", "n"),))),
            True,
            id="terms are alternatives, fields count",
        ),
        pytest.param(
            (objects.NodeSelectorTerm(match_expressions=(need("zone", "In", "a"), need("size", "In", "9"))),),
            False,
            id="lines of a term must all hold",
        ),
    ],
)
def test_required_node_affinity(terms: tuple[objects.NodeSelectorTerm, ...], matches: bool) -> None:
    required = objects.NodeSelector(node_selector_terms=terms)
    spec = objects.PodSpec(affinity=objects.Affinity(node_affinity=objects.NodeAffinity(required=required)))
    assert node_selectors.node_matches(spec, "n", LABELS) is matches


def test_node_selector_and_affinity_must_both_match() -> None:
    assert node_selectors.node_matches(objects.PodSpec(node_selector={"zone": "a"}), "n", LABELS)
    assert not node_selectors.node_matches(objects.PodSpec(node_selector={"zone": "b"}), "n", LABELS)


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        pytest.param(objects.Toleration(operator="Exists"), True, id="an empty key with Exists tolerates all"),
        pytest.param(objects.Toleration(), False, id="an empty key with Equal: another value"),
        pytest.param(objects.Toleration(value="yes"), True, id="an empty key with Equal: the value of any key"),
        pytest.param(objects.Toleration(key="gpu", value="yes"), True, id="Equal is the default operator"),
        pytest.param(objects.Toleration(key="gpu", value="no"), False, id="another value"),
        pytest.param(objects.Toleration(key="gpu", operator="Exists", effect="NoExecute"), False, id="another effect"),
        pytest.param(objects.Toleration(key="cpu", operator="Exists"), False, id="another key"),
    ],
)
def test_tolerations(toleration: objects.Toleration, tolerated: bool) -> None:
    taint = objects.Taint(key="gpu", value="yes", effect="NoSchedule")
    assert node_selectors.tolerates(toleration, taint) is tolerated
    assert (node_selectors.untolerated([taint], [toleration]) is None) is tolerated


def test_prefer_no_schedule_keeps_nobody_off() -> None:
    assert node_selectors.untolerated([objects.Taint(key="a", effect="PreferNoSchedule")], []) is None


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("zone=a", True),
        ("zone==a,size=10", True),
        ("zone!=a", False),
        ("zone in (a, b),size", True),
        ("zone notin (a,b)", False),
        ("!zone", False),
        ("!other, zone", True),
        ("zone in(a)", True),
        ("size>9,size < 11", True),
        ("size>10", False),
        ("zone<2", False),
        ("other>1", False),
    ],
)
def test_selectors_in_one_line(text: str, matches: bool) -> None:
    assert label_selectors.labels_match(label_selectors.parse(text), LABELS) is matches


@pytest.mark.parametrize("text", ["a b", "zone in a", "=x", "zone in (a", "size>", "size>x", "a=-b", "a=b>1"])
def test_a_selector_that_cannot_be_read_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=r"label selector like|whole number|value of a label"):
        label_selectors.parse(text)
