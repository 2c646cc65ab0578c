"""Mistakes, as values and as exceptions.

    KoordliteError
    ├── InputError         outside input that cannot be accepted: carries Problems
    │   └── ConfigError    ... in one of our own configuration files
    ├── HardwareAbsent     the machine lacks a feature that was declared `required`
    ├── PlanConflict       two strategies want different values in one file
    └── JournalError       the undo journal cannot be trusted

A refusal by the kernel stays an OSError, with the kernel's errno and, for resctrl, its last_cmd_status as a note.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
from collections.abc import Iterable, Iterator

from koordlite.model import printable
from koordlite.model.place import Place

UNREADABLE = (ValueError, RecursionError)
"""Errors of reading outside text: no JSON, or of another shape (msgspec.DecodeError), bytes that are no UTF-8, numbers
with more digits than Python takes, and documents nested deeper than anybody would write."""


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong in outside input, worded so that its author can fix it."""

    object: str
    """Object with the mistake: `node/node-a`, `configmap/koordinator-system/slo-controller-config`, a file with its
    line."""
    field: str
    """Annotation key, JSON path or file name inside that object."""
    value: str
    """The offending text, cut to 120 characters."""
    why: str
    """Mistake."""
    do: str
    """Remedy, and what holds in the meantime."""

    def __post_init__(self) -> None:
        for name, most in (("field", 300), ("value", 120), ("why", 1000)):
            text = getattr(self, name)
            if len(text) > most:
                object.__setattr__(self, name, clipped(text, most))

    def __str__(self) -> str:
        # The whole document, file or folder is the object itself, and often there is no text to show.
        text = f" = {shorten(self.value)}" if self.value else ""
        where = "" if self.field in ("$", "file", "folder") and not text else f"{self.field}{text}: "
        return printable.one_line(f"{self.object}: {where}{self.why}; {self.do}")


def reason(error: BaseException) -> str:
    """The reason in an exception: of a system error its words, without number and file name, which the message around
    them has; in one line."""
    words = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(str(words).split()) or type(error).__name__


def mismatch(error: Exception) -> tuple[str, str]:
    """Field and mistake in an error of msgspec, which ends with the path of the value."""
    words, _, path = str(error).rpartition(" - at `$")
    return path.removesuffix("`").removeprefix(".") if words else "", (words or path).replace("`", "")


def kernel_words(error: OSError | ValueError) -> str:
    """`EBUSY: Device or resource busy (/sys/fs/…)`: errno, the kernel's text and the file; or our own refusal."""
    if not isinstance(error, OSError):
        return str(error)
    name = errno.errorcode.get(error.errno or 0, str(error.errno))
    where = f" ({error.filename})" if error.filename else ""
    return f"{name}: {error.strerror}{where}"


def clipped(text: str, most: int) -> str:
    """The beginning of `text`, and how much is missing, in at most `most` characters."""
    if len(text) <= most:
        return text
    end = f"… ({len(text)} characters)"
    return f"{text[: most - len(end)]}{end}"


def shorten(text: str, limit: int = 120) -> str:
    """`text` in one line of at most `limit` characters, quoted, so that a broken value never floods a log."""
    quoted = repr(text[: limit + 1])
    return quoted if len(quoted) <= limit else f"{quoted[: limit - 4]}...'"


class KoordliteError(Exception):
    """Root of everything this project raises on purpose."""


class InputError(KoordliteError):
    """Input that was refused; `problems` says why, item by item."""

    def __init__(self, problems: Problem | Iterable[Problem]) -> None:
        self.problems = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


@contextlib.contextmanager
def noting(problems: list[Problem]) -> Iterator[None]:
    """Leave the block where an input is refused, with what is wrong with it in `problems`."""
    try:
        yield
    except InputError as error:
        problems.extend(error.problems)


@contextlib.contextmanager
def refusing(owner: str, field: str, value: str, do: str) -> Iterator[None]:
    """Refuse an input that the block cannot read: InputError for an error of `UNREADABLE`, with its words."""
    try:
        yield
    except UNREADABLE as error:
        raise InputError(Problem(owner, field, value, str(error), do)) from error


class ConfigError(InputError):
    """A configuration file of ours that cannot be used."""


class HardwareAbsent(KoordliteError):
    """A feature that is needed is not there; `feature` names it, `why` is what the machine reports."""

    def __init__(self, feature: str, why: str) -> None:
        self.feature, self.why = feature, why
        super().__init__(f"{feature} is needed but absent: {why}")


class PlanConflict(KoordliteError):
    """Two strategies want different values in the same place: one writer a file is the rule."""

    def __init__(self, place: Place, first: str, second: str) -> None:
        self.place, self.first, self.second = place, first, second
        super().__init__(f"{place} is claimed twice: {first} and {second}")

    @property
    def problem(self) -> Problem:
        """The same for the status."""
        why = f"{self.first} and {self.second} want different values"
        do = f"{self.first} has it; turn one of the two strategies off"
        return Problem(str(self.place), "value", "", why, do)


class JournalError(KoordliteError):
    """The undo journal exists but cannot be read, so nothing may be written over what it might describe."""


class JournalDenied(JournalError):
    """Only another user may read the undo journal."""


class JournalFull(JournalError):
    """There is no room on the disk for an undo journal: what would be written could not be undone."""


class EvictionRefused(KoordliteError):
    """The cluster does not let this pod go at present; `why` is its own words."""

    def __init__(self, pod: str, why: str, *, retry_after_seconds: float | None = None) -> None:
        self.pod, self.why, self.retry_after_seconds = pod, why, retry_after_seconds
        super().__init__(f"{pod} was not evicted: {why}")
