"""Questions of one profile's plugins: the guards, the fit and the plan so far, each answer worked out once a cycle."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec

from descheduler.arguments.evictor import Args
from descheduler.filters import default_evictor
from descheduler.filters.limits import Budget
from descheduler.fit import room
from descheduler.fit.search import FitSearch
from descheduler.framework import NodeGroup, NodeView, PodView, Refusal, Rooms, Usage, View
from descheduler.picture.templates import SpecGroup

NOT_MEASURED = Usage(absent="not measured: the picture holds no such usage")


class ProfileHandle(msgspec.Struct, frozen=True, kw_only=True):
    """`framework.Handle` for one plugin of one profile."""

    view: View
    args: Args
    guards: default_evictor.Guards
    """They remember, and are shared by the plugins of the profile."""
    fit: FitSearch
    nodes: NodeGroup
    evictions: Collection[str]
    """uids of the pods that the plan takes; grows while the plan is made."""
    remembered: object = None
    budget: Budget | None = None
    """The rest of the limits; None: there are none."""

    def refusals(self, pod: PodView) -> tuple[Refusal, ...]:
        """Every guard that speaks against evicting the pod."""
        return self.guards.refusals(pod)

    def evictable(self, pod: PodView) -> bool:
        """No guard speaks against it."""
        return not self.guards.refusals(pod)

    def evictable_of(self, group: SpecGroup) -> Sequence[PodView]:
        """Its pods that no guard speaks against."""
        return self.guards.evictable(group)

    def movable(self, pod: PodView) -> bool:
        """The questions that are asked last have no objection either."""
        if default_evictor.late_refusals(pod, self.view, self.args):
            return False
        return not self.args.node_fit or self.fit.fits(pod, self.args.node_selector)

    def fits(self, pod: PodView, nodes: Iterable[NodeView]) -> bool:
        """It would fit on one of the nodes."""
        group = nodes if isinstance(nodes, NodeGroup) else NodeGroup(nodes)
        return self.fit.fits_on(pod, group.names)

    def first_fit(self, pod: PodView, nodes: Iterable[NodeView]) -> NodeView | None:
        """The first of the nodes that it would fit on."""
        name = self.fit.first_fit(pod, (node.name for node in nodes))
        return self.view.nodes[name] if name else None

    def kind(self, pod: PodView) -> object | None:
        """Key of pods that are alike to nodes."""
        return self.fit.kind(pod)

    def rooms(self, waiting: PodView, most_moves: int) -> Rooms[PodView]:
        """The fewest and cheapest moves that let it fit."""
        return room.find(
            self.view,
            self.fit,
            waiting,
            inside=self.args.node_selector,
            objection=self._objection,
            most_moves=most_moves,
            evictions=self.evictions,
        )

    def _objection(self, pods: Sequence[PodView]) -> str:
        """The reason why these pods may not all go. The first of them is asked about itself; the others were before."""
        for pod in pods[:1]:
            refusals = self.guards.refusals(pod) or default_evictor.late_refusals(pod, self.view, self.args)
            if refusals:
                return refusals[0].text
            if pod.node not in self.nodes.names:
                return f"{pod.node} is not ready, or not among the nodes of the profile"
        return self.budget.refusal_of_all(pods)[1] if self.budget else ""

    def going(self, pod: PodView) -> bool:
        """The plan takes it already."""
        return pod.pod.uid in self.evictions

    def usage(self, source: str, query: str = "") -> Usage:
        """The measurement; with the reason when there is none."""
        return self.view.usage.get(f"{source}:{query}" if query else source, NOT_MEASURED)
