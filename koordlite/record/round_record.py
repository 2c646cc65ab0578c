"""The record of one round: all that its decisions follow from, and the decisions."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from koordlite.model.decision import Decision
from koordlite.model.errors import KoordliteError
from koordlite.model.settings import StrategySettings
from koordlite.model.snapshot import Snapshot
from koordlite.model.status import AppliedStep


class RoundRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One round of the agent. Deciding on it again gives the same decisions."""

    wall: float
    """Seconds since the epoch, for people."""
    snapshot: Snapshot
    """The picture as the strategies were given it, with what they remember."""
    settings: Mapping[str, StrategySettings]
    """Section by strategy name, as in force for this round."""
    woken: bool = False
    """A round before its time. After a surge `decisions` are those of the rule that answers it, and only those that
    were allowed."""
    new_groups: tuple[str, ...] = ()
    """Groups that a round before its time was about, if not a surge: `decisions` are those of all rules that write,
    with only the changes of these groups."""
    decisions: tuple[Decision, ...] = ()
    applied: tuple[AppliedStep, ...] = ()
    """The writes that were tried."""
    still: bool = False
    """A pause held, so nothing was written. In records that do not say it, none did."""
    released: bool = False
    """The pause, or its end, gave back what was in force."""


class RecordError(KoordliteError):
    """A file is no record, or none that this version can read."""


class Damage(RecordError):
    """A part of a record that cannot be understood; what stands before it is whole."""
