"""Other programs that write our fields of the Node are found by name, and the cure is named."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tinyapi import Reply

from koordlite.kube.publish import node_writers
from koordlite.kube.publish.node_writers import NodeWriters, Writer, writers
from koordlite.model import keys

MINE = (keys.BATCH_CPU, keys.BATCH_MEMORY, keys.CPU_NORMALIZATION_RATIO)
SINCE = "2026-07-01T08:00:00Z"


def entry(manager: str, *, status: tuple[str, ...] = (), notes: tuple[str, ...] = ()) -> dict[str, Any]:
    fields = {
        "f:status": {"f:allocatable": {f"f:{name}": {} for name in status}, "f:conditions": {}},
        "f:metadata": {"f:annotations": {".": {}} | {f"f:{name}": {} for name in notes}},
    }
    return {"manager": manager, "operation": "Update", "time": SINCE, "fieldsType": "FieldsV1", "fieldsV1": fields}


def nodes(*entries: dict[str, Any]) -> bytes:
    return json.dumps({"items": [{"metadata": {"name": "n1", "managedFields": list(entries)}}]}).encode()


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
    assert writers(nodes(*entries), MINE) == tuple(Writer(name, fields, SINCE) for name, fields in found)


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
    raw = nodes({"manager": "x", "fieldsV1": fields})
    try:
        found = writers(raw, MINE)
    except msgspec.DecodeError:
        return
    assert found == ()


def test_the_cure_names_the_plugins_that_write_the_fields() -> None:
    told = str(node_writers.problem("n1", Writer("koord-manager", MINE, SINCE)))
    assert "--noderesource-plugins=*,-BatchResource,-CPUNormalization" in told
    assert "publish.nodeResources: manager" in told
    other = str(node_writers.problem("n1", Writer("yarn-operator", MINE, "")))
    assert "noderesource-plugins" not in other
    assert "yarn-operator" in other


def test_it_is_looked_at_the_start_soon_after_and_then_rarely(serve: Any) -> None:
    answers = [nodes(entry("koord-manager", status=(keys.BATCH_CPU,))), nodes(entry("koordlite", status=MINE[:1]))]
    server, api = serve(lambda request: Reply(body=answers[min(len(server.requests), 2) - 1]))
    looking = NodeWriters(api, "n1", MINE)
    looking.observe(0.0, patience_seconds=5.0)
    (problem,) = looking.problems
    assert (problem.object, problem.field) == ("node/n1", keys.BATCH_CPU)
    for second in range(1, 660):
        looking.observe(float(second), patience_seconds=5.0 if second == 60 else 0.0)
    looking.stop()
    assert looking.problems == (), "our own write stands"
    assert len(server.requests) == 2


def test_without_fields_of_ours_nothing_is_asked(serve: Any) -> None:
    server, api = serve(lambda request: Reply())
    looking = NodeWriters(api, "n1", ())
    looking.observe(0.0, patience_seconds=5.0)
    looking.stop()
    assert server.requests == []
