"""Objects as a watch tells them: identity, order, and broken ones."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.kube.watch.store import Store, is_older
from koordlite.model.wire import objects


def _raw(name: str, version: str = "1", **more: Any) -> msgspec.Raw:
    meta = {"name": name, "namespace": "ns", "resourceVersion": version}
    return msgspec.Raw(json.dumps({"metadata": meta, **more}).encode())


def _pods() -> Store[objects.PodObject]:
    return Store("pod", objects.PodObject)


BROKEN = {"spec": {"containers": "none"}}


def test_an_unchanged_object_stays_the_same_object() -> None:
    store = _pods()
    store.replace([_raw("a"), _raw("b")])
    before = store.objects["ns/a"]
    store.replace([_raw("b"), _raw("a")])
    assert store.objects["ns/a"] is before


def test_a_mapping_that_was_given_out_never_changes() -> None:
    store = _pods()
    store.put(_raw("a"))
    before = store.objects
    store.put(_raw("b", "2"))
    store.remove(_raw("a", "3"))
    assert list(before) == ["ns/a"]
    assert list(store.objects) == ["ns/b"]


def test_a_broken_object_keeps_its_last_good_state_and_is_named() -> None:
    store = _pods()
    store.put(_raw("a", spec={"nodeName": "n1"}))
    assert store.put(_raw("a", "2", **BROKEN)) == "2"
    assert store.objects["ns/a"].spec.node_name == "n1"
    (problem,) = store.problems
    assert problem.object == "pod/ns/a"
    assert "$.spec.containers" in problem.why


def test_a_broken_object_in_a_list_harms_nobody_else() -> None:
    store = _pods()
    store.put(_raw("a", spec={"nodeName": "n1"}))
    store.replace([_raw("a", "2", **BROKEN), _raw("b", "3")])
    assert store.objects["ns/a"].spec.node_name == "n1"
    assert "ns/b" in store.objects
    assert len(store.problems) == 1


@pytest.mark.parametrize("mend", [_raw("a", "3"), None], ids=["mended", "removed"])
def test_the_problem_goes_with_its_cause(mend: msgspec.Raw | None) -> None:
    store = _pods()
    store.put(_raw("a", "2", **BROKEN))
    if mend is None:
        store.remove(_raw("a", "3", **BROKEN))
    else:
        store.put(mend)
    assert store.problems == ()


def test_a_list_forgets_what_is_not_in_it() -> None:
    store = _pods()
    store.put(_raw("a"))
    store.put(_raw("broken", **BROKEN))
    store.replace([_raw("b")])
    assert list(store.objects) == ["ns/b"]
    assert store.problems == ()


def test_an_older_state_does_not_replace_what_our_own_write_brought() -> None:
    store = _pods()
    store.put(_raw("a", "12", spec={"nodeName": "written"}))
    assert store.put(_raw("a", "9", spec={"nodeName": "old"})) == "9"
    store.remove(_raw("a", "11"))
    assert store.objects["ns/a"].spec.node_name == "written"


def test_an_object_without_a_name_is_told() -> None:
    store = _pods()
    assert store.put(msgspec.Raw(b'{"metadata": {"name": 5}}')) == ""
    assert store.objects == {}
    assert "without a name" in str(store.problems[0])


@pytest.mark.parametrize(
    ("version", "than", "older"),
    [("9", "10", True), ("10", "9", False), ("5", "5", False), ("", "5", False), ("a", "b", False), ("٣", "5", False)],
)
def test_versions_are_compared_only_as_numbers(version: str, than: str, older: bool) -> None:
    assert is_older(version, than) is older


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["metadata", "name", "namespace", "spec", "containers", "status", "phase", "labels"])
            | st.text(max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(st.lists(st.tuples(st.sampled_from(["put", "remove"]), JSON), max_size=8))
def test_no_json_breaks_it(events: list[tuple[str, Any]]) -> None:
    store = _pods()
    store.put(_raw("kept"))
    for verb, content in events:
        raw = msgspec.Raw(json.dumps(content).encode())
        version = store.put(raw) if verb == "put" else store.remove(raw)
        assert isinstance(version, str)
    store.replace([msgspec.Raw(json.dumps(content).encode()) for _, content in events])
    assert isinstance(store.problems, tuple)


def test_nesting_deeper_than_the_stack_is_a_problem_like_any_other() -> None:
    store = _pods()
    deep = b'{"metadata": {"name": "a", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}"
    store.put(deep)
    assert store.objects == {}
    assert store.problems


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["set", "gone"]), st.sampled_from("xyz")), max_size=30)
)
def test_events_in_order_lead_to_the_state_of_the_server(events: list[tuple[str, str, str]]) -> None:
    store, server = _pods(), dict[str, str]()
    for version, (name, what, node) in enumerate(events, start=1):
        if what == "set":
            server[f"ns/{name}"] = node
            store.put(_raw(name, str(version), spec={"nodeName": node}))
        else:
            server.pop(f"ns/{name}", None)
            store.remove(_raw(name, str(version)))
    assert {key: pod.spec.node_name for key, pod in store.objects.items()} == server
