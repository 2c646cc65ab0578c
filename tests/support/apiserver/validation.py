"""What a kind demands of its objects beyond field types (Kubernetes API validation), and what it fills in."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from apiserver import names
from apiserver.status import Cause, forbidden_field, required, too_long, unsupported, wrong
from apiserver.store import Object
from koordlite.model.quantity import NANO, Quantity

_PATH_NAMES = frozenset({"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"})
_LABEL_NAMES = frozenset({"Namespace", "Service"})
_WHOLE_PERCENT = 100
_CONFIG_BYTES = 1 << 20
_ANNOTATION_BYTES = 256 << 10
_NOTE_CHARACTERS = 1024
_WORD_CHARACTERS = 128
_SCOPES = ("Cluster", "Namespaced")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
STANDARD = frozenset({"cpu", "memory", "ephemeral-storage"})

Rule = Callable[[Object], Iterator[Cause]]
UpdateRule = Callable[[Object, Object], Iterator[Cause]]


def metadata(item: Object) -> Iterator[Cause]:
    """Name, labels and annotations."""
    meta = item["metadata"]
    name, prefix = meta.get("name", ""), meta.get("generateName", "")
    faults = _name_faults(item["kind"])
    # A prefix may end in what no name may end in: more follows.
    yield from (wrong("metadata.generateName", prefix, each) for each in faults(re.sub("-$", "a", prefix)) if prefix)
    if not name:
        yield required("metadata.name", "name or generateName is required")
    else:
        yield from (wrong("metadata.name", name, each) for each in faults(name))
    yield from labels("metadata.labels", meta.get("labels") or {})
    yield from _annotations(meta.get("annotations") or {})
    yield from _owners(meta.get("ownerReferences") or ())


def labels(field: str, found: Mapping[str, str]) -> Iterator[Cause]:
    """Keys and values of labels."""
    for key, value in found.items():
        yield from (wrong(field, key, each) for each in names.key_faults(key))
        yield from (wrong(field, value, each) for each in names.value_faults(value))


def _name_faults(kind: str) -> Callable[[str], list[str]]:
    if kind in _PATH_NAMES:
        return lambda _: []
    return names.label_faults if kind in _LABEL_NAMES else names.subdomain_faults


def _annotations(annotations: Mapping[str, str]) -> Iterator[Cause]:
    for key in annotations:
        yield from (wrong("metadata.annotations", key, each) for each in names.key_faults(key.lower()))
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > _ANNOTATION_BYTES:
        yield too_long("metadata.annotations", _ANNOTATION_BYTES)


def _owners(owners: Sequence[Object]) -> Iterator[Cause]:
    field = "metadata.ownerReferences"
    for owner in owners:
        yield from (wrong(f"{field}.{key}", "", "must not be empty") for key in ("name", "uid") if not owner.get(key))
    leading = [f"{owner['kind']}/{owner.get('name', '')}" for owner in owners if owner.get("controller")]
    if len(leading) > 1:
        found = f'Found "true" in references for {leading[0]} and {leading[1]}'
        why = f"Only one reference can have Controller set to true. {found}"
        yield Cause("FieldValueInvalid", f"Invalid value: {json.dumps(owners, separators=(',', ':'))}: {why}", field)


def metadata_update(old: Object, new: Object) -> Iterator[Cause]:
    """Finalizers of an object on its way out."""
    if not old["metadata"].get("deletionTimestamp"):
        return
    known = old["metadata"].get("finalizers") or ()
    added = [each for each in new["metadata"].get("finalizers") or () if each not in known]
    if added:
        shown = ", ".join(f'"{each}"' for each in added)
        why = "no new finalizers can be added if the object is being deleted, found new finalizers []string{" + shown
        # The API server checks the metadata of any object, and that of the kind again: it reports this twice.
        yield from [forbidden_field("metadata.finalizers", why + "}")] * 2


def _config_map(item: Object) -> Iterator[Cause]:
    for field in ("data", "binaryData"):
        for key in item.get(field) or {}:
            yield from (wrong(f"{field}[{key}]", key, each) for each in names.config_key_faults(key))
            if field == "data" and key in (item.get("binaryData") or {}):
                yield wrong(f"data[{key}]", key, "duplicate of key present in binaryData")
    sizes = [len(value.encode()) for field in ("data", "binaryData") for value in (item.get(field) or {}).values()]
    if sum(sizes) > _CONFIG_BYTES:
        yield too_long("[]", _CONFIG_BYTES)


def _config_map_update(old: Object, new: Object) -> Iterator[Cause]:
    if not old.get("immutable"):
        return
    if not new.get("immutable"):
        yield forbidden_field("immutable", "field is immutable when `immutable` is set")
    for field in ("data", "binaryData"):
        if old.get(field) != new.get(field):
            yield forbidden_field(field, "field is immutable when `immutable` is set")


def _lease(item: Object) -> Iterator[Cause]:
    spec = item.get("spec") or {}
    if spec.get("leaseDurationSeconds", 1) <= 0:
        yield wrong("spec.leaseDurationSeconds", spec["leaseDurationSeconds"], "must be greater than 0")
    if spec.get("leaseTransitions", 0) < 0:
        yield wrong("spec.leaseTransitions", spec["leaseTransitions"], "must to greater or equal than 0")


def event(item: Object, controller: str) -> Iterator[Cause]:
    """An Event of either group; `controller` is the name of the field with the reporting controller there.

    Only events of the later form have a time of their own; only they have to say who reports what.
    """
    involved = item["involvedObject"].get("namespace", "")
    home = item["metadata"].get("namespace", "")
    is_timed = bool(item.get("eventTime"))
    at_home = bool(involved) or home in ("default", "kube-system") if is_timed else (involved or "default") == home
    if not at_home:
        yield wrong("involvedObject.namespace", involved, "does not match event.namespace")
    if is_timed:
        yield from _told(item, controller)


def _told(item: Object, controller: str) -> Iterator[Cause]:
    said = item.get("reportingComponent", "")
    if not said:
        yield required(controller)
    yield from (wrong(controller, said, each) for each in names.key_faults(said))
    for field in ("reportingInstance", "action", "reason"):
        if not item.get(field):
            yield required(field)
        elif len(item[field]) > _WORD_CHARACTERS:
            yield wrong(field, "", f"can have at most {_WORD_CHARACTERS} characters")
    if len(item.get("message", "")) > _NOTE_CHARACTERS:
        yield wrong("message", "", f"can have at most {_NOTE_CHARACTERS} characters")


_EVENT_FIELDS = (
    *("involvedObject", "reason", "message", "type", "action", "related", "eventTime", "reportingInstance"),
    *("reportingComponent", "source", "firstTimestamp", "lastTimestamp", "count"),
)
"""What a later write through events.k8s.io may not change: all but the series and the metadata."""


def strict_event_update(old: Object, new: Object) -> Iterator[Cause]:
    """What events.k8s.io/v1 asks of a changed Event."""
    for field in _EVENT_FIELDS:
        if old.get(field) != new.get(field):
            shown = "reportingController" if field == "reportingComponent" else field
            yield wrong(shown, _go_json(new.get(field)), "field is immutable")
    yield from _series(new.get("series"))


def _go_json(value: object) -> object:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _series(series: Object | None) -> Iterator[Cause]:
    if series is None:
        return
    if series.get("count", 0) < 2:
        yield wrong("series.count", "", "should be at least 2")
    if not series.get("lastObservedTime"):
        yield required("series.lastObservedTime")


def strict_event(item: Object) -> Iterator[Cause]:
    """What events.k8s.io/v1 asks on create."""
    yield from _series(item.get("series"))
    if not item.get("eventTime"):
        yield required("eventTime")
    if item.get("type") not in ("Normal", "Warning"):
        yield wrong("type", "", f"has invalid value: {item.get('type', '')}")
    for field in ("firstTimestamp", "lastTimestamp", "count", "source"):
        if item.get(field):
            yield wrong(field, "", "needs to be unset")


def _budget(item: Object) -> Iterator[Cause]:
    spec = item.get("spec") or {}
    if "minAvailable" in spec and "maxUnavailable" in spec:
        yield Cause(
            "FieldValueInvalid",
            "Invalid value: policy.PodDisruptionBudgetSpec{}: minAvailable and maxUnavailable cannot be both set",
            "spec",
        )
    for field in ("minAvailable", "maxUnavailable"):
        if field in spec:
            yield from _share(f"spec.{field}", spec[field])
    yield from selector("spec.selector", spec.get("selector") or {})
    for field, value in (item.get("status") or {}).items():
        if isinstance(value, int) and value < 0:
            yield wrong(f"status.{field}", value, "must be greater than or equal to 0")


def _share(field: str, value: int | str) -> Iterator[Cause]:
    """A count, or a percentage up to all."""
    if isinstance(value, int):
        if value < 0:
            yield wrong(field, value, "must be greater than or equal to 0")
        return
    shown = f'intstr.IntOrString{{Type:1, IntVal:0, StrVal:"{value}"}}'
    if not re.fullmatch("[0-9]+%", value, re.ASCII):
        why = "must be an integer or percentage (e.g '5%%')"
    elif int(value[:-1]) > _WHOLE_PERCENT:
        why = "must not be greater than 100%"
    else:
        return
    yield Cause("FieldValueInvalid", f"Invalid value: {shown}: {why}", field)


def selector(field: str, found: Object) -> Iterator[Cause]:
    """A metav1.LabelSelector."""
    yield from labels(f"{field}.matchLabels", found.get("matchLabels") or {})
    for place, each in enumerate(found.get("matchExpressions") or ()):
        yield from _expression(f"{field}.matchExpressions[{place}]", each)


def _expression(field: str, expression: Object) -> Iterator[Cause]:
    operator, values = expression["operator"], expression.get("values")
    if operator in ("In", "NotIn"):
        if not values:
            yield required(f"{field}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator not in ("Exists", "DoesNotExist"):
        yield wrong(f"{field}.operator", operator, "not a valid selector operator")
    elif values:
        yield forbidden_field(f"{field}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
    yield from (wrong(f"{field}.key", expression["key"], each) for each in names.key_faults(expression["key"]))


def _node(item: Object) -> Iterator[Cause]:
    for place, taint in enumerate((item.get("spec") or {}).get("taints") or ()):
        if taint.get("effect") not in _EFFECTS:
            yield unsupported(f"metadata.taints[{place}].effect", taint.get("effect", ""), _EFFECTS)


def _node_update(old: Object, new: Object) -> Iterator[Cause]:
    # The API server validates a node's taints a second time on update, and reports them twice.
    yield from _node(new)
    for field in ("capacity", "allocatable"):
        for name, text in ((new.get("status") or {}).get(field) or {}).items():
            yield from amount(f"status.{field}.{name}", name, text)
    before, after = old.get("spec") or {}, new.get("spec") or {}
    if before.get("podCIDRs") and before["podCIDRs"] != after.get("podCIDRs"):
        yield forbidden_field("spec.podCIDRs", 'node updates may not change podCIDR except from "" to valid')
    if before.get("providerID") and before["providerID"] != after.get("providerID"):
        yield forbidden_field("spec.providerID", 'node updates may not change providerID except from "" to valid')


def amount(field: str, name: str, text: str) -> Iterator[Cause]:
    """A quantity of a resource: not negative, whole where the resource cannot be divided."""
    quantity = Quantity.parse(text)
    if quantity.nano < 0:
        yield wrong(field, text, "must be greater than or equal to 0")
    if (is_extended(name) or name == "pods") and quantity.nano % NANO:
        yield Cause("FieldValueInvalid", f"Invalid value: {_go_quantity(text, quantity)}: must be an integer", field)


def is_extended(name: str) -> bool:
    """Whether a resource is an extended one: counted whole, never overcommitted."""
    return "/" in name and not name.partition("/")[0].endswith("kubernetes.io")


def _go_quantity(text: str, quantity: Quantity) -> str:
    scale, value = -9, quantity.nano
    while value % 1000 == 0 and scale < 0:
        scale, value = scale + 3, value // 1000
    amounts = f"i:resource.int64Amount{{value:{value}, scale:{scale}}}, d:resource.infDecAmount{{Dec:(*inf.Dec)(nil)}}"
    return f'resource.Quantity{{{amounts}, s:"{text}", Format:"{quantity.format}"}}'


def _definition(item: Object) -> Iterator[Cause]:
    spec = item.get("spec") or {}
    group, called = spec.get("group", ""), spec.get("names") or {}
    if not called.get("plural") or not called.get("kind"):
        yield required("spec.names.plural" if not called.get("plural") else "spec.names.kind")
    if [version["storage"] for version in spec.get("versions") or ()].count(True) != 1:
        why = "must have exactly one version marked as storage version"
        yield Cause("FieldValueInvalid", f"Invalid value: {why}", "spec.versions")
    if not group:
        yield required("spec.group")
    if spec.get("scope") not in _SCOPES:
        scope = spec.get("scope")
        yield unsupported("spec.scope", scope, _SCOPES) if scope else required("spec.scope")
    wanted = f"{called.get('plural', '')}.{group}"
    if item["metadata"].get("name") != wanted:
        why = 'must be spec.names.plural+"."+spec.group'
        yield wrong("metadata.name", item["metadata"].get("name", ""), why)
    approval = "api-approved.kubernetes.io"
    protected = group.endswith((".k8s.io", ".kubernetes.io")) or group in ("k8s.io", "kubernetes.io")
    if protected and not (item["metadata"].get("annotations") or {}).get(approval):
        why = (
            f'protected groups must have approval annotation "{approval}", see '
            "https://github.com/kubernetes/enhancements/pull/1111"
        )
        yield required(f"metadata.annotations[{approval}]", why)


RULES: dict[str, Rule] = {
    "ConfigMap": _config_map,
    "Lease": _lease,
    "PodDisruptionBudget": _budget,
    "Node": _node,
    "CustomResourceDefinition": _definition,
}
UPDATE_RULES: dict[str, UpdateRule] = {"ConfigMap": _config_map_update, "Node": _node_update}
