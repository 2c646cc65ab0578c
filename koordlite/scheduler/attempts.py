"""Answers about each pod, for people who ask later. Bounded: old attempts lose their nodes, then go.

An attempt keeps the rows that were judged, which are shared with everything else that knows them, and no text: what is
said about a node is worked out again when asked, by the function that said it then.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from koordlite.reservation.matching import Candidate
from koordlite.reservation.pods import PodShape
from koordlite.scheduler.judgement import judge
from koordlite.scheduler.judgement.nodes import Row
from koordlite.scheduler.judgement.settings import Settings
from koordlite.scheduler.loads import Judged

MOST_PODS = 5_000
MOST_ROWS = 300_000
"""Rows that all attempts together refer to."""
LOOKED_AT = 50
"""Nodes among which those are looked for."""
SAMPLES = 10
"""Nodes of each kind that stay of an attempt whose rows were let go."""


class Attempt(msgspec.Struct, kw_only=True):
    """The latest attempt of one pod."""

    pod: str
    """`namespace/name`."""
    uid: str
    at: float
    """Wall clock, for people."""
    shape: PodShape
    rows: Sequence[Row | None]
    """What was known of all nodes then; None: a place without a node."""
    places: Sequence[int] | None = None
    """Which of them were asked about; None: all."""
    unknown: Sequence[str] = ()
    """Nodes that were asked about and not known."""
    passed: int = 0
    times: int = 1
    """Attempts with this outcome in a row."""
    stands: Mapping[int, int] = msgspec.field(default_factory=dict)
    """What the scheduler was answered, 0 to 10, by score; empty: it did not ask."""
    best: Sequence[str] = ()
    """The nodes rated best."""
    chosen: str = ""
    """The node that the scheduler bound it to."""
    numa_nodes: tuple[int, ...] = ()
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    events: list[str] = msgspec.field(default_factory=list)
    """What happened after, in order."""
    reasons: dict[str, int] = msgspec.field(default_factory=dict)
    """How many nodes were refused, by reason."""
    candidate: Candidate | None = None
    """The pod as it looks for reservations; None: none is for it."""
    measured: Judged | None = None
    """The pod beside what nodes used then; None: that does not count here."""
    thinned: bool = False
    """Whether only some of the nodes are left."""

    @property
    def asked(self) -> Iterator[Row]:
        """The nodes that were asked about and known."""
        rows = self.rows if self.places is None else (self.rows[place] for place in self.places)
        return (row for row in rows if row is not None)


class Attempts:
    """By pod. Not locked: its owner is."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._attempts: collections.OrderedDict[str, Attempt] = collections.OrderedDict()
        self._whole: dict[str, None] = {}
        """Pods whose attempts have all of their nodes, the oldest first."""
        self._rows = 0

    def put(self, made: Attempt) -> None:
        """The newest attempt of its pod."""
        before = self._attempts.pop(made.pod, None)
        if before is not None:
            self._rows -= len(before.rows)
            if before.uid == made.uid and before.reasons == made.reasons and before.passed == made.passed:
                made.times = before.times + 1
            if before.uid == made.uid:
                made.events = before.events[-SAMPLES:]
        self._attempts[made.pod] = made
        self._whole.pop(made.pod, None)
        self._whole[made.pod] = None
        self._rows += len(made.rows)
        self._bound()

    def get(self, pod: str) -> Attempt | None:
        """The latest attempt of the pod `namespace/name`."""
        return self._attempts.get(pod)

    def of_uid(self, pod: str, uid: str) -> Attempt | None:
        """The same, unless it was about an earlier pod of that name."""
        found = self._attempts.get(pod)
        return found if found is not None and found.uid == uid else None

    def __len__(self) -> int:
        return len(self._attempts)

    def _bound(self) -> None:
        while len(self._attempts) > MOST_PODS:
            name, oldest = self._attempts.popitem(last=False)
            self._whole.pop(name, None)
            self._rows -= len(oldest.rows)
        while self._rows > MOST_ROWS and self._whole:
            name = next(iter(self._whole))
            del self._whole[name]
            self._rows -= len(self._attempts[name].rows)
            thin(self._attempts[name], self.settings)
            self._rows += len(self._attempts[name].rows)


def thin(attempt: Attempt, settings: Settings) -> None:
    """Keep the chosen node, the best ones, and some of each reason."""
    attempt.thinned = True
    kept = {attempt.chosen, *attempt.best}
    of_reason: collections.Counter[str] = collections.Counter()
    left = []
    for place, row in enumerate(attempt.asked):
        if row.name in kept:
            left.append(row)
        elif place < LOOKED_AT:
            reason = judge.verdict(attempt.shape, row, settings).refusal
            of_reason[reason] += 1
            left += [row] if of_reason[reason] <= SAMPLES else []
    attempt.rows, attempt.places = tuple(left), None
    if attempt.measured is not None:
        attempt.measured.keep({row.name for row in left})
