"""Refusals of Koordinator's webhook, with reasons: class, priority and requests have to go together."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from koordlite.model import keys
from koordlite.model.pod.qos import PriorityClass, QoSClass
from koordlite.model.pod.values import Pod

_QOS_LABEL = f"labels.{keys.QOS_CLASS}"
_PRIORITY_LABEL = f"labels.{keys.PRIORITY}"
_REQUESTS = "pod.spec.containers[*].resources.requests"

_NOT_TOGETHER = {
    QoSClass.BE: (PriorityClass.NONE, PriorityClass.PROD),
    QoSClass.LSR: (PriorityClass.NONE, PriorityClass.MID, PriorityClass.BATCH, PriorityClass.FREE),
}
_WHOLE_CPUS = (QoSClass.LSR, QoSClass.LSE)


class Refusal(msgspec.Struct, frozen=True):
    """A reason to refuse a pod; prints in the form of a field error of the API server."""

    field: str
    kind: str
    """Invalid value, Required value or Forbidden."""
    why: str
    value: str | None = None
    """The offending value, where the kind is Invalid value."""

    @property
    def place(self) -> str:
        """Field, kind and value: what programs go by. The rest is for people."""
        suffix = "" if self.value is None else f': "{self.value}"'
        return f"{self.field}: {self.kind}{suffix}"

    def __str__(self) -> str:
        return f"{self.place}: {self.why}"


def refusals(new: Pod, old: Pod | None = None, *, priority_label_may_change: bool = False) -> tuple[Refusal, ...]:
    """Every reason to refuse `new`, or the change from `old` to it; none for a pod that is fine.

    Source: Koordinator's pod validating webhook, `clusterColocationProfileValidatingPod`.
    """
    reasons = list(_changed(old, new, priority_label_may_change)) if old else []
    batch = [name for name in (keys.BATCH_CPU, keys.BATCH_MEMORY) if name in new.requests and new.requests[name].nano]
    if batch and new.raw_qos is not QoSClass.BE:
        why = f"a pod that requests {' and '.join(batch)} has to be labelled BE"
        reasons.append(Refusal(_QOS_LABEL, "Required value", why))
    band, cpus = new.raw_priority_class, new.requests.get("cpu")
    if band in _NOT_TOGETHER.get(new.raw_qos, ()):
        why = f"{keys.QOS_CLASS} {new.raw_qos} does not go with priority class {band or 'none'}"
        reasons.append(Refusal("Pod", "Forbidden", why))
    if new.raw_qos in _WHOLE_CPUS and (cpus is None or not cpus.nano):
        reasons.append(Refusal(_REQUESTS, "Required value", f"a pod of class {new.raw_qos} has to request CPUs"))
    elif new.raw_qos in _WHOLE_CPUS and cpus is not None and cpus.value * 1000 != cpus.milli:
        why = f"a pod of class {new.raw_qos} has to request whole CPUs"
        reasons.append(Refusal(_REQUESTS, "Invalid value", why, str(cpus)))
    return tuple(reasons)


def message(reasons: tuple[Refusal, ...]) -> str:
    """All reasons in one text: one as it is, several in brackets, as the API server aggregates errors."""
    texts = list(dict.fromkeys(map(str, reasons)))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]" if texts else ""


def _changed(old: Pod, new: Pod, priority_label_may_change: bool) -> Iterator[Refusal]:
    """Classes are for life: accounting and cgroups follow from them."""
    pairs = [
        (_QOS_LABEL, str(old.raw_qos), str(new.raw_qos)),
        ("spec.priority", str(old.raw_priority_class), str(new.raw_priority_class)),
    ]
    if not priority_label_may_change:
        pairs.append((_PRIORITY_LABEL, old.labels.get(keys.PRIORITY, ""), new.labels.get(keys.PRIORITY, "")))
    for field, before, after in pairs:
        if before != after:
            yield Refusal(field, "Invalid value", f"cannot be changed; it was {before or 'not set'}", after)
