"""The resources of openEuler's numaadj that say which pods may be moved, and onto which NUMA node, off the wire."""

from __future__ import annotations

from koordlite.model.wire.objects import KubeObject, WireObject

GROUP = "resource.sop.huawei.com"
OENUMA, WHITELIST = "podafi", "whitelist"
"""The names of the only two objects that count."""
NAMESPACE = "tcs"
"""Namespace of the objects unless the configuration says otherwise."""


class PodOnNUMANode(WireObject, frozen=True):
    """A pod and the NUMA node it is to have. The sets of its containers, which numaadj writes too, are passed over."""

    numa_num: int = -1
    pod_name: str = ""
    namespace: str = ""


class NUMAOfNode(WireObject, frozen=True):
    """Statements about the pods of one node."""

    name: str = ""
    pod_affinity: tuple[PodOnNUMANode, ...] | None = None


class OenumaSpec(WireObject, frozen=True):
    """spec of an Oenuma."""

    node: tuple[NUMAOfNode, ...] | None = None


class OenumaObject(KubeObject, frozen=True):
    """An Oenuma (resource.sop.huawei.com/v1alpha1)."""

    spec: OenumaSpec = OenumaSpec()


class TargetPods(WireObject, frozen=True):
    """Pods of one namespace. A name may hold several, with white space between them: so a YAML list reads whose dashes
    were forgotten, as in numaadj's own sample."""

    namespace: str = ""
    names: tuple[str, ...] | None = None


class WhitelistSpec(WireObject, frozen=True):
    """spec of a Whitelist. Without `effectiveflag` it is not in effect."""

    effectiveflag: bool = False
    target_pods: tuple[TargetPods, ...] | None = None


class WhitelistObject(KubeObject, frozen=True):
    """A Whitelist (resource.sop.huawei.com/v1alpha1)."""

    spec: WhitelistSpec = WhitelistSpec()


def numa_nodes(obj: OenumaObject | None, node: str) -> dict[str, int]:
    """NUMA node by `namespace/name` for the pods of `node`; a pod that is named with several has none."""
    by_pod: dict[str, set[int]] = {}
    here = (each for each in (obj.spec.node or ()) if each.name == node) if obj and node else ()
    for entry in (pod for each in here for pod in each.pod_affinity or ()):
        if entry.pod_name and entry.numa_num >= 0:
            by_pod.setdefault(f"{entry.namespace}/{entry.pod_name}", set()).add(entry.numa_num)
    return {key: next(iter(numbers)) for key, numbers in sorted(by_pod.items()) if len(numbers) == 1}


def allowed(obj: WhitelistObject | None) -> frozenset[str] | None:
    """`namespace/name` of the only pods that may be moved; None where no Whitelist is in effect."""
    if obj is None or not obj.spec.effectiveflag:
        return None
    named = ((each.namespace, name) for each in obj.spec.target_pods or () for name in each.names or ())
    return frozenset(f"{namespace}/{name}" for namespace, text in named for name in text.split())
