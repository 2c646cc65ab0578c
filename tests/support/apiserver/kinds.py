"""The fields of built-in kinds (Kubernetes API reference): which there are, and what an empty one looks like."""

from __future__ import annotations

from typing import Any

from apiserver.shapes import (
    ANY,
    CHOICE,
    FLAG,
    INTEGER,
    MICRO_TIME,
    NUMBER_OR_TEXT,
    QUANTITY,
    STRING,
    TEXT,
    TIME,
    ListOf,
    MapOf,
    Shape,
    Struct,
)


def _fields(names: str, shape: Shape) -> dict[str, Shape]:
    return dict.fromkeys(names.split(), shape)


LABELS = MapOf(TEXT)
AMOUNTS = MapOf(QUANTITY)
LIST = ListOf(Struct({}, is_open=True))
TEXTS = ListOf(TEXT)
SELECTOR = Struct(
    {
        "matchLabels": LABELS,
        "matchExpressions": ListOf(
            Struct({"key": TEXT, "operator": TEXT, "values": TEXTS}, {"key": "", "operator": ""})
        ),
    }
)
_TOLERATION = Struct(
    {**_fields("key operator value effect", STRING), "tolerationSeconds": INTEGER},
)
_TAINT = Struct({**_fields("key effect", TEXT), "value": STRING, "timeAdded": TIME}, {"key": "", "effect": ""})
_REFERENCE = Struct(_fields("kind namespace name uid apiVersion resourceVersion fieldPath", STRING))

META = Struct(
    {
        **_fields("name generateName namespace uid resourceVersion clusterName", STRING),
        **_fields("generation deletionGracePeriodSeconds", INTEGER),
        **_fields("creationTimestamp deletionTimestamp", TIME),
        **_fields("labels annotations", LABELS),
        **_fields("finalizers", ListOf(TEXT)),
        "ownerReferences": ListOf(Struct(_fields("kind name uid apiVersion", TEXT), is_open=True)),
    }
)

_RESOURCES = Struct({"limits": AMOUNTS, "requests": AMOUNTS, "claims": LIST})
_CONTAINER = Struct(
    {
        **_fields("name image workingDir terminationMessagePath terminationMessagePolicy imagePullPolicy", STRING),
        **_fields("restartPolicy targetContainerName", STRING),
        **_fields("command args", ListOf(TEXT)),
        **_fields("ports envFrom env volumeMounts volumeDevices resizePolicy", LIST),
        **_fields("livenessProbe readinessProbe startupProbe lifecycle securityContext", ANY),
        **_fields("stdin stdinOnce tty", FLAG),
        "resources": _RESOURCES,
    },
    {"resources": {}},
)
_POD_SPEC = Struct(
    {
        **_fields("containers initContainers ephemeralContainers", ListOf(_CONTAINER)),
        **_fields("restartPolicy dnsPolicy nodeName schedulerName priorityClassName hostname subdomain", STRING),
        **_fields("serviceAccountName serviceAccount", STRING),
        **_fields("runtimeClassName preemptionPolicy", TEXT),
        **_fields("terminationGracePeriodSeconds activeDeadlineSeconds priority", INTEGER),
        **_fields("hostNetwork hostPID hostIPC", FLAG),
        **_fields("automountServiceAccountToken shareProcessNamespace enableServiceLinks", CHOICE),
        **_fields("setHostnameAsFQDN hostUsers", CHOICE),
        **_fields("nodeSelector", LABELS),
        **_fields("volumes imagePullSecrets hostAliases readinessGates topologySpreadConstraints", LIST),
        "tolerations": ListOf(_TOLERATION),
        **_fields("schedulingGates resourceClaims", LIST),
        **_fields("securityContext affinity dnsConfig os", ANY),
        "overhead": AMOUNTS,
        "resources": _RESOURCES,
    }
)


def _condition(*times: str) -> Struct:
    shape = {**_fields("type status reason message", TEXT), **_fields("observedGeneration", INTEGER)}
    return Struct({**shape, **dict.fromkeys(times, TIME)}, {"type": "", "status": "", **dict.fromkeys(times)})


_STATE = Struct(
    {
        "running": Struct({"startedAt": TIME}, {"startedAt": None}),
        "waiting": ANY,
        "terminated": Struct({}, {"startedAt": None, "finishedAt": None, "exitCode": 0}, is_open=True),
    }
)
_CONTAINER_STATUS = Struct(
    {
        **_fields("name image imageID", TEXT),
        **_fields("containerID", STRING),
        **_fields("ready started", CHOICE),
        **_fields("restartCount", INTEGER),
        **_fields("state lastState", _STATE),
        "allocatedResources": AMOUNTS,
        "resources": _RESOURCES,
        "volumeMounts": LIST,
    },
    {"state": {}, "lastState": {}, "ready": False, "restartCount": 0, "image": "", "imageID": ""},
)
_POD_STATUS = Struct(
    {
        **_fields("phase message reason nominatedNodeName hostIP podIP qosClass resize", STRING),
        **_fields("podIPs hostIPs resourceClaimStatuses", LIST),
        **_fields("startTime", TIME),
        **_fields("conditions", ListOf(_condition("lastProbeTime", "lastTransitionTime"))),
        **_fields("containerStatuses initContainerStatuses ephemeralContainerStatuses", ListOf(_CONTAINER_STATUS)),
    }
)
_NODE_INFO = dict.fromkeys(
    (
        "machineID",
        "systemUUID",
        "bootID",
        "kernelVersion",
        "osImage",
        "containerRuntimeVersion",
        "kubeletVersion",
        "kubeProxyVersion",
        "operatingSystem",
        "architecture",
    ),
    "",
)
_NODE_STATUS = Struct(
    {
        **_fields("capacity allocatable", AMOUNTS),
        **_fields("phase", STRING),
        **_fields("conditions", ListOf(_condition("lastHeartbeatTime", "lastTransitionTime"))),
        **_fields("addresses images volumesInUse volumesAttached runtimeHandlers", LIST),
        **_fields("daemonEndpoints config features", ANY),
        "nodeInfo": Struct({}, _NODE_INFO, is_open=True),
    },
    {"daemonEndpoints": {"kubeletEndpoint": {"Port": 0}}, "nodeInfo": _NODE_INFO},
)
_NODE_SPEC = Struct(
    {
        **_fields("podCIDR providerID externalID", STRING),
        "podCIDRs": TEXTS,
        "taints": ListOf(_TAINT),
        **_fields("unschedulable", FLAG),
        **_fields("configSource", ANY),
    }
)
_BUDGET_COUNTS = dict.fromkeys(("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"), 0)
_BUDGET_STATUS = Struct(
    {
        **_fields("observedGeneration disruptionsAllowed currentHealthy desiredHealthy expectedPods", INTEGER),
        "disruptedPods": MapOf(TIME),
        "conditions": ListOf(_condition("lastTransitionTime")),
    },
    _BUDGET_COUNTS,
)
_BUDGET_SPEC = Struct(
    {
        **_fields("minAvailable maxUnavailable", NUMBER_OR_TEXT),
        "selector": SELECTOR,
        **_fields("unhealthyPodEvictionPolicy", STRING),
    }
)
_LEASE_SPEC = Struct(
    {
        **_fields("holderIdentity strategy preferredHolder", TEXT),
        **_fields("leaseDurationSeconds leaseTransitions", INTEGER),
        **_fields("acquireTime renewTime", MICRO_TIME),
    }
)


def _kind(fields: dict[str, Shape], always: dict[str, Any] | None = None) -> Struct:
    base = {"apiVersion": TEXT, "kind": TEXT, "metadata": META}
    return Struct({**base, **fields}, always or {})


_SUBJECT = Struct(_fields("kind name namespace apiGroup", STRING), {"kind": "", "name": ""})
_ROLE_REF = Struct(_fields("kind name apiGroup", STRING), {"kind": "", "name": ""})
_RULE = Struct(_fields("verbs apiGroups resources resourceNames nonResourceURLs", TEXTS), {"verbs": []})
_NAMES = Struct(
    {**_fields("plural singular kind listKind", STRING), **_fields("shortNames categories", TEXTS)},
    {"plural": "", "kind": ""},
)
_VERSION = Struct(
    {
        "name": TEXT,
        **_fields("served storage", CHOICE),
        **_fields("schema subresources", Struct({"openAPIV3Schema": Struct({}, is_open=True)}, is_open=True)),
    },
    {"name": "", "served": False, "storage": False},
    is_open=True,
)
_DEFINITION_SPEC = Struct(
    {**_fields("group scope", TEXT), "names": _NAMES, "versions": ListOf(_VERSION), "conversion": ANY},
    {"group": "", "names": {"plural": "", "kind": ""}, "scope": "", "versions": []},
    is_open=True,
)


def _partly(fields: dict[str, Shape], always: dict[str, Any] | None = None) -> Struct:
    """A kind of which only some fields are written down."""
    return Struct({"metadata": META, **fields}, always or {}, is_open=True)


_OPEN = Struct({"metadata": META}, is_open=True)
_SHAPES: dict[str, Struct] = {
    "ConfigMap": _kind(
        {"data": MapOf(TEXT), "binaryData": MapOf(TEXT), "immutable": CHOICE},
    ),
    "Event": _kind(
        {
            **_fields("reason message type action reportingComponent reportingInstance", STRING),
            **_fields("firstTimestamp lastTimestamp", TIME),
            **_fields("eventTime", MICRO_TIME),
            **_fields("count", INTEGER),
            **_fields("involvedObject related", _REFERENCE),
            "source": Struct(_fields("component host", STRING)),
            "series": Struct({"count": INTEGER, "lastObservedTime": MICRO_TIME}),
        },
        {
            **dict.fromkeys(("firstTimestamp", "lastTimestamp", "eventTime")),
            **dict.fromkeys(("reportingComponent", "reportingInstance"), ""),
            "involvedObject": {},
            "source": {},
        },
    ),
    "Lease": _kind({"spec": _LEASE_SPEC}, {"spec": {}}),
    "Namespace": _kind(
        {
            "spec": Struct({"finalizers": ListOf(TEXT)}),
            "status": Struct({"phase": STRING, "conditions": LIST}),
        },
        {"spec": {}, "status": {}},
    ),
    "ClusterRole": _partly({"rules": ListOf(_RULE)}),
    "ClusterRoleBinding": _partly({"subjects": ListOf(_SUBJECT), "roleRef": _ROLE_REF}, {"roleRef": _ROLE_REF.always}),
    "CustomResourceDefinition": _partly({"spec": _DEFINITION_SPEC}, {"spec": _DEFINITION_SPEC.always}),
    "PriorityClass": _partly({"value": INTEGER, "globalDefault": FLAG}, {"value": 0}),
    "Role": _partly({"rules": ListOf(_RULE)}),
    "RoleBinding": _partly({"subjects": ListOf(_SUBJECT), "roleRef": _ROLE_REF}, {"roleRef": _ROLE_REF.always}),
    "Node": _kind(
        {"spec": _NODE_SPEC, "status": _NODE_STATUS},
        {"spec": {}, "status": dict(_NODE_STATUS.always)},
    ),
    "Pod": _kind({"spec": _POD_SPEC, "status": _POD_STATUS}, {"spec": {}, "status": {}}),
    "PodDisruptionBudget": _kind(
        {"spec": _BUDGET_SPEC, "status": _BUDGET_STATUS}, {"spec": {}, "status": _BUDGET_COUNTS}
    ),
}


MERGE_KEYS = {
    "addresses": "type",
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "podIPs": "ip",
    "ports": "containerPort",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "secrets": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
"""Lists that strategic patches merge element by element, and by which field; other lists are replaced whole."""
MERGED_SETS = frozenset({"finalizers"})
"""Lists of plain values that strategic patches unite."""


def shape(kind: str) -> Struct:
    """The fields of a kind; a kind that is not written down keeps what it is given."""
    return _SHAPES.get(kind, _OPEN)
