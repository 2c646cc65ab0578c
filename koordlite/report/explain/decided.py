"""`koordlite explain SUBJECT` for whatever decisions are about: each with all its numbers, and when it last changed.
`koordlite explain node`: the whole node in sentences, and what to ask next. `koordlite explain resctrl`: what each
group has, why, what it uses, and how its writes went.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from koordlite import strategies
from koordlite.model import printable
from koordlite.model.decision import Decision
from koordlite.model.place import Place
from koordlite.report import present, units, view
from koordlite.report.explain import pieces
from koordlite.report.history import NOTHING, DecisionEvent, Remembered
from koordlite.report.json import run_report
from koordlite.report.present import OwnedUse
from koordlite.report.sentence import headline, sentence, terms
from koordlite.report.tick import Tick

_LISTED = 8


def text(subject: str, tick: Tick, past: Remembered = NOTHING) -> str:
    """Explain what holds for `subject` and why, with every number, and when it last changed.

    A subject is what a decision is about (`besteffort`, `pod/ns/name`, or the end of it), a strategy, a reason, a word
    for one, or part of a file's name. ValueError lists the subjects there are.
    """
    off = switched_off(subject, tick)
    if off:
        return f"{subject}: {off}\n"
    events = [event for event in past.events if concerns(subject, event.decision)]
    found = chosen(subject, tick.decisions)
    return "\n".join(part for decision in found for part in (*_explained(decision, events), ""))


def document(subject: str, tick: Tick, _past: Remembered = NOTHING) -> dict[str, Any]:
    """The same as plain values."""
    off = switched_off(subject, tick)
    found = [] if off else chosen(subject, tick.decisions)
    return {"decisions": [run_report.decided(decision) for decision in found], **({"off": off} if off else {})}


def switched_off(subject: str, tick: Tick) -> str:
    """The reason why nothing is decided about `subject`, where its strategy is off; else empty."""
    whose = {subject: strategy.name for strategy in strategies.discover() for subject in strategy.subjects}
    name = ({**strategies.words(), **whose}).get(subject, subject)
    if tick.modes.get(name) != "off" or any(concerns(subject, decision) for decision in tick.decisions):
        return ""
    return f"nothing is decided, the strategy {name} is off; switch it on with strategies.{name}.mode: observe"


def chosen(subject: str, decisions: Sequence[Decision]) -> list[Decision]:
    """The decisions that `subject` means; ValueError lists the subjects when there are none."""
    found = [decision for decision in decisions if concerns(subject, decision)]
    if not found:
        raise ValueError(f"nothing was decided about {subject!r}; {_near(subject, decisions)}")
    return found


def _near(subject: str, decisions: Sequence[Decision]) -> str:
    """Suggest what may have been meant, else some of the subjects: a node has hundreds."""
    import difflib  # For a mistake only.

    subjects = sorted({decision.subject for decision in decisions})
    names = sorted({decision.strategy for decision in decisions if decision.strategy})
    near = difflib.get_close_matches(subject, [*subjects, *names, *strategies.words()], n=3, cutoff=0.6)
    if near:
        return f"did you mean {' or '.join(near)}?"
    some = [each for each in subjects if "/" not in each] + names
    return f"there are decisions about {', '.join(some[:_LISTED]) or 'nothing yet'}{' …' if some[_LISTED:] else ''}"


def concerns(subject: str, decision: Decision) -> bool:
    """Tell whether `subject` means this decision."""
    wanted = strategies.words().get(subject, subject)
    names = (decision.subject, decision.strategy, decision.reason)
    places = (str(change.place) for change in decision.changes)
    return wanted in names or decision.subject.endswith(f"/{wanted}") or any(wanted in place for place in places)


def _explained(decision: Decision, events: Sequence[DecisionEvent]) -> Iterator[str]:
    yield f"{printable.one_line(decision.subject)}  ({decision.strategy or 'strategy'})"
    yield f"  {decision.verdict}, {decision.reason}: {sentence(decision)}"
    rows = terms(decision)
    width = max((len(name) for name, _ in rows), default=0)
    yield from (f"    {name:<{width}}  {value}" for name, value in rows)
    if decision.changes:
        yield "  asks for"
        yield from (f"    {change.place}" for change in decision.changes)
    earlier = [event for event in events if event.decision.subject == decision.subject and event.decision.changes]
    if earlier:
        last = earlier[-1]
        yield f"  last change at {units.when(last.time, last.wall)}: {last.decision.verdict}, {sentence(last.decision)}"


NODE = "node"
NEWEST = 8


def node_text(_subject: str, tick: Tick, past: Remembered) -> str:
    """The answer as lines."""
    lines = [
        f"{view.node(tick)}: {tick.status}{view.because(tick)}",
        *(line for each in strategies.discover() if each.overview for line in _part(each.name, *each.overview, tick)),
        *_changes(past),
        *_fights(tick, past),
        "\nfurther: explain pod NAME | cpu N | file PATH | config | any strategy, reason or subject",
    ]
    return "\n".join(lines) + "\n"


def node_document(_subject: str, tick: Tick, past: Remembered) -> dict[str, Any]:
    """The same as plain values."""
    return {
        "status": tick.status,
        "because": tick.because,
        "decisions": [
            run_report.decided(d) for each in strategies.discover() if each.overview for d in _of(each.name, tick)
        ],
        "newest": [{"time": e.time, **run_report.decided(e.decision)} for e in list(past.events)[-NEWEST:]],
        "changedByOthers": [pieces.place_document(place, tick, past) for place in past.foreign],
    }


def _of(strategy: str, tick: Tick) -> list[Decision]:
    """Decisions of a strategy about the node as a whole."""
    return [d for d in tick.decisions if d.strategy == strategy and d.kind != "pod"]


def _part(strategy: str, title: str, ask: str, tick: Tick) -> Iterator[str]:
    found = _of(strategy, tick)
    if not found:
        return
    yield f"\n{title} [{strategy}, {tick.modes.get(strategy, 'observe')}]"
    for decision in found:
        yield f"  {headline(decision)}"
    yield f"  → explain {ask}"


def _changes(past: Remembered) -> Iterator[str]:
    if past.events:
        yield "\nrecent decisions, the newest last"
        yield from pieces.changed(list(past.events)[-NEWEST:])


def _fights(tick: Tick, past: Remembered) -> Iterator[str]:
    places = view.disputed(tick, past)
    if places:
        yield "\ndisputed files"
    for place in places[:NEWEST]:
        yield f"  {place}"
        yield from (f"    {line}" for line in pieces.about_place(place, tick, past))


RESCTRL = "resctrl"


def resctrl_text(_subject: str, tick: Tick, past: Remembered) -> str:
    """The answer as lines; ValueError when the strategy is off and the machine has no groups."""
    decisions = _of_resctrl(tick)
    lines = [
        "groups as they are",
        *(f"  {group:<8} {line}" for group, line in tick.schemata.items()),
        *([] if tick.schemata else ["  none: this machine has no resctrl, or it is not mounted"]),
        *_uses(tick),
        *pieces.section("decided", decisions, "nothing: the strategy is off"),
        *_writes(tick, past),
    ]
    return "\n".join(lines) + "\n"


def resctrl_document(_subject: str, tick: Tick, past: Remembered) -> dict[str, Any]:
    """The same as plain values."""
    return {
        "schemata": dict(tick.schemata),
        "use": [run_report.fields(use) for use in tick.cache_use],
        "decisions": [run_report.decided(decision) for decision in _of_resctrl(tick)],
        "places": [pieces.place_document(place, tick, past) for place in _resctrl_places(tick, past)],
    }


def _of_resctrl(tick: Tick) -> list[Decision]:
    return [decision for decision in tick.decisions if decision.strategy == RESCTRL]


def _uses(tick: Tick) -> Iterator[str]:
    if tick.cache_use:
        yield "\nused"
        yield from (f"  {_use(use)}" for use in tick.cache_use)


def _use(owned: OwnedUse) -> str:
    who = f"pod {owned.namespace}/{owned.pod}" if owned.pod else f"class {owned.qos}"
    occupied = owned.use.occupancy_bytes
    parts = [f"{units.size(occupied)} of cache"] if occupied is not None else []
    parts += [f"{word} {units.size(rate)}/s" for word, rate in present.bandwidths(owned.use)]
    return f"{who}, cache {owned.cache}: {', '.join(parts) or 'not counted by this hardware'}"


def _resctrl_places(tick: Tick, past: Remembered) -> list[Place]:
    troubles = (found.place for found in tick.troubles)
    return sorted({place for place in (*past.writes, *past.foreign, *troubles) if place.kind.is_resctrl})


def _writes(tick: Tick, past: Remembered) -> Iterator[str]:
    places = _resctrl_places(tick, past)
    if places:
        yield "\nwritten"
    for place in places:
        yield f"  {place}"
        yield from (f"    {line}" for line in pieces.about_place(place, tick, past))
