"""Nodes that victims are leaving for a pod, from the scheduler's choice to the pod's binding.

The scheduler evicts, notes the node on the pod, and asks again when victims have gone. Until then their node is full to
the scheduler, and for some seconds more to its report. Meanwhile no other node is emptied for the pod, nobody else's
victims are counted on, and the NUMA node that becomes free is kept for it.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping

import msgspec

from koordlite.numa.nrt.filter import Amounts, add
from koordlite.reservation.pods import ClusterPod
from koordlite.scheduler.cluster import Cluster
from koordlite.scheduler.judgement import judge, victims
from koordlite.scheduler.judgement.nodes import Row

LEAVING = "node(s) that victims are leaving for the pod"
"""A refusal that the scheduler may resolve by waiting: any other one has it look for victims on other nodes."""
CHOICE_SECONDS = 2.0
"""Time for which all offered nodes count as chosen, while the scheduler has not said which one it took."""
MOST_SECONDS = 65.0
"""Longest time for which room is made for a pod: victims have their grace, and reports come at least once a minute."""
MOST_PODS = 1024


class Victims(msgspec.Struct, frozen=True):
    """Pods that the scheduler would evict on one node."""

    uids: tuple[str, ...]
    violations: int = 0


class Offer(msgspec.Struct, frozen=True):
    """One node that would be emptied for a pod."""

    node: str
    answer: Victims
    """Answer to the scheduler: these victims, and those that are not known here."""
    victims: tuple[ClusterPod, ...]
    returned: Mapping[str, Mapping[int, Amounts]]
    """Amounts that each of them gives back there, by NUMA node; by uid."""
    takes: Mapping[int, Amounts]
    """Amounts that the pod will have, by NUMA node; empty where several NUMA nodes share them in an unknown way."""


class _Offers(msgspec.Struct):
    pod: ClusterPod
    by_node: Mapping[str, Offer]
    at: float


class Nominations:
    """Nominations by pod. Used only under the cluster's lock."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._offers: collections.OrderedDict[str, _Offers] = collections.OrderedDict()

    def __contains__(self, uid: str) -> bool:
        return uid in self._offers

    def put(self, pod: ClusterPod, offers: Mapping[str, Offer]) -> None:
        """Nodes that the scheduler was offered for the pod; it takes one of them."""
        self._offers.pop(pod.uid, None)
        if offers:
            self._offers[pod.uid] = _Offers(pod, offers, self._cluster.now())
        while len(self._offers) > MOST_PODS:
            self._offers.popitem(last=False)

    def drop(self, uid: str) -> None:
        """It is bound, or gone, or somebody else has the place."""
        self._offers.pop(uid, None)

    def refresh(self) -> None:
        """Forget what is over, and keep the places of pods whose node the scheduler has named."""
        now = self._cluster.now()
        for uid, offers in list(self._offers.items()):
            pod = self._cluster.pods.get(uid)
            named = pod.nominated if pod is not None else ""
            waited = now - offers.at
            bound = pod is not None and bool(pod.node)
            if bound or waited > MOST_SECONDS or (named not in offers.by_node and waited > CHOICE_SECONDS):
                self.drop(uid)
                assumed = self._cluster.assumed.of_pod(uid)
                if assumed is not None and assumed.stage == "nominated":
                    self._cluster.assumed.end(uid, "expired", now)
            elif named in offers.by_node and self._cluster.assumed.of_pod(uid) is None:
                self.keep(offers.pod, offers.by_node[named])

    def keep(self, pod: ClusterPod, offer: Offer) -> None:
        """Count the pod where it will be, on every NUMA node: kubelet gives the place to whoever comes first."""
        if pod.shape.exclusive:
            self._cluster.assume(pod, offer.node, "nominated")

    def of(self, pod: ClusterPod) -> Offer | None:
        """The node that is being emptied for the pod, as far as that is known."""
        offers = self._offers.get(pod.uid)
        if offers is None:
            return None
        current = self._cluster.pods.get(pod.uid)
        named = pod.nominated or (current.nominated if current is not None else "")
        if named:
            return offers.by_node.get(named)
        emptying = []
        for offer in offers.by_node.values():
            victims_now = [self._cluster.pods.get(victim.uid) for victim in offer.victims]
            if any(victim is None or not victim.alive for victim in victims_now):
                emptying.append(offer)
        return emptying[0] if len(emptying) == 1 else None

    def on_node(self, node: str, but: str) -> Iterator[tuple[ClusterPod, Offer]]:
        """Pods other than `but` for which the node is, or may be, emptied."""
        for uid, offers in self._offers.items():
            if uid == but or node not in offers.by_node:
                continue
            offer = self.of(offers.pod)
            if offer is None or offer.node == node:
                yield offers.pod, offers.by_node[node]

    def beside_others(self, pod: ClusterPod, row: Row) -> Row:
        """The node without the victims of others than `pod`, and with the pods that these make room for."""
        rivals = list(self.on_node(row.name, but=pod.uid))
        if not rivals:
            return row
        for _, offer in rivals:
            row = self._freed(row, offer)
        for each, offer in rivals:
            row = victims.beside(row, each, offer.takes)
        return row

    def _is_disputed(self, pod: ClusterPod, freed: Row, takes: Mapping[int, Amounts]) -> bool:
        """Tell whether kubelet may give the room of this pod to another one for which the node is emptied, or the
        other way round: it takes the lowest NUMA node where there is room, for whomever it was made.

        `freed` is the node when all victims have gone, with the others on the NUMA nodes that they are expected on.
        """
        rivals = list(self.on_node(freed.name, but=pod.uid))
        if not rivals:
            return False
        if len(rivals) > 1 or not takes or not rivals[0][1].takes:
            return True
        other, offer = rivals[0]
        empty = victims.without(freed, [other], offer.takes)
        return self._is_in_the_way(other, offer.takes, pod, empty) or self._is_in_the_way(pod, takes, other, empty)

    def _is_in_the_way(self, first: ClusterPod, takes: Mapping[int, Amounts], second: ClusterPod, empty: Row) -> bool:
        """Tell whether `second` finds no place beside `first` on any of the NUMA nodes that `first` may get."""
        total: dict[str, int] = {}
        for amounts in takes.values():
            add(total, amounts)
        settings = self._cluster.settings
        for zone, available in empty.zones.items():
            if len(takes) > 1 or all(available.get(name, 0) >= amount for name, amount in total.items()):
                beside = victims.beside(empty, first, {zone: total})
                if not judge.verdict(second.shape, beside, settings).passes:
                    return True
        return False

    def _freed(self, row: Row, offer: Offer) -> Row:
        """The node without the victims that are still there."""
        state = self._cluster.nodes[offer.node]
        back: dict[int, dict[str, int]] = {}
        for victim in offer.victims:
            if victim.uid in state.pods:
                for zone, amounts in offer.returned.get(victim.uid, {}).items():
                    add(back.setdefault(zone, {}), amounts)
        return victims.without(row, offer.victims, back)

    def _stands(self, pod: ClusterPod, offer: Offer) -> tuple[bool, bool]:
        """(Does the pod fit now, is it still worth waiting there): judged by the report less the victims.

        Where the report has settled without them and the pod does not fit, somebody else has the place.
        """
        cluster, state = self._cluster, self._cluster.nodes.get(offer.node)
        row = cluster.row_as_expected(offer.node)
        if state is None or row is None:
            return False, False
        freed = self._freed(self.beside_others(pod, row), offer)
        fits = judge.verdict(pod.shape, freed, cluster.settings).passes
        if any(victim.uid in state.pods for victim in offer.victims):
            return False, True
        began = self._offers[pod.uid].at
        left_at = max(
            (state.departed[each.uid][1] for each in offer.victims if each.uid in state.departed), default=began
        )
        late = 0.0 if row.report is not None and row.report.fingerprint else cluster.settings.settle_seconds
        is_settled = state.report_since > left_at + late and state.dirty_since is None
        return fits, fits or not is_settled

    def readmit(self, pod: ClusterPod, passed: list[str], refused: dict[str, str]) -> str:
        """A node that was emptied for this pod is not refused because its report does not show it yet. Return what
        became of it if somebody else has its place."""
        offer = self.of(pod)
        if offer is None:
            return ""
        if not passed:
            self.keep(pod, offer)
        if offer.node not in refused:
            return ""
        fits, waits = self._stands(pod, offer)
        if fits:
            del refused[offer.node]
            passed.append(offer.node)
        elif waits:
            refused[offer.node] = LEAVING
        else:
            self.drop(pod.uid)
            self._cluster.assumed.end(pod.uid, "attempted again", self._cluster.now())
            return f"the room that was made on {offer.node} is taken"
        return ""

    def offer(self, pod: ClusterPod, node: str, candidates: Victims, own: Row | None) -> Offer | Victims | str:
        """The victims there, of those that the scheduler would evict, or more. Text: why evictions do not help, or
        would displace what is reserved for others; empty where there is nothing to say. Of a node of which nothing is
        known they are the scheduler's. `own`: the node with the reservations that the pod may take there."""
        plain, state = self._cluster.row_as_expected(node), self._cluster.nodes.get(node)
        if plain is None or state is None:
            return candidates if candidates.uids else ""
        row = msgspec.structs.replace(own, zones=plain.zones) if own is not None else plain
        if why := victims.reserved_for_others(row, candidates.uids):
            return why
        row = self.beside_others(pod, row)
        pods, settings = self._cluster.pods, self._cluster.settings
        leaving = state.pods.keys() - {each.uid for each in row.pods}
        chosen = victims.choose(
            pod.shape,
            row,
            [pods[uid] for uid in candidates.uids if uid in pods and uid not in leaving],
            priority=pod.priority,
            returned=state.returned,
            settings=settings,
            is_leaving=bool(leaving),
            exempt={each.uid for each in row.pods if each.uid not in state.pods},
        )
        if isinstance(chosen, str):
            return chosen
        uids = (*(each.uid for each in chosen), *(uid for uid in candidates.uids if uid not in pods))
        if not uids:
            return ""
        freed = victims.without(row, chosen, state.returned(chosen))
        takes = judge.takes(pod.shape, freed, settings)
        if self._is_disputed(pod, freed, takes):
            return "it is being emptied for another pod, which may get the same room"
        returned = {each.uid: state.returned([each]) for each in chosen}
        return Offer(node, Victims(uids, candidates.violations), chosen, returned, takes)
