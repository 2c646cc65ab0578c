"""A tick in words: its state, labelled facts, whose a CPU is, what went wrong.

Terminal, pages and explanations lay this out; none of them words it again.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from koordlite import strategies
from koordlite.model import printable
from koordlite.model.place import Place
from koordlite.model.snapshot import OF_OUR_REPORTS
from koordlite.model.status import FileTrouble, Pause, Reaction, WatchState
from koordlite.report import units
from koordlite.report.history import Remembered
from koordlite.report.node_figures import CPUCell
from koordlite.report.tick import Tick

STATUS_TONES = {"enforcing": "good", "observing": "info", "paused": "warn", "degraded": "bad"}
"""Status → tone: good, info, warn or bad. A medium gives each tone its colour."""
VERDICT_TONES = {"shrink": "warn", "grow": "good", "release": "good", "refuse": "bad", "evict": "bad", "skip": "warn"}
"""Verdict → tone; the others have none."""
MAX_TROUBLES = 5
"""Places with trouble that are listed; `/state` has more of them."""
_WAITING = {"node": "node", "besteffort": "BE"}
"""Subjects whose pressure is shown, and what they are called."""
_OWNERS = {"system": "SYSTEM pods", "LS": "LS only"}
_ASKED_BY = {"command": "koordlite pause", "annotation": "an annotation of the Node"}


class Fact(msgspec.Struct, frozen=True):
    """A label and what holds; `is_code` for machine words: CPU lists, schemata."""

    name: str
    value: str
    is_code: bool = False


def node(tick: Tick) -> str:
    """The name of the node."""
    return printable.one_line(tick.node) or "node not seen yet"


def because(tick: Tick) -> str:
    """The reason for being degraded, in brackets after the status; else empty."""
    return f" ({printable.one_line(tick.because)})" if tick.because else ""


def threshold(tick: Tick) -> str:
    """Use from which on BE is limited; empty while suppression is off."""
    figures = tick.figures
    if figures.threshold_milli is None or all(tick.modes.get(rule.name) == "off" for rule in strategies.limiting()):
        return ""
    return f"BE is limited above {units.cores(figures.threshold_milli)} cores"


def limits(tick: Tick) -> Iterator[Fact]:
    """Limit and offer of BE, owners of CPUs, and shares of resctrl groups."""
    figures = tick.figures
    on = f"on CPUs {tick.best_effort}" if tick.best_effort else "its CPUs are not known"
    yield Fact("BE may use", f"{units.cores(figures.be_limit)} cores, {on}" if figures.be_limit is not None else on)
    if figures.would_limit is not None:
        yield Fact("would limit BE", f"to {units.cores(figures.would_limit)} cores; cpuSuppress only observes")
    offer, would_offer = (
        ", ".join(
            ([] if milli is None else [f"{units.cores(milli)} cores"]) + ([] if size is None else [units.size(size)])
        )
        for milli, size in (
            (figures.batch_cpu, figures.batch_memory),
            (figures.would_batch_cpu, figures.would_batch_memory),
        )
    )
    yield Fact("BE may request", offer or "none")
    if would_offer:
        yield Fact("would offer BE", f"{would_offer}; beAllocatable only observes")
    yield Fact("LS shared pool", tick.ls_pool or "none", is_code=bool(tick.ls_pool))
    yield Fact("BE shared pool", tick.be_pool or "none", is_code=bool(tick.be_pool))
    for line in dict.fromkeys(tick.schemata.values()):
        groups = ", ".join(group for group, schemata in tick.schemata.items() if schemata == line)
        yield Fact(f"resctrl {groups}", line, is_code=True)


def pressure(tick: Tick) -> Iterator[Fact]:
    """Percent of the last ten seconds in which some task of the node and of BE waited, by resource; what no task waited
    for is left out."""
    for subject, who in _WAITING.items():
        if subject in tick.pressure:
            shares = {name: round(each.some.avg10) for name, each in tick.pressure[subject].items()}
            waits = ", ".join(f"{name} {share} %" for name, share in shares.items() if share)
            yield Fact(f"pressure, {who}", waits or "not at all")


def inputs(tick: Tick) -> Iterator[Fact]:
    """The agent's own state: what wakes it, its faults, how fresh its data is."""
    yield from _between_ticks(tick.reaction)
    nri, faults = tick.nri, tick.faults
    if nri.setting != "off" and not nri.runtime:
        yield Fact("before the first process", f"no runtime asks by NRI: {nri.why or 'not connected yet'}")
    elif nri.setting != "off":
        counts = {
            "set at creation": nri.results.get("adjusted", 0) - nri.results.get("withdrawn", 0),
            "would be": nri.results.get("wouldAdjust", 0),
            "without an answer of ours": sum(n for (_, outcome), n in nri.answers.items() if outcome != "answered"),
        }
        words = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
        yield Fact("before the first process", f"{nri.runtime} asks by NRI: {words or 'nothing to set so far'}")
    if faults.total:
        last = f"{printable.one_line(faults.error)} at {faults.place}"
        yield Fact("faults", f"{faults.total} in the agent itself, the last: {last}")
    ages = {name: age for name, age in tick.snapshot.ages.items() if name not in OF_OUR_REPORTS}
    oldest = max(ages, key=lambda name: ages[name], default="")
    yield Fact("data freshness", f"oldest input {ages[oldest]:.1f} s ({oldest})" if ages else "unknown")
    yield from (Fact(f"watch of {watch.name}", watched(watch)) for watch in tick.snapshot.watches)


def _between_ticks(reaction: Reaction) -> Iterator[Fact]:
    """Wakeups besides the tick: their source, cost and number; then reports of containers that begin between two."""
    why, beginning = f" ({reaction.why})" if reaction.why else "", reaction.beginning
    if reaction.way == "tick":
        yield Fact("between ticks", f"nothing{why}")
    else:
        samples = f"{reaction.hertz:.0f} samples a second, {reaction.cost_percent:.2f} % of a core"
        spared = f", {reaction.spared} more delayed no service" if reaction.spared else ""
        now = samples if reaction.hertz else "nothing to watch now"
        yield Fact("between ticks", f"{reaction.way}{why}: {now}; {reaction.surges} surges{spared}")
    why = f" ({beginning.why})" if beginning.why else ""
    if beginning.watched:
        lost = f"; the kernel lost reports {beginning.overflows} times" if beginning.overflows else ""
        rounds = f"{beginning.rounds} rounds between ticks{lost}"
        yield Fact("new containers", f"reported by {beginning.watched} groups{why}: {rounds}")
    else:
        yield Fact("new containers", f"wait for the tick{why}")


def paused(tick: Tick) -> Iterator[Fact]:
    """The pause, where there is one."""
    if tick.pause:
        yield Fact("paused", pause(tick.pause, wall=tick.wall))


def be_limit(tick: Tick) -> str:
    """Limit of best effort, and what it would be if enforced: `may use 32.0, would be limited to 14.0`."""
    figures = tick.figures
    if figures.be_limit is None:
        return "its limit is not known"
    would = "" if figures.would_limit is None else f", would be limited to {units.cores(figures.would_limit)}"
    return f"may use {units.cores(figures.be_limit)}{would}"


def watched(watch: WatchState) -> str:
    """One list of the cluster: how many objects, how far it has come, and what is wrong."""
    if watch.absent:
        return "the API server does not have this kind"
    parts = [
        units.count(watch.objects, "object") if watch.age_seconds is not None else "never read",
        f"at version {watch.resource_version}" if watch.resource_version else "",
        f"listed again {watch.relists} times" if watch.relists else "",
        watch.error and f"last error: {watch.error}",
    ]
    return printable.one_line(", ".join(filter(None, parts)))


def pause(request: Pause, *, wall: float) -> str:
    """End of a pause, who asked for it and why, what it means; `wall` is seconds since the epoch."""
    in_force = "what was in force is restored" if request.release else "what is in force stays"
    remaining, because = units.clock(request.until - wall), printable.one_line(request.because)
    until = f"until {units.moment(request.until)} ({remaining} left)"
    return f"{until} by {_ASKED_BY[request.by]}: {because}; {in_force}"


def cpu(cell: CPUCell) -> str:
    """Classes that may run on a CPU: `LS only`, `LS and BE`, `reserved`, `LSR and BE`."""
    owner = _OWNERS.get(cell.owner, cell.owner)
    if not cell.best_effort:
        return owner
    return f"{owner.removesuffix(' only')} and BE"


def disputed(tick: Tick, past: Remembered) -> list[Place]:
    """Places that others write too, or that were refused."""
    return [*past.foreign, *(t.place for t in tick.troubles if t.place not in past.foreign)]


def troubles(tick: Tick) -> Iterator[tuple[str, list[str]]]:
    """Troubles: a title and its lines, for each sort that there is."""
    refused = [step for step in tick.applied if not step.ok]
    for title, rows in (
        ("problems", [str(problem) for problem in tick.problems]),
        ("refused writes", [f"{step.place} ← {step.value}: {step.error}" for step in refused]),
        ("changed by others", [f"{w.place}: ours was {w.ours}, found {w.found}" for w in tick.foreign]),
        ("in this run", [f"{t.place}: {'; '.join(trouble(t))}" for t in tick.troubles[:MAX_TROUBLES]]),
    ):
        if rows:
            yield title, [printable.one_line(row) for row in rows]


def trouble(trouble: FileTrouble, *, with_foreign: bool = True) -> Iterator[str]:
    """Events at one place: refusals, writes of others, and when we correct it next."""
    if trouble.refused:
        yield f"refused {trouble.refused} times, last {printable.one_line(trouble.last_error)}"
    if trouble.foreign and with_foreign:
        yield f"changed by others {trouble.foreign} times"
    if trouble.kept_off_seconds:
        yield f"next correction in {trouble.kept_off_seconds:.0f} s, so as not to fight"
