"""What a run of the agent knows by itself, and shows in its pictures beside the machine and the cluster."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from koordlite.model.picture.groups import Found
from koordlite.model.place import Place


class RunState(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of the same names in `Snapshot` say what each is; `last_sync` is in `Snapshot.published`."""

    ours: frozenset[Place] = frozenset()
    found: Mapping[Place, Found] = msgspec.field(default_factory=dict)
    last_sync: Mapping[Place, float] = msgspec.field(default_factory=dict)
    remembered: Mapping[str, Mapping[str, float]] = msgspec.field(default_factory=dict)
    refused_writes: Mapping[Place, str] = msgspec.field(default_factory=dict)
    evicted: Mapping[str, float] = msgspec.field(default_factory=dict)
    refused_evictions: Mapping[str, str] = msgspec.field(default_factory=dict)
