"""The kinds that are served: names, versions, subresources and the ways in which they differ."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

VERBS = ("create", "delete", "get", "list", "patch", "update", "watch")


@dataclasses.dataclass(frozen=True, slots=True)
class Resource:
    """One kind, or one version of a custom kind."""

    group: str
    versions: tuple[str, ...]
    """Served versions, the one that is stored first."""
    plural: str
    kind: str
    namespaced: bool = True
    short: tuple[str, ...] = ()
    singular: str = ""
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    has_generation: bool = False
    """metadata.generation counts changes of the spec."""
    creates_on_update: bool = False
    """PUT of an absent object creates it."""
    needs_version: bool = False
    """PUT must name a resourceVersion."""
    fields: tuple[str, ...] = ()
    """Field selectors beside metadata.name and metadata.namespace."""
    converts_fields: bool = False
    """An unknown field selector is refused by the kind's own conversion, with that conversion's words."""
    verbs: tuple[str, ...] = VERBS
    schemas: Mapping[str, Any] | None = None
    """Custom kinds: OpenAPI schema of each version."""
    cached: bool = True
    """Lists and watches may be served from the watch cache."""

    @property
    def full(self) -> str:
        """Plural with group, as error messages name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def custom(self) -> bool:
        """Defined by a CustomResourceDefinition."""
        return self.schemas is not None

    @property
    def storage(self) -> str:
        """apiVersion in which objects are kept."""
        return self.api_version(self.versions[0])

    @property
    def key(self) -> tuple[str, str]:
        """What the store files objects under; both event groups share one place."""
        return ("", "events") if self.plural == "events" else (self.group, self.plural)

    def api_version(self, version: str) -> str:
        """`version` with the group."""
        return f"{self.group}/{version}" if self.group else version

    def defined(self, field: str) -> bool:
        """Whether `field` may be selected by."""
        by_namespace = self.namespaced or not self.converts_fields
        return field in self.fields or field == "metadata.name" or (field == "metadata.namespace" and by_namespace)


_POD_FIELDS = (
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
)
_EVENT_FIELDS = (
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
)
_CREATE = ("create",)
_READ = ("get", "list")


def _core(plural: str, kind: str, *short: str, **rest: Any) -> Resource:
    return Resource("", ("v1",), plural, kind, short=short, **rest)


def _workload(group: str, plural: str, kind: str, *short: str) -> Resource:
    return Resource(
        group, ("v1",), plural, kind, short=short, subresources=("status",), has_generation=True, categories=("all",)
    )


def _review(group: str, plural: str, kind: str) -> Resource:
    return Resource(group, ("v1",), plural, kind, namespaced=False, verbs=_CREATE)


def _rbac(plural: str, kind: str, *, namespaced: bool) -> Resource:
    return Resource("rbac.authorization.k8s.io", ("v1",), plural, kind, namespaced=namespaced)


def _admission(plural: str, kind: str, *subresources: str) -> Resource:
    """Kept and served, never applied: nothing here evaluates CEL."""
    group = "admissionregistration.k8s.io"
    return Resource(group, ("v1",), plural, kind, namespaced=False, subresources=subresources, has_generation=True)


BUILT_IN: tuple[Resource, ...] = (
    _core("bindings", "Binding", verbs=_CREATE),
    _core("configmaps", "ConfigMap", "cm"),
    _core("events", "Event", "ev", creates_on_update=True, fields=_EVENT_FIELDS, converts_fields=True, cached=False),
    _core(
        "namespaces",
        "Namespace",
        "ns",
        namespaced=False,
        subresources=("status",),
        fields=("status.phase",),
        converts_fields=True,
    ),
    _core(
        "nodes",
        "Node",
        "no",
        namespaced=False,
        subresources=("status",),
        fields=("spec.unschedulable",),
        converts_fields=True,
    ),
    _core("persistentvolumeclaims", "PersistentVolumeClaim", "pvc", subresources=("status",)),
    _core("persistentvolumes", "PersistentVolume", "pv", namespaced=False, subresources=("status",)),
    _core(
        "pods",
        "Pod",
        "po",
        subresources=("status", "binding", "eviction"),
        fields=_POD_FIELDS,
        converts_fields=True,
        categories=("all",),
    ),
    _core("replicationcontrollers", "ReplicationController", "rc", subresources=("status",), has_generation=True),
    _core("secrets", "Secret", fields=("type",), converts_fields=True),
    _core("serviceaccounts", "ServiceAccount", "sa"),
    _core("services", "Service", "svc", subresources=("status",), categories=("all",)),
    _workload("apps", "daemonsets", "DaemonSet", "ds"),
    _workload("apps", "deployments", "Deployment", "deploy"),
    _workload("apps", "replicasets", "ReplicaSet", "rs"),
    _workload("apps", "statefulsets", "StatefulSet", "sts"),
    _workload("batch", "jobs", "Job"),
    _workload("batch", "cronjobs", "CronJob", "cj"),
    Resource(
        "policy",
        ("v1", "v1beta1"),
        "poddisruptionbudgets",
        "PodDisruptionBudget",
        short=("pdb",),
        subresources=("status",),
        has_generation=True,
    ),
    Resource("coordination.k8s.io", ("v1",), "leases", "Lease", creates_on_update=True, needs_version=True),
    Resource(
        "events.k8s.io",
        ("v1", "v1beta1"),
        "events",
        "Event",
        short=("ev",),
        creates_on_update=True,
        fields=tuple(field.replace("involvedObject", "regarding") for field in _EVENT_FIELDS),
        converts_fields=True,
        cached=False,
    ),
    Resource(
        "scheduling.k8s.io",
        ("v1",),
        "priorityclasses",
        "PriorityClass",
        namespaced=False,
        short=("pc",),
        has_generation=True,
    ),
    Resource("networking.k8s.io", ("v1",), "networkpolicies", "NetworkPolicy", short=("netpol",), has_generation=True),
    _admission("validatingadmissionpolicies", "ValidatingAdmissionPolicy", "status"),
    _admission("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"),
    Resource("storage.k8s.io", ("v1",), "storageclasses", "StorageClass", namespaced=False, short=("sc",)),
    Resource("storage.k8s.io", ("v1",), "csinodes", "CSINode", namespaced=False),
    _rbac("roles", "Role", namespaced=True),
    _rbac("rolebindings", "RoleBinding", namespaced=True),
    _rbac("clusterroles", "ClusterRole", namespaced=False),
    _rbac("clusterrolebindings", "ClusterRoleBinding", namespaced=False),
    Resource(
        "apiextensions.k8s.io",
        ("v1",),
        "customresourcedefinitions",
        "CustomResourceDefinition",
        namespaced=False,
        short=("crd", "crds"),
        subresources=("status",),
        has_generation=True,
        categories=("api-extensions",),
    ),
    Resource("metrics.k8s.io", ("v1beta1",), "nodes", "NodeMetrics", namespaced=False, verbs=_READ),
    Resource("metrics.k8s.io", ("v1beta1",), "pods", "PodMetrics", verbs=_READ),
    _review("authentication.k8s.io", "tokenreviews", "TokenReview"),
    _review("authorization.k8s.io", "subjectaccessreviews", "SubjectAccessReview"),
)


def of_definition(crd: Mapping[str, Any]) -> Resource:
    """The kind that a CustomResourceDefinition describes."""
    spec = crd["spec"]
    names = spec["names"]
    served = [version for version in spec["versions"] if version["served"]]
    served.sort(key=lambda version: not version["storage"])
    subresources = {name for version in served for name in version.get("subresources") or ()}
    return Resource(
        spec["group"],
        tuple(version["name"] for version in served),
        names["plural"],
        names["kind"],
        namespaced=spec["scope"] == "Namespaced",
        short=tuple(names.get("shortNames") or ()),
        singular=names.get("singular") or names["kind"].lower(),
        categories=tuple(names.get("categories") or ()),
        subresources=tuple(sorted(subresources)),
        has_generation=True,
        needs_version=True,
        converts_fields=True,
        schemas={version["name"]: (version.get("schema") or {}).get("openAPIV3Schema") or {} for version in served},
    )


class Catalog:
    """Every kind that is served at the moment."""

    def __init__(self, custom: Iterable[Resource] = ()) -> None:
        self._built_in = {(resource.group, resource.plural): resource for resource in BUILT_IN}
        self.custom = {(resource.group, resource.plural): resource for resource in custom}

    def all(self) -> list[Resource]:
        """Built-in kinds, then custom ones."""
        return [*self._built_in.values(), *self.custom.values()]

    def of(self, group: str, version: str, plural: str) -> Resource | None:
        """The kind at /apis/`group`/`version`/`plural`."""
        resource = self._built_in.get((group, plural)) or self.custom.get((group, plural))
        return resource if resource and version in resource.versions else None

    def of_kind(self, api_version: str, kind: str) -> Resource | None:
        """The kind an object says it is."""
        group, _, version = api_version.rpartition("/")
        found = (each for each in self.all() if each.group == group and each.kind == kind and version in each.versions)
        return next(found, None)

    def groups(self) -> dict[str, tuple[str, ...]]:
        """Each named group with its versions, the preferred one first."""
        groups: dict[str, tuple[str, ...]] = {}
        for resource in self.all():
            if resource.group:
                known = groups.get(resource.group, ())
                groups[resource.group] = tuple(dict.fromkeys((*known, *resource.versions)))
        return groups
