"""QoS classes and priority bands, and how a pod comes by them (docs/formulas.md, "Classes")."""

from __future__ import annotations

import enum
import re


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


_GO_INTEGER = re.compile(r"[+-]?(0[xX](_?[0-9a-fA-F])+|0[bB](_?[01])+|0[oO]?(_?[0-7])+|0|[1-9](_?[0-9])*)\Z", re.ASCII)
_INT32 = 2**31


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


def priority_value(priority: int | None, band: PriorityClass) -> int:
    """spec.priority where it is given and not 0, else the default number of `band` (with default).
    Source: Koordinator `GetPodPriorityValueWithDefault`."""
    return priority or DEFAULT_PRIORITY[band]


def sub_priority(text: str | None) -> int:
    """Label `koordinator.sh/priority`: the order inside a band; 0 without one.
    Numbers are written as in Go: decimal, 0x, 0b, 0o, or octal after a leading 0, with `_` between digits. ValueError
    for anything else, and beyond 32 bits. Source: Koordinator `GetPodSubPriority`."""
    if not text:
        return 0
    if not _GO_INTEGER.match(text):
        raise ValueError(f"{text!r} is not a whole number")
    # Python refuses a leading 0 where Go reads octal.
    digits = text.lstrip("+-").replace("_", "").lower()
    octal = len(digits) > 1 and digits[0] == "0" and digits[1].isdigit()
    value = int(digits, 8 if octal else 0) * (-1 if text.startswith("-") else 1)
    if not -_INT32 <= value < _INT32:
        raise ValueError(f"{text!r} does not fit into 32 bits")
    return value
