"""What a run of the agent knows by itself, and shows in its pictures beside the machine and the cluster."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from koordlite.model.picture.groups import Found
from koordlite.model.place import Place


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """The fields of the same names in `Snapshot` say what each is; `last_sync` is in `Snapshot.published`."""

    ours: frozenset[Place] = frozenset()
    found: Mapping[Place, Found] = dataclasses.field(default_factory=dict)
    last_sync: Mapping[Place, float] = dataclasses.field(default_factory=dict)
    remembered: Mapping[str, Mapping[str, float]] = dataclasses.field(default_factory=dict)
    refused_writes: Mapping[Place, str] = dataclasses.field(default_factory=dict)
    evicted: Mapping[str, float] = dataclasses.field(default_factory=dict)
    refused_evictions: Mapping[str, str] = dataclasses.field(default_factory=dict)
