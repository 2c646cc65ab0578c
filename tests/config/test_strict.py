"""Every kind of mistake in a configuration file is told with its place, what is wrong, and what to write."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.model.errors import ConfigError, Problem
from koordlite.model.reading import strict


def even(value: int) -> None:
    if value % 2:
        raise ValueError(f"{value} is odd")


@dataclasses.dataclass(frozen=True)
class Inner:
    size: int = dataclasses.field(default=2, metadata={"ge": 1, "le": 10, "check": even})
    share: float = dataclasses.field(default=0.5, metadata={"ge": 0})


@dataclasses.dataclass(frozen=True)
class Shape:
    count: int = 1
    ratio: float = 1.5
    on: bool = False
    word: Literal["off", "observe"] = "observe"
    name: str = ""
    maybe: int | None = None
    names: tuple[str, ...] = ()
    table: Mapping[str, int] = dataclasses.field(default_factory=dict)
    anything: Any = None
    inner: Inner = Inner()
    two_words: int = 0
    renamed: int = dataclasses.field(default=0, metadata={"name": "otherName"})
    made: int = dataclasses.field(default=7, init=False)

    def __post_init__(self) -> None:
        if self.count > 100 and not self.on:
            raise ValueError("count above 100 needs on: true")


def problems(text: str) -> tuple[Problem, ...]:
    with pytest.raises(ConfigError) as caught:
        strict.load(text, Shape, "file.yaml")
    return caught.value.problems


@pytest.mark.parametrize(
    ("text", "place", "path", "words"),
    [
        pytest.param("count: many", "1:8", "$.count", "a whole number", id="text for a number"),
        pytest.param("count: 1.5", "1:8", "$.count", "a whole number", id="a fraction for a whole number"),
        pytest.param("count: true", "1:8", "$.count", "a whole number", id="true for a number"),
        pytest.param("ratio: x", "1:8", "$.ratio", "a number", id="text for a fraction"),
        pytest.param("ratio: .nan", "1:8", "$.ratio", "a number", id="not a number"),
        pytest.param("ratio: .inf", "1:8", "$.ratio", "a number", id="infinite"),
        pytest.param("on: 1", "1:5", "$.on", "true or false", id="a number for true"),
        pytest.param("name: null", "1:7", "$.name", "text", id="null for text"),
        pytest.param("name: [a]", "1:7", "$.name", "a list where text is needed", id="a list for text"),
        pytest.param("count:\n  a: 1", "2:3", "$.count", "a mapping where a whole number", id="a mapping for a number"),
        pytest.param("names: a", "1:8", "$.names", "a value where a list", id="a value for a list"),
        pytest.param("names:\n- a\n- {b: 1}", "3:3", "$.names[1]", "a mapping where text", id="inside a list"),
        pytest.param("table: {a: x}", "1:12", "$.table.a", "a whole number", id="inside a table"),
        pytest.param("inner: 3", "1:8", "$.inner", "a value where a mapping", id="a value for a section"),
        pytest.param("inner:\n  size: 0", "2:9", "$.inner.size", "1 to 10", id="too small"),
        pytest.param("inner:\n  size: 12", "2:9", "$.inner.size", "1 to 10", id="too large"),
        pytest.param("inner: {share: -1}", "1:16", "$.inner.share", "at least 0", id="below the only bound"),
        pytest.param("inner: {size: 3}", "1:15", "$.inner.size", "3 is odd", id="a check of its own"),
        pytest.param("word: obsrve", "1:7", "$.word", "did you mean observe?", id="a misspelt word"),
        pytest.param("word: [off]", "1:7", "$.word", "write one of: off, observe", id="a list for a word"),
        pytest.param("cuont: 1", "1:1", "$", "did you mean count?", id="a misspelt key"),
        pytest.param("inner: {foo: 1}", "1:9", "$.inner", "known here: size, share", id="an unknown key"),
        pytest.param("two_words: 1", "1:1", "$", "did you mean twoWords?", id="a key in Python's spelling"),
        pytest.param("renamed: 1", "1:1", "$", "unknown key", id="a field under its Python name"),
        pytest.param("made: 1", "1:1", "$", "unknown key", id="a field that is not read"),
        pytest.param("count: 1\ncount: 2", "2:1", "$", "stands twice", id="a key twice"),
        pytest.param("[a]: 1", "1:1", "$", "a list as a key", id="a list as a key"),
        pytest.param("- a", "1:1", "$", "a list where a mapping", id="a list for the file"),
        pytest.param("count: 1\n  on: true", "2:5", "$", "not YAML", id="bad indentation"),
        pytest.param("count: [1", "2:1", "$", "not YAML", id="an open bracket"),
        pytest.param("a: 1\n---\nb: 2", "2:1", "$", "not YAML", id="two documents"),
        pytest.param("name: \x01", None, "$", "not YAML", id="a control character"),
        pytest.param("anything: 2026-13-45", "1:11", "$.anything", "cannot read it", id="a day that does not exist"),
        pytest.param("count: 2026-13-45", "1:8", "$.count", "cannot read it", id="a bad day for a number"),
        pytest.param("anything: !secret x", "1:11", "$.anything", "cannot read it", id="an unknown tag"),
        pytest.param("count: !!int abc", "1:8", "$.count", "cannot read it", id="a tag that lies"),
        pytest.param("count: 101", "1:1", "$", "needs on: true", id="a combination that cannot be"),
    ],
)
def test_mistake(text: str, place: str | None, path: str, words: str) -> None:
    (problem,) = problems(text)
    if place:
        assert problem.object == f"file.yaml:{place}"
    assert problem.field == path
    assert words in f"{problem.why}; {problem.do}"


def test_all_mistakes_are_told_at_once_in_the_order_of_the_file() -> None:
    found = problems("count: x\nfoo: 1\ninner:\n  size: 99\n  share: y\n")
    assert [problem.object for problem in found] == [f"file.yaml:{place}" for place in ("1:8", "2:1", "4:9", "5:10")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", Shape(), id="an empty file is all defaults"),
        pytest.param("# nothing\n", Shape(), id="comments too"),
        pytest.param("inner:\n", Shape(), id="an empty section is all defaults"),
        pytest.param("ratio: 2", Shape(ratio=2.0), id="a whole number is a fraction too"),
        pytest.param("word: off", Shape(word="off"), id="a bare off is the word"),
        pytest.param("name: 12", Shape(name="12"), id="digits are text where text is wanted"),
        pytest.param("name: on", Shape(name="on"), id="so are YAML's other words"),
        pytest.param("name:", Shape(name=""), id="nothing is empty text"),
        pytest.param("maybe: null", Shape(maybe=None), id="null for what may be absent"),
        pytest.param("maybe: 3", Shape(maybe=3), id="or its value"),
        pytest.param("otherName: 4", Shape(renamed=4), id="a field under its YAML name"),
        pytest.param("anything: {a: [1, x]}", Shape(anything={"a": [1, "x"]}), id="anything is taken as it is"),
        pytest.param("names: [a, b]\ntable: {x: 1}", Shape(names=("a", "b"), table={"x": 1}), id="lists and tables"),
        pytest.param("inner: {size: 4, share: 0}", Shape(inner=Inner(4, 0.0)), id="sections"),
        pytest.param("count: 101\non: true", Shape(count=101, on=True), id="a combination that can be"),
    ],
)
def test_value(text: str, expected: Shape) -> None:
    assert strict.load(text, Shape, "file.yaml") == expected


def value_or_problems(text: str) -> None:
    try:
        assert isinstance(strict.load(text, Shape, "f"), Shape)
    except ConfigError as error:
        assert error.problems


@given(st.text(max_size=80))
def test_whatever_is_written_is_a_value_or_problems(text: str) -> None:
    value_or_problems(text)


NAMES = ("count", "inner", "size", "names", "table", "x", "1", "null", "~", "<<")
SIGNS = ("[", "]", "{", "}", ":", "-", " ", "\n", "  ", "!!int", "&a", "*a", "?", "'")


@given(st.lists(st.sampled_from(NAMES + SIGNS), max_size=20))
def test_whatever_yaml_is_written_is_a_value_or_problems(words: list[str]) -> None:
    value_or_problems("".join(words))


@given(st.lists(st.from_regex(r"[a-z][a-z0-9]{0,5}", fullmatch=True), min_size=1, max_size=4))
def test_camel_joins_words(words: list[str]) -> None:
    joined = strict.camel("_".join(words))
    assert joined.lower() == "".join(words)
    assert "_" not in joined
