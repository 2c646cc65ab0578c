"""Is a node too full for good, or for a moment? It must be found so several times in a row before anything is done.

Source: Koordinator's anomaly `BasicDetector`. It asks for one sighting more than its documentation says; here N are N.
"""

from __future__ import annotations

import dataclasses

import msgspec

from koordlite.model import duration
from koordlite.model.settings import bounded


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnomalyCondition:
    """How often a node must be found too full before pods leave it. Counts that are left out are taken from the level
    above."""

    timeout: str | None = dataclasses.field(default=None, metadata={"check": duration.seconds})
    """A node that counts as too full is observed again after this time; 1m unless given."""
    consecutive_abnormalities: int | None = bounded(None, ge=1)
    """In how many cycles in a row it must be too full; 1: the first is enough; 5 unless given."""
    consecutive_normalities: int | None = bounded(None, ge=1)
    """After how many cycles in a row in which it is not, it no longer counts as too full; 3 unless given."""

    def over(self, above: AnomalyCondition) -> AnomalyCondition:
        """This condition with the counts that it leaves out taken from `above`; the timeout is its own."""
        return AnomalyCondition(
            timeout=self.timeout,
            consecutive_abnormalities=self.consecutive_abnormalities or above.consecutive_abnormalities,
            consecutive_normalities=self.consecutive_normalities or above.consecutive_normalities,
        )


USUAL = AnomalyCondition(timeout="1m", consecutive_abnormalities=5, consecutive_normalities=3)


class Debounce(msgspec.Struct, frozen=True):
    """A condition that leaves nothing open."""

    abnormalities: int
    normalities: int
    timeout_seconds: float

    @classmethod
    def of(cls, condition: AnomalyCondition) -> Debounce:
        """The condition, completed. A timeout of 0 is the usual one, as Koordinator has it."""
        whole = condition.over(USUAL)
        given = duration.seconds(whole.timeout or "0")
        return cls(
            abnormalities=whole.consecutive_abnormalities or 1,
            normalities=whole.consecutive_normalities or 1,
            timeout_seconds=given or duration.seconds(USUAL.timeout or "0"),
        )


class Watch(msgspec.Struct, frozen=True):
    """What is known of a node from earlier cycles."""

    anomalous: bool = False
    abnormal: int = 0
    """Sightings in a row that it was too full, since the state changed last."""
    normal: int = 0
    """Sightings in a row that it was not."""
    since: float = 0.0
    """When the state changed last, in seconds."""


NEW = Watch()


def marked(watch: Watch, *, normal: bool, now: float, debounce: Debounce) -> Watch:
    """The watch after one more sighting."""
    if watch.anomalous and now - watch.since >= debounce.timeout_seconds:
        watch = Watch(since=now)
    if normal:
        seen = msgspec.structs.replace(watch, abnormal=0, normal=watch.normal + 1)
        over = seen.anomalous and seen.normal >= debounce.normalities
        return Watch(since=now) if over else seen
    seen = msgspec.structs.replace(watch, abnormal=watch.abnormal + 1, normal=0)
    begins = not seen.anomalous and seen.abnormal >= debounce.abnormalities
    return Watch(anomalous=True, since=now) if begins else seen
