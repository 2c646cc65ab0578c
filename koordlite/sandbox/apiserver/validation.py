"""What a kind demands of its objects beyond field types (Kubernetes API validation), and what it fills in."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from koordlite.model.quantity import NANO, Quantity
from koordlite.sandbox.apiserver.status import Cause, forbidden_field, required, too_long, unsupported, wrong
from koordlite.sandbox.apiserver.store import Object

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    f"and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    f"with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
)
_KEY_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    f"character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_QUALIFIED}')"
)
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    f"'({_QUALIFIED})?')"
)
_PATH_NAMES = frozenset({"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"})
_LABEL_NAMES = frozenset({"Namespace", "Service"})
_CONFIG_BYTES = 1 << 20
_NOTE_CHARACTERS = 1024
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
STANDARD = frozenset({"cpu", "memory", "ephemeral-storage"})

Rule = Callable[[Object], Iterator[Cause]]
UpdateRule = Callable[[Object, Object], Iterator[Cause]]


def metadata(item: Object) -> Iterator[Cause]:
    """Name and labels."""
    meta = item["metadata"]
    name = meta.get("name", "")
    if not name:
        yield required("metadata.name", "name or generateName is required")
    elif item["kind"] not in _PATH_NAMES:
        yield from _name(name, is_label=item["kind"] in _LABEL_NAMES)
    for key, value in (meta.get("labels") or {}).items():
        yield from _label(key, value)


def _name(name: str, *, is_label: bool) -> Iterator[Cause]:
    if is_label and not re.fullmatch(_LABEL, name):
        yield wrong("metadata.name", name, _LABEL_RULE)
    elif not is_label and not re.fullmatch(_SUBDOMAIN, name):
        yield wrong("metadata.name", name, _SUBDOMAIN_RULE)


def _label(key: str, value: str) -> Iterator[Cause]:
    prefix, slash, rest = key.rpartition("/")
    if not re.fullmatch(_QUALIFIED, rest) or (slash and not prefix):
        yield wrong("metadata.labels", key, _KEY_RULE)
    if value and not re.fullmatch(_QUALIFIED, value):
        yield wrong("metadata.labels", value, _VALUE_RULE)


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


def _event(item: Object) -> Iterator[Cause]:
    involved = item["involvedObject"].get("namespace", "")
    home = item["metadata"].get("namespace", "")
    if (involved or "default") != home:
        yield wrong("involvedObject.namespace", involved, "does not match event.namespace")


def strict_event(item: Object) -> Iterator[Cause]:
    """What events.k8s.io/v1 asks on create."""
    if not item.get("eventTime"):
        yield required("eventTime")
    if item.get("type") not in ("Normal", "Warning"):
        yield wrong("type", "", f"has invalid value: {item.get('type', '')}")
    if len(item.get("message", "")) > _NOTE_CHARACTERS:
        yield wrong("message", "", f"can have at most {_NOTE_CHARACTERS} characters")


def _budget(item: Object) -> Iterator[Cause]:
    spec = item.get("spec") or {}
    if "minAvailable" in spec and "maxUnavailable" in spec:
        yield Cause(
            "FieldValueInvalid",
            "Invalid value: policy.PodDisruptionBudgetSpec{}: minAvailable and maxUnavailable cannot be both set",
            "spec",
        )
    for field, value in (item.get("status") or {}).items():
        if isinstance(value, int) and value < 0:
            yield wrong(f"status.{field}", value, "must be greater than or equal to 0")


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
    group, names = spec.get("group", ""), spec.get("names") or {}
    if not names.get("plural") or not names.get("kind"):
        yield required("spec.names.plural" if not names.get("plural") else "spec.names.kind")
    if [version["storage"] for version in spec.get("versions") or ()].count(True) != 1:
        why = "must have exactly one version marked as storage version"
        yield Cause("FieldValueInvalid", f"Invalid value: {why}", "spec.versions")
    wanted = f"{names.get('plural', '')}.{group}"
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
    "Event": _event,
    "PodDisruptionBudget": _budget,
    "Node": _node,
    "CustomResourceDefinition": _definition,
}
UPDATE_RULES: dict[str, UpdateRule] = {"ConfigMap": _config_map_update, "Node": _node_update}
