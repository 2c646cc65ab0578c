"""`koordlite explain SUBJECT` for whatever decisions are about: each with all its numbers, and when it last changed.
`koordlite explain node`: the whole node in sentences, and what to ask next. `koordlite explain resctrl`: what each
group has, why, what it uses, and how its writes went.
"""

from __future__ import annotations

from collections.abc import Sequence

from koordlite import strategies
from koordlite.model import printable
from koordlite.model.decision import Decision
from koordlite.report import node_figures, paragraph, units, view
from koordlite.report.explain import pieces
from koordlite.report.explain.pieces import Answer
from koordlite.report.history import NOTHING, Remembered
from koordlite.report.json import run_report
from koordlite.report.sentence import headline, sentence, terms
from koordlite.report.tick import Tick

_LISTED = 8
NEWEST = 8


def answer(subject: str, tick: Tick, past: Remembered = NOTHING) -> Answer:
    """Explain what holds for `subject` and why, with every number, and when it last changed.

    A subject is what a decision is about (`besteffort`, `pod/ns/name`, or the end of it), a strategy, a reason, a word
    for one, or part of a file's name. ValueError lists the subjects there are.
    """
    # Nothing is decided about the subject of a strategy that is off.
    whose = {subject: strategy.name for strategy in strategies.discover() for subject in strategy.subjects}
    name = ({**strategies.words(), **whose}).get(subject, subject)
    if tick.modes.get(name) == "off" and not any(concerns(subject, decision) for decision in tick.decisions):
        off = f"nothing is decided, the strategy {name} is off; switch it on with strategies.{name}.mode: observe"
        return Answer([f"{subject}: {off}"], {"decisions": [], "off": off})
    decisions = chosen(subject, tick.decisions)
    lines: list[str] = []
    for decision in decisions:
        lines += [""] if lines else []
        lines.append(f"{printable.one_line(decision.subject)}  ({decision.strategy or 'strategy'})")
        lines.append(f"  {decision.verdict}, {decision.reason}: {sentence(decision)}")
        lines += [f"    {row}" for row in paragraph.columns(terms(decision), "<")]
        lines += ["  asks for", *(f"    {change.place}" for change in decision.changes)] if decision.changes else []
        last = next(
            (
                event
                for event in reversed(past.events)
                if event.decision.subject == decision.subject
                and event.decision.changes
                and concerns(subject, event.decision)
            ),
            None,
        )
        if last:
            when, before = units.when(last.time, last.wall), last.decision
            lines.append(f"  last change at {when}: {before.verdict}, {sentence(before)}")
    return Answer(lines, {"decisions": pieces.documents(decisions)})


def chosen(subject: str, decisions: Sequence[Decision]) -> list[Decision]:
    """The decisions that `subject` means. ValueError without any: it suggests what may have been meant, else some of
    the subjects; a node has hundreds."""
    matches = [decision for decision in decisions if concerns(subject, decision)]
    if matches:
        return matches
    import difflib  # For a mistake only.

    subjects = sorted({decision.subject for decision in decisions})
    names = sorted({decision.strategy for decision in decisions if decision.strategy})
    near = difflib.get_close_matches(subject, [*subjects, *names, *strategies.words()], n=3, cutoff=0.6)
    some = [each for each in subjects if "/" not in each] + names
    listed = f"{', '.join(some[:_LISTED]) or 'nothing yet'}{' …' if some[_LISTED:] else ''}"
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are decisions about {listed}"
    raise ValueError(f"nothing was decided about {subject!r}; {hint}")


def concerns(subject: str, decision: Decision) -> bool:
    """Tell whether `subject` means this decision."""
    word = strategies.words().get(subject, subject)
    names = (decision.subject, decision.strategy, decision.reason)
    places = (str(change.place) for change in decision.changes)
    return word in names or decision.subject.endswith(f"/{word}") or any(word in place for place in places)


def node(_subject: str, tick: Tick, past: Remembered) -> Answer:
    """The decisions about the node as a whole by strategy, the newest changes, and the disputed files."""
    overview = [
        (each.name, *each.overview, [d for d in tick.decisions if d.strategy == each.name and d.kind != "pod"])
        for each in strategies.discover()
        if each.overview
    ]
    newest = list(past.events)[-NEWEST:]
    lines = [f"{view.node(tick)}: {tick.status}{view.because(tick)}"]
    for name, title, ask, decisions in overview:
        if decisions:
            lines.append(f"\n{title} [{name}, {tick.modes.get(name, 'observe')}]")
            lines += [*(f"  {headline(decision)}" for decision in decisions), f"  → explain {ask}"]
    lines += pieces.changed("recent decisions, the newest last", newest)
    lines += pieces.places("disputed files", view.disputed(tick, past)[:NEWEST], tick, past)
    lines.append("\nfurther: explain pod NAME | cpu N | file PATH | config | any strategy, reason or subject")
    return Answer(
        lines,
        {
            "status": tick.status,
            "because": tick.because,
            "decisions": pieces.documents(decision for *_, decisions in overview for decision in decisions),
            "newest": [{"time": event.time, **run_report.decided(event.decision)} for event in newest],
            "changedByOthers": [pieces.place_document(place, tick, past) for place in past.foreign],
        },
    )


def resctrl(_subject: str, tick: Tick, past: Remembered) -> Answer:
    """The groups of resctrl, what each uses, what was decided on them and written."""
    decisions = [decision for decision in tick.decisions if decision.strategy == "resctrl"]
    places = (*past.writes, *past.foreign, *(trouble.place for trouble in tick.troubles))
    places = tuple(sorted({place for place in places if place.kind.is_resctrl}))
    groups = [f"  {group:<8} {line}" for group, line in tick.schemata.items()]
    lines = ["groups as they are", *(groups or ["  none: this machine has no resctrl, or it is not mounted"])]
    lines += ["\nused"] if tick.cache_use else []
    for owned in tick.cache_use:
        who = f"pod {owned.namespace}/{owned.pod}" if owned.pod else f"class {owned.qos}"
        occupied = owned.use.occupancy_bytes
        parts = [f"{units.size(occupied)} of cache"] if occupied is not None else []
        parts += [f"{word} {units.size(rate)}/s" for word, rate in node_figures.bandwidths(owned.use)]
        lines.append(f"  {who}, cache {owned.cache}: {', '.join(parts) or 'not counted by this hardware'}")
    use = [run_report.fields(owned) for owned in tick.cache_use]
    explanation = Answer(lines, {"schemata": dict(tick.schemata), "use": use})
    explanation.add_decisions("decisions", "decided", decisions, "nothing: the strategy is off")
    explanation.add_places("places", "written", places, tick, past)
    return explanation
