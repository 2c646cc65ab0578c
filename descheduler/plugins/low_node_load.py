"""Pods leave nodes that are too full by measured use, once they have been so for some time.

Koordinator's plugin: nodes in pools, thresholds for all pods and for prod pods alone, use from koordlet's NodeMetric.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from descheduler.framework import Conversation, Handle, NodeView, Note, PodView, Remember, View
from descheduler.rules import pod_filter
from descheduler.utilization import levels, load, load_args
from descheduler.utilization.load import Load, Pass
from descheduler.utilization.load_args import NEW, Debounce, Pool, Watch
from koordlite.model import duration, times

NAME = "LowNodeLoad"
POINT = "balance"
Config = load_args.Config

_HIGH = ("high", "prodHigh")
_LOW = ("low", "prodLow", "bothLow")


def judge(view: View, config: Config, handle: Handle) -> Conversation:
    """A finding for each pod that should leave a node which is too full; notes say why nothing is done."""
    memory = _Memory.recall(handle.remembered, times.parse(view.time), config)
    compared: set[str] = set()
    relieved: set[str] = set()
    for number, pool in enumerate(config.pools):
        # A pool without a selector is for the nodes that no pool names; Koordinator compares all of them again.
        done = compared if pool.node_selector is None else relieved
        nodes = [node for node in handle.nodes if node.name not in done and _selects(pool, node)]
        yield from _Pool(pool, number, config, handle, memory, relieved).compare(nodes)
        compared.update(node.name for node in nodes)
    yield Remember(memory.watches)


def numbers(pod: PodView, view: View, config: Config, handle: Handle) -> str:
    """The measured use of its node in each pool that compares it, and the thresholds."""
    node, usage, words = view.nodes[pod.node], handle.usage("NodeMetric"), list[str]()
    if usage.absent:
        return f"the use of nodes is not known: {usage.absent}"
    for pool in config.pools:
        compared = [one for one in handle.nodes if _selects(pool, one)] if _selects(pool, node) else []
        loads = load.loads(compared, usage, pool, oldest_seconds=config.node_metric_expiration_seconds)
        one = next((each for each in loads if each.node.name == pod.node), None)
        if one:
            percentages = levels.percent_text(levels.percentages(used=one.whole.used, capacity=load.capacity(node)))
            words.append(f"{pod.node}: {percentages}; too full above {levels.percent_text(pool.high_thresholds)}")
    return "; ".join(words) or f"the use of {pod.node} is not known"


def _selects(pool: Pool, node: NodeView) -> bool:
    return pool.node_selector is None or pool.node_selector.matches(node.node.labels)


Watches = Mapping[tuple[str, str], tuple[float, Watch]]
"""Time and result of the last look at a node: by what was compared (all pods or prod pods, of which pool), and name of
the node."""


class _Memory(msgspec.Struct):
    """Sightings of earlier cycles, and those for the next."""

    now: float
    earlier: Watches
    watches: dict[tuple[str, str], tuple[float, Watch]]

    @classmethod
    def recall(cls, value: object, now: float, config: Config) -> _Memory:
        """Take sightings over, forgetting what is too old, except when it is of the cycle just before, however long ago
        that was."""
        earlier: Watches = value if isinstance(value, dict) else {}
        newest = max((instant for instant, _ in earlier.values()), default=now)
        oldest = min(newest, now - duration.seconds(config.detector_cache_timeout))
        fresh = {key: entry for key, entry in earlier.items() if entry[0] >= oldest}
        return cls(now, fresh, dict(fresh))

    def mark(self, about: str, name: str, debounce: Debounce, *, normal: bool) -> Watch:
        """Count one more sighting of a node."""
        _, watch = self.watches.get((about, name), (0.0, NEW))
        watch = load_args.mark(watch, normal=normal, now=self.now, debounce=debounce)
        self.watches[about, name] = (self.now, watch)
        return watch

    def forget(self, about: str, names: Iterable[str]) -> None:
        """Nodes that are certainly not too full."""
        for name in names:
            self.watches.pop((about, name), None)


class _Pool(msgspec.Struct, frozen=True):
    """A pool of nodes, judged."""

    pool: Pool
    number: int
    """Its place among the pools. A node may be in several; each counts its sightings for itself."""
    config: Config
    handle: Handle
    memory: _Memory
    relieved: set[str]
    """Nodes that a pool so far has found too full and relieves."""

    @property
    def _debounce(self) -> Debounce:
        return Debounce.of(self.pool.anomaly_condition)

    def compare(self, nodes: list[NodeView]) -> Conversation:
        """Compare the nodes; relieve those that have been too full for long enough."""
        if not nodes:
            return
        usage, oldest = self.handle.usage("NodeMetric"), self.config.node_metric_expiration_seconds
        loads = load.loads(nodes, usage, self.pool, oldest_seconds=oldest)
        if usage.absent:
            yield Note(reason="UsageUnknown", text=f"{self._words}: nodes cannot be compared: {usage.absent}")
        measured = set(_names(loads))
        for node in nodes if not usage.absent else ():
            if node.name not in measured:
                yield Note(node=node.name, reason="UsageUnknown", text="its NodeMetric is missing or too old")
        by_kind: dict[str, list[Load]] = {kind: [] for kind in (*_HIGH, *_LOW, "")}
        for one in loads:
            by_kind[one.kind].append(one)
        abnormal = {kind: [one for one in by_kind[kind] if self._lasts(kind, one)] for kind in _HIGH}
        # Nodes that are watched and not too full now. Koordinator goes on counting where it left off.
        for kind in _HIGH:
            about = self._about(prod=kind == "prodHigh")
            for one in loads:
                if one.kind != kind and (about, one.node.name) in self.memory.watches:
                    self.memory.mark(about, one.node.name, self._debounce, normal=True)
        idle = self._why_nothing(by_kind, abnormal, len(nodes))
        if idle:
            yield msgspec.structs.replace(idle, text=f"{self._words}: {idle.text}")
            return
        self.memory.forget(self._about(prod=False), _names(by_kind["low"] + by_kind["bothLow"]))
        self.memory.forget(self._about(prod=True), _names(by_kind["prodLow"] + by_kind["bothLow"]))
        self.relieved.update(_names(abnormal["high"]))
        yield from self._relieve(by_kind, abnormal)

    @property
    def _words(self) -> str:
        return f"pool {self.pool.name}" if self.pool.name != load_args.DEFAULT_POOL else "nodes of no pool"

    def _about(self, *, prod: bool) -> str:
        return f"{'prod' if prod else 'node'} of pool {self.number}"

    def _lasts(self, kind: str, one: Load) -> bool:
        """Tell whether the node has been too full for long enough."""
        if self._debounce.abnormalities == 1:
            return True
        about = self._about(prod=kind == "prodHigh")
        return self.memory.mark(about, one.node.name, self._debounce, normal=False).anomalous

    def _why_nothing(
        self, by_kind: Mapping[str, list[Load]], abnormal: Mapping[str, list[Load]], nodes: int
    ) -> Note | None:
        high = sum(len(by_kind[kind]) for kind in _HIGH)
        low = sum(len(by_kind[kind]) for kind in _LOW)
        if not high:
            return Note(reason="NoNodeTooFull", text="no node is above a high threshold")
        if not any(abnormal.values()):
            wait = f"{high} nodes are too full, none of them {self._debounce.abnormalities} times in a row"
            return Note(reason="TooFullTooBriefly", text=wait)
        if not low:
            return Note(reason="NoUnderutilizedNode", text="no node is at or below all low thresholds")
        if low <= self.config.number_of_nodes:
            few = f"{low} nodes are underutilized; numberOfNodes asks for more than {self.config.number_of_nodes}"
            return Note(reason="TooFewUnderutilizedNodes", text=few)
        every = Note(reason="EveryNodeUnderutilized", text=f"all {nodes} nodes are underutilized")
        return every if low == nodes else None

    def _relieve(self, by_kind: Mapping[str, list[Load]], abnormal: Mapping[str, list[Load]]) -> Conversation:
        """All pods of nodes that are too full first, then prod pods where they use too much."""
        names = load.resources(self.pool)
        both = by_kind["bothLow"]
        node_targets = by_kind["low"] + both
        of_nodes = load.headroom(node_targets, prod=False, names=names)
        if node_targets:
            yield from self._run(node_targets, of_nodes, abnormal["high"], prod=False)
        remaining = {n: min(amount, of_nodes[n]) for n, amount in load.headroom(both, prod=False, names=names).items()}
        shared = {n: min(amount, remaining[n]) for n, amount in load.headroom(both, prod=True, names=names).items()}
        alone = load.headroom(by_kind["prodLow"], prod=True, names=names)
        targets = by_kind["prodLow"] + both
        if targets:
            headroom = {name: alone[name] + shared[name] for name in names}
            yield from self._run(targets, headroom, abnormal["prodHigh"], prod=True)

    def _run(self, targets: list[Load], headroom: dict[str, int], sources: list[Load], *, prod: bool) -> Conversation:
        """Run a pass, which takes from `headroom`. A node that has been relieved is no longer watched; of the others it
        is noted that something was done."""
        one = Pass(
            prod=prod,
            targets=tuple(targets),
            headroom=headroom,
            weights=self.pool.resource_weights,
            node_fit=self.config.node_fit,
            dry_run=self.config.dry_run,
            leaving=lambda pods: pod_filter.leaving(pods, self.config, self.handle),
        )
        yield from one.run(sources, self.handle)
        about = self._about(prod=prod)
        self.memory.forget(about, one.relieved)
        if self._debounce.abnormalities > 1:
            for source in sources:
                self.memory.mark(about, source.node.name, self._debounce, normal=True)


def _names(loads: Iterable[Load]) -> list[str]:
    return [one.node.name for one in loads]
