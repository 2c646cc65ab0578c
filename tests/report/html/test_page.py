"""Elements escape by construction, and charts are drawn to scale."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.report.html import chart, page
from koordlite.report.html.chart import Line, Mark
from koordlite.report.html.page import el


@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        pytest.param(el("p", "a<b"), "<p>a&lt;b</p>", id="text is escaped"),
        pytest.param(el("p", el("b", "x")), "<p><b>x</b></p>", id="markup is not escaped twice"),
        pytest.param(el("p", ["a", ["b", None, 3]]), "<p>ab3</p>", id="sequences are flattened"),
        pytest.param(el("p", title='"><x'), '<p title="&quot;&gt;&lt;x"></p>', id="attributes are escaped"),
        pytest.param(el("p", class_="a", aria_label="b", id=None), '<p class="a" aria-label="b"></p>', id="names"),
        pytest.param(el("br"), "<br/>", id="void elements close themselves"),
        pytest.param(page.badge("ok"), '<span class="badge">ok</span>', id="a badge without tone"),
        pytest.param(page.table(("a",), []), '<p class="note">none</p>', id="an empty table says so"),
    ],
)
def test_element(made: str, wanted: str) -> None:
    assert made == wanted


def test_a_numeric_column_is_marked_and_its_mark_not_shown() -> None:
    shown = page.table(("name", "count#"), [("a", 3)])
    assert '<th class="num">count</th>' in shown
    assert '<td class="num">3</td>' in shown


def test_a_row_that_does_not_fit_its_headings_is_an_error() -> None:
    with pytest.raises(ValueError, match="zip"):
        page.table(("a", "b"), [("only one",)])


@given(st.floats(1e-6, 1e15))
def test_the_axis_ends_above_the_largest_value_but_not_far(value: float) -> None:
    top = chart.nice_ceiling(value)
    assert value <= top * (1 + 1e-6)
    assert top <= value * 2.01


def test_a_step_holds_its_level_until_the_next() -> None:
    drawn = chart.timeline([0, 10], [Line("a", "red", [4, 2], step=True)], label="x", show_time=str, show=str, top=4)
    assert 'd="M0 0H1000V150"' in drawn
    assert "<title>0\na 4</title>" in drawn


def test_a_chart_of_one_moment_and_of_none() -> None:
    assert "M0 0" in chart.timeline([5], [Line("a", "red", [2])], label="x", show_time=str, show=str)
    assert "no data" in chart.timeline([], [], label="x", show_time=str, show=str)


def test_tooltips_are_few_however_long_the_run() -> None:
    times = [float(i) for i in range(5000)]
    drawn = chart.timeline(times, [Line("a", "red", times)], label="x", show_time=str, show=str)
    assert 100 < drawn.count("<title>") <= 240


def test_nothing_is_coloured_where_nothing_is_known() -> None:
    line = Line("a", "red", [None, 4, 4, None, 2], area=True)
    drawn = chart.timeline([0, 10, 20, 30, 40], [line], label="x", show_time=str, show=str, top=4)
    assert drawn.count("<polygon") == 2
    assert f'points="250,0 500,0 500,{chart.HEIGHT} 250,{chart.HEIGHT}"' in drawn


@pytest.mark.parametrize(
    ("start", "end", "origin", "wanted"),
    [
        pytest.param(1, 239, 0, [60, 120, 180], id="minutes"),
        pytest.param(0, 60, 0, [0, 15, 30, 45, 60], id="quarters of a minute"),
        pytest.param(100, 340, 340, [100, 160, 220, 280, 340], id="counted back from now"),
        pytest.param(0, 86400, 0, [0, 21600, 43200, 64800, 86400], id="a day"),
        pytest.param(5, 5, 0, [5], id="a moment"),
    ],
)
def test_the_time_axis_has_round_times(start: float, end: float, origin: float, wanted: list[float]) -> None:
    assert chart.round_times(start, end, origin) == wanted


@given(st.floats(0, 1e6), st.floats(0.1, 1e8))
def test_the_time_axis_has_few_labels_however_long(start: float, span: float) -> None:
    assert len(chart.round_times(start, start + span)) <= 7


def test_marks_of_one_moment_are_one_and_their_words_are_text() -> None:
    marks = [Mark(0.0, "<b>"), Mark(0.1, "x"), Mark(50.0, "y")]
    drawn = chart.timeline([0, 100], [Line("a", "red", [1, 2])], label="x", show_time=str, show=str, marks=marks)
    assert drawn.count('class="mark"') == 2
    assert "0.0 &lt;b&gt;\n0.1 x" in drawn
    assert "a decision changed" in drawn
