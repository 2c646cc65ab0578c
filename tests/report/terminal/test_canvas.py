"""Braille lines stay inside their grid and say what the values say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from koordlite.report.terminal import canvas
from koordlite.report.terminal.canvas import Series


def rows(series: Series, *, width: int = 2, height: int = 2, top: int = 7) -> list[str]:
    return ["".join(c.char for c in row) for row in canvas.draw([series], width=width, height=height, top=top)]


def test_zero_is_at_the_bottom_and_top_at_the_top() -> None:
    assert rows(Series("", "", [0, 0, 0, 0])) == ["⠀⠀", "⣀⣀"]
    assert rows(Series("", "", [7, 7, 7, 7])) == ["⠉⠉", "⠀⠀"]


def test_a_step_is_joined_upright() -> None:
    assert rows(Series("", "", [0, 7]), width=1) == ["⢸", "⣸"]


def test_unknown_values_leave_a_gap_and_the_newest_is_at_the_right_edge() -> None:
    assert rows(Series("", "", [None, None, None, 0])) == ["⠀⠀", "⠀⢀"]
    assert rows(Series("", "", [0])) == ["⠀⠀", "⠀⢀"]


def test_a_dashed_line_has_gaps() -> None:
    assert rows(Series("", "", [0] * 8, dots=(2, 4)), width=4)[1] == "⣀⠀⣀⠀"


def test_the_later_series_colours_a_shared_cell() -> None:
    cells = canvas.draw([Series("a", "red", [0, 0]), Series("b", "blue", [0, 0])], width=1, height=1, top=1)
    assert cells[0][0].style == "blue"


@given(
    values=st.lists(st.none() | st.integers(-(10**6), 10**6), max_size=60),
    width=st.integers(1, 20),
    height=st.integers(1, 8),
    top=st.integers(-1, 10**5),
)
def test_any_values_fill_exactly_the_grid(values: list[int | None], width: int, height: int, top: int) -> None:
    drawn = rows(Series("", "", values), width=width, height=height, top=top)
    assert len(drawn) == height
    assert {len(row) for row in drawn} == {width}
    assert all(0x2800 <= ord(char) <= 0x28FF for row in drawn for char in row)
