"""Load-aware scheduling: whether a node is too busy for one more pod by what was measured there, and how much is left.

Thresholds and rules are those of Koordinator's plugin LoadAwareScheduling, under its names. A pod that was bound after
the measurement, or is not part of it yet, counts with an estimate from its requests and limits.
Source: Koordinator `plugins/loadaware`, `apis/extension/load_aware.go`.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import re
import typing
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

import msgspec

from koordlite.model import duration, keys, times
from koordlite.model.errors import UNREADABLE, Problem
from koordlite.model.pod import eviction, pod_reader
from koordlite.model.pod.qos import PriorityClass
from koordlite.model.quantity import Quantity, parse_resources
from koordlite.model.settings import bounded
from koordlite.model.wire import metrics, objects

Amounts = Mapping[str, int]
"""Millicores of `cpu`, whole units of the rest, by resource."""
Aggregation = Literal["avg", "p50", "p90", "p95", "p99"]
EXPIRED = "node(s) nodeMetric expired"
USUAL_INTERVAL = 60.0
"""Seconds between two measurements of a node that does not say."""
MOST = 100
MOST_AMOUNT = 2**63 - 1
"""Kubernetes counts in int64. What a report, a Node or a pod says is more counts as this, and what is below 0 as 0."""
Percent = Annotated[int, msgspec.Meta(ge=0, le=1000)]
"""Range of percentages in annotations; Koordinator checks only its own arguments (0 to 100)."""
_SECONDS = re.compile(r"-0+|\+?[0-9]{1,9}")
_UNASKED = {"cpu": 250, "memory": 200 * 2**20}
"""Estimated use of a pod that requests nothing."""
_THRESHOLDS, _FACTORS = {"cpu": 65, "memory": 95}, {"cpu": 85, "memory": 70}


def _durations(text: str) -> None:
    duration.seconds(text)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Aggregated:
    """Percentiles in place of the latest use."""

    usage_thresholds: dict[str, int] = dataclasses.field(default_factory=dict)
    """Percent by resource; with `usageAggregationType` it takes the place of `usageThresholds`."""
    usage_aggregation_type: Aggregation | None = None
    usage_aggregated_duration: str | None = dataclasses.field(default=None, metadata={"check": _durations})
    """The window; the longest one that was measured unless given."""
    score_aggregation_type: Aggregation | None = None
    score_aggregated_duration: str | None = dataclasses.field(default=None, metadata={"check": _durations})


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoadAwareSchedulingArgs:
    """Koordinator's arguments, with its names and defaults."""

    api_version: str = "kubescheduler.config.k8s.io/v1"
    kind: Literal["LoadAwareSchedulingArgs"] = "LoadAwareSchedulingArgs"
    filter_expired_node_metrics: bool = True
    """Count the age of a measurement when nodes are filtered."""
    node_metric_expiration_seconds: int = bounded(180, ge=1)
    enable_schedule_when_node_metrics_expired: bool = False
    """Let pods go to nodes whose measurement is too old. Nodes that have none are never refused."""
    resource_weights: dict[str, int] = dataclasses.field(default_factory=dict)
    """cpu 1 and memory 1 where neither this nor `dominantResourceWeight` is given."""
    dominant_resource_weight: int = bounded(0, ge=0, le=100)
    """Weight of the resource of which least is left."""
    usage_thresholds: dict[str, int] = dataclasses.field(default_factory=dict)
    """Percent of the node's allocatable by resource; cpu 65 and memory 95 where none is given."""
    prod_usage_thresholds: dict[str, int] = dataclasses.field(default_factory=dict)
    """The same for pods of class koord-prod against what such pods use; without it they go by `usageThresholds`."""
    prod_usage_include_sys: bool = False
    """Count use outside pods as that of prod pods."""
    score_according_prod_usage: bool = False
    """Score nodes for prod pods by the use of prod pods."""
    estimator: Literal["defaultEstimator", ""] = ""
    estimated_scaling_factors: dict[str, int] = dataclasses.field(default_factory=dict)
    """Part of its request that a pod is estimated to use, in percent; cpu 85, memory 70 by default."""
    estimated_seconds_after_pod_scheduled: int | None = bounded(None, ge=0)
    """Time for which a measured pod still counts with its estimate if that is more."""
    estimated_seconds_after_initialized: int | None = bounded(None, ge=0)
    allow_customize_estimation: bool = False
    """Read pods' annotations `load-estimated-…`."""
    aggregated: Aggregated | None = None
    supported_resources: tuple[str, ...] = ()

    @functools.cached_property
    def resources(self) -> frozenset[str]:
        """All resources that anything here names, and cpu and memory."""
        lists = (self.usage_thresholds, self.prod_usage_thresholds, self.resource_weights, self.factors)
        aggregated = self.aggregated.usage_thresholds if self.aggregated else {}
        return frozenset({"cpu", "memory", *self.supported_resources, *aggregated}.union(*lists))

    @functools.cached_property
    def factors(self) -> dict[str, int]:
        """`estimatedScalingFactors` with its defaults."""
        return {**_FACTORS, **self.estimated_scaling_factors}

    @functools.cached_property
    def weights(self) -> dict[str, int]:
        """`resourceWeights` with its defaults."""
        if self.resource_weights or self.dominant_resource_weight:
            return self.resource_weights
        return {"cpu": 1, "memory": 1}

    @functools.cached_property
    def thresholds(self) -> Thresholds:
        """Thresholds of a node that has none of its own."""
        aggregated = self.aggregated
        if aggregated is None or not (aggregated.usage_thresholds and aggregated.usage_aggregation_type):
            return Thresholds(self.usage_thresholds or _THRESHOLDS, self.prod_usage_thresholds)
        window = _seconds(aggregated.usage_aggregated_duration)
        return Thresholds(
            aggregated.usage_thresholds,
            self.prod_usage_thresholds,
            (aggregated.usage_aggregation_type, window),
        )

    def problems(self, source: str) -> list[Problem]:
        """Mistakes with which Koordinator refuses to start."""
        mistakes: list[Problem] = []
        bounds = {
            "usageThresholds": (self.usage_thresholds, 0),
            "prodUsageThresholds": (self.prod_usage_thresholds, 0),
            "aggregated.usageThresholds": (self.aggregated.usage_thresholds if self.aggregated else {}, 0),
            "resourceWeights": (self.resource_weights, 1),
            "estimatedScalingFactors": (self.estimated_scaling_factors, 1),
        }
        for name, (amounts, least) in bounds.items():
            mistakes += [
                Problem(source, f"{name}.{resource}", str(value), "out of range", f"write a number {least} to 100")
                for resource, value in amounts.items()
                if not least <= value <= 100
            ]
        for resource in sorted(self.weights.keys() - self.factors.keys()):
            why, do = "it has a weight and no estimate", f"name {resource} in estimatedScalingFactors as well"
            mistakes.append(Problem(source, f"resourceWeights.{resource}", str(self.weights[resource]), why, do))
        return mistakes


class Thresholds(msgspec.Struct, frozen=True):
    """Percent by resource; 0 is none."""

    usage: Amounts
    prod: Amounts = msgspec.field(default_factory=dict)
    aggregation: tuple[str, float] | None = None
    """`usage` is about this percentile over a window of so many seconds; 0: the longest."""


class NodeOwn(msgspec.Struct, frozen=True):
    """Labels and annotations of the Node object."""

    allocatable: Amounts
    thresholds: Thresholds


class Measurement:
    """A NodeMetric, read once."""

    def __init__(self, obj: metrics.NodeMetricObject, args: LoadAwareSchedulingArgs, problems: list[Problem]) -> None:
        owner, status, policy = f"nodemetric/{obj.metadata.name}", obj.status, obj.spec.metric_collect_policy

        def read(measured: metrics.MeasuredResources | None) -> Amounts:
            texts = measured.resources if measured else None
            return _amounts(parse_resources(texts, owner, "status", problems), args.resources)

        self.at, interval = times.parse_or_none(status.update_time), policy.report_interval_seconds if policy else None
        self.interval = USUAL_INTERVAL if interval is None else float(min(max(0, interval), MOST_AMOUNT))
        node_metric, self.aggregated = status.node_metric, dict[tuple[str, float], Amounts]()
        windows = [
            (_seconds(one.duration), one.usage or {})
            for one in (node_metric and node_metric.aggregated_node_usages) or ()
        ]
        for window, usage in sorted(windows, key=lambda pair: pair[0]):
            for kind, measured in usage.items():
                if measured.resources:
                    # The longest window stands for the one that is not named.
                    self.aggregated[kind, window] = self.aggregated[kind, 0.0] = read(measured)
        self.node = read(node_metric.node_usage) if node_metric else None
        """None: nothing was measured yet."""
        self.system = read(node_metric.system_usage) if node_metric else {}
        self.pods = {
            f"{pod.namespace}/{pod.name}": (read(pod.pod_usage), pod.priority == PriorityClass.PROD)
            for pod in status.pods_metric or ()
            if pod.pod_usage and pod.pod_usage.resources
        }
        """Use by `namespace/name`, and whether it was measured as that of a prod pod."""


class PodLoad(msgspec.Struct, frozen=True):
    """A pod as the load of a node counts it."""

    key: str
    estimate: Amounts
    is_prod: bool
    is_daemon: bool
    at: float
    """Time of the binding."""
    estimated_until: float = 0.0
    """Time until which its estimate counts if it is more than the measurement."""


def node_own(obj: objects.NodeObject, args: LoadAwareSchedulingArgs, problems: list[Problem]) -> NodeOwn:
    """Read allocatable as it was before amplification, and the thresholds of annotation `usage-thresholds`."""
    owner, notes = f"node/{obj.metadata.name}", obj.metadata.annotations or {}
    allocatable = parse_resources(obj.status.allocatable, owner, "status.allocatable", problems)
    if text := notes.get(keys.RAW_ALLOCATABLE):
        raw = _json(text, dict[str, str | int | float], owner, keys.RAW_ALLOCATABLE, problems)
        allocatable = {**allocatable, **parse_resources(raw, owner, keys.RAW_ALLOCATABLE, problems)}
    thresholds = args.thresholds
    if text := notes.get(keys.USAGE_THRESHOLDS):
        own = _json(text, _CustomThresholds, owner, keys.USAGE_THRESHOLDS, problems)
        thresholds = own.over(args) if own else thresholds
    return NodeOwn(_amounts(allocatable, args.resources), thresholds)


def pod_load(obj: objects.PodObject, args: LoadAwareSchedulingArgs, now: float) -> PodLoad:
    """Estimate a pod. Annotations that cannot be read count as not given, as with Koordinator."""
    pod, ignored = pod_reader.from_wire(obj), list[Problem]()
    notes = pod.annotations if args.allow_customize_estimation else {}
    owner = f"pod/{pod.key}"
    own = _json(notes.get(keys.LOAD_FACTORS, "{}"), dict[str, Percent], owner, keys.LOAD_FACTORS, ignored)
    factors = {**args.factors, **(own or {})}
    # What a pod of class koord-free asks for has no name of its own, and is not estimated.
    plain = pod.priority_class in (PriorityClass.PROD, PriorityClass.NONE)
    own_names = eviction.OWN_NAMES.get(pod.priority_class, {})
    limits = pod_reader.effective_limits(pod_reader.counted(obj).spec)
    estimate = {}
    for resource, factor in factors.items():
        if resource not in args.resources:
            continue
        name = resource if plain else own_names.get(resource, "")
        estimate[resource] = _estimate(name, pod.requests.get(name), limits.get(name), factor)
    conditions = {each.type: each for each in obj.status.conditions or () if each.status == "True"}
    scheduled, initialized = conditions.get("PodScheduled"), conditions.get("Initialized")
    at = times.parse_or_none(scheduled.last_transition_time) if scheduled else None
    ready = times.parse_or_none(initialized.last_transition_time) if initialized else None
    after_scheduled = _own_seconds(notes.get(keys.LOAD_SECONDS_SCHEDULED), args.estimated_seconds_after_pod_scheduled)
    after_initialized = _own_seconds(notes.get(keys.LOAD_SECONDS_INITIALIZED), args.estimated_seconds_after_initialized)
    at = now if at is None else at
    until = at + after_scheduled if after_scheduled else 0.0
    if ready is not None and after_initialized:
        until = ready + after_initialized
    owners = obj.metadata.owner_references or ()
    is_prod = pod.priority_class is PriorityClass.PROD
    return PodLoad(pod.key, estimate, is_prod, any(each.kind == "DaemonSet" for each in owners), at, until)


class NodeLoad:
    """Use of a node, without the pod that is asked about: what was measured, and the estimates of pods that the
    measurement does not show yet."""

    def __init__(
        self, own: NodeOwn, metric: Measurement, pods: Iterable[PodLoad], args: LoadAwareSchedulingArgs
    ) -> None:
        names = args.resources
        delta, prod_delta, estimated = (collections.Counter(dict.fromkeys(names, 0)) for _ in range(3))
        prod = collections.Counter(
            {name: metric.system.get(name, 0) if args.prod_usage_include_sys else 0 for name in names}
        )
        at = metric.at or 0.0
        for pod in pods:
            used, as_prod = metric.pods.get(pod.key, (None, False))
            # Both have to say prod: the class of a pod can change, and a measurement can outlive its pod.
            both = pod.is_prod and as_prod
            if both and used:
                prod.update(used)
            anew = used is None or at - metric.interval < pod.at or pod.estimated_until > at
            estimated.update(pod.estimate)
            if anew:
                _add_more(delta, pod.estimate, used or {})
            if pod.is_prod and not both and used is not None:
                prod_delta.update(pod.estimate)
            elif pod.is_prod and anew:
                _add_more(prod_delta, pod.estimate, used or {})

        def total(aggregation: tuple[str, float] | None) -> Amounts:
            measured = metric.node
            if aggregation is not None:
                measured = metric.aggregated.get(aggregation, None if aggregation[1] else metric.node)
            if measured is None:
                return estimated
            return {name: measured.get(name, 0) + delta[name] for name in names}

        self.own, self.measured_at, self.measured = own, metric.at, metric.node is not None
        self.used = total(own.thresholds.aggregation)
        """Use by `usageThresholds`, or by the percentile of `aggregated`."""
        self.prod_used = {name: prod[name] + prod_delta[name] for name in names}
        score = args.aggregated
        kind = score.score_aggregation_type if score else None
        self.score_used = total((kind, _seconds(score.score_aggregated_duration)) if score and kind else None)


def is_expired(load: NodeLoad, args: LoadAwareSchedulingArgs, now: float) -> bool:
    """Tell whether the measurement is too old to go by."""
    return load.measured_at is None or now - load.measured_at >= args.node_metric_expiration_seconds


def refusal(pod: PodLoad, load: NodeLoad, args: LoadAwareSchedulingArgs, now: float) -> str:
    """Reason why the node is too busy for the pod, in Koordinator's words; empty: it is not."""
    own = load.own.thresholds
    by_prod = pod.is_prod and any(own.prod.values())
    thresholds = own.prod if by_prod else own.usage
    if pod.is_daemon or not any(thresholds.values()):
        return ""
    if args.filter_expired_node_metrics and is_expired(load, args, now):
        return "" if args.enable_schedule_when_node_metrics_expired else EXPIRED
    if not load.measured:
        return ""
    used = load.prod_used if by_prod else load.used
    for resource in sorted(thresholds):
        percent = _percent(used, pod, load, resource)
        if thresholds[resource] and percent is not None and percent > thresholds[resource]:
            kind = "aggregated usage" if own.aggregation and not by_prod else "usage"
            return f"node(s) {resource} {kind} exceed threshold"
    return ""


def points(pod: PodLoad, load: NodeLoad, args: LoadAwareSchedulingArgs, now: float) -> int:
    """Rest of the node with the pod, 0 to 100; 0 where it is not known."""
    if not any(args.weights.values()) and not args.dominant_resource_weight:
        return 0
    if is_expired(load, args, now) or not load.measured:
        return 0
    used = load.prod_used if pod.is_prod and args.score_according_prod_usage else load.score_used
    # Every resource is looked at for the scarcest one, also those without a weight.
    remaining = {
        name: _free_percent(used.get(name, 0) + pod.estimate.get(name, 0), load, name) for name in args.resources
    }
    total = sum(remaining[name] * weight for name, weight in args.weights.items())
    weights = sum(args.weights.values()) + args.dominant_resource_weight
    scarcest = min((MOST, *remaining.values()))
    return (total + scarcest * args.dominant_resource_weight) // weights


def terms(pod: PodLoad, load: NodeLoad, args: LoadAwareSchedulingArgs, now: float) -> dict[str, int | str]:
    """The numbers behind `refusal` and `points`, for people."""
    own = load.own.thresholds
    by_prod = pod.is_prod and any(own.prod.values())
    thresholds, used = (own.prod, load.prod_used) if by_prod else (own.usage, load.used)
    numbers: dict[str, int | str] = {
        "LoadAware": points(pod, load, args, now),
        "measured": "never" if load.measured_at is None else f"{duration.age(max(0.0, now - load.measured_at))} ago",
    }
    for resource in sorted(thresholds):
        percent = _percent(used, pod, load, resource)
        if percent is not None:
            numbers[f"{resource} with the pod"] = f"{percent} % of at most {thresholds[resource]} %"
    return numbers


def _percent(used: Amounts, pod: PodLoad, load: NodeLoad, resource: str) -> int | None:
    total = load.own.allocatable.get(resource, 0)
    if not total:
        return None
    # Go's math.Round: halves away from zero.
    return ((used.get(resource, 0) + pod.estimate.get(resource, 0)) * 200 + total) // (2 * total)


def _free_percent(used: int, load: NodeLoad, resource: str) -> int:
    capacity = load.own.allocatable.get(resource, 0)
    return max(0, capacity - used) * MOST // capacity if capacity else 0


def _estimate(name: str, request: Quantity | None, limit: Quantity | None, factor: int) -> int:
    requested, most = _units(name, request), _units(name, limit)
    if not (requested or most):
        return _UNASKED.get(_PLAIN.get(name, ""), 0)
    estimate = (max(requested, most) * factor + 50) // 100
    return min(estimate, most) if most else estimate


def _units(name: str, amount: Quantity | None) -> int:
    units = 0 if amount is None else amount.milli if name == "cpu" else amount.value
    return min(max(0, units), MOST_AMOUNT)


def _amounts(quantities: Mapping[str, Quantity], names: frozenset[str]) -> dict[str, int]:
    return {name: _units(name, quantities[name]) for name in names if name in quantities}


def _add_more(into: dict[str, int], estimate: Amounts, used: Amounts) -> None:
    for name, amount in estimate.items():
        into[name] += max(0, amount - used.get(name, 0))


def _seconds(text: str | None) -> float:
    try:
        return duration.seconds(text) if text else 0.0
    except ValueError:
        return -1.0


def _own_seconds(text: str | None, usual: int | None) -> int:
    """Seconds of an annotation, 0 too, as Go's ParseInt reads them; else the usual ones."""
    return int(text) if text and _SECONDS.fullmatch(text) else usual or 0


T = typing.TypeVar("T")


def _json(text: str, shape: type[T], owner: str, key: str, problems: list[Problem]) -> T | None:
    try:
        return msgspec.json.decode(text, type=shape)
    except UNREADABLE as error:
        do = "correct the annotation; until then it counts as not given"
        problems.append(Problem(owner, key, text, str(error), do))
        return None


class _CustomAggregated(msgspec.Struct, frozen=True, rename="camel"):
    usage_thresholds: dict[str, Percent] = msgspec.field(default_factory=dict)
    usage_aggregation_type: str = ""
    usage_aggregated_duration: str = ""


class _CustomThresholds(msgspec.Struct, frozen=True, rename="camel"):
    usage_thresholds: dict[str, Percent] = msgspec.field(default_factory=dict)
    prod_usage_thresholds: dict[str, Percent] = msgspec.field(default_factory=dict)
    aggregated_usage: _CustomAggregated | None = None

    def over(self, args: LoadAwareSchedulingArgs) -> Thresholds:
        """These, and those of the arguments for what is not given here. Of resources that no argument names, nothing
        counts."""

        def counted(thresholds: Amounts) -> Amounts:
            return {name: percent for name, percent in thresholds.items() if name in args.resources}

        usual, own = args.thresholds, self.aggregated_usage
        prod = counted(self.prod_usage_thresholds or usual.prod)
        if own is not None and own.usage_thresholds and own.usage_aggregation_type:
            kind = own.usage_aggregation_type, _seconds(own.usage_aggregated_duration)
            return Thresholds(counted(own.usage_thresholds), prod, kind)
        if usual.aggregation is not None:
            return Thresholds(usual.usage, prod, usual.aggregation)
        return Thresholds(counted(self.usage_thresholds or usual.usage), prod)


_PLAIN = {"cpu": "cpu", "memory": "memory", keys.BATCH_CPU: "cpu", keys.BATCH_MEMORY: "memory"}
