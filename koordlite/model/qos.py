"""QoS classes and priority bands, and how a pod comes by them (docs/formulas.md, "Classes")."""

from __future__ import annotations

import enum


class QoSClass(enum.StrEnum):
    """Koordinator's classes, from label `koordinator.sh/qosClass`; NONE is a missing or unknown label."""

    LSE = "LSE"
    LSR = "LSR"
    LS = "LS"
    BE = "BE"
    SYSTEM = "SYSTEM"
    NONE = ""

    @classmethod
    def of_label(cls, text: str | None) -> QoSClass:
        """The class the label value names, case-sensitive."""
        return _QOS.get(text or "", cls.NONE)


_QOS = {member.value: member for member in QoSClass}


class KubeQoS(enum.StrEnum):
    """Kubernetes' own classes, which decide the cgroup a pod lives in."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


class PriorityClass(enum.StrEnum):
    """Koordinator's priority bands."""

    PROD = "koord-prod"
    MID = "koord-mid"
    BATCH = "koord-batch"
    FREE = "koord-free"
    NONE = ""


_BANDS = {
    PriorityClass.PROD: (9000, 9999),
    PriorityClass.MID: (7000, 7999),
    PriorityClass.BATCH: (5000, 5999),
    PriorityClass.FREE: (3000, 3999),
}
DEFAULT_PRIORITY = {
    PriorityClass.PROD: 9500,
    PriorityClass.MID: 7500,
    PriorityClass.BATCH: 5500,
    PriorityClass.FREE: 3500,
    PriorityClass.NONE: 0,
}
_FROM_KUBE = {
    KubeQoS.GUARANTEED: QoSClass.LSR,
    KubeQoS.BURSTABLE: QoSClass.LS,
    KubeQoS.BEST_EFFORT: QoSClass.BE,
}


def with_default(raw: QoSClass, kube: KubeQoS) -> QoSClass:
    """The labelled class, else Guaranteed→LSR, Burstable→LS, BestEffort→BE."""
    return raw if raw is not QoSClass.NONE else _FROM_KUBE[kube]


def priority_class(label: str | None, priority: int | None, qos: QoSClass) -> PriorityClass:
    """Band from label `koordinator.sh/priority-class` if present (an unknown word is no band), else from spec.priority,
    else from the QoS class `qos` (with default): BE→batch, all others→prod."""
    raw = raw_priority_class(label, priority)
    if raw is not PriorityClass.NONE:
        return raw
    return PriorityClass.BATCH if qos is QoSClass.BE else PriorityClass.PROD


def raw_priority_class(label: str | None, priority: int | None) -> PriorityClass:
    """Band from the label if the label exists, else from the priority number; NONE outside every band."""
    if label is not None:
        return next((c for c in PriorityClass if c.value == label), PriorityClass.NONE)
    if priority is None:
        return PriorityClass.NONE
    return next((c for c, (low, high) in _BANDS.items() if low <= priority <= high), PriorityClass.NONE)
