"""The file that describes a simulation: a machine, who works on it, what happens meanwhile, what is expected of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

from koordlite.lab.load import demand
from koordlite.lab.machine import shapes
from koordlite.model import duration
from koordlite.model.settings import bounded

LONGEST_SECONDS = 7 * 24 * 3600.0
Series = Literal["beLimitCores", "beBudgetCores", "beCores", "lsCores", "nodeCores", "batchCores", "batchGiB"]
Count = Literal[
    "unmetPercent",
    "usedCores",
    "aboveThresholdSeconds",
    "wellAboveThresholdSeconds",
    "beCoreHours",
    "writes",
    "refusedWrites",
    "foreignWrites",
    "evictions",
    "restarts",
    "ticksWith",
    "degradedSeconds",
    "pausedSeconds",
    "problems",
    "notPutBack",
]
"""unmetPercent and usedCores: of the workloads whose name begins with `of`; ticksWith: of the reason word `of`;
problems: that have `of` in them; notPutBack: files that hold something else when the agent has stopped and put
everything back."""
Text = Literal["file", "cpus"]
"""Text at the end of the time. file: the content of the file `of`; cpus: CPUs of the pods whose name begins with
`of`."""


def seconds(text: str) -> float:
    """`90s`, `45m`, `1h30m`, or bare seconds; ValueError otherwise."""
    number = float(text) if text.replace(".", "", 1).isdecimal() else duration.parse(text) / duration.SECOND
    if not 0 <= number <= LONGEST_SECONDS:
        raise ValueError("from nothing to a week")
    return number


def _timed(default: str | None = None) -> Any:
    settings: dict[str, Any] = {} if default is None else {"default": default}
    return dataclasses.field(metadata={"check": seconds}, **settings)


def _checked(check: Callable[[str], object]) -> Any:
    return dataclasses.field(default="", metadata={"check": check})


def _demand(text: str) -> None:
    if text:
        demand.parse(text)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The Node object, in short."""

    name: str = "sim"
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    annotations: Mapping[str, str] = dataclasses.field(default_factory=dict)
    system_cpu: str = _checked(_demand)
    """Demand of processes outside Kubernetes."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod of one container, in short."""

    name: str
    namespace: str = "default"
    qos: Literal["", "LSE", "LSR", "LS", "BE", "SYSTEM"] = "LS"
    count: int = bounded(1, ge=1, le=500)
    """Number of pods, called NAME-1, NAME-2 …; a single one is called NAME."""
    cpu: str = _checked(_demand)
    """A demand, see `lab.load.demand`. Empty: half of its request, all it can get for best effort."""
    memory: str = _checked(_demand)
    disk_read: str = _checked(_demand)
    cpuset: str = ""
    """CPUs the scheduler promised it; for LSE and LSR."""
    priority: int | None = None
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    annotations: Mapping[str, str] = dataclasses.field(default_factory=dict)
    requests: Mapping[str, str] = dataclasses.field(default_factory=dict)
    limits: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PauseWish:
    """Same as `koordlite pause`."""

    duration: str = dataclasses.field(metadata={"name": "for", "check": seconds})
    because: str = "a simulation"
    release: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happens: when, and one thing or several at once."""

    at: str = _timed()
    pods: tuple[Pod, ...] = ()
    """They arrive; a pod of the same name is replaced."""
    remove: tuple[str, ...] = ()
    """Pods that go: NAMESPACE/NAME, or the beginning of it."""
    config: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Keys of the ConfigMap that change; null takes a key away."""
    annotate: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    """Annotations of the Node that change; null takes one away."""
    write: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Kernel files that another program writes: path to text."""
    kill_agent: str | None = dataclasses.field(default=None, metadata={"check": seconds})
    """The agent dies without a word, and is started again after this time."""
    pause: PauseWish | None = None

    def __post_init__(self) -> None:
        """ValueError for an event in which nothing happens."""
        parts = (self.pods, self.remove, self.config, self.annotate, self.write, self.kill_agent, self.pause)
        if not any(parts):
            raise ValueError("nothing happens: write pods, remove, config, annotate, write, killAgent or pause")

    @property
    def seconds(self) -> float:
        """Time since the start."""
        return seconds(self.at)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """Expected result, between `from` and `to`."""

    measure: Literal[Series, Count, Text]
    of: str = ""
    """Subject: a workload NAMESPACE/POD, a reason word, part of a problem, a file."""
    value: Literal["min", "max", "mean", "last"] = "last"
    """Value taken of a series."""
    start: str = dataclasses.field(default="0s", metadata={"name": "from", "check": seconds})
    to: str | None = dataclasses.field(default=None, metadata={"check": seconds})
    """Without: the end."""
    least: float | None = None
    most: float | None = None
    equals: str | None = None
    """Text without the space around it."""

    def __post_init__(self) -> None:
        """ValueError when nothing is expected, or it is not clear of which pod."""
        if (self.least, self.most, self.equals) == (None, None, None):
            raise ValueError("nothing is expected: write least, most or equals")
        if (self.is_text or self.measure in ("unmetPercent", "usedCores", "ticksWith")) and not self.of:
            raise ValueError(f"{self.measure} of whom? write of")
        if self.is_text != (self.equals is not None) or (self.is_text and (self.least, self.most) != (None, None)):
            raise ValueError("equals is for file and cpus, least and most are for numbers")

    @property
    def is_text(self) -> bool:
        """Tell whether a text is expected, and no number."""
        return self.measure in get_args(Text)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The whole file."""

    about: str = ""
    """One or two sentences for people."""
    machine: str = dataclasses.field(default="small", metadata={"check": shapes.machine})
    duration: str = _timed("10m")
    step_seconds: float = bounded(0.5, ge=0.02, le=1)
    """Time that passes on the machine at once."""
    seed: int = bounded(0, ge=0)
    """Seed of everything random."""
    mode: Literal["enforce", "observe", "asWritten"] = "enforce"
    """enforce and observe: of every strategy that is not off, whatever the settings say; nothing real is touched."""
    manifests: str = ""
    """A folder of manifests to begin with, seen from the folder of this file."""
    node: Node = Node()
    """Its name chooses the Node where the manifests have several."""
    pods: tuple[Pod, ...] = ()
    config: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """data of the ConfigMap slo-controller-config: text, or YAML that becomes JSON."""
    events: tuple[Event, ...] = ()
    expect: tuple[Expectation, ...] = ()

    def __post_init__(self) -> None:
        """ValueError for what can never come about."""
        end = self.seconds
        late = [event.at for event in self.events if event.seconds >= end]
        late += [each.start for each in self.expect if seconds(each.start) >= end]
        if late:
            raise ValueError(f"{', '.join(late)}: after the end at {self.duration}")

    @property
    def seconds(self) -> float:
        """Length in seconds."""
        return seconds(self.duration)


def shape(settings: type) -> type[Scenario]:
    """The file with a section `settings` of this type, as koordlite.yaml has it."""
    field = ("settings", settings, dataclasses.field(default_factory=settings))
    return dataclasses.make_dataclass("Scenario", [field], bases=(Scenario,), frozen=True, kw_only=True)
