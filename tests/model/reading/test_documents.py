"""Documents read as Go reads them."""

from __future__ import annotations

import json
from typing import Annotated, Any

import msgspec
import pytest

from koordlite.model.reading import declared
from koordlite.model.reading.declared import MOST_PROBLEMS, JSONDocument, OneOf, Within


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    on_off: bool = False
    how_many: Annotated[int, Within(low=0, high=10)] | None = None
    share: Annotated[float, Within(above=0, usual=1)] = 0.5
    mode: Annotated[str, OneOf(("calm", "fast"))] = "calm"


def read(text: str) -> tuple[dict[str, Any] | None, JSONDocument]:
    document = JSONDocument("configmap/x", "doc", "the last one stays")
    values, usable = declared.read_text(document, Sample, text, "skipped")
    return {path[0]: value for path, value in values.items()} if usable else None, document


@pytest.mark.parametrize(
    ("text", "values"),
    [
        pytest.param('{"onOff":true,"howMany":3,"share":0.5,"mode":"fast"}', (True, 3, 0.5, "fast"), id="plain"),
        pytest.param('{"ONOFF":true,"howmany":3}', (True, 3), id="case does not matter"),
        pytest.param('{"howMany":3,"howMany":4}', (4,), id="the last of two wins"),
        pytest.param('{"howMany":3,"HOWMANY":4}', (4,), id="also over spellings"),
        pytest.param('{"howMany":null,"mode":""}', (), id="null and empty text are unset"),
        pytest.param('{"howMany":3,"HOWMANY":null}', (), id="a later null too"),
        pytest.param('{"ſhare":0.25}', (0.25,), id="letters that Go folds"),
        pytest.param('{"share":1}', (1,), id="a whole number is a number"),
        pytest.param("null", (), id="null is an empty document"),
        pytest.param(" {}\n", (), id="blanks around"),
    ],
)
def test_values(text: str, values: tuple[Any, ...]) -> None:
    found, document = read(text)
    assert tuple((found or {}).values()) == values
    assert not document.problems
    assert not document.broken


@pytest.mark.parametrize(
    ("text", "field", "why"),
    [
        pytest.param('{"howMany":\n 3,}', "doc", "at line 2 column", id="a trailing comma, with its place"),
        pytest.param("", "doc", "line 1 column 1", id="no text at all"),
        pytest.param('{"share":NaN}', "doc", "NaN is not a JSON number", id="NaN"),
        pytest.param("[]", "doc", "a list where an object is needed", id="a list"),
        pytest.param('{"onOff":1}', "doc.onOff", "a number where true or false is needed", id="1 is not true"),
        pytest.param('{"howMany":true}', "doc.howMany", "where a whole number is needed", id="true is not 1"),
        pytest.param('{"howMany":3.0}', "doc.howMany", "where a whole number is needed", id="3.0 is not whole"),
        pytest.param('{"howMany":"3"}', "doc.howMany", "text where a whole number is needed", id="text is no number"),
        pytest.param('{"howMany":9223372036854775808}', "doc.howMany", "whole number", id="beyond 64 bits"),
        pytest.param('{"share":1e999}', "doc.share", "where a number is needed", id="beyond a double"),
        pytest.param('{"howMany":{}}', "doc.howMany", "an object where", id="an object"),
        pytest.param("[" * 100_000, "doc", "not usable JSON", id="too deep"),
        pytest.param('{"howMany":' + "9" * 5000 + "}", "doc", "not usable JSON", id="too many digits"),
    ],
)
def test_mistakes_that_spoil_the_document(text: str, field: str, why: str) -> None:
    _, document = read(text)
    (problem,) = document.problems
    assert document.broken
    assert problem.field == field
    assert why in problem.why
    assert "the last one stays" in problem.do
    assert len(str(problem)) < 400


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"howMany":11}', "not within 0 to 10"),
        ('{"howMany":-1}', "not within 0 to 10"),
        ('{"share":0}', "not above 0"),
    ],
)
def test_a_value_out_of_range_spoils_its_object(text: str, why: str) -> None:
    found, document = read(text)
    assert found is None
    assert not document.broken
    assert [(problem.why, problem.do) for problem in document.problems] == [(why, "fix it; skipped")]


def test_an_unknown_word_stays_as_written_and_is_reported() -> None:
    found, document = read('{"mode":"fsat"}')
    assert found == {"mode": "fsat"}
    assert "calm, fast" in document.problems[0].why
    assert "it means calm" in document.problems[0].do


def test_a_value_beyond_the_usual_is_used_and_reported() -> None:
    found, document = read('{"share":1.5}')
    assert found == {"share": 1.5}
    assert (document.problems[0].why, document.problems[0].do) == ("above 1", "check it; it is used")


@pytest.mark.parametrize(
    ("name", "told"), [("howManny", "did you mean howMany?"), ("HOWMANYY", "howMany"), ("zzz", "it is ignored")]
)
def test_an_unknown_name_is_reported_with_a_suggestion(name: str, told: str) -> None:
    found, document = read(f'{{"{name}":1,"howMany":2}}')
    assert found == {"howMany": 2}
    assert told in document.problems[0].do


def test_all_mistakes_are_reported_at_once() -> None:
    _, document = read('{"onOff":1,"howMany":11,"share":"x","mode":"?","what":1}')
    assert [problem.field for problem in document.problems] == [
        "doc.what",
        "doc.onOff",
        "doc.howMany",
        "doc.share",
        "doc.mode",
    ]


def test_names_with_control_characters_are_printed_harmlessly() -> None:
    _, document = read('{"a\\u001b[31m\\n":1}')
    assert str(document.problems[0]).isprintable()


def test_half_a_character_becomes_a_whole_one() -> None:
    _, document = read('{"mode":"\\ud800x"}')
    assert document.problems[0].value == "\ufffdx"


def test_a_document_of_nothing_but_mistakes_is_reported_in_few_lines() -> None:
    _, document = read(json.dumps({f"wrong{i}": i for i in range(5000)}))
    assert len(document.problems) == MOST_PROBLEMS + 1
    assert "more mistakes" in document.problems[-1].why
