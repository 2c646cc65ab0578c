"""Answers about each pod, for people who ask later, and what its refusal depends on. Bounded: old attempts lose their
nodes, then go.

An attempt keeps the rows that were judged, which are shared with everything else that knows them, and no text: what is
said about a node is worked out again when asked, by the function that said it then.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence

import msgspec

from koordlite.reservation.matching import Candidate
from koordlite.reservation.pods import ClusterPod, PodShape
from koordlite.scheduler.judgement import judge
from koordlite.scheduler.judgement.load import PodLoad
from koordlite.scheduler.judgement.nodes import JudgeSettings, Row
from koordlite.scheduler.loads import LoadJudgement


class RefusedPod(msgspec.Struct, eq=False):
    """A pod that no node may have, and what that depends on."""

    pod: ClusterPod
    at: float
    """Time of the attempt by the cluster's monotonic clock."""
    version: int
    """Up to which change of the cluster it was judged."""
    names: frozenset[str] | None
    """Nodes that were asked about; None: all."""
    reserved: frozenset[str]
    """Nodes with reservations that concern the pod."""
    candidate: Candidate | None
    """The pod as it looks for reservations; None where its annotations cannot be read."""
    until: float
    """When the pod has waited long enough for its reservation: until then it goes nowhere else."""
    busy: frozenset[str]
    """Nodes that are refused for their measured load alone."""
    load: PodLoad | None
    """The pod as its load is judged; None where none is against it."""
    load_version: int
    """Up to which change of loads it was judged."""
    elsewhere: str
    """A node that the scheduler did not ask about, and that does not refuse pods of this shape."""

    def may_have(self, node: str) -> bool:
        """Tell whether the scheduler asked about the node, and it was refused for more than its load."""
        return (self.names is None or node in self.names) and node not in self.busy


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
    rows: Sequence[Row]
    """The nodes that were asked about and known, as they were then."""
    unknown: Sequence[str] = ()
    """Nodes that were asked about and not known."""
    passed: int = 0
    times: int = 1
    """Attempts with this outcome in a row."""
    answers: Mapping[int, int] = msgspec.field(default_factory=dict)
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
    """Number of refused nodes, by reason."""
    candidate: Candidate | None = None
    """The pod as it looks for reservations; None: none is for it."""
    load: LoadJudgement | None = None
    """The pod beside what nodes used then; None: that does not count here."""
    thinned: bool = False
    """Whether only some of the nodes are left."""


class Attempts:
    """By pod. Not locked: its owner is."""

    def __init__(self) -> None:
        self._attempts: collections.OrderedDict[str, Attempt] = collections.OrderedDict()
        self._whole: dict[str, None] = {}
        """Pods whose attempts have all of their nodes, the oldest first."""
        self._rows = 0

    def put(self, attempt: Attempt, settings: JudgeSettings) -> None:
        """Take in the newest attempt of its pod; older ones are thinned by these settings."""
        before = self._attempts.pop(attempt.pod, None)
        if before is not None:
            self._rows -= len(before.rows)
            if before.uid == attempt.uid and before.reasons == attempt.reasons and before.passed == attempt.passed:
                attempt.times = before.times + 1
            if before.uid == attempt.uid:
                attempt.events = before.events[-SAMPLES:]
        self._attempts[attempt.pod] = attempt
        self._whole.pop(attempt.pod, None)
        self._whole[attempt.pod] = None
        self._rows += len(attempt.rows)
        self._bound(settings)

    def get(self, pod: str) -> Attempt | None:
        """The latest attempt of the pod `namespace/name`."""
        return self._attempts.get(pod)

    def of_uid(self, pod: str, uid: str) -> Attempt | None:
        """The same, unless it was about an earlier pod of that name."""
        attempt = self._attempts.get(pod)
        return attempt if attempt is not None and attempt.uid == uid else None

    def __len__(self) -> int:
        return len(self._attempts)

    def _bound(self, settings: JudgeSettings) -> None:
        while len(self._attempts) > MOST_PODS:
            name, oldest = self._attempts.popitem(last=False)
            self._whole.pop(name, None)
            self._rows -= len(oldest.rows)
        while self._rows > MOST_ROWS and self._whole:
            name = next(iter(self._whole))
            del self._whole[name]
            self._rows -= len(self._attempts[name].rows)
            thin(self._attempts[name], settings)
            self._rows += len(self._attempts[name].rows)


def thin(attempt: Attempt, settings: JudgeSettings) -> None:
    """Keep the chosen node, the best ones, and some of each reason."""
    attempt.thinned = True
    named = {attempt.chosen, *attempt.best}
    of_reason: collections.Counter[str] = collections.Counter()
    rows = []
    for place, row in enumerate(attempt.rows):
        if row.name in named:
            rows.append(row)
        elif place < LOOKED_AT:
            reason = judge.verdict(attempt.shape, row, settings).refusal
            of_reason[reason] += 1
            rows += [row] if of_reason[reason] <= SAMPLES else []
    attempt.rows = tuple(rows)
    if attempt.load is not None:
        attempt.load.keep({row.name for row in rows})
