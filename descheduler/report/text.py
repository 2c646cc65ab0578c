"""The plan, or the part of it that a person asked for, on the terminal: plain text, 100 columns unless `at_width` says
otherwise.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from descheduler.fit.search import Place, Search
from descheduler.plan import Attempt, EvictionPlan, Outcome, ZoneChange
from descheduler.report import diff, document
from descheduler.report.diff import Difference
from koordlite.model import duration, printable
from koordlite.model.errors import InputError, Problem
from koordlite.report import paragraph, units


class Selection(msgspec.Struct, frozen=True):
    """The part of a plan that is shown."""

    only: str = ""
    """Name of a plugin, a namespace or a node; empty: everything."""
    limit: int | None = None
    """Maximum numbers of listed pods to evict, pods that are kept, nodes and notes; None: all."""

    def of(self, plan: EvictionPlan) -> EvictionPlan:
        """The plan with these pods alone. InputError when nothing has the name in `only`."""
        named = self.only in plan.plugins or self.only in plan.view.nodes
        if self.only and not named and all(pod.pod.namespace != self.only for pod in plan.view.by_uid.values()):
            do = f"plugins are {', '.join(plan.plugins)}; or name a namespace or a node of the cluster"
            raise InputError(
                Problem("command line", "--only", self.only, "no plugin, namespace or node has this name", do)
            )

        def is_shown(outcome: Outcome) -> bool:
            names = {finding.plugin for finding in outcome.findings} | {outcome.pod.pod.namespace, outcome.pod.node}
            return not self.only or self.only in names

        evict, keep = (tuple(filter(is_shown, some)) for some in (plan.evict, plan.kept))
        return msgspec.structs.replace(plan, evict=evict, kept=keep)

    def sentence(self, plan: EvictionPlan, selected: EvictionPlan) -> str:
        """Say what of the plan is not listed; empty when everything is. `selected`: see `of`."""
        outside = len(plan.outcomes) - len(selected.outcomes)
        parts = [f"only {self.only}: {units.count(outside, 'other pod')} with findings left out"] if outside else []
        cut = [
            f"{self.limit} of {len(pods)} {what}"
            for pods, what in ((selected.evict, "to evict"), (selected.kept, "kept"))
            if self.limit is not None and len(pods) > self.limit
        ]
        parts += [f"{', '.join(cut)}; --limit all lists every pod"] if cut else []
        return "; ".join(parts)


_WIDTH = contextvars.ContextVar("width", default=100)
NOTHING = Difference("")
"""There is no report before."""
_INDENT = " " * 4
_LABEL = 9
_PLACES = 3
_LEAST_WIDTH = 50
AT_LENGTH = 200
"""Pods of each verdict with all that is known; of more, one line each. The JSON report has it all."""


def width() -> int:
    """Columns of a line."""
    return _WIDTH.get()


@contextlib.contextmanager
def at_width(columns: int) -> Iterator[None]:
    """Lines of so many columns, 50 at least, for what is rendered inside."""
    before = _WIDTH.set(max(columns, _LEAST_WIDTH))
    try:
        yield
    finally:
        _WIDTH.reset(before)


def render(plan: EvictionPlan, changes: Difference = NOTHING, **how: Any) -> str:
    """The whole report, ending in a newline; the arguments are those of `pieces`."""
    return "".join(pieces(plan, changes, **how))


def pieces(
    plan: EvictionPlan,
    changes: Difference = NOTHING,
    *,
    attempts: tuple[Attempt, ...] = (),
    dry: bool = True,
    failure: str = "",
    limit: int | None = None,
    left_out: str = "",
    answer_last: bool = False,
) -> Iterator[str]:
    """The same in lines, for a report of hundreds of thousands of them. `changes`: since the report before; `attempts`:
    what became of it; `failure`: why a later cycle came to no plan. `limit`, and what it leaves out: see `Selection`.
    `answer_last`: below the rest, where a terminal shows it."""
    sections = (_plugins(plan), _left_by_limits(plan), _changes(changes), _attempts(attempts))
    pods = (_evictions(plan, limit), _kept_pods(plan, limit))
    answer = list(answers(plan, left_out))
    error = printable.one_line(failure)
    failed = [f"The last cycle failed, this is the report of the one before: {error}"] if failure else []
    notes = [*(note.line for note in plan.notes), *plan.view.notes]
    parts = [
        failed,
        itertools.chain(_head(plan, dry=dry), () if answer_last else answer),
        *sections,
        *pods,
        _nodes(plan, limit),
        _costs(plan),
        _list("NOTES", notes, limit),
        _list("PROBLEMS IN THE SNAPSHOT", [str(problem) for problem in plan.view.problems], limit),
        answer if answer_last else [],
    ]
    for number, part in enumerate(filter(None, map(_unless_empty, parts))):
        yield "\n" if number else ""
        yield from (f"{printable.lines(line)}\n" for line in part)


_FIRST = 5
"""Evictions in the brief form."""
_COSTS = 10
"""Deletion costs in the text."""


def brief(plan: EvictionPlan, left_out: str = "") -> str:
    """The plan in about ten lines: the answer, what each plugin found, and the first evictions."""
    first = [_eviction(number, one) for number, one in enumerate(plan.evict[:_FIRST], 1)]
    more = [f"    {len(plan.evict) - _FIRST} more"] if len(plan.evict) > _FIRST else []
    plugins = (line for line in _plugins(plan) if not line.endswith(": no findings"))
    lines = (*_head(plan, dry=True), *answers(plan, left_out), *plugins, *first, *more)
    return "".join(f"{printable.lines(line)}\n" for line in lines)


def _eviction(number: int, answer: Outcome) -> str:
    reasons = ", ".join(finding_reasons(answer))
    return _shorten(f"{number:>2}. {answer.pod.key} on {answer.pod.node} → {answer.target or 'no place'}: {reasons}")


def finding_reasons(answer: Outcome) -> Iterable[str]:
    """Reasons of the findings, each once."""
    return dict.fromkeys(finding.reason for finding in answer.findings)


def _unless_empty(lines: Iterable[str]) -> Iterator[str] | None:
    """None when there is no line."""
    iterator = iter(lines)
    first = next(iterator, None)
    return None if first is None else itertools.chain((first,), iterator)


class Fact(msgspec.Struct, frozen=True):
    """A line about a pod that a plugin named, for every medium."""

    label: str
    text: str
    word: str = ""
    """The reason that the text begins with, if it does."""
    tone: str = ""
    """Tone of the word: `bad`, `warn` or nothing."""


TONES = {"hard": "bad", "fixable": "warn", "exposed": ""}


def facts(answer: Outcome) -> Iterator[Fact]:
    """Everything about one pod but its name and node."""
    pod = answer.pod
    about = [str(pod.pod.qos_class), pod.owner or "no owner"]
    about += [] if pod.pod.priority is None else [f"priority {pod.pod.priority}"]
    about += [] if answer.age_seconds is None else [f"{duration.age(answer.age_seconds)} old"]
    yield Fact("pod", ", ".join(about))
    for before, finding in zip((None, *answer.findings), answer.findings, strict=False):
        where = "" if finding.container == "*" else f", container {finding.container}"
        headline = f"{finding.reason} ({finding.plugin}, {finding.severity}{where})"
        yield Fact("wrong", headline, finding.reason, TONES[finding.severity])
        if finding.promise and (before is None or before.promise != finding.promise):
            yield Fact("promise", finding.promise)
        yield Fact("fact", finding.fact)
    for cure in answer.cures:
        yield Fact("cure", cure)
    for number, refusal in enumerate(answer.reasons):
        yield Fact("" if number else "kept", f"{refusal.reason}: {refusal.text}", refusal.reason, "warn")
    if answer.search:
        yield Fact("fits" if answer.search.places else "fits not", _fit(answer, answer.search))


def outcome(answer: Outcome, title: str) -> Iterator[str]:
    """Everything about one pod."""
    pod, node = f"{title}{answer.pod.key}", f"  on {answer.pod.node}"
    long = len(pod) + len(node) > width()  # Both names do not fit on one line.
    yield from map(_shorten, (pod, _INDENT + node) if long else (pod + node,))
    for fact in facts(answer):
        yield from _line(fact.label, fact.text)


def places(search: Search) -> str:
    """The first nodes that a pod would fit on; empty when there is none."""
    names = [place.node for place in search.places]
    more = f" and {len(names) - _PLACES} more" if len(names) > _PLACES else ""
    return ", ".join(names[:_PLACES]) + more


def nodes(search: Search) -> Iterator[str]:
    """Refusals of single nodes; nothing where they were not asked for."""
    for name, why in search.by_node.items():
        yield from _line("node", f"{name}: {why}")


def _plugins(plan: EvictionPlan) -> Iterator[str]:
    yield "BY PLUGIN"
    for one in document.by_plugin(plan):
        words = [f"{count} × {reason}" for reason, count in one["findings"].items()] or ["no findings"]
        words += [f"{one['evict']} to evict, {one['kept']} kept"] if one["findings"] else []
        words += [units.count(one["notes"], "note")] if one["notes"] else []
        first = f"{_INDENT}{one['name']}: "
        yield from paragraph.wrap("; ".join(words), width(), first=first, hanging=_INDENT * 2)


def _left_by_limits(plan: EvictionPlan) -> Iterator[str]:
    by_limit = document.left_by_limits(plan)
    if by_limit:
        yield "LEFT FOR LATER, by limits only"
    for reason, count in by_limit.items():
        yield f"{_INDENT}{units.count(count, 'pod')} by {reason}"


def _changes(changes: Difference) -> Iterator[str]:
    if changes.why_not:
        yield "SINCE THE LAST REPORT"
        yield from paragraph.wrap(changes.why_not, width(), first=_INDENT)
    if changes.since:
        yield f"SINCE THE LAST REPORT, of {changes.since}: {len(changes.rows)} changed, {changes.same} as before"
    for row in changes.rows:
        change = f"{row.pod}: {diff.WORDS[row.change]}: {row.text}"
        yield from paragraph.wrap(change, width(), first=" -  ", hanging=_INDENT)


def _attempts(attempts: tuple[Attempt, ...]) -> Iterator[str]:
    real = [attempt for attempt in attempts if attempt.result != "WouldEvict"]
    if real:
        yield "WHAT BECAME OF IT"
    for attempt in real:
        yield from _line("", f"{attempt.pod}: {attempt.result}{f': {attempt.text}' if attempt.text else ''}")


def _head(plan: EvictionPlan, *, dry: bool) -> Iterator[str]:
    view = plan.view
    pods = sum(1 for _ in view.pods())
    yield "EVICTION PLAN (dry run: nothing was evicted)" if dry else "EVICTION PLAN"
    yield f"time      {view.time}, {view.time_source}"
    scope = f"judged    {units.count(len(view.nodes), 'node')}, {units.count(pods, 'pod')} by {', '.join(plan.plugins)}"
    yield from _wrap_labelled(scope)


def answers(plan: EvictionPlan, left_out: str = "") -> Iterator[str]:
    """Count the pods that go and those that stay, by what keeps them; `left_out`: what of them is not listed."""
    total = f"{units.count(len(plan.outcomes), 'pod')} with findings"
    unjudged = f"; {plan.not_judged} not judged" if plan.not_judged else ""
    yield f"answer    {total}: {len(plan.evict)} to evict, {len(plan.kept)} kept{unjudged}"
    if plan.kept:
        counts = ", ".join(f"{count} × {reason}" for reason, count in plan.kept_by.items())
        yield from _wrap_labelled(f"kept      {counts}")
    if plan.not_judged:
        counts = ", ".join(f"{units.count(count, 'pod')} by {name}" for name, count in plan.not_judged_by.items())
        yield from _wrap_labelled(f"unjudged  {counts}; the notes say why")
    for warning in document.warnings(plan):
        yield from _wrap_labelled(f"warning   {warning}")
    yield from _wrap_labelled(f"shown     {left_out}" if left_out else "")


def _wrap_labelled(text: str) -> list[str]:
    return paragraph.wrap(text, width(), hanging=" " * 10)


def _evictions(plan: EvictionPlan, limit: int | None) -> Iterator[str]:
    pods = plan.evict[:limit]
    if pods:
        yield f"TO EVICT, in this order{_part(pods, plan.evict)}"
    for number, answer in enumerate(pods[:AT_LENGTH], 1):
        yield ""
        yield from outcome(answer, f"{number:>2}. ")
    brief_ones = enumerate(pods[AT_LENGTH:], AT_LENGTH + 1)
    for reasons, several in itertools.groupby(brief_ones, lambda item: ", ".join(finding_reasons(item[1]))):
        yield from ("", f"{_INDENT}{reasons}{_MORE}")
        for number, answer in several:
            pod, target = f"{number:>2}. {answer.pod.key}  on {answer.pod.node}", f"→ {answer.target or 'no place'}"
            if len(pod) + 1 + len(target) <= width():
                yield f"{pod} {target}"
            else:
                yield from map(_shorten, (pod, f"{_INDENT * 2}{target}"))


def _kept_pods(plan: EvictionPlan, limit: int | None) -> Iterator[str]:
    pods = plan.kept[:limit]
    if pods:
        yield f"KEPT, with findings{_part(pods, plan.kept)}"
    for answer in pods[:AT_LENGTH]:
        yield ""
        yield from outcome(answer, " -  ")
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for answer in pods[AT_LENGTH:]:
        groups[f"{', '.join(finding_reasons(answer))}, kept by {answer.reasons[0].reason}"].append(answer)
    for title, several in groups.items():
        yield from ("", f"{_INDENT}{title}{_MORE}")
        yield from (_shorten(f" -  {answer.pod.key}  on {answer.pod.node}") for answer in several)


def _part(listed: Sequence[object], every: Sequence[object]) -> str:
    """Words for a title where not everything below it is shown."""
    return f": {len(listed)} of {len(every)}" if len(listed) < len(every) else ""


_MORE = ", one line each (`descheduler explain POD` has the rest)"


def _fit(answer: Outcome, search: Search) -> str:
    places = [place_words(place) for place in search.places[:_PLACES]]
    more = len(search.places) - len(places)
    text = ", ".join(places) + (f" and {units.count(more, 'more node')}" if more > 0 else "")
    if answer.target and text:
        text += f"; the plan counts on {answer.target}"
    if not search.why_not:
        return text or search.sentence
    return f"{text}; not: {search.sentence}" if text else search.sentence


def place_words(place: Place) -> str:
    """`node-b (NUMA 1)`, `node-a (in place)`."""
    zones = sorted({zone for zone, _ in place.bookings})
    about = (["in place"] if place.here else []) + ([f"NUMA {','.join(map(str, zones))}"] if zones else [])
    return f"{place.node} ({', '.join(about)})" if about else place.node


def _nodes(plan: EvictionPlan, limit: int | None) -> Iterator[str]:
    changes = plan.nodes[:limit]
    if not changes:
        return
    yield f"NODES, before → after{_part(changes, plan.nodes)}"
    width = min(36, max(4, *(len(change.node) for change in changes)))
    yield f"{_INDENT}{'node':<{width}}  {'pods':>9}  {'CPUs requested':>22}  {'misplaced pods':>20}"
    for change in changes:
        before, after = change.before, change.after
        cores = f"{units.cores(before.cpu_milli)} → {units.cores(after.cpu_milli)} of {units.cores(change.cpu_milli)}"
        full_name = printable.one_line(change.node)
        if len(full_name) > width:  # A line of its own: a name that is cut off cannot be searched for.
            yield f"{_INDENT}{full_name}"
        name = full_name if len(full_name) <= width else ""
        pods, wrong = f"{before.pods} → {after.pods}", f"{before.wrong} → {after.wrong}"
        yield f"{_INDENT}{name:<{width}}  {pods:>9}  {cores:>22}  {wrong:>20}"
        yield from map(_zone, change.zones)


def _zone(zone: ZoneChange) -> str:
    """A NUMA node below its node."""
    before, after = zone.before, zone.after
    memory = f"; {units.size(before.memory)} → {units.size(after.memory)}" if before.memory or after.memory else ""
    cpus = f"own {before.exclusive} → {after.exclusive}, shared {before.shared} → {after.shared}"
    return f"{_INDENT}  NUMA {zone.zone}: {zone.cpus} CPUs, {zone.reserved} reserved, {cpus}{memory}"


def _costs(plan: EvictionPlan) -> Iterator[str]:
    costs = plan.deletion_costs
    lines = [f"{cost.cost}: {plan.view.by_uid[cost.pod].key} ({cost.why})" for cost in costs[:_COSTS]]
    more = [f"{len(costs) - _COSTS} more, see the JSON report"] if len(costs) > _COSTS else []
    return _list("ORDER IN WHICH OWNERS SHOULD REMOVE PODS", [*lines, *more])


def _list(title: str, lines: Sequence[str], limit: int | None = None) -> Iterator[str]:
    listed = lines[:limit]
    if listed:
        yield f"{title}{_part(listed, lines)}"
    for line in listed:
        yield from paragraph.wrap(line, width(), first=" -  ", hanging=_INDENT)


def _line(label: str, text: str) -> list[str]:
    return _wrap(label, text, width())


@functools.lru_cache(maxsize=4096)
def _wrap(label: str, text: str, columns: int) -> list[str]:
    """Kept, because thousands of pods are said the same of."""
    first = f"{_INDENT}{label:<{_LABEL}}"
    if text and len(first) + len(text) <= columns and text.isprintable() and text == text.strip():
        return [first + text]
    return paragraph.wrap(text, columns, first=first, hanging=" " * len(first)) or [first.rstrip()]


def _shorten(text: str) -> str:
    line = printable.one_line(text)
    return line if len(line) <= width() else f"{line[: width() - 1]}…"


_TITLE = re.compile(r"[A-Z][A-Z ]{3,}\b")
_POD = re.compile(r" ?\d+\. | -  ")
_LABELS = {"wrong": "31", "promise": "2", "fact": "2", "cure": "32", "kept": "33", "pod": "2", "fits": "2"}
"""Colours of the words before what is said of a pod; 2 is faint."""
_FACTS = {"answer": "1;36", "warning": "1;33", "unjudged": "33", "kept": "33"}


def paint(line: str) -> str:
    """A line of the report with colours for a terminal; it says the same without them."""
    if _TITLE.match(line):
        return _in_color("1", line)
    if _POD.match(line):
        return _in_color("1", line) if "  on " in line else line
    fact, label = line[:10].rstrip(), line[4 : 4 + _LABEL].rstrip()
    if fact in _FACTS:
        return _in_color(_FACTS[fact], line[:10]) + line[10:]
    if line.startswith(_INDENT) and label in _LABELS:
        return _INDENT + _in_color(_LABELS[label], line[4 : 4 + _LABEL]) + line[4 + _LABEL :]
    return line


def _in_color(code: str, text: str) -> str:
    line = text.rstrip("\n")
    return f"\x1b[{code}m{line}\x1b[0m{text[len(line) :]}"
