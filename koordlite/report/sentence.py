"""A decision as one English sentence, with its numbers in the formula's own terms.

The sentences are declared by the strategies, beside their reasons (`SENTENCES`), by reason or by reason/verdict.
`{name}` is a field of the evidence, `{name!}` with its unit in full (`2.0 cores`); `{does}` is the verdict as a
verb; `[…]` is left out when one of its fields is missing or all of them are zero or empty. A reason without a sentence
gets its evidence listed.
"""

from __future__ import annotations

import re

from koordlite import strategies
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
_OPTIONAL = re.compile(r"\[([^\]]*)\]")
_NOTHING = (0, "")
_RESOURCE_UNITS = {"/batch-cpu": "milli", "/batch-memory": "bytes", "/mid-cpu": "milli", "/mid-memory": "bytes"}


def sentence(decision: Decision) -> str:
    """Explain the decision in one line without a full stop."""
    declared = strategies.sentences()
    template = declared.get(f"{decision.reason}/{decision.verdict}") or declared.get(decision.reason)
    if template is None:
        return _generic(decision)
    template = _OPTIONAL.sub(lambda found: _if_known(found[1], decision), template)
    if not all(name == "does" or name in decision.explained for name, _ in _FIELD.findall(template)):
        return _generic(decision)
    return _FIELD.sub(lambda found: _value(found[1], decision, full=bool(found[2])), template)


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
    known = all(name in decision.explained for name in names)
    return part if known and any(decision.explained[name] not in _NOTHING for name in names) else ""


def _value(name: str, decision: Decision, *, full: bool) -> str:
    if name == "does":
        return _DOES.get(decision.verdict, decision.verdict)
    show = units.full if full else units.bare
    return show(_named(name, decision), decision.explained[name])


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
