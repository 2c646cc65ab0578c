"""Share of L3 cache and memory bandwidth by QoS class, through the control groups LSR, LS and BE of resctrl.

A group is made only for a class whose `resctrlQOS` is enabled, and given back when that ends. Values come from
`catRangeStartPercent`, `catRangeEndPercent` and `mbaPercent` by way of `formulas.schemata`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from koordlite.formulas import schemata
from koordlite.model import keys
from koordlite.model.decision import Change, Decision, ResctrlGroupChange, SchemataChange, TasksChange
from koordlite.model.pod import Pod
from koordlite.model.qos import QoSClass
from koordlite.model.settings import StrategySettings
from koordlite.model.slo import RESCTRL_CLASSES
from koordlite.model.slo_qos import ResctrlQOS
from koordlite.model.snapshot import ResctrlGroup, Snapshot

ROOT = ""
Values = Mapping[str, Mapping[int, int]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config(StrategySettings):
    """Section `resctrl`. Percentages come from the ConfigMap key `resource-qos-config`."""


def decide(seen: Snapshot, config: Config) -> Iterator[Decision]:
    """One decision for each class."""
    for qos in RESCTRL_CLASSES:
        subject = f"resctrl/{qos}"
        if seen.resctrl.absent:
            yield Decision(subject, "skip", "NoResctrl", {"why": seen.resctrl.absent})
        elif not seen.slo.resctrl[qos].enable:
            yield _disabled(seen, qos, subject)
        else:
            yield _enabled(seen, qos, subject)


def _enabled(seen: Snapshot, qos: QoSClass, subject: str) -> Decision:
    try:
        wanted = _wanted(seen, seen.slo.resctrl[qos])
    except ValueError as error:
        return Decision(subject, "refuse", "BadResctrlRange", {"why": str(error)})
    group = seen.resctrl.groups.get(qos)
    changes = [*_group(group, qos), *_schemata(group, qos, wanted), *_tasks(seen, group, qos)]
    lines = {name: schemata.line(name, values) for name, values in wanted.items()}
    return Decision(subject, "set" if changes else "hold", "ClassSchemata", lines, tuple(changes))


def _disabled(seen: Snapshot, qos: QoSClass, subject: str) -> Decision:
    """Threads of a group we made go back to the root group, and its limits are lifted."""
    group = seen.resctrl.groups.get(qos)
    ours = ResctrlGroupChange(qos).place in seen.ours
    if group is None or not ours:
        return Decision(subject, "hold", "ClassDisabled")
    changes: list[Change] = list(_schemata(group, qos, _wanted(seen, ResctrlQOS())))
    if group.tasks:
        changes.append(TasksChange(ROOT, tuple(sorted(group.tasks))))
    return Decision(subject, "release" if changes else "hold", "ClassDisabled", {}, tuple(changes))


def _wanted(seen: Snapshot, config: ResctrlQOS) -> Values:
    """Values by resource and cache id. Ids come from the root's schemata: they have gaps and go with their CPUs."""
    wanted: dict[str, Mapping[int, int]] = {}
    present = seen.resctrl.groups[ROOT].schemata
    for name, cache in seen.resctrl.caches.items():
        if not name.startswith("L3"):
            continue
        mask = schemata.cache_mask(
            start_percent=config.cat_range_start_percent, end_percent=config.cat_range_end_percent, cap=cache
        )
        wanted[name] = dict.fromkeys(present.get(name, ()), mask)
    bandwidth = seen.resctrl.bandwidths.get("MB")
    value = schemata.bandwidth(percent=config.mba_percent, cap=bandwidth) if bandwidth else None
    if value is not None:
        wanted["MB"] = dict.fromkeys(present.get("MB", ()), value)
    return {name: values for name, values in wanted.items() if values}


def _group(group: ResctrlGroup | None, name: str) -> Iterator[Change]:
    if group is None:
        yield ResctrlGroupChange(name)


def _schemata(group: ResctrlGroup | None, name: str, wanted: Values) -> Iterator[Change]:
    """A group without a line for a resource (pseudo-locked, say) has nothing we could change or put back."""
    for resource, values in wanted.items():
        if group is None or group.schemata.get(resource, values) != values:
            yield SchemataChange(name, resource, values)


def _tasks(seen: Snapshot, group: ResctrlGroup | None, qos: QoSClass) -> Iterator[Change]:
    """Threads of the class's containers that are not in its group; none when threads were not read this time."""
    held = (group.tasks if group else None) or frozenset()
    missing = [
        tid for cgroup in _groups_of(seen, qos) for tid in seen.resctrl.threads.get(cgroup, ()) if tid not in held
    ]
    if missing:
        yield TasksChange(qos, tuple(sorted(missing)))


def _groups_of(seen: Snapshot, qos: QoSClass) -> Iterator[str]:
    for pod in seen.pods:
        place = seen.places.get(pod.uid)
        if place and pod.active and class_of(pod) is qos:
            yield from (*place.containers.values(), *place.sandboxes)


def class_of(pod: Pod) -> QoSClass | None:
    """The class whose group a pod's threads belong to: LSE and LSR share LSR; none for SYSTEM and for pods that bring
    their own schemata in annotation `node.koordinator.sh/resctrl`."""
    if keys.POD_RESCTRL in pod.annotations:
        return None
    return {QoSClass.LSE: QoSClass.LSR}.get(pod.qos_class, pod.qos_class if pod.qos_class in RESCTRL_CLASSES else None)
