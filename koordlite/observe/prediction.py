"""Learns what pods, prod as a whole and the system need: one sample a minute each, in turns, and a checkpoint now and
then."""

from __future__ import annotations

import array
from pathlib import Path

import msgspec

from koordlite.formulas.allocatable import allocatable, histogram
from koordlite.formulas.allocatable.histogram import Buckets
from koordlite.formulas.allocatable.prediction import PROD
from koordlite.host.kept_file import PREDICTIONS, KeptFile
from koordlite.model import times
from koordlite.model.errors import Problem
from koordlite.model.picture.usage import NO_USE, Prediction, Usage, Use
from koordlite.model.pod.values import Pod
from koordlite.model.wire.objects import PodObject
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
SPAN = 76
"""Buckets that are kept, up to the largest value seen. What is below 2 % of that counts as 2 %, so that a peak is never
predicted too low."""
_MOST_EXPONENT = 16
"""Weights are counted from a new time before they grow beyond 2 to this."""
_LEAST_WEIGHT = 1e-4


class StoredHistogram(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A histogram on disk."""

    low: int
    reference: float
    weights: bytes
    """Numbers of four bytes, little-endian."""


class Histogram:
    """Weights by bucket. A sample weighs twice as much as one that is a half-life older. Plain numbers side by side,
    since a full node has hundreds."""

    __slots__ = ("_low", "_reference", "_weights")

    def __init__(self, low: int = 0, reference: float = 0.0, weights: array.array[float] | None = None) -> None:
        self._low, self._reference = low, reference
        self._weights = array.array("f") if weights is None else weights

    def add(self, value: float, wall: float, *, buckets: Buckets, half_life: float) -> None:
        """Take in a sample of this moment, in seconds since the epoch."""
        bucket, weights = buckets.find(value), self._weights
        if not weights:
            self._low, self._reference = bucket, wall
        exponent = (wall - self._reference) / half_life
        if exponent > _MOST_EXPONENT:
            self._decay(int(exponent), half_life)
            exponent -= int(exponent)
        self._make_place(bucket)
        self._weights[max(bucket - self._low, 0)] += 2.0 ** max(exponent, -_MOST_EXPONENT)

    def percentile(self, part: float, *, buckets: Buckets) -> float:
        """Value that `part` (0 to 1) of the weight does not exceed."""
        return buckets.percentile(self._weights, self._low, part)

    def _decay(self, halves: int, half_life: float) -> None:
        """Weigh all by a later moment; what weighs next to nothing at the upper end is forgotten."""
        factor = 0.5**halves
        weights = array.array("f", (weight * factor for weight in self._weights))
        while len(weights) > 1 and weights[-1] < _LEAST_WEIGHT:
            weights.pop()
        self._weights, self._reference = weights, self._reference + halves * half_life

    def _make_place(self, bucket: int) -> None:
        weights = self._weights
        if weights and bucket < self._low:
            more = min(self._low - bucket, SPAN - len(weights))
            self._weights = weights = array.array("f", bytes(4 * more)) + weights
            self._low -= more
        if bucket >= self._low + len(weights):
            weights.frombytes(bytes(4 * (bucket + 1 - self._low - len(weights))))
        surplus = len(weights) - SPAN
        if surplus > 0:
            lost = sum(weights[:surplus])
            self._weights = weights = weights[surplus:]
            weights[0] += lost
            self._low += surplus

    @property
    def stored(self) -> StoredHistogram:
        """The form for the disk."""
        weights = array.array("f", self._weights)
        if _BIG_ENDIAN:
            weights.byteswap()
        return StoredHistogram(self._low, self._reference, weights.tobytes())

    @classmethod
    def of(cls, stored: StoredHistogram, buckets: Buckets) -> Histogram:
        """Histogram as it was kept; ValueError for what no histogram can be."""
        weights = array.array("f")
        weights.frombytes(stored.weights)
        if _BIG_ENDIAN:
            weights.byteswap()
        fits = stored.low >= 0 and stored.low + len(weights) <= buckets.count and len(weights) <= SPAN
        if not fits or not all(0 <= weight < 2e9 for weight in weights) or not 0 <= stored.reference < 1e12:
            raise ValueError("these are no weights of buckets")
        return cls(stored.low, stored.reference, weights)


_BIG_ENDIAN = array.array("H", [1]).tobytes() == b"\x00\x01"


class _StoredModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    first: float
    last: float
    cpu: StoredHistogram
    memory: StoredHistogram


class _Content(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    models: dict[str, _StoredModel] = {}


_REMOVE = "remove it; what pods need is learnt again, which takes a day"


class _Model:
    """Two histograms, when they began and when they were last added to, and what they say."""

    __slots__ = ("cpu", "first", "last", "memory", "peak")

    def __init__(self, wall: float, cpu: Histogram, memory: Histogram) -> None:
        self.first = self.last = wall
        self.cpu, self.memory = cpu, memory
        self.peak = NO_USE

    @classmethod
    def of(cls, stored: _StoredModel) -> _Model:
        """Model as it was kept; ValueError for what no model can be."""
        cpu, memory = Histogram.of(stored.cpu, histogram.CPU), Histogram.of(stored.memory, histogram.MEMORY)
        model = cls(stored.first, cpu, memory)
        model.last = stored.last
        model.predict()
        return model

    def add(self, use: Use, wall: float, config: mid_allocatable.Config) -> None:
        """Take in a sample, and predict again."""
        self.last = wall
        self.cpu.add(use.cpu / 1000, wall, buckets=histogram.CPU, half_life=config.cpu_half_life_seconds)
        self.memory.add(use.memory, wall, buckets=histogram.MEMORY, half_life=config.memory_half_life_seconds)
        self.predict()

    def predict(self) -> None:
        """Prediction of the histograms."""
        cores = self.cpu.percentile(CPU_PART, buckets=histogram.CPU)
        self.peak = Use(int(cores * 1000), int(self.memory.percentile(MEMORY_PART, buckets=histogram.MEMORY)))


class Predictor:
    """Keeps a model of each pod and of the node. Bounded: a model is less than 1 KiB."""

    def __init__(self, config: mid_allocatable.Config, folder: Path | None) -> None:
        self._config, self._unchanged = config, Unchanged()
        self._models: dict[str, _Model] = {}
        path = folder and folder / PREDICTIONS
        self._file = KeptFile(
            path,
            _Content(),
            decode=self._decode,
            encode=lambda content: content,
            unreadable=_REMOVE,
            unwritable=_REMOVE,
        )
        self._stored_at: float | None = None
        self._writing: Worker | None = None

    def _decode(self, raw: bytes) -> _Content:
        """Content of the file, whose models are in use from then on; ValueError for what no model can be."""
        content = msgspec.json.decode(raw, type=_Content)
        self._models = {uid: _Model.of(stored) for uid, stored in content.models.items()}
        return content

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Reasons why nothing can be kept, or what was kept cannot be read."""
        return self._file.problems

    def read(
        self, pods: tuple[Pod, ...], listed: tuple[PodObject, ...], usage: Usage, *, wall: float
    ) -> Prediction | None:
        """Take in what is due of this sample, and say what is expected; None without a sample of the node. `listed` are
        the pods as the cluster has them, which say when they were made."""
        created = self._unchanged.of(
            "created",
            (listed,),
            lambda: {obj.metadata.uid: times.parse_or_none(obj.metadata.creation_timestamp) for obj in listed},
        )
        if usage.node is None:
            return None
        self._learn(wall, pods, usage)
        self._forget(wall, {pod.uid for pod in pods})
        self._keep(wall)
        return Prediction(
            pods={uid: m.peak for uid, m in self._models.items() if self._is_warm(m, wall, created.get(uid), uid)},
            prod=self._of_node(_PROD, wall),
            system=self._of_node(_SYSTEM, wall),
            known_seconds=wall - self._models[_SYSTEM].first if _SYSTEM in self._models else 0.0,
            margin_percent=self._config.safety_margin_percent,
        )

    def _is_warm(self, model: _Model, wall: float, created: float | None, uid: str) -> bool:
        """Both the pod and what is known of it are old enough: a restart without a checkpoint knows nothing of it."""
        cold = self._config.cold_start_seconds
        return uid not in (_PROD, _SYSTEM) and created is not None and min(wall - created, wall - model.first) > cold

    def _of_node(self, name: str, wall: float) -> Use | None:
        model = self._models.get(name)
        return model.peak if model and wall - model.first > self._config.cold_start_seconds else None

    def _learn(self, wall: float, pods: tuple[Pod, ...], usage: Usage) -> None:
        due = [pod.uid for pod in pods if pod.uid in usage.pods and self._is_due(pod.uid, wall)]
        most = max(AT_LEAST, len(pods) // int(SAMPLE_SECONDS / 2))
        for uid in due[:most]:
            self._add(uid, usage.pods[uid], wall)
        if self._is_due(_SYSTEM, wall):
            assert usage.node is not None
            prod = NO_USE
            for pod in pods:
                if pod.priority_class in PROD and pod.uid in usage.pods:
                    prod = prod + usage.pods[pod.uid]
            self._add(_PROD, prod, wall)
            self._add(_SYSTEM, allocatable.system_use(node=usage.node, pods=usage.pods.values(), host_apps=()), wall)

    def _is_due(self, uid: str, wall: float) -> bool:
        model = self._models.get(uid)
        # A clock that was set back must not stop the learning.
        return model is None or not 0 <= wall - model.last < SAMPLE_SECONDS

    def _add(self, uid: str, use: Use, wall: float) -> None:
        if uid not in self._models:
            self._models[uid] = _Model(wall, Histogram(), Histogram())
        self._models[uid].add(use, wall, self._config)

    def _forget(self, wall: float, uids: set[str]) -> None:
        """Pods that are gone, after a while: a list may be incomplete for a moment."""
        if len(self._models) <= len(uids) + 2:
            return
        expired = [u for u, m in self._models.items() if u not in uids and wall - m.last > FORGET_SECONDS]
        for uid in expired:
            if uid not in (_PROD, _SYSTEM):
                del self._models[uid]

    def _keep(self, wall: float) -> None:
        """Write a checkpoint when it is time, beside the tick: a disk may take its time."""
        if self._stored_at is None:
            self._stored_at = wall
        busy = self._writing is not None and self._writing.is_alive()
        if busy or 0 <= wall - self._stored_at < KEEP_SECONDS:
            return
        self._stored_at = wall
        models = {
            uid: _StoredModel(first=each.first, last=each.last, cpu=each.cpu.stored, memory=each.memory.stored)
            for uid, each in self._models.items()
        }
        self._writing = Worker("predictions", lambda: self._file.keep(_Content(models)), daemon=False)
        self._writing.start()
