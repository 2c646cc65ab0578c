"""One bad subject costs that subject: an error about one of many never ends the judgement of the others.

For errors that nobody expected. What is known to go wrong with a subject is answered where it is read.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

S = TypeVar("S")
T = TypeVar("T")
MOST_TOGETHER = 8
"""Maximum number of subjects that `culprits` looks for one by one, when each alone gives no error."""


def each(subjects: Iterable[S], judge: Callable[[S], T], otherwise: Callable[[S, str], T]) -> Iterator[T]:
    """Yield `judge(subject)` for each subject, and `otherwise(subject, why)` where that raises."""
    for subject in subjects:
        try:
            answer = judge(subject)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is about this subject
            answer = otherwise(subject, described(error))
        yield answer


def fault(error: BaseException) -> str:
    """Reason why a subject is left out that the program itself fails on."""
    return f"a fault of the program itself: {described(error)}"


def described(error: BaseException) -> str:
    """Name the error and the line that raised it, for a report; texts of foreign origin in it are clipped."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an error that cannot even be printed
        text = "its text cannot be printed"
    where = f" ({place(error)})" if error.__traceback__ else ""
    return f"{type(error).__name__}: {text[:160]}{where}"


def place(error: BaseException) -> str:
    """The innermost line that raised it: `module:line`."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return f"{at.tb_frame.f_globals.get('__name__', '?')}:{at.tb_lineno}" if at else "unknown"


def culprits(subjects: Sequence[S], error_of: Callable[[Sequence[S]], str]) -> list[tuple[S, str]]:
    """The subjects without which a judgement of the others succeeds, each with its error.
    `error_of` judges some of the subjects together and gives the error, or nothing. First each is judged alone; what
    fails only together is searched by halves. Empty when the judgement fails without any subject, too."""
    if error_of(()):
        return []
    bad = [(subject, why) for subject in subjects if (why := error_of((subject,)))]
    failing = {id(subject) for subject, _ in bad}
    candidates = [subject for subject in subjects if id(subject) not in failing]
    for _ in range(MOST_TOGETHER):
        why = error_of(candidates)
        if not why:
            break
        # The shortest beginning that fails ends with a subject that takes part in the failure.
        count = bisect.bisect_left(range(len(candidates)), True, key=lambda count: bool(error_of(candidates[:count])))
        bad.append((candidates.pop(max(count, 1) - 1), why))
    return bad
