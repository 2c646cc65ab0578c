"""Sockets of pods matched to connections."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from koordlite.formulas.topology import talks

Table = dict[str, list[tuple[str, str]]]


def test_two_ends_that_name_each_other_are_one_connection() -> None:
    tables = {"a": [("a:1", "b:80"), ("a:2", "b:80"), ("a:3", "out:443")], "b": [("b:80", "a:1"), ("b:80", "a:2")]}
    assert talks.matched(tables) == ({"a": 3, "b": 2}, {("a", "b"): 2})


def test_through_a_service_only_the_server_sees_the_client() -> None:
    tables = {"a": [("a:1", "service:80")], "b": [("b:8080", "a:1")], "c": [("c:1", "service:80")]}
    assert talks.matched(tables) == ({"a": 1, "b": 1, "c": 1}, {("a", "b"): 1})


def test_what_stays_inside_a_pod_counts_for_nothing() -> None:
    tables = {"a": [("lo:1", "lo:80"), ("lo:80", "lo:1")], "b": [("lo:1", "lo:80"), ("lo:80", "lo:1")]}
    assert talks.matched(tables) == ({"a": 0, "b": 0}, {})


def test_what_stays_inside_a_pod_is_no_end_for_another_pod() -> None:
    inside = [("x:1", "x:80"), ("x:80", "x:1")]
    assert talks.matched({"a": [("x:1", "x:80")], "b": inside}) == ({"a": 1, "b": 0}, {})


def test_an_end_is_of_one_connection() -> None:
    twice = {"a": [("x:1", "y:80")], "b": [("x:1", "y:80")], "c": [("y:80", "x:1")]}
    wanted = {"a": 1, "b": 1, "c": 1}, {("a", "c"): 1}
    assert talks.matched(twice) == talks.matched(dict(reversed(twice.items()))) == wanted


def test_a_claim_without_the_other_end_is_none() -> None:
    """A pod can name any address as its other side; only what the other pod has too counts."""
    tables = {"liar": [(f"liar:{n}", "victim:80") for n in range(50)], "victim": [("victim:80", "client:1")]}
    totals, pairs = talks.matched(tables)
    assert totals == {"liar": 50, "victim": 1}
    assert sum(pairs.values()) <= 1


PODS = st.sampled_from(["a", "b", "c", "d"])
WORLD = st.lists(st.tuples(PODS, PODS, st.booleans()), max_size=40)


@given(WORLD)
def test_every_connection_of_an_invented_node_is_found(made: list[tuple[str, str, bool]]) -> None:
    """(client, server, through a Service): each with a port of its own."""
    tables: Table = {pod: [] for pod in "abcd"}
    wanted: Counter[tuple[str, str]] = Counter()
    for port, (client, server, service) in enumerate(made):
        near, far = f"{client}:{port}", f"{server}:80"
        tables[client].append((near, f"service-{server}:80" if service else far))
        tables[server].append((far, near))
        if client != server:
            wanted[min(client, server), max(client, server)] += 1
    _, pairs = talks.matched(tables)
    assert pairs == dict(wanted)


ENDPOINT = st.sampled_from([f"{host}:{port}" for host in "abx" for port in range(3)])


@given(st.dictionaries(PODS, st.lists(st.tuples(ENDPOINT, ENDPOINT), max_size=12), max_size=4), st.randoms())
def test_whatever_tables_say_no_pod_talks_more_than_it_has_connections(tables: Table, random: object) -> None:
    totals, pairs = talks.matched(tables)
    for pod, total in totals.items():
        assert sum(number for pair, number in pairs.items() if pod in pair) <= total <= len(set(tables[pod]))
    assert all(first < second for first, second in pairs)
    shuffled = {pod: list(tables[pod]) for pod in sorted(tables, reverse=True)}
    for held in shuffled.values():
        random.shuffle(held)  # type: ignore[attr-defined]
    assert sum(talks.matched(shuffled)[1].values()) == sum(pairs.values())
