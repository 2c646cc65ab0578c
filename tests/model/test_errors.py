"""Problems that people can fix."""

from __future__ import annotations

from koordlite.model.errors import ConfigError, InputError, Problem, shorten

PROBLEM = Problem("node/n1", "some.key", "x\ny", "not a number", "write one")


def test_a_problem_is_one_sentence_in_one_line() -> None:
    assert str(PROBLEM) == r"node/n1: some.key = 'x\ny': not a number; write one"


def test_a_problem_of_a_whole_document_shows_no_empty_field() -> None:
    assert str(Problem("a.yaml:2:1", "$", "", "not YAML", "fix it")) == "a.yaml:2:1: not YAML; fix it"
    assert str(Problem("a.yaml", "$", "a list", "no mapping", "fix it")) == "a.yaml: $ = 'a list': no mapping; fix it"


def test_long_values_are_cut() -> None:
    assert len(shorten("x" * 1000)) == 120


def test_an_error_carries_its_problems_as_values() -> None:
    assert InputError(PROBLEM).problems == (PROBLEM,)
    error = ConfigError([PROBLEM, PROBLEM])
    assert error.problems == (PROBLEM, PROBLEM)
    assert str(error).count("\n") == 1
