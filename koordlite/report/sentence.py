"""A decision as one English sentence, with its numbers in the formula's own terms.

The sentences stand in sentences.toml beside this module, by reason or by reason/verdict.
`{name}` is a field of the evidence, `{name!}` with its unit in full (`2.0 cores`); `{does}` is the verdict as a
verb; `[…]` is left out when one of its fields is missing or all of them are zero or empty. A reason without a sentence
gets its evidence listed. What follows a minus sign is rounded so that the figures add up as they are printed.
"""

from __future__ import annotations

import functools
import math
import pathlib
import re
import tomllib
from collections.abc import Mapping

from koordlite.model import printable
from koordlite.model.decision import Decision
from koordlite.report import units

_DOES = {
    "shrink": "shrinks",
    "grow": "grows",
    "set": "moves",
    "hold": "stays",
    "release": "is released",
    "evict": "goes",
}
_FIELD = re.compile(r"\{(\w+)(!?)\}")
_PART = re.compile(r"\{(_\w+)\}")
"""A part that several sentences have, which stands in the table as well."""
_OPTIONAL = re.compile(r"\[([^\]]*)\]")
_MINUEND = re.compile(r"\{(capacity\w*)!?\}(?: × \{(\w+)!?\})? −")
_SUBTRAHEND = re.compile(r"− (?:[\w -]+ )?\{(\w+)!?\}")
_TENTHS = {"milli": 100.0, "bytes": (1 << 30) / 10}
"""Units printed with one decimal: a tenth of a core, of a GiB."""
_NOTHING = (0, "")
_RESOURCE_UNITS = {"/batch-cpu": "milli", "/batch-memory": "bytes", "/mid-cpu": "milli", "/mid-memory": "bytes"}


@functools.cache
def sentences() -> Mapping[str, str]:
    """Every sentence by its reason, or by reason/verdict."""
    table = tomllib.loads(pathlib.Path(__file__).with_name("sentences.toml").read_text(encoding="utf-8"))
    whole = {reason: _PART.sub(lambda part: table[part[1]], text) for reason, text in table.items()}
    return {reason: text for reason, text in whole.items() if not reason.startswith("_")}


def sentence(decision: Decision) -> str:
    """Explain the decision in one line without a full stop."""
    table = sentences()
    template = table.get(f"{decision.reason}/{decision.verdict}") or table.get(decision.reason)
    if template is None:
        return _generic(decision)
    template = _OPTIONAL.sub(lambda match: _if_known(match[1], decision), template)
    if not all(name == "does" or name in decision.explained for name, _ in _FIELD.findall(template)):
        return _generic(decision)
    rounded = _added_up(template, decision)
    return _FIELD.sub(lambda match: _value(match[1], decision, rounded, full=bool(match[2])), template)


def headline(decision: Decision) -> str:
    """Subject, verdict and reason in front of the sentence, for lists."""
    return printable.one_line(f"{decision.subject}: {decision.verdict}, {decision.reason}: {sentence(decision)}")


def terms(decision: Decision) -> list[tuple[str, str]]:
    """The evidence as rows of name and value, in the order the strategy gave it."""
    return [(units.label(name), term(name, value, decision)) for name, value in decision.explained.items()]


def term(name: str, value: int | float | str, decision: Decision) -> str:
    """A value of one evidence field of `decision` with its unit."""
    return units.full(_named(name, decision), value)


def _if_known(part: str, decision: Decision) -> str:
    names = [name for name, _ in _FIELD.findall(part) if name != "does"]
    complete = all(name in decision.explained for name in names)
    return part if complete and any(decision.explained[name] not in _NOTHING for name in names) else ""


def _value(name: str, decision: Decision, rounded: Mapping[str, float], *, full: bool) -> str:
    if name == "does":
        return _DOES.get(decision.verdict, decision.verdict)
    show = units.full if full else units.bare
    return show(_named(name, decision), rounded.get(name, decision.explained[name]))


def _added_up(template: str, decision: Decision) -> dict[str, float]:
    """Values to print for what a formula takes away, `result … = capacity [× percent] − term − …`, so that the printed
    figures give the printed result: each is one of the two tenths beside it, the largest remainders are rounded up.

    Nothing for another kind of sentence, where a bound has changed the result, or where sizes differ in unit.
    """
    minuend, names = _MINUEND.search(template), _SUBTRAHEND.findall(template)
    if minuend is None or not names:
        return {}
    numbers = {name: decision.explained[name] for name in (_FIELD.findall(template)[0][0], minuend[1], *names)}
    result, whole, *parts = (float(value) if isinstance(value, int | float) else math.nan for value in numbers.values())
    whole = whole * float(decision.explained[minuend[2]]) / 100 if minuend[2] else whole
    step = _TENTHS.get(_named(names[0], decision).rpartition("_")[2], math.nan)
    same_unit = step <= 100 or all(part == 0 or part >= 10 * step for part in (result, whole, *parts))
    if not abs(whole - sum(parts) - result) < 0.01 * step or not same_unit:
        return {}
    tenths = [math.floor(part / step) for part in parts]
    missing = round(whole / step) - round(result / step) - sum(tenths)
    for place in sorted(range(len(parts)), key=lambda place: parts[place] / step - tenths[place], reverse=True):
        tenths[place] += missing > 0
        missing -= missing > 0
    return {name: tenth * step for name, tenth in zip(names, tenths, strict=True)} if missing == 0 else {}


def _named(name: str, decision: Decision) -> str:
    """The evidence name with its unit: terms about a resource of the node have the unit of that resource."""
    unit = next((unit for end, unit in _RESOURCE_UNITS.items() if decision.subject.endswith(end)), "")
    return f"{name}_{unit}" if unit and not units.has_unit(name) else name


def _generic(decision: Decision) -> str:
    """The reason's words and whatever numbers there are."""
    words = re.findall(r"[A-Z]+(?![a-z])s?|[A-Z][a-z]+|\d+", decision.reason)
    reason = " ".join(word if word[1:2].isupper() else word.lower() for word in words) or decision.reason
    listed = ", ".join(f"{name} {value}" for name, value in terms(decision))
    return f"{reason}: {listed}" if listed else reason
