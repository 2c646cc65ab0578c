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
    """Decide about each setting that is asked for or given back."""
    capacity = snapshot.node.capacity["memory"].value if snapshot.node and "memory" in snapshot.node.capacity else 0
    if capacity <= 0:
        yield Decision("node", "skip", "NoNode")
        return
    targets = system_settings.targets(snapshot.slo.system, capacity_bytes=capacity)
    for name, value in targets.items():
        subject, low, high = f"{_PLACE}{name}", *system_settings.RANGES[name]
        evidence: dict[str, int | str] = {"name": name, "value": value}
        if (present := snapshot.system.get(name)) is None:
            yield Decision(subject, "skip", "UnsupportedByKernel", {"file": name})
        elif not system_settings.in_range(name, value):
            yield Decision(subject, "refuse", "SettingOutOfRange", {**evidence, "least": low, "greatest": high})
        else:
            yield _setting(subject, evidence, SystemFileChange(name, str(value)), stands=present == str(value))
    switched, features = snapshot.slo.system.sched_features, system_settings.features(snapshot.system.get(FEATURES, ""))
    for name, on in sorted(switched.items()):
        subject, word = f"{_PLACE}{FEATURES}/{name}", system_settings.feature_word(name, on)
        if name in features:
            change = SystemFileChange(f"{FEATURES}/{name}", word)
            yield _setting(subject, {"name": FEATURES, "value": word}, change, stands=features[name] == on)
        else:
            yield Decision(subject, "skip", "UnsupportedByKernel", {"file": f"{FEATURES} {name}"})
    names = {*targets, *(f"{FEATURES}/{name}" for name in switched)}
    ours = {place.part("name"): original for place, original in snapshot.found.items() if original.strategy == NAME}
    stale = {name: original for name, original in ours.items() if name not in names}
    for name, original in stale.items():
        # A feature's found value is 1 for on, 0 for off.
        feature = name.removeprefix(f"{FEATURES}/")
        text = system_settings.feature_word(feature, original.value == 1) if feature != name else str(original.value)
        change = SystemFileChange(name, text, gives_back=True)
        yield Decision(f"{_PLACE}{name}", "release", "SettingGivenBack", {"name": name, "value": text}, (change,))
    if not names and not stale:
        yield Decision("node", "hold", "NoSystemSettings")


def _setting(subject: str, evidence: dict[str, int | str], change: SystemFileChange, *, stands: bool) -> Decision:
    changes = () if stands else (change,)
    return Decision(subject, "set" if changes else "hold", "SystemSetting", evidence, changes)
