"""Other programs that write our fields of the Node are found by name, and the cure is named."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.kube.publish.node_writers import NodeWriters, conflicts
from koordlite.model import keys
from koordlite.model.wire.objects import WrittenNodeObject

MINE = (keys.BATCH_CPU, keys.BATCH_MEMORY, keys.CPU_NORMALIZATION_RATIO)
SINCE = "2026-07-01T08:00:00Z"


def entry(manager: str, *, status: tuple[str, ...] = (), notes: tuple[str, ...] = ()) -> dict[str, Any]:
    fields = {
        "f:status": {"f:allocatable": {f"f:{name}": {} for name in status}, "f:conditions": {}},
        "f:metadata": {"f:annotations": {".": {}} | {f"f:{name}": {} for name in notes}},
    }
    return {"manager": manager, "operation": "Update", "time": SINCE, "fieldsType": "FieldsV1", "fieldsV1": fields}


def node(*entries: dict[str, Any]) -> WrittenNodeObject:
    return msgspec.convert({"metadata": {"name": "n1", "managedFields": list(entries)}}, WrittenNodeObject)


@pytest.mark.parametrize(
    ("entries", "found"),
    [
        ((entry("koordlite", status=MINE[:2]),), ()),
        ((entry("kubelet", status=("cpu", "memory")),), ()),
        ((entry("koord-manager", status=(keys.BATCH_CPU, keys.MID_CPU)),), (("koord-manager", (keys.BATCH_CPU,)),)),
        (
            (entry("koord-manager", notes=(keys.CPU_NORMALIZATION_RATIO,)), entry("x", status=(keys.BATCH_MEMORY,))),
            (("koord-manager", (keys.CPU_NORMALIZATION_RATIO,)), ("x", (keys.BATCH_MEMORY,))),
        ),
    ],
    ids=["our-own-writes", "fields-that-are-not-ours", "the-manager-and-only-what-we-write", "two-of-them"],
)
def test_who_wrote_our_fields_last(entries: tuple[dict[str, Any], ...], found: tuple[Any, ...]) -> None:
    problems = tuple(conflicts(node(*entries), MINE))
    assert tuple((each.why.partition(" ")[0], tuple(each.field.split(", "))) for each in problems) == found
    assert all(f" at {SINCE}; " in each.why and each.object == "node/n1" for each in problems)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["f:status", "f:allocatable", "f:metadata", "f:annotations", "x"]), inner)
        ),
        max_leaves=12,
    )
)
def test_fields_of_any_form_name_nobody_or_are_refused(fields: Any) -> None:
    try:
        strange = node({"manager": "x", "fieldsV1": fields})
    except msgspec.ValidationError:
        return
    assert tuple(conflicts(strange, MINE)) == ()


def test_the_cure_names_the_plugins_that_write_the_fields() -> None:
    told, other = map(
        str, conflicts(node(entry("koord-manager", status=MINE), entry("yarn-operator", notes=MINE)), MINE)
    )
    assert "--noderesource-plugins=*,-BatchResource,-CPUNormalization" in told
    assert "publish.nodeResources: manager" in told
    assert "noderesource-plugins" not in other
    assert "yarn-operator" in other


def test_it_is_looked_at_the_start_soon_after_and_then_rarely() -> None:
    theirs, ours = node(entry("koord-manager", status=(keys.BATCH_CPU,))), node(entry("koordlite", status=MINE[:1]))
    looking = NodeWriters(MINE)
    looking.observe(None, 0.0)
    assert looking.problems == (), "the Node is not known yet"
    looking.observe(theirs, 0.0)
    (problem,) = looking.problems
    assert (problem.object, problem.field) == ("node/n1", keys.BATCH_CPU)
    for second in range(1, 60):
        looking.observe(ours, float(second))
    assert looking.problems == (problem,), "no look between two"
    looking.observe(ours, 60.0)
    assert looking.problems == (), "our own write stands"
    looking.observe(theirs, 659.0)
    assert looking.problems == ()
    looking.observe(theirs, 660.0)
    assert looking.problems == (problem,)


def test_without_fields_of_ours_nobody_is_a_rival() -> None:
    looking = NodeWriters(())
    looking.observe(node(entry("koord-manager", status=MINE)), 0.0)
    assert looking.problems == ()
