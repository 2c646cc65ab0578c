"""Text in lines of a width, and rows in columns. Names, CPU lists and versions stay whole, because people search for
them and copy them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence


def wrap(text: str, width: int, *, first: str = "", hanging: str | None = None) -> list[str]:
    """Lines of at most `width`, the first after `first`, the others after `hanging` (`first` where it is None).

    A word longer than a line is broken after a comma; one without a comma makes its line longer.
    """
    following = first if hanging is None else hanging
    return _Wrapper(
        width, initial_indent=first, subsequent_indent=following, break_on_hyphens=False, break_long_words=False
    ).wrap(text)


def fill(text: str, width: int, *, first: str = "", hanging: str | None = None) -> str:
    """Same as `wrap`, in one text."""
    return "\n".join(wrap(text, width, first=first, hanging=hanging))


def columns(rows: Iterable[Sequence[str]], sides: str) -> list[str]:
    """Rows as lines, two spaces between columns. `sides` aligns the columns by `<` or `>`; one after those stays as it
    is."""
    table = list(rows)
    shapes = [f"{side}{max(map(len, cells))}" for side, cells in zip(sides, zip(*table, strict=True), strict=False)]
    return ["  ".join(map(format, row, (*shapes, ""))) for row in table]


class _Wrapper(textwrap.TextWrapper):
    def _handle_long_word(self, reversed_chunks: list[str], cur_line: list[str], cur_len: int, width: int) -> None:
        comma = reversed_chunks[-1].rfind(",", 0, max(0, width - cur_len))
        if comma < 0:
            super()._handle_long_word(reversed_chunks, cur_line, cur_len, width)
            return
        word = reversed_chunks.pop()
        cur_line.append(word[: comma + 1])
        reversed_chunks.append(word[comma + 1 :])
