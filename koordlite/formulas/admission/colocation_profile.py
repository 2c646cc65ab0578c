"""Effects of ClusterColocationProfiles on a new pod: the pod as admitted, and each change with its reason.

Source: Koordinator's mutating pod webhook, steps ClusterColocationProfile and extended-resource-spec. Pods are plain
JSON objects, because everything that is not changed has to come out as it went in.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from koordlite.model import keys, label_selectors
from koordlite.model.colocation_profile import Profile
from koordlite.model.errors import InputError, Problem, refusing
from koordlite.model.pod import pod_reader, qos
from koordlite.model.quantity import Quantity
from koordlite.model.wire import objects

PodObject = dict[str, Any]
Labels = Mapping[str, str]

TRANSLATED: Mapping[qos.PriorityClass, Mapping[str, str]] = {
    qos.PriorityClass.BATCH: {"cpu": keys.BATCH_CPU, "memory": keys.BATCH_MEMORY},
    qos.PriorityClass.MID: {"cpu": keys.MID_CPU, "memory": keys.MID_MEMORY},
}
"""Native resource to the extended one, by priority class; other classes keep theirs."""
_MERGE_KEYS: Mapping[str, str] = {
    **dict.fromkeys(("containers", "initContainers", "ephemeralContainers", "env", "volumes"), "name"),
    **dict.fromkeys(("imagePullSecrets", "resourceClaims", "schedulingGates"), "name"),
    "hostAliases": "ip",
    "ownerReferences": "uid",
    "ports": "containerPort",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
}
"""Key by which the items of a pod's lists are merged; lists without one are replaced. Source: `patchMergeKey` of the
pod's fields in the Kubernetes API."""
_MIRRORED = (keys.BATCH_CPU, keys.BATCH_MEMORY)


class PriorityClassValue(msgspec.Struct, frozen=True):
    """Priority that a PriorityClass object gives a pod."""

    value: int
    preemption_policy: str | None = None


class FieldChange(msgspec.Struct, frozen=True):
    """A field of the pod that came out different; None is a field that is not there."""

    field: str
    before: Any
    after: Any
    why: str


class Admission(msgspec.Struct, frozen=True):
    """A pod as it would be admitted."""

    pod: PodObject
    taken_by: tuple[str, ...] = ()
    """Profiles that match, in the order in which they are applied: by name."""
    skipped: tuple[str, ...] = ()
    """Profiles that the draw left out."""
    changes: tuple[FieldChange, ...] = ()
    notes: tuple[str, ...] = ()
    """Expected changes that were not made, with the reason."""


def matching(
    profiles: Iterable[Profile], *, namespace: Labels | None, labels: Labels
) -> tuple[tuple[Profile, ...], tuple[str, ...]]:
    """(the profiles that take a pod with these labels, sorted by name; notes on those that could not be judged).

    `namespace` has the labels of the pod's namespace; None when they are not known, and then a profile that asks for
    them does not match.
    """
    matches, notes = [], []
    for profile in sorted(profiles, key=lambda each: each.name.encode()):
        selector = profile.namespace_selector
        if selector is not None and (selector.match_labels or selector.match_expressions) and namespace is None:
            notes.append(f"profile {profile.name} asks for labels of the namespace, which are not known: no match")
        elif (selector is None or label_selectors.labels_match(selector, namespace or {})) and (
            profile.selector is None or label_selectors.labels_match(profile.selector, labels)
        ):
            matches.append(profile)
    return tuple(matches), tuple(notes)


def admitted(
    pod: Mapping[str, Any],
    profiles: Iterable[Profile],
    *,
    namespaces: Mapping[str, Labels],
    priority_classes: Mapping[str, PriorityClassValue],
    draws: Iterable[int] = (),
) -> Admission:
    """The pod as the profiles make it at its creation.

    `namespaces` has the labels by name. `draws` are numbers from 0 to 99, one for each matching profile with a
    probability from 1 to 99: it applies where the number is below its probability; without a number it applies.
    InputError when a profile names a priority class that does not exist, or its patch cannot be applied.
    """
    metadata = pod.get("metadata") or {}
    labels, space = metadata.get("labels") or {}, namespaces.get(metadata.get("namespace") or "default")
    matched, notes = matching(profiles, namespace=space, labels=labels)
    mutated, skipped, changes = copy.deepcopy(dict(pod)), list[str](), list[FieldChange]()
    numbers = iter(draws)
    for profile in matched:
        applies = profile.probability == 100 or (profile.probability > 0 and next(numbers, 0) < profile.probability)
        if not applies:
            skipped.append(profile.name)
            continue
        before, mutated = mutated, _applied(profile, mutated, priority_classes)
        changes.extend(_differences("", before, mutated, f"profile {profile.name}"))
    keeping = [profile.name for profile in matched if profile.keep_resources]
    if keeping:
        notes += (f"profile {keeping[0]} has annotation {keys.SKIP_RESOURCES}: requests and limits stay as they are",)
    elif matched:
        band = _class(mutated)
        before, mutated = mutated, _translated(mutated, TRANSLATED.get(band, {}))
        changes.extend(_differences("", before, mutated, f"priority class {band}"))
    names = tuple(profile.name for profile in matched)
    return Admission(mutated, names, tuple(skipped), tuple(changes), notes)


def with_resource_spec(pod: PodObject) -> tuple[PodObject, tuple[FieldChange, ...]]:
    """The pod with the annotation `node.koordinator.sh/extended-resource-spec`, which repeats the batch resources of
    its containers for runtimes that see no resource names. Unchanged where the annotation says the same already."""
    by_container: dict[str, Any] = {}
    for container in (pod.get("spec") or {}).get("containers") or ():
        lists = container.get("resources") or {}
        entry = {
            which: {name: str(_quantity(amounts[name], f"resources.{which}")) for name in _MIRRORED if name in amounts}
            for which in ("limits", "requests")
            if (amounts := lists.get(which) or {}) and any(name in amounts for name in _MIRRORED)
        }
        if entry:
            by_container[container.get("name", "")] = entry
    target = {"containers": by_container} if by_container else {}
    text = ((pod.get("metadata") or {}).get("annotations") or {}).get(keys.EXTENDED_RESOURCE_SPEC)
    if text is None and not target:
        return pod, ()
    with contextlib.suppress(ValueError):  # What is no JSON is replaced.
        if text is not None and json.loads(text) == target:
            return pod, ()
    text = json.dumps(target, separators=(",", ":"), sort_keys=True)
    after = copy.deepcopy(pod)
    metadata = after["metadata"]
    metadata["annotations"] = {**(metadata.get("annotations") or {}), keys.EXTENDED_RESOURCE_SPEC: text}
    return after, tuple(_differences("", pod, after, "batch resources of the containers, for the container runtime"))


def _applied(profile: Profile, pod: PodObject, classes: Mapping[str, PriorityClassValue]) -> PodObject:
    """One profile, in Koordinator's order: labels, annotations, mappings, suffixes, scheduler, QoS, priority, patch.

    InputError when there is no such priority class, the patch cannot be applied, or what it makes is no pod.
    """
    mutated, owner = copy.deepcopy(pod), f"clustercolocationprofile/{profile.name}"
    metadata, spec = mutated.setdefault("metadata", {}), mutated.setdefault("spec", {})
    labels = {**(metadata.get("labels") or {}), **profile.labels}
    notes = {**(metadata.get("annotations") or {}), **profile.annotations}
    labels |= {new: labels.get(old, "") for old, new in profile.label_keys_mapping.items()}
    notes |= {new: notes.get(old, "") for old, new in profile.annotation_keys_mapping.items()}
    labels |= {key: labels[key] + suffix for key, suffix in profile.label_suffixes.items() if key in labels}
    if profile.scheduler_name:
        spec["schedulerName"] = profile.scheduler_name
    if profile.qos_class:
        labels[keys.QOS_CLASS] = profile.qos_class
    if profile.priority_class_name:
        name = profile.priority_class_name
        if name not in classes:
            names = ", ".join(sorted(classes)) or "none"
            why = f"there is no PriorityClass of this name (there are: {names})"
            do = "create it, or correct the profile; until then no pod that the profile matches is created"
            raise InputError(Problem(owner, "spec.priorityClassName", name, why, do))
        spec |= {"priorityClassName": name, "priority": classes[name].value}
        spec.pop("preemptionPolicy", None)
        if classes[name].preemption_policy is not None:
            spec["preemptionPolicy"] = classes[name].preemption_policy
    if profile.koordinator_priority is not None:
        labels[keys.PRIORITY] = str(profile.koordinator_priority)
    for field, values in (("labels", labels), ("annotations", notes)):
        if values:
            metadata[field] = values
    if not profile.patch:
        return mutated
    do = "correct the patch; until then no pod that the profile matches is created"
    with refusing(owner, "spec.patch", "", do):
        mutated = merged(mutated, profile.patch)
        msgspec.convert(mutated, objects.PodObject)
    return mutated


def merged(target: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """`target` after a strategic merge patch, both untouched: objects are merged, null removes, lists of named things
    are merged by name. ValueError where the patch has a directive (`$patch`, …) or a list item lacks the key that it
    is found by."""
    result = dict(target)
    for key, value in patch.items():
        if key.startswith("$"):
            raise ValueError(f"the directive {key} is not supported; write the fields themselves, null to remove one")
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping):
            present = result.get(key)
            child = merged(present if isinstance(present, Mapping) else {}, value)
            # What only removes from an object that is not there makes none.
            if child or not value or key in result:
                result[key] = child
        elif isinstance(value, list) and key in _MERGE_KEYS:
            result[key] = _merged_items(key, result.get(key) or [], value)
        else:
            result[key] = copy.deepcopy(value)
    return result


def _merged_items(key: str, present: Sequence[Any], patch: Sequence[Any]) -> list[Any]:
    """Items of list `key` after its patch: those of the patch in its order, new ones before what is present, others
    after what precedes them now. Of several with one merge key (a port by TCP and UDP) the first is patched, and the
    others stay behind it. Source: apimachinery `normalizeElementOrder` (strategicpatch/patch.go)."""
    name, patched = _MERGE_KEYS[key], dict[Any, Any]()

    def identity(item: Any) -> str | int | None:
        found = item.get(name) if isinstance(item, Mapping) else None
        return found if isinstance(found, str | int) else None

    places, doubles = dict[Any, int](), collections.defaultdict[Any, list[Any]](list)
    for place, item in enumerate(present):
        if places.setdefault(identity(item), place) != place:
            doubles[identity(item)].append(item)
    for item in patch:
        own = identity(item)
        if own is None:
            raise ValueError(f"an item of {key} has to say its {name}")
        patched[own] = merged(patched.get(own) or (present[places[own]] if own in places else {}), item)
    rest = [(place, item) for place, item in enumerate(present) if identity(item) not in patched]
    items: list[Any] = []
    for own, item in patched.items():
        while rest and rest[0][0] < places.get(own, -1):
            items.append(rest.pop(0)[1])
        items += item, *doubles[own]
    return [*items, *(item for _, item in rest)]


def _class(pod: PodObject) -> qos.PriorityClass:
    """Priority class with defaults: label, else the band of spec.priority, else from the QoS class."""
    labels = (pod.get("metadata") or {}).get("labels") or {}
    obj = msgspec.convert({"metadata": {}, "spec": pod.get("spec") or {}}, objects.PodObject)
    raw = qos.QoSClass.of_label(labels.get(keys.QOS_CLASS))
    default = qos.with_default(raw, pod_reader.kube_qos(obj))
    return qos.priority_class(labels.get(keys.PRIORITY_CLASS), obj.spec.priority, default)


def _translated(pod: PodObject, names: Mapping[str, str]) -> PodObject:
    """cpu and memory of every container and of the overhead as extended resources."""
    if not names:
        return pod
    mutated = copy.deepcopy(pod)
    spec = mutated.get("spec") or {}
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        lists = container.get("resources") or {}
        for which in ("requests", "limits"):
            if lists.get(which):
                field = f"spec.containers[{container.get('name', '')}].resources.{which}"
                lists[which] = _renamed(lists[which], names, field)
        limits, requests = lists.get("limits") or {}, lists.get("requests") or {}
        missing = {name: limits[name] for name in names.values() if name in limits and name not in requests}
        if missing:
            lists["requests"] = {**requests, **missing}
    if spec.get("overhead"):
        spec["overhead"] = _renamed(spec["overhead"], names, "spec.overhead")
    return mutated


def _renamed(amounts: Mapping[str, Any], names: Mapping[str, str], field: str) -> dict[str, Any]:
    """CPU becomes whole milli-cores, rounded up; memory keeps its amount; a value already there is replaced."""
    translated = {name: amount for name, amount in amounts.items() if name not in names}
    for native, extended in names.items():
        if native in amounts:
            amount = _quantity(amounts[native], f"{field}.{native}")
            translated[extended] = str(Quantity.of(amount.milli) if native == "cpu" else amount)
    return translated


def _quantity(text: str | int | float, field: str) -> Quantity:
    with refusing("pod", field, str(text), "write a quantity"):
        return Quantity.parse(text)


def _differences(path: str, before: Any, after: Any, why: str) -> Iterator[FieldChange]:
    """Every leaf that differs, by path; items of lists by their name where they have one."""
    if before == after:
        return
    if isinstance(before, Mapping | None) and isinstance(after, Mapping | None) and (before or after):
        old, new = before or {}, after or {}
        for key in [*old, *(key for key in new if key not in old)]:
            below = f"{path}[{key}]" if "." in key or "/" in key else f"{path}.{key}" if path else key
            yield from _differences(below, old.get(key), new.get(key), why)
    elif (
        isinstance(before, list)
        and isinstance(after, list)
        and all(isinstance(item, Mapping) and isinstance(item.get("name"), str) for item in (*before, *after))
    ):
        old_items, new_items = ({item["name"]: item for item in each} for each in (before, after))
        for name in [*old_items, *(name for name in new_items if name not in old_items)]:
            yield from _differences(f"{path}[{name}]", old_items.get(name), new_items.get(name), why)
    else:
        yield FieldChange(path, before, after, why)
