"""State of the running agent for reports, pages and metrics: writes, faults, pauses, reaction, requests, watches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from koordlite.model.errors import Problem
from koordlite.model.place import Place


class AppliedStep(msgspec.Struct, frozen=True):
    """One write that was tried."""

    place: Place
    """`Change.place` of what was written."""
    value: str
    """Value in the words of the change."""
    ok: bool = True
    error: str = ""
    """The refusal: errno name and the kernel's own words; empty when it went well."""
    seconds: float = 0.0
    """Duration of the write."""
    origin: str = ""
    """Writer in our name: `at creation by NRI`; empty when we wrote it."""


class ForeignWrite(msgspec.Struct, frozen=True):
    """A value of ours that another program changed."""

    place: Place
    ours: str
    found: str


class FileTrouble(msgspec.Struct, frozen=True):
    """Obstacles at one place, counted since the start of this run."""

    place: Place
    refused: int
    """Writes that the kernel or the cluster refused."""
    last_error: str
    """The last refusal, in its own words; empty without one."""
    foreign: int
    """Number of times another program changed what we wrote, as long as the fight goes on."""
    kept_off_seconds: float
    """Time until it is corrected the next time, 0 when nothing keeps us from it."""


class Faults(msgspec.Struct, frozen=True):
    """Faults that the loop has survived in this run."""

    total: int = 0
    in_a_row: int = 0
    """Rounds that ended so, up to and with this one; 0 when this round is well."""
    place: str = ""
    """Module and line of the last one."""
    error: str = ""
    """Name of the last exception, and its words."""

    @property
    def why(self) -> str:
        """Reason why this round has no result, in words; empty when it is well."""
        if not self.in_a_row:
            return ""
        repeats = f", {self.in_a_row} rounds in a row" if self.in_a_row > 1 else ""
        return f"a fault of the program itself ended the round{repeats}: {self.error} at {self.place}"

    def problem(self, program: str) -> Problem:
        """The last one as something that its reader can act on."""
        do = "what is in force stays and the next round is tried; report it with the traceback in the log"
        return Problem(program, self.place, self.error, "a fault of the program itself ended the round", do)


PAUSE_ANNOTATION = "agent.koordlite.io/pause"
"""Annotation of the Node: a JSON object with `until` (RFC 3339), `because`, and `inForce`: keep or release."""

PauseSource = Literal["command", "annotation"]


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing is written until it ends: decisions are made and reported as in mode observe."""

    until: float
    """Time at which it ends by itself, in seconds since the epoch."""
    because: str
    """The reason given with the request."""
    release: bool = False
    """True where everything in force is given back. Otherwise it stays as it stands."""
    by: PauseSource = "command"
    """Origin: `koordlite pause` on this machine, or the annotation of the Node."""

    def holds(self, wall: float) -> bool:
        """Tell whether it has not ended at `wall`, in seconds since the epoch."""
        return wall < self.until


def combined_pause(*requests: Pause | None) -> Pause | None:
    """Merge several pauses: the one that ends last, and a release where any of them says so."""
    pauses = [pause for pause in requests if pause is not None]
    if not pauses:
        return None
    last = max(pauses, key=lambda pause: pause.until)
    return msgspec.structs.replace(last, release=any(pause.release for pause in pauses))


ReactionWay = Literal["tick", "sentinel", "triggers"]
"""tick: not at all; sentinel: it samples CPU time; triggers: the kernel reports pressure, then it samples."""
ReactionSetting = Literal["off", "automatic", "required"]


class Beginning(msgspec.Struct, frozen=True):
    """Notices of groups that are made between two ticks: their source, and how many there were."""

    watched: int = 0
    """Groups below which new ones are reported."""
    why: str = ""
    """Reason why none is watched, or not all."""
    rounds: int = 0
    """Rounds before their time about new groups."""
    overflows: int = 0
    """Number of times the kernel lost reports, and a whole tick followed at once."""


class Reaction(msgspec.Struct, frozen=True):
    """Wake-ups besides the tick: their source, their cost, and how often it happened in this run."""

    way: ReactionWay = "tick"
    why: str = ""
    """Reason why it is this way and no better one."""
    missing: bool = False
    """It is required and not possible."""
    hertz: float = 0.0
    """Samples a second at present; 0 while nothing is watched."""
    cost_seconds: float = 0.0
    """CPU time the samples have cost in this run."""
    cost_percent: float = 0.0
    """The same as percent of one core, over the time something was watched."""
    samples: int = 0
    pressure: int = 0
    """Number of reports of pressure by the kernel."""
    surges: int = 0
    """Number of surges of latency-sensitive use that led to a round before its time."""
    spared: int = 0
    """Number of surges in which no service waited longer than usual."""
    beginning: Beginning = msgspec.field(default_factory=Beginning)


class FreshUse(msgspec.Struct, frozen=True):
    """CPU use over some hundredths of a second, in millicores."""

    node: int | None
    """None where the kernel has no exact counter of the whole node (cgroup v2)."""
    pods: int
    best_effort: int


REQUEST_BUCKETS_SECONDS = tuple(0.001 * 4**k for k in range(7))
"""Koordinator's of kubelet_request_duration_seconds."""
RequestKind = tuple[str, str, str]
"""Verb, path, code."""


class RequestHistogram(msgspec.Struct, frozen=True):
    """Requests of one kind: how many took at most so long, bucket by bucket and all, and their sum in seconds."""

    counts: tuple[int, ...] = (0,) * (len(REQUEST_BUCKETS_SECONDS) + 1)
    seconds: float = 0.0

    def plus(self, seconds: float) -> RequestHistogram:
        """The histogram with one more."""
        bounds = (*REQUEST_BUCKETS_SECONDS, float("inf"))
        return RequestHistogram(
            tuple(n + (seconds <= b) for n, b in zip(self.counts, bounds, strict=True)), self.seconds + seconds
        )


NRISetting = Literal["off", "auto", "required"]


class NRIState(msgspec.Struct, frozen=True, kw_only=True):
    """Answers of the agent to a runtime that asks before it creates a container."""

    setting: NRISetting = "off"
    runtime: str = ""
    """Name and version of the runtime that asks; empty while none does."""
    why: str = ""
    """Reason why none does."""
    answers: Mapping[tuple[str, str], int] = msgspec.field(default_factory=dict)
    """Numbers by method and outcome: answered, late, busy, unreadable, fault."""
    results: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Numbers by the result of a question: adjusted, wouldAdjust, asItIs, noPicture, unknownGroup, noJournal,
    withdrawn."""
    latency: Mapping[str, RequestHistogram] = msgspec.field(default_factory=dict)
    """Time up to the answer, by method."""

    @property
    def missing(self) -> str:
        """Reason why it is not there although it is required; empty when it is."""
        return self.why or "not connected yet" if self.setting == "required" and not self.runtime else ""


class WatchState(msgspec.Struct, frozen=True, kw_only=True):
    """One list that is kept up to date."""

    name: str
    """Name of the watch: `node`, `pods`, `config`, `topology`."""
    age_seconds: float | None
    """Time since the server last vouched for what is held; None when it never did."""
    resource_version: str = ""
    """Position of the watch, in the server's counting."""
    objects: int = 0
    relists: int = 0
    """Number of times the whole list had to be read again."""
    requests: int = 0
    error: str = ""
    """Error of the last request; empty when there was none."""
    absent: bool = False
    """The server does not know this kind of object: its CRD is not installed."""
    denied: bool = False
    """The server refused the last request to this identity (401 or 403)."""
