"""Requests of a pod's annotations beyond the class it is in: CPU burst, memory QoS, its place before the OOM killer.

An annotation that cannot be used is reported and changes nothing: the settings of the node hold. Sources: Koordinator
`apis/extension`, `genPodBurstConfig`, `getMergedPodResourceQoS`, hook OOMScoreAdj.
"""

from __future__ import annotations

import functools
import re
from typing import Annotated, Any

import msgspec

from koordlite.model import keys
from koordlite.model.pod.qos import QoSClass
from koordlite.model.pod.values import Pod
from koordlite.model.reading import declared
from koordlite.model.reading.declared import JSONDocument, OneOf, Values, Within, build
from koordlite.model.slo import qos as slo_qos
from koordlite.model.slo.qos import CPUQOS, BlkioQOS, Block, MemoryQOS
from koordlite.model.slo.settings import CPUBurst

OOM_SCORE_MIN, OOM_SCORE_MAX = -1000, 1000
MOST_WAIT_PERCENT = 1000
_OBJECTIVE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,62})(?: *<= *([0-9]{1,9}(?:\.[0-9]{1,6})?))?\Z", re.ASCII)
_DECIMAL = re.compile(r"[0-9]{1,4}(\.[0-9]{1,6})?\Z", re.ASCII)
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}\Z", re.ASCII)


class UnusableAnnotation(msgspec.Struct, frozen=True):
    """Reasons why an annotation cannot be used."""

    key: str
    text: str
    why: str


class PodMemoryQOS(MemoryQOS, frozen=True, kw_only=True):
    """The members of annotation `koordinator.sh/memoryQOS`."""

    policy: Annotated[str, OneOf(("default", "none", "auto"))] = "default"


class PodCPUBurst(CPUBurst, frozen=True, kw_only=True):
    """The members of annotation `koordinator.sh/cpuBurst`. A pod may do without a burst, as NodeSLO's CRD allows."""

    cpu_burst_percent: Annotated[int, Within(low=0, high=10_000)] = 1000


def cpu_burst(pod: Pod, of_node: CPUBurst) -> tuple[CPUBurst, UnusableAnnotation | None]:
    """The node's burst settings under the annotation's. The threshold of the share pool is no pod's business."""
    values, bad = _values(PodCPUBurst, pod, keys.CPU_BURST)
    values.pop(("sharePoolThresholdPercent",), None)
    return build(of_node, values), bad


def cpu_qos(pod: Pod, of_class: CPUQOS) -> tuple[CPUQOS, UnusableAnnotation | None]:
    """CPU QoS with annotation `koordinator.sh/cpuQOS` of an LS pod: its identity counts when `enable` is true, else the
    pod has none. Other classes keep theirs. Source: Koordinator `SetPodBvtValue`.

    Whoever may create pods writes annotations: one that cannot be read changes nothing, and none gives an identity
    above that of the class.
    """
    if pod.raw_qos is not QoSClass.LS:
        return of_class, None
    values, bad = _values(CPUQOS, pod, keys.CPU_QOS)
    if bad or keys.CPU_QOS not in pod.annotations:
        return of_class, bad
    identity = values.get(("groupIdentity",), of_class.group_identity) if values.get(("enable",)) else 0
    return msgspec.structs.replace(of_class, enable=True, group_identity=min(identity, of_class.group_identity)), None


def memory_qos(pod: Pod, of_class: MemoryQOS) -> tuple[MemoryQOS, UnusableAnnotation | None]:
    """Effect of annotation `koordinator.sh/memoryQOS` on the settings of the pod's class.
    none: nothing, whatever the class has; auto: Koordinator's own settings for the class of the pod; default: the
    settings of the class. Fields that are given come on top of that, and count also where the class is off."""
    values, bad = _values(PodMemoryQOS, pod, keys.MEMORY_QOS)
    policy = values.pop(("policy",), "default")
    if policy == "none":
        return MemoryQOS(), bad
    base = msgspec.structs.replace(built_in(pod.qos_class), enable=of_class.enable) if policy == "auto" else of_class
    return build(base, values), bad


def has_memory_qos(pod: Pod, of_class: MemoryQOS) -> bool:
    """Tell whether memory QoS is kept for this pod at all: its class has it, or the pod asks for itself."""
    values, _ = _values(PodMemoryQOS, pod, keys.MEMORY_QOS)
    policy = values.pop(("policy",), "default")
    if policy == "none" or values.get(("enable",)) is False:
        return False
    return of_class.enable or policy == "auto" or bool(values)


def blkio_qos(pod: Pod) -> tuple[tuple[Block, ...], UnusableAnnotation | None]:
    """The disks that annotation `koordinator.sh/blkioQOS` names, with what the pod is to have of each."""
    values, bad = _values(BlkioQOS, pod, keys.BLKIO_QOS)
    return build(BlkioQOS(), values).blocks, bad


def built_in(qos: QoSClass) -> MemoryQOS:
    """Koordinator's settings for a class that is not configured (`DefaultMemoryQOS`)."""
    if qos in (QoSClass.LSE, QoSClass.LSR, QoSClass.LS):
        return slo_qos.DEFAULTS.ls_class.memory_qos
    return slo_qos.DEFAULTS.be_class.memory_qos if qos is QoSClass.BE else MemoryQOS()


def wait_percent(pod: Pod) -> tuple[float | None, UnusableAnnotation | None]:
    """The number of annotation `suppress.koordlite.io/wait-percent`, 0 to 1000; None without one that can be used."""
    text = pod.annotations.get(keys.WAIT_PERCENT, "")
    if not text:
        return None, None
    if not _DECIMAL.match(text) or float(text) > MOST_WAIT_PERCENT:
        why = f"it is no decimal number from 0 to {MOST_WAIT_PERCENT}"
        return None, UnusableAnnotation(keys.WAIT_PERCENT, text, why)
    return float(text), None


def objective(pod: Pod) -> tuple[tuple[str, float | None] | None, UnusableAnnotation | None]:
    """Name of a query and the most it may give, from annotation `suppress.koordlite.io/objective` (`p99 <= 50`). The
    number is None where the pod takes the operator's; no name without an annotation that can be used."""
    text = pod.annotations.get(keys.OBJECTIVE, "")
    if not text:
        return None, None
    parts = _OBJECTIVE.match(text)
    most = float(parts[2]) if parts and parts[2] else None
    if parts is None or most == 0:
        why = "it is no name of a query, as in `p99`, nor such a name and a decimal number above 0, as in `p99 <= 50`"
        return None, UnusableAnnotation(keys.OBJECTIVE, text, why)
    return (parts[1], most), None


def oom_score_adj(pod: Pod, container: str) -> int | None:
    """The number for a container: its own in `oom-score-adj-spec`, else the pod's `oom-score-adj`; None without.
    ValueError for an annotation that cannot be read, or a number outside -1000 to 1000."""
    spec = pod.annotations.get(keys.OOM_SCORE_ADJ_SPEC)
    whole = pod.annotations.get(keys.OOM_SCORE_ADJ)
    score = _by_container(spec).get(container) if spec else None
    if score is None and whole:
        if not _INTEGER.match(whole):
            raise ValueError(f"{keys.OOM_SCORE_ADJ}: {whole!r} is not a whole number")
        score = int(whole)
    if score is not None and not OOM_SCORE_MIN <= score <= OOM_SCORE_MAX:
        raise ValueError(f"{score} for container {container} is not within {OOM_SCORE_MIN} to {OOM_SCORE_MAX}")
    return score


@functools.lru_cache(maxsize=1024)
def _by_container(text: str) -> dict[str, int]:
    document = JSONDocument("", "", "")
    members = document.object(document.decode(text), "", None)
    wrong = [name for name, value in members.items() if isinstance(value, bool) or not isinstance(value, int)]
    if document.broken or wrong:
        why = document.problems[0].why if document.broken else f"{wrong[0]} has no whole number"
        raise ValueError(f"{keys.OOM_SCORE_ADJ_SPEC}: {why}")
    return members


def _values(shape: Any, pod: Pod, key: str) -> tuple[Values, UnusableAnnotation | None]:
    text = pod.annotations.get(key, "")
    if not text:
        return {}, None
    parsed, why = _parsed(shape, text)
    return dict(parsed), UnusableAnnotation(key, text, why) if why else None


@functools.lru_cache(maxsize=4096)
def _parsed(shape: Any, text: str) -> tuple[Values, str]:
    """Values of the text, or the reason why it cannot be used. Cached: an annotation is needed in every tick."""
    try:
        return declared.values(shape, text), ""
    except ValueError as error:
        return {}, str(error)
