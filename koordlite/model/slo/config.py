"""From ConfigMap `slo-controller-config` and a node's own metadata to what holds on that node.

Each key is one JSON document: a strategy for the cluster, and strategies for groups of nodes, of which the first that
matches counts. A document that cannot be used leaves the last good one of its key in force; every mistake is reported.
Source: Koordinator `slo-controller/config`, `slo-controller/nodeslo` and `util/sloconfig`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from koordlite.model.errors import Problem
from koordlite.model.reading.lenient_json import UNKNOWN, closest, printable
from koordlite.model.slo import hosts, qos, without_effect
from koordlite.model.slo.layers import Reading, Section
from koordlite.model.slo.node import NodeLayers
from koordlite.model.slo.settings import (
    SLO,
    Colocation,
    CPUBurst,
    CPUNormalization,
    GoodDocument,
    NUMAPolicy,
    ResourceAmplification,
    System,
    Threshold,
)

OWNER = "configmap/koordinator-system/slo-controller-config"
_CLUSTER, _GROUPS = "clusterStrategy", "nodeStrategies"

SECTIONS: tuple[Section, ...] = (
    Section(key="colocation-config", attribute="colocation", base=Colocation(), blank_is_unset=True),
    Section(
        key="resource-threshold-config", attribute="threshold", base=Threshold(), cluster=_CLUSTER, entries=_GROUPS
    ),
    Section(
        key="resource-qos-config",
        attribute="resource_qos",
        base=qos.DEFAULTS,
        cluster=_CLUSTER,
        entries=_GROUPS,
        settle=qos.settled,
    ),
    Section(key="cpu-burst-config", attribute="cpu_burst", base=CPUBurst(), cluster=_CLUSTER, entries=_GROUPS),
    Section(key="system-config", attribute="system", base=System(), cluster=_CLUSTER, entries=_GROUPS),
    Section(
        key="host-application-config",
        attribute="host_applications",
        base=hosts.HostApplications(),
        read=hosts.read,
    ),
    Section(key="cpu-normalization-config", attribute="cpu_normalization", base=CPUNormalization()),
    Section(key="resource-amplification-config", attribute="resource_amplification", base=ResourceAmplification()),
    Section(key="numa-policy-config", attribute="numa_policy", base=NUMAPolicy()),
)


def effective(
    data: Mapping[str, str] | None,
    *,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    previous: SLO | None = None,
    taken_at: str = "",
    resource_version: str = "",
    owner: str = OWNER,
    node_owner: str = "node",
) -> SLO:
    """Settings of a node with these labels and annotations: defaults, cluster, first matching group, the node itself.

    `data` is the ConfigMap's, None when there is none: then the defaults hold. `previous` is the answer of last time;
    its good documents stand for a key whose document cannot be used, and messages say since when they hold (`taken_at`
    and `resource_version` of the `data` they came with). Nothing is raised: mistakes are in `problems`,
    each with what holds meanwhile; `origins` says where each value that is not a default came from.
    """
    reading = Reading(data or {}, labels, previous, owner, GoodDocument("", taken_at, resource_version))
    node = NodeLayers(node_owner, labels, annotations)
    held = {s.attribute: reading.overlay(s, [*reading.layers(s), *node.of(s.key)]) for s in SECTIONS}
    return SLO(
        **{**held, "host_applications": held["host_applications"].applications},
        origins=reading.origins,
        # Without a ConfigMap nothing is known about any key: what was good of one that comes later is still good.
        good=reading.last_good if data is None else reading.good,
        kept=reading.kept,
        problems=(*_unknown_keys(reading), *reading.problems, *node.problems),
    )


def unused_problems(
    slo: SLO, *, owner: str = OWNER, node_owner: str = "node", off: Collection[str] = without_effect.OFF
) -> tuple[Problem, ...]:
    """Reports for the authors of settings that nothing acts on, while the strategies `off` are off."""
    return tuple(without_effect.problem(each, owner, node_owner) for each in in_vain(slo, off))


def in_vain(slo: SLO, off: Collection[str] = without_effect.OFF) -> tuple[without_effect.Unused, ...]:
    """Settings that were given and that nothing acts on, while the strategies `off` are off."""
    return tuple(without_effect.found(slo, {section.key: section.attribute for section in SECTIONS}, off))


def _unknown_keys(reading: Reading) -> Iterator[Problem]:
    known = [section.key for section in SECTIONS]
    for key in reading.data:
        if key not in known:
            meant = closest(key, known)
            do = f"did you mean {meant}? It is ignored" if meant else "it is ignored; remove it"
            yield Problem(reading.owner, f"data.{printable(key)}", "", UNKNOWN, do)
