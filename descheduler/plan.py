"""The answer of a cycle: which pods would go, which stay although something is wrong, what that does to the nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from descheduler.arguments.evictor import Args, EvictionRequests
from descheduler.arguments.migration import MigrationControllerArgs
from descheduler.arguments.pacing import DEFAULT_PACING, Pacing
from descheduler.filters.limits import Limits
from descheduler.fit.search import Search
from descheduler.framework import DeletionCost, Finding, Note, Plugin, PodView, Refusal, Rooms, View
from koordlite.model.wire import objects

Sightings = Mapping[tuple[str, str], int]
"""Number of pictures in a row, this one included, with a finding: by pod uid and reason."""


class Profile(msgspec.Struct, frozen=True):
    """Plugins with their arguments, and which pods they may take."""

    name: str
    plugins: tuple[tuple[Plugin, object], ...]
    """Plugins in the order of the policy file."""
    args: Args
    node_selector: objects.LabelSelector | None = None
    """Only pods of nodes that match are judged; None: of all nodes that the policy selects."""
    more_args: tuple[Args, ...] = ()
    """More filters, where a profile has several: a pod must pass all of them."""
    migration: MigrationControllerArgs | None = None
    """Evictions become migration jobs, by these rules; None: the Eviction API is asked."""


class Setup(msgspec.Struct, frozen=True):
    """A policy as a cycle needs it."""

    profiles: tuple[Profile, ...]
    limits: Limits
    node_selector: objects.LabelSelector | None = None
    """Only pods of nodes that match are judged; None: of all nodes."""
    grace_period_seconds: int | None = None
    """Time that evicted pods get to stop; None leaves it to the pod."""
    eviction_requests: EvictionRequests = EvictionRequests()
    fit: Literal["plan", "snapshot"] = "plan"
    """State that `nodeFit` counts on: nodes as this plan leaves them, or as the picture has them (upstream)."""
    failure_events: bool = False
    """Write Events about evictions that failed, or that a limit kept from being tried."""
    pacing: Pacing = DEFAULT_PACING
    """Windows, pauses and ends of loops, beyond the limits of one cycle."""
    spare_the_only_node: bool = False
    """While fewer than two nodes are ready, a running pod has to fit whatever `nodeFit` says. Upstream does nothing at
    all in such a cluster."""

    @property
    def migration(self) -> dict[str, MigrationControllerArgs]:
        """The rules of profiles whose evictions become migration jobs, by profile."""
        return {profile.name: profile.migration for profile in self.profiles if profile.migration is not None}


class Outcome(msgspec.Struct, frozen=True):
    """The answer for one pod that a plugin named."""

    pod: PodView
    findings: tuple[Finding, ...]
    verdict: Literal["evict", "kept"]
    profile: str
    reasons: tuple[Refusal, ...] = ()
    """Reasons why it is kept, the deciding reason first; empty when it is evicted."""
    search: Search | None = None
    """Places where it would fit; None when it was kept before that was asked."""
    target: str = ""
    """The node this plan counts on for its successor."""
    age_seconds: float | None = None
    """Time since the pod started; None when it is not known."""
    together: tuple[str, ...] = ()
    """uids of the pods that go all or not at all, this one among them; empty for a pod that goes by itself."""
    held_first: tuple[str, ...] = ()
    """Pods that must have their place before this one goes: all whose place is free without these moves."""
    waiting: tuple[PodView, str] | None = None
    """The pod that waits for these moves, and the node on which it fits after them."""

    @property
    def main(self) -> Finding:
        """The finding the pod is judged by: the most severe, then the heaviest."""
        if len(self.findings) == 1:
            return self.findings[0]
        rank = {"hard": 0, "fixable": 1, "exposed": 2}
        return min(self.findings, key=lambda f: (rank[f.severity], -f.weight))

    @property
    def cures(self) -> tuple[str, ...]:
        """Cures that would put it right: of the most severe findings only, since a move cures the others with them."""
        return tuple(dict.fromkeys(f.cure for f in self.findings if f.severity == self.main.severity))


class Load(msgspec.Struct, frozen=True):
    """A node at one moment of the plan."""

    pods: int
    cpu_milli: int
    """Requested."""
    memory: int
    """Requested bytes."""
    wrong: int
    """Pods with a finding that only a move cures."""


class ZoneLoad(msgspec.Struct, frozen=True):
    """A NUMA node at one moment of the plan."""

    exclusive: int
    """CPUs that are a pod's own, reserved ones aside."""
    shared: int
    """CPUs of the shared pool."""
    memory: int
    """Bytes of containers whose memory the agent reports, and what was booked for pods that come."""


class ZoneChange(msgspec.Struct, frozen=True):
    """The change of one NUMA node by the plan."""

    zone: int
    cpus: int
    reserved: int
    before: ZoneLoad
    after: ZoneLoad


class NodeChange(msgspec.Struct, frozen=True):
    """The change of one node by the plan."""

    node: str
    cpu_milli: int
    """Allocatable, less the node reservation."""
    memory: int
    before: Load
    after: Load
    zones: tuple[ZoneChange, ...] = ()
    """Changes on nodes where a pod's place among the NUMA nodes is wrong, or where one with a promise is to come."""


class PluginAnswer(msgspec.Struct, frozen=True):
    """A plugin's answer for the one pod that an explanation is about."""

    plugin: str
    kind: Literal["found", "fine", "not judged", "not chosen"]
    """`not judged`: it could not. `not chosen`: the pod's node, namespace or labels are not among those it looks at."""
    text: str


class PodAnswer(msgspec.Struct, frozen=True):
    """Everything that one profile has to say of one pod, whether or not something is wrong with it."""

    pod: str
    """uid."""
    profile: str
    plugins: tuple[PluginAnswer, ...]
    refusals: tuple[Refusal, ...]
    """Objections if a plugin named it."""
    search: Search
    """Places where it would fit, after this plan."""
    limit: str = ""
    """The limit of the cycle that is used up; empty: none."""
    rooms: Rooms[PodView] | None = None
    """Ways to make room for a pod that waits for a node; None for one that has a node."""


class EvictionPlan(msgspec.Struct, frozen=True):
    """The whole answer. The same picture and policy give the same plan, to the byte of its JSON."""

    view: View
    evict: tuple[Outcome, ...]
    """Evictions in their order."""
    kept: tuple[Outcome, ...]
    """Pods that stay, in the order of their findings."""
    notes: tuple[Note, ...]
    nodes: tuple[NodeChange, ...]
    """Nodes that change, or have something wrong."""
    plugins: tuple[str, ...] = ()
    grace_period_seconds: int | None = None
    eviction_requests: EvictionRequests = EvictionRequests()
    standing: Mapping[str, str] = msgspec.field(default_factory=dict)
    """State of each pod's EvictionRequest by pod uid, for people."""
    withdrawals: Mapping[str, Refusal] = msgspec.field(default_factory=dict)
    """Reason why an EvictionRequest does not go on, by pod uid. One that was refused is kept as withdrawn, so that the
    pod is not asked again; the others are deleted."""
    memory: Mapping[tuple[str, str], object] = msgspec.field(default_factory=dict)
    """Values that plugins want again in the next cycle, by profile and plugin."""
    migration: Mapping[str, MigrationControllerArgs] = msgspec.field(default_factory=dict)
    """Rules by which evictions of a profile become migration jobs; those of the others are asked for at once."""
    cordon: tuple[str, ...] = ()
    """Nodes that are to take no more pods while they are emptied."""
    deletion_costs: tuple[DeletionCost, ...] = ()
    """Order in which owners should remove their pods when they are scaled down."""
    explained: tuple[PodAnswer, ...] = ()
    """Answers about the pod to explain, by profile."""
    not_judged: int = 0
    """Pods that at least one plugin was to judge and could not; the notes say why."""
    not_judged_by: Mapping[str, int] = msgspec.field(default_factory=dict)
    """The same by plugin, those alone that could not judge some."""

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """Every pod a plugin named, evicted or kept."""
        return (*self.evict, *self.kept)

    @property
    def kept_by(self) -> Mapping[str, int]:
        """Number of kept pods by reason, most first."""
        counts: dict[str, int] = {}
        for outcome in self.kept:
            counts[outcome.reasons[0].reason] = counts.get(outcome.reasons[0].reason, 0) + 1
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


class Attempt(msgspec.Struct, frozen=True):
    """The outcome of one eviction."""

    pod: str
    """`namespace/name`."""
    result: str
    """`WouldEvict`: nothing was sent. `Evicted`, `InBackground`, `Blocked` by a disruption budget, `Gone`, `Replaced`
    by a pod of the same name, `Failed`, `NotTried` because the run ended or the pod cannot be asked. `Requested`: the
    pod is asked by an EvictionRequest. Of migration jobs: `JobCreated`, or `Deferred` because limits of
    MigrationController are reached."""
    request: dict[str, Any]
    """The policy/v1 Eviction, EvictionRequest or PodMigrationJob, as it would be posted."""
    text: str = ""
    """The API's own words when the eviction was refused."""
    tries: int = 0
    """Requests that were sent."""
    uid: str = ""
    """uid of the pod."""

    @property
    def goes(self) -> bool:
        """The pod goes, now, in the background, once it has been asked, or by its job."""
        return self.result in ("Evicted", "InBackground", "Requested", "JobCreated")
