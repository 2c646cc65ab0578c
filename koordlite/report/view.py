"""A tick in words: its state, labelled facts, whose a CPU is, what went wrong.

Terminal, pages and explanations lay this out; none of them words it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from koordlite import strategies
from koordlite.model import printable
from koordlite.model.picture.usage import Pressure
from koordlite.model.place import Place
from koordlite.model.snapshot import OF_OUR_REPORTS
from koordlite.model.status import Beginning, FileTrouble, NRIState, Pause, Reaction, WatchState
from koordlite.report import units
from koordlite.report.history import Remembered
from koordlite.report.present import CPUCell
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


def use(tick: Tick) -> tuple[tuple[str, int | None, int | None], ...]:
    """Users of CPU, how much each uses, and of how much; millicores."""
    figures = tick.figures
    return (
        ("CPU of node", figures.node_cpu, figures.capacity_milli),
        ("CPU of LS", figures.prod_cpu, figures.capacity_milli),
        ("CPU of BE", figures.be_cpu, figures.be_limit),
    )


def threshold(tick: Tick) -> str:
    """From which use on BE is limited; empty while suppression is off."""
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
    yield Fact("BE may request", allocatable(tick))
    if would_offer(tick):
        yield Fact("would offer BE", f"{would_offer(tick)}; beAllocatable only observes")
    yield Fact("LS shared pool", tick.ls_pool or "none", is_code=bool(tick.ls_pool))
    yield Fact("BE shared pool", tick.be_pool or "none", is_code=bool(tick.be_pool))
    for line in dict.fromkeys(tick.schemata.values()):
        groups = ", ".join(group for group, held in tick.schemata.items() if held == line)
        yield Fact(f"resctrl {groups}", line, is_code=True)


def pressure(tick: Tick) -> Iterator[Fact]:
    """Part of the last ten seconds that node and BE waited, by resource."""
    for subject, who in _WAITING.items():
        if subject in tick.pressure:
            yield Fact(f"pressure, {who}", waits(tick.pressure[subject]))


def inputs(tick: Tick) -> Iterator[Fact]:
    """The agent's own state: what wakes it, its faults, how fresh its data is."""
    yield Fact("between ticks", between_ticks(tick.reaction))
    yield Fact("new containers", new_containers(tick.reaction.beginning))
    if tick.nri.setting != "off":
        yield Fact("before the first process", before_creation(tick.nri))
    faults = tick.faults
    if faults.total:
        yield Fact(
            "faults",
            f"{faults.total} in the agent itself, the last: {printable.one_line(faults.error)} at {faults.place}",
        )
    yield Fact("data freshness", freshness(tick))
    yield from (Fact(f"watch of {watch.name}", watched(watch)) for watch in tick.snapshot.watches)


def paused(tick: Tick) -> Iterator[Fact]:
    """The pause, where there is one."""
    if tick.pause:
        yield Fact("paused", pause(tick.pause, wall=tick.wall))


def allocatable(tick: Tick) -> str:
    """The offer to best-effort pods."""
    return _offered(tick.figures.batch_cpu, tick.figures.batch_memory) or "none"


def would_offer(tick: Tick) -> str:
    """Their offer if `beAllocatable` did not only observe; empty where it does not differ."""
    return _offered(tick.figures.would_batch_cpu, tick.figures.would_batch_memory)


def be_limit(tick: Tick) -> str:
    """Limit of best effort, and what it would be if enforced: `may use 32.0, would be limited to 14.0`."""
    figures = tick.figures
    if figures.be_limit is None:
        return "its limit is not known"
    would = "" if figures.would_limit is None else f", would be limited to {units.cores(figures.would_limit)}"
    return f"may use {units.cores(figures.be_limit)}{would}"


def _offered(milli: int | None, size: int | None) -> str:
    cpu = "" if milli is None else f"{units.cores(milli)} cores"
    return ", ".join(filter(None, (cpu, "" if size is None else units.size(size))))


def waits(found: Mapping[str, Pressure]) -> str:
    """Percent of the last ten seconds in which some task waited, by what for; what no task waited for is left out."""
    shares = {name: round(one.some.avg10) for name, one in found.items()}
    return ", ".join(f"{name} {share} %" for name, share in shares.items() if share) or "not at all"


def freshness(tick: Tick) -> str:
    """The age of the oldest input, and of each that is not new."""
    ages = {name: age for name, age in tick.snapshot.ages.items() if name not in OF_OUR_REPORTS}
    if not ages:
        return "unknown"
    name = max(ages, key=lambda name: ages[name])
    return f"oldest input {ages[name]:.1f} s ({name})"


def between_ticks(reaction: Reaction) -> str:
    """Wakeups besides the tick: their source, cost and number."""
    why = f" ({reaction.why})" if reaction.why else ""
    if reaction.way == "tick":
        return f"nothing{why}"
    samples = f"{reaction.hertz:.0f} samples a second, {reaction.cost_percent:.2f} % of a core"
    spared = f", {reaction.spared} more delayed no service" if reaction.spared else ""
    now = samples if reaction.hertz else "nothing to watch now"
    return f"{reaction.way}{why}: {now}; {reaction.surges} surges{spared}"


def new_containers(beginning: Beginning) -> str:
    """Reports of containers that begin between two ticks: their source and number."""
    why = f" ({beginning.why})" if beginning.why else ""
    if not beginning.watched:
        return f"wait for the tick{why}"
    lost = f"; the kernel lost reports {beginning.overflows} times" if beginning.overflows else ""
    return f"reported by {beginning.watched} groups{why}: {beginning.rounds} rounds between ticks{lost}"


def before_creation(nri: NRIState) -> str:
    """The runtime that asks by NRI, and what became of its questions."""
    if not nri.runtime:
        return f"no runtime asks by NRI: {nri.why or 'not connected yet'}"
    late = sum(count for (_, outcome), count in nri.answers.items() if outcome != "answered")
    counts = {"set at creation": nri.results.get("adjusted", 0) - nri.results.get("withdrawn", 0)}
    counts |= {"would be": nri.results.get("wouldAdjust", 0), "without an answer of ours": late}
    shown = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    return f"{nri.runtime} asks by NRI: {shown or 'nothing to set so far'}"


def watched(watch: WatchState) -> str:
    """One list of the cluster: how many objects, how far it has come, and what is wrong."""
    if watch.absent:
        return "the API server does not have this kind"
    count = "1 object" if watch.objects == 1 else f"{watch.objects} objects"
    parts = [
        count if watch.age_seconds is not None else "never read",
        f"at version {watch.resource_version}" if watch.resource_version else "",
        f"listed again {watch.relists} times" if watch.relists else "",
        watch.error and f"last error: {watch.error}",
    ]
    return printable.one_line(", ".join(filter(None, parts)))


def pause(asked: Pause, *, wall: float) -> str:
    """End of a pause, who asked for it and why, what it means; `wall` is seconds since the epoch."""
    in_force = "what was in force is restored" if asked.release else "what is in force stays"
    left, because = units.clock(asked.until - wall), printable.one_line(asked.because)
    return f"until {units.moment(asked.until)} ({left} left) by {_ASKED_BY[asked.by]}: {because}; {in_force}"


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


def trouble(found: FileTrouble, *, with_foreign: bool = True) -> Iterator[str]:
    """Events at one place: refusals, writes of others, and when we correct it next."""
    if found.refused:
        yield f"refused {found.refused} times, last {printable.one_line(found.last_error)}"
    if found.foreign and with_foreign:
        yield f"changed by others {found.foreign} times"
    if found.kept_off_seconds:
        yield f"next correction in {found.kept_off_seconds:.0f} s, so as not to fight"
