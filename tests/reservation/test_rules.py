"""Reservations: what holds for every history of owners, and for whatever is written in annotations."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from koordlite.model import keys, times
from koordlite.model.errors import InputError
from koordlite.model.quantity import Quantity
from koordlite.model.wire.objects import LabelRequirement, NodeSelectorTerm, PodObject, Toleration
from koordlite.model.wire.reservation import ReservationObject, ResourceNames
from koordlite.reservation import capacity, lifecycle, matching
from koordlite.reservation.capacity import Demand, Holding, NodeCapacity
from koordlite.reservation.matching import Affinity
from koordlite.reservation.placeholder import reserve_pod

NOW = 1_800_000_000.0
AMOUNTS = some.fixed_dictionaries(
    {}, optional={name: some.integers(0, 9).map(Quantity.of) for name in ("cpu", "memory")}
)


def reservation(*, status: Any = None, meta: Any = None, **spec: Any) -> ReservationObject:
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "8", "memory": "8"}}}]}}
    raw = {
        "metadata": {"name": "r", "uid": "r-uid", "creationTimestamp": times.show(NOW - 100), **(meta or {})},
        "spec": {"template": template, "owners": [{}], "ttl": "24h", **spec},
        "status": status or {},
    }
    return msgspec.convert(raw, ReservationObject)


def pod(**meta: Any) -> PodObject:
    return msgspec.convert({"metadata": {"name": "p", "namespace": "ns", "uid": "p", **meta}}, PodObject)


@given(some.lists(some.tuples(some.sampled_from("abcd"), some.none() | AMOUNTS), max_size=12))
def test_what_owners_took_comes_back_when_they_go(history: list[tuple[str, dict[str, Quantity] | None]]) -> None:
    holding = Holding(names=("cpu",), allocatable={"cpu": Quantity.of(8)})
    alive: dict[str, dict[str, Quantity]] = {}
    for uid, requests in history:
        if requests is None:
            holding = holding.returned_by(uid)
            alive.pop(uid, None)
        else:
            holding = holding.taken_by(uid, requests)
            alive.setdefault(uid, requests)
        allocated = sum(amounts["cpu"].value for amounts in alive.values() if "cpu" in amounts)
        assert holding.allocated.get("cpu", Quantity(0)).value == allocated
        assert "memory" not in holding.allocated
        assert holding.available["cpu"].value == max(8 - allocated, 0)


@given(some.integers(0, 40), some.integers(0, 30), some.integers(0, 10), some.integers(0, 10), some.booleans())
def test_no_pod_fits_where_node_and_reservation_together_have_less_than_it_asks(
    requested: int, foreign: int, size: int, owned: int, restricted: bool
) -> None:
    holding = Holding(
        policy="Restricted" if restricted else "Aligned", names=("cpu",), allocatable={"cpu": Quantity.of(size)}
    ).taken_by("owner", {"cpu": Quantity.of(min(owned, size))})
    allocated = min(owned, size)
    node = NodeCapacity(
        allocatable={"cpu": 32_000, "pods": 110},
        requested={"cpu": 1000 * (foreign + size + allocated)},
        owners={"cpu": 1000 * allocated},
    )
    why = capacity.refusals(Demand(requests={"cpu": Quantity.of(requested)}, must_reserve=True), node, [holding])
    if requested:
        enough = requested <= 32 - foreign - allocated and (not restricted or requested <= size - allocated)
        assert (why == ()) == enough


@given(
    some.text(max_size=30)
    | some.recursive(
        some.none() | some.booleans() | some.integers() | some.text(max_size=5),
        lambda inner: (
            some.lists(inner, max_size=3)
            | some.dictionaries(
                some.sampled_from(
                    [
                        "name",
                        "reservationSelector",
                        "tolerations",
                        "resourceNames",
                        "key",
                        "operator",
                        "requiredDuringSchedulingIgnoredDuringExecution",
                        "reservationSelectorTerms",
                    ]
                ),
                inner,
                max_size=3,
            )
        ),
        max_leaves=8,
    ).map(json.dumps)
)
def test_whatever_is_written_in_annotations_is_read_or_refused_by_name(text: str) -> None:
    readers: dict[str, Callable[[dict[str, str]], object]] = {
        keys.RESERVATION_AFFINITY: lambda notes: matching.parse_affinity(notes, "pod/ns/p"),
        keys.EXACT_MATCH: lambda notes: matching.read(ResourceNames, notes, keys.EXACT_MATCH, "pod/ns/p"),
    }
    for key, read in readers.items():
        one, problems = matching.candidate(pod(annotations={key: text}), {}), []
        try:
            read({key: text})
        except InputError as error:
            problems = [(problem.object, problem.field) for problem in error.problems]
        assert problems == ([] if one else [("pod/ns/p", key)])
        assert one is None or matching.match(one, reservation(), {}, {})


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{"key":"a","operator":"Bad"}', "operator 'Bad'"),
        ('{"key":"a","operator":"Gt","values":["x"]}', "Gt needs one whole number"),
        ('{"key":"a","operator":"Lt","values":["-1"]}', "Lt needs one whole number without a sign"),
        ('{"key":"-","operator":"Gt","values":["1"]}', "'-' is not a label key"),
        ('{"key":"a","operator":"Gt","values":["9223372036854775808"]}', "Gt needs one whole number"),
        ('{"key":"\\ud800","operator":"Gt","values":["1"]}', "surrogate"),
        ('{"key":"a","operator":"Gt","values":[NaN]}', "JSON is malformed"),
        ('{"key":"a","operator":"In"}', "a"),
    ],
)
def test_a_selector_that_can_select_nothing_is_refused(text: str, line: str) -> None:
    terms = f'{{"reservationSelectorTerms":[{{"matchExpressions":[{text}]}}]}}'
    note = f'{{"requiredDuringSchedulingIgnoredDuringExecution":{terms}}}'
    with pytest.raises(InputError, match=line):
        matching.parse_affinity({"scheduling.koordinator.sh/reservation-affinity": note}, "pod/ns/p")


@pytest.mark.parametrize(
    ("note", "affinity"),
    [
        ("", Affinity()),
        ("null", Affinity()),
        ('{"name":null,"tolerations":null,"requiredDuringSchedulingIgnoredDuringExecution":null}', Affinity()),
        ('{"requiredDuringSchedulingIgnoredDuringExecution":{"reservationSelectorTerms":null}}', Affinity(terms=())),
        ('{"reservationSelector":{"a":null}}', Affinity(labels={"a": ""})),
        (
            '{"tolerations":[null,{"key":null,"operator":"Exists"}]}',
            Affinity(tolerations=(Toleration(), Toleration(operator="Exists"))),
        ),
        (
            '{"requiredDuringSchedulingIgnoredDuringExecution":{"reservationSelectorTerms":'
            '[null,{"matchExpressions":[{"key":"a","operator":"In","values":[null]}]}]}}',
            Affinity(
                terms=(
                    NodeSelectorTerm(),
                    NodeSelectorTerm(match_expressions=(LabelRequirement(key="a", operator="In", values=("",)),)),
                )
            ),
        ),
    ],
)
def test_nulls_are_what_go_decodes_them_to(note: str, affinity: Affinity) -> None:
    assert matching.parse_affinity({"scheduling.koordinator.sh/reservation-affinity": note}, "pod/ns/p") == affinity


def test_nothing_changes_the_same_status_comes_back() -> None:
    placed = reservation(status={"phase": "Available", "nodeName": "n1", "allocatable": {"cpu": "8"}})
    assert lifecycle.synced(placed, [], nodes=["n1"], now=NOW) is placed.status


def test_an_owner_ends_it_unless_it_may_be_taken_again() -> None:
    note = {"scheduling.koordinator.sh/reservation-allocated": '{"name":"r","uid":"r-uid"}'}
    took = [(pod(annotations=note), {"cpu": Quantity.of(2), "memory": Quantity.of(1)})]
    status = {"phase": "Available", "nodeName": "n1", "allocatable": {"cpu": "8"}}
    once = lifecycle.synced(reservation(status=status), took, nodes=["n1"], now=NOW)
    second = lifecycle.synced(reservation(status=status, allocateOnce=False), took, nodes=["n1"], now=NOW)
    assert (once.phase, second.phase) == ("Succeeded", "Available")
    assert once.allocated == second.allocated == {"cpu": "2"}
    assert [owner.name for owner in second.current_owners or ()] == ["p"]


def test_a_ttl_that_is_none_is_an_error_of_the_reservation() -> None:
    with pytest.raises(InputError, match=r"reservation/r: spec.ttl"):
        lifecycle.synced(reservation(ttl="soon"), [], nodes=[], now=NOW)


def test_two_annotations_that_cannot_be_read_are_two_problems() -> None:
    notes = {
        "node.koordinator.sh/reservation": "{",
        "scheduling.koordinator.sh/reservation-restricted-options": "[",
    }
    holding, problems = lifecycle.holding(reservation(meta={"annotations": notes}, allocatePolicy="Restricted"))
    assert {problem.field for problem in problems} == set(notes)
    assert not lifecycle.is_matchable(reservation(status={"phase": "Available", "nodeName": "n"}), holding, problems)


def test_its_pod_keeps_every_field_of_the_template() -> None:
    spec = {"containers": [], "dnsPolicy": "None", "tolerations": [{"operator": "Exists"}]}
    document = reserve_pod(reservation(template={"metadata": {"generateName": "x"}, "spec": spec}))
    assert document["spec"].items() >= spec.items()
    assert document["metadata"]["generateName"] == "x"
