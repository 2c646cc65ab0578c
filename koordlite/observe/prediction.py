"""Learns what pods, prod as a whole and the system need: one sample a minute each, in turns, and a checkpoint now and
then."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from koordlite.formulas.allocatable import allocatable, histogram
from koordlite.formulas.allocatable.prediction import PROD
from koordlite.host import predictions
from koordlite.model import times
from koordlite.model.errors import UNREADABLE, InputError, Problem
from koordlite.model.picture.usage import Prediction, Usage, Use
from koordlite.model.pod.values import Pod
from koordlite.model.settings import StrategySettings
from koordlite.model.snapshot import Snapshot
from koordlite.model.wire.objects import PodObject
from koordlite.observe.histograms import Histogram, Kept
from koordlite.strategies import mid_allocatable
from koordlite.threads import Worker
from koordlite.unchanged import Unchanged

SAMPLE_SECONDS = 60.0
KEEP_SECONDS = 600.0
FORGET_SECONDS = 1800.0
"""A model without a sample for so long is dropped."""
AT_LEAST = 8
"""Pods that are sampled in one tick at least, while any is due."""
CPU_PART, MEMORY_PART = 0.95, 0.98
_PROD, _SYSTEM = "node:prod", "node:system"
"""No uid has a colon."""


class Learning(msgspec.Struct, frozen=True, kw_only=True):
    """Half-lives of samples, and the time from which on a prediction counts; seconds."""

    cpu_half_life: float
    memory_half_life: float
    cold_start: float
    margin_percent: int


class _KeptModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    first: float
    last: float
    cpu: Kept
    memory: Kept


class _Content(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    models: dict[str, _KeptModel]


class _Model:
    """Two histograms, when they began and when they were last added to, and what they say."""

    __slots__ = ("cpu", "first", "last", "memory", "peak")

    def __init__(self, wall: float, cpu: Histogram, memory: Histogram) -> None:
        self.first = self.last = wall
        self.cpu, self.memory = cpu, memory
        self.peak = allocatable.NOTHING

    def add(self, use: Use, wall: float, learning: Learning) -> None:
        """Take in a sample, and predict again."""
        self.last = wall
        self.cpu.add(use.cpu / 1000, wall, buckets=histogram.CPU, half_life=learning.cpu_half_life)
        self.memory.add(use.memory, wall, buckets=histogram.MEMORY, half_life=learning.memory_half_life)
        self.predict()

    def predict(self) -> None:
        """Prediction of the histograms."""
        cores = self.cpu.percentile(CPU_PART, buckets=histogram.CPU)
        self.peak = Use(int(cores * 1000), int(self.memory.percentile(MEMORY_PART, buckets=histogram.MEMORY)))


class Predictor:
    """Keeps a model of each pod and of the node. Bounded: a model is less than 1 KiB."""

    def __init__(self, learning: Learning, folder: Path | None) -> None:
        self._learning, self._folder, self._unchanged = learning, folder, Unchanged()
        self.problems: tuple[Problem, ...] = ()
        """Why nothing can be kept, or what was kept cannot be read."""
        self._models: dict[str, _Model] = {}
        self._kept_at: float | None = None
        self._writing: Worker | None = None
        self._error = ""
        self._restore()

    def into(self, snapshot: Snapshot, listed: tuple[PodObject, ...], *, wall: float) -> Snapshot:
        """The picture with what is expected; `listed` are its pods as the cluster has them."""
        created = self._unchanged.of("created", (listed,), lambda: _created(listed))
        found = self.read(wall, pods=snapshot.pods, usage=snapshot.usage, created=created)
        return dataclasses.replace(snapshot, prediction=found, problems=(*snapshot.problems, *self.problems))

    def read(
        self, wall: float, *, pods: Iterable[Pod], usage: Usage, created: Mapping[str, float | None]
    ) -> Prediction | None:
        """Take in what is due of this sample, and say what is expected; None without a sample of the node. `created`
        are the times at which pods were made, by uid, in seconds since the epoch."""
        if usage.node is None:
            return None
        listed = tuple(pods)
        self._learn(wall, listed, usage)
        self._forget(wall, {pod.uid for pod in listed})
        self._keep(wall)
        return Prediction(
            pods={uid: m.peak for uid, m in self._models.items() if self._is_warm(m, wall, created.get(uid), uid)},
            prod=self._of_node(_PROD, wall),
            system=self._of_node(_SYSTEM, wall),
            known_seconds=wall - self._models[_SYSTEM].first if _SYSTEM in self._models else 0.0,
            margin_percent=self._learning.margin_percent,
        )

    def _is_warm(self, model: _Model, wall: float, created: float | None, uid: str) -> bool:
        """Both the pod and what is known of it are old enough: a restart without a checkpoint knows nothing of it."""
        cold = self._learning.cold_start
        return uid not in (_PROD, _SYSTEM) and created is not None and min(wall - created, wall - model.first) > cold

    def _of_node(self, name: str, wall: float) -> Use | None:
        model = self._models.get(name)
        return model.peak if model and wall - model.first > self._learning.cold_start else None

    def _learn(self, wall: float, pods: tuple[Pod, ...], usage: Usage) -> None:
        due = [pod.uid for pod in pods if pod.uid in usage.pods and self._is_due(pod.uid, wall)]
        most = max(AT_LEAST, len(pods) // int(SAMPLE_SECONDS / 2))
        for uid in due[:most]:
            self._add(uid, usage.pods[uid], wall)
        if self._is_due(_SYSTEM, wall):
            assert usage.node is not None
            prod = allocatable.NOTHING
            for pod in pods:
                if pod.priority_class in PROD and pod.uid in usage.pods:
                    prod = allocatable.plus(prod, usage.pods[pod.uid])
            self._add(_PROD, prod, wall)
            self._add(_SYSTEM, allocatable.system_use(node=usage.node, pods=usage.pods.values(), host_apps=()), wall)

    def _is_due(self, uid: str, wall: float) -> bool:
        model = self._models.get(uid)
        # A clock that was set back must not stop the learning.
        return model is None or not 0 <= wall - model.last < SAMPLE_SECONDS

    def _add(self, uid: str, use: Use, wall: float) -> None:
        if uid not in self._models:
            self._models[uid] = _Model(wall, Histogram(), Histogram())
        self._models[uid].add(use, wall, self._learning)

    def _forget(self, wall: float, known: set[str]) -> None:
        """Pods that are gone, after a while: a list may be incomplete for a moment."""
        if len(self._models) <= len(known) + 2:
            return
        gone = [u for u, m in self._models.items() if u not in known and wall - m.last > FORGET_SECONDS]
        for uid in gone:
            if uid not in (_PROD, _SYSTEM):
                del self._models[uid]

    def _restore(self) -> None:
        if self._folder is None:
            return
        try:
            raw = predictions.read(self._folder)
            held = msgspec.json.decode(raw, type=_Content).models if raw else {}
            for uid, kept in held.items():
                cpu, memory = Histogram.of(kept.cpu, histogram.CPU), Histogram.of(kept.memory, histogram.MEMORY)
                model = self._models[uid] = _Model(kept.first, cpu, memory)
                model.last = kept.last
                model.predict()
        except InputError as error:
            self.problems = tuple(error.problems)
        except UNREADABLE as error:
            self._models = {}
            self.problems = (predictions.problem(self._folder, str(error)),)

    def _keep(self, wall: float) -> None:
        """Write a checkpoint when it is time, beside the tick: a disk may take its time."""
        if self._folder is None:
            return
        if self._kept_at is None:
            self._kept_at = wall
        busy = self._writing is not None and self._writing.is_alive()
        if busy or 0 <= wall - self._kept_at < KEEP_SECONDS:
            return
        self._kept_at = wall
        self.problems = (predictions.problem(self._folder, self._error),) if self._error else ()
        content = msgspec.json.encode(_Content({uid: _kept(model) for uid, model in self._models.items()}))
        folder = self._folder
        self._writing = Worker("predictions", lambda: self._write(folder, content), daemon=False)
        self._writing.start()

    def _write(self, folder: Path, content: bytes) -> None:
        try:
            predictions.write(folder, content)
        except OSError as error:
            self._error = str(error)
        else:
            self._error = ""


def _created(listed: Iterable[PodObject]) -> Mapping[str, float | None]:
    return {obj.metadata.uid: times.parse_or_none(obj.metadata.creation_timestamp) for obj in listed}


def _kept(model: _Model) -> _KeptModel:
    return _KeptModel(first=model.first, last=model.last, cpu=model.cpu.kept, memory=model.memory.kept)


def wanted(settings: Mapping[str, StrategySettings], folder: Path | None) -> Predictor | None:
    """The learner, as `midAllocatable` is configured; None where nothing is predicted."""
    section = settings["midAllocatable"]
    if not isinstance(section, mid_allocatable.Config) or section.mode == "off" or not section.predict:
        return None
    learning = Learning(
        cpu_half_life=section.cpu_half_life_seconds,
        memory_half_life=section.memory_half_life_seconds,
        cold_start=section.cold_start_seconds,
        margin_percent=section.safety_margin_percent,
    )
    return Predictor(learning, folder)
