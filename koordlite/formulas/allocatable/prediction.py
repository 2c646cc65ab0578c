"""Requests of prod pods that they are not expected to use, by the peaks that are predicted for them.

Two predictors, and the smaller of their results: the sum over pods of request − peak, and the requests of all prod pods
less the peak of prod and system together. Source: Koordinator `pkg/koordlet/prediction`, `peak_predictor.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from koordlite.model.picture.usage import Prediction, Use
from koordlite.model.pod.qos import PriorityClass
from koordlite.model.pod.values import Pod

PROD = (PriorityClass.PROD, PriorityClass.NONE)
"""The bands whose unused requests are offered to mid pods."""
POD, PRIORITY, LEAST = "podReclaimablePredictor", "priorityReclaimablePredictor", "minPredictor"
"""Koordinator's names of them in metrics."""


class Predicted(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of one predictor."""

    reclaimable: Use
    peak: Use


class Reclaimable(msgspec.Struct, frozen=True, kw_only=True):
    """Both predictors, and what comes of them."""

    by_pod: Predicted
    by_priority: Predicted

    @property
    def least(self) -> Use:
        """The smaller of both, for CPU and memory each by itself."""
        pod, priority = self.by_pod.reclaimable, self.by_priority.reclaimable
        return Use(min(pod.cpu, priority.cpu), min(pod.memory, priority.memory))

    @property
    def peak(self) -> Use:
        """The larger of both peaks."""
        pod, priority = self.by_pod.peak, self.by_priority.peak
        return Use(max(pod.cpu, priority.cpu), max(pod.memory, priority.memory))


def reclaimable(*, prediction: Prediction | None, pods: Iterable[Pod], offered: Use) -> Reclaimable | None:
    """Amounts that can be offered again; None while too little is known. `offered` is the node's allocatable without
    amplification."""
    if prediction is None or prediction.prod is None or prediction.system is None:
        return None
    ratio = (100 + prediction.margin_percent) / 100
    both = prediction.prod + prediction.system
    together = Use(int(both.cpu * ratio), int(both.memory * ratio))
    prod = [pod for pod in pods if pod.priority_class in PROD and not pod.deleting and not pod.finished]
    requests = [(prediction.pods.get(pod.uid), pod.request_milli(), pod.request_value("memory")) for pod in prod]
    requested = Use(sum(cpu for _, cpu, _ in requests), sum(memory for _, _, memory in requests))
    spare = _within(requested.less(together), offered.less(together))
    by_priority = Predicted(reclaimable=spare, peak=together)
    return Reclaimable(by_pod=_by_pod(requests, offered, ratio), by_priority=by_priority)


_Requests = Sequence[tuple[Use | None, int, int]]
"""Peak and requests of each prod pod."""


def _by_pod(requests: _Requests, offered: Use, ratio: float) -> Predicted:
    """A pod that is not known for long enough gives nothing, and its request counts as its peak.

    In plain numbers: a full node has hundreds of pods, and this is asked in each tick.
    """
    peak_cpu = peak_memory = spare_cpu = spare_memory = unknown_cpu = unknown_memory = 0
    for peak, cpu, memory in requests:
        if peak is None:
            unknown_cpu, unknown_memory = unknown_cpu + cpu, unknown_memory + memory
            continue
        needs_cpu, needs_memory = int(peak.cpu * ratio), int(peak.memory * ratio)
        peak_cpu, peak_memory = peak_cpu + needs_cpu, peak_memory + needs_memory
        spare_cpu += max(cpu - needs_cpu, 0)
        spare_memory += max(memory - needs_memory, 0)
    peaks = Use(peak_cpu, peak_memory)
    return Predicted(
        reclaimable=_within(Use(spare_cpu, spare_memory), offered.less(peaks)),
        peak=peaks + Use(unknown_cpu, unknown_memory),
    )


def _within(use: Use, most: Use) -> Use:
    return Use(min(use.cpu, most.cpu), min(use.memory, most.memory))
