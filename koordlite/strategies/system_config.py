"""Give settings of the whole kernel the values that key `system-config` asks for: reclaim, scheduler, page cache.

What is not set is left alone; what is no longer set gets back what stood there. Source: Koordinator strategy
SystemConfigReconcile.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from koordlite.changes.system import SystemFileChange
from koordlite.formulas import system_settings
from koordlite.formulas.system_settings import FEATURES
from koordlite.model.decision import Decision
from koordlite.model.pod.values import Pod
from koordlite.model.settings import StrategySettings
from koordlite.model.slo.settings import SLO, System
from koordlite.model.snapshot import Snapshot

NAME = "systemConfig"
NEW_CONTAINERS = "none"
_PLACE = "system/"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config(StrategySettings):
    """Section `systemConfig`. The values come from the ConfigMap key `system-config`."""


def reads(slo: SLO, _pods: Sequence[Pod]) -> tuple[str, ...]:
    """All settings, while one is asked for; those that hold a value of ours are seen anyhow."""
    if slo.system == System():
        return ()
    return tuple(f"{_PLACE}{name}" for name in (*system_settings.RANGES, FEATURES))


def decide(snapshot: Snapshot, config: Config) -> Iterator[Decision]:
    """One decision for each setting that is asked for or given back."""
    capacity = snapshot.node.capacity["memory"].value if snapshot.node and "memory" in snapshot.node.capacity else 0
    if capacity <= 0:
        yield Decision("node", "skip", "NoNode")
        return
    wanted = system_settings.wanted(snapshot.slo.system, capacity_bytes=capacity)
    yield from (_setting(snapshot, name, value) for name, value in wanted.items())
    switched = snapshot.slo.system.sched_features
    yield from (_feature(snapshot, name, on) for name, on in sorted(switched.items()))
    asked = {*wanted, *(f"{FEATURES}/{name}" for name in switched)}
    ours = {place.part("name"): found for place, found in snapshot.found.items() if found.strategy == NAME}
    gone = {name: found for name, found in ours.items() if name not in asked}
    for name, found in gone.items():
        # A feature's found value is 1 for on, 0 for off.
        feature = name.removeprefix(f"{FEATURES}/")
        value = system_settings.feature_word(feature, found.value == 1) if feature != name else str(found.value)
        change = SystemFileChange(name, value, gives_back=True)
        yield Decision(f"{_PLACE}{name}", "release", "SettingGivenBack", {"name": name, "value": value}, (change,))
    if not asked and not gone:
        yield Decision("node", "hold", "NoSystemSettings")


def _setting(snapshot: Snapshot, name: str, value: int) -> Decision:
    present = snapshot.system.get(name)
    evidence: dict[str, int | str] = {"name": name, "value": value}
    if present is None:
        return Decision(f"{_PLACE}{name}", "skip", "UnsupportedByKernel", {"file": name})
    if not system_settings.in_range(name, value):
        low, high = system_settings.RANGES[name]
        return Decision(f"{_PLACE}{name}", "refuse", "SettingOutOfRange", {**evidence, "least": low, "greatest": high})
    changes = () if present == str(value) else (SystemFileChange(name, str(value)),)
    return Decision(f"{_PLACE}{name}", "set" if changes else "hold", "SystemSetting", evidence, changes)


def _feature(snapshot: Snapshot, name: str, on: bool) -> Decision:
    present = system_settings.features(snapshot.system.get(FEATURES, ""))
    subject = f"{_PLACE}{FEATURES}/{name}"
    if name not in present:
        return Decision(subject, "skip", "UnsupportedByKernel", {"file": f"{FEATURES} {name}"})
    word = system_settings.feature_word(name, on)
    changes = () if present[name] == on else (SystemFileChange(f"{FEATURES}/{name}", word),)
    evidence = {"name": FEATURES, "value": word}
    return Decision(subject, "set" if changes else "hold", "SystemSetting", evidence, changes)
