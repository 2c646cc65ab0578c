"""Match of pods and reservations: its owners, the pod's affinity, and the annotations of both.

Source: Koordinator v1.9 `checkReservationMatchedOrIgnored` (plugins/reservation/transformer.go),
`GetRequiredReservationAffinity`, `MatchReservationOwners` (pkg/util/reservation).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from koordlite.model import keys, label_selectors, node_selectors, reservation_affinity
from koordlite.model.errors import InputError, refusing
from koordlite.model.quantity import Quantity
from koordlite.model.wire.objects import (
    NodeSelectorTerm,
    PodObject,
    Taint,
    Toleration,
)
from koordlite.model.wire.reservation import (
    ControllerReference,
    ObjectReference,
    Owner,
    ReservationObject,
    ResourceNames,
)

Amounts = Mapping[str, Quantity]
_DO = "fix the annotation; until then no reservation matches"
MATCHED, IGNORED = "matched", "ignored"


class Candidate(msgspec.Struct, frozen=True):
    """A pod that looks for a reservation, read once for all of them."""

    pod: PodObject
    requests: Amounts
    affinity: Affinity | None = None
    exact: tuple[str, ...] = ()
    """Resources of which it must request just what the reservation holds."""

    @property
    def ignores(self) -> bool:
        """It takes what reservations hold as if it were free."""
        return (self.pod.metadata.labels or {}).get(keys.RESERVATION_IGNORED) == "true"


def candidate(pod: PodObject, requests: Amounts) -> Candidate | None:
    """The pod with its annotations; None when one of them cannot be read, so that no reservation matches."""
    name, notes = f"pod/{pod.metadata.namespace}/{pod.metadata.name}", pod.metadata.annotations
    try:
        exact = read(ResourceNames, notes, keys.EXACT_MATCH, name)
        return Candidate(pod, requests, parse_affinity(notes, name), (exact.resource_names or ()) if exact else ())
    except InputError:
        return None


def match(one: Candidate, reservation: ReservationObject, allocatable: Amounts, node_labels: Mapping[str, str]) -> str:
    """`matched`, `ignored`, or what stands against it first: `owner`, `name`, `unschedulable`, `taints`, `affinity`,
    `exact`.

    Ours, unlike Koordinator's: taints also keep off pods without an affinity annotation.
    """
    if one.ignores:
        return IGNORED
    if not may_own(reservation, one.pod):
        return "owner"
    affinity = one.affinity or NO_AFFINITY
    if affinity.name:
        why = "" if affinity.name == reservation.metadata.name else "name"
    else:
        why = _unnamed(affinity, reservation, node_labels)
    return why or (MATCHED if exact_match(one.exact, one.requests, allocatable) else "exact")


def may_own(reservation: ReservationObject, pod: PodObject) -> bool:
    """Tell whether its owners name the pod. With a selector that cannot be read they name none; `validity` reports
    it."""
    try:
        return match_owners(reservation.spec.owners, pod)
    except ValueError:
        return False


def _unnamed(affinity: Affinity, reservation: ReservationObject, node_labels: Mapping[str, str]) -> str:
    closed = reservation.spec.unschedulable or reservation.metadata.deletion_timestamp is not None
    if closed and not affinity.tolerates_unschedulable:
        return "unschedulable"
    if affinity.untolerated(reservation.spec.taints) is not None:
        return "taints"
    labels = {**node_labels, **(reservation.metadata.labels or {})}
    return "" if affinity.selects(reservation.metadata.name, labels) else "affinity"


def exact_match(names: tuple[str, ...], requests: Amounts, allocatable: Amounts) -> bool:
    """Tell whether of each of these resources the pod requests just what the reservation holds, or both have none.

    Ours, unlike Koordinator's: a resource that both lack does not end the comparison.
    """
    return all(requests.get(name) == allocatable.get(name) for name in names)


_UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


class Affinity(msgspec.Struct, frozen=True, kw_only=True):
    """Requirements on a reservation. A pod that has one runs only where it takes a reservation."""

    name: str = ""
    """The one it asks for by name; then nothing else counts."""
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    terms: tuple[NodeSelectorTerm, ...] | None = None
    """One of them has to hold; none does of an empty list."""
    tolerations: tuple[Toleration, ...] = ()

    def selects(self, name: str, labels: Mapping[str, str]) -> bool:
        """Tell whether labels and terms hold for the reservation `name`."""
        if any(labels.get(key) != value for key, value in self.labels.items()):
            return False
        return self.terms is None or any(node_selectors.term_matches(term, name, labels) for term in self.terms)

    def untolerated(self, taints: Iterable[Taint] | None) -> Taint | None:
        """The first taint that keeps the pod off; PreferNoSchedule keeps none off."""
        return node_selectors.untolerated(taints or (), self.tolerations)

    @property
    def tolerates_unschedulable(self) -> bool:
        """It may take a reservation that takes no new owners."""
        return self.untolerated([_UNSCHEDULABLE]) is None


NO_AFFINITY = Affinity()


def parse_affinity(annotations: Mapping[str, str] | None, owner: str) -> Affinity | None:
    """The affinity of pod `owner`; None without one, InputError when it cannot be read."""
    text = (annotations or {}).get(keys.RESERVATION_AFFINITY)
    if text is None:
        return None
    with refusing(owner, keys.RESERVATION_AFFINITY, text, _DO):
        annotation = reservation_affinity.read(text)
    required = annotation.required_during_scheduling_ignored_during_execution
    return Affinity(
        name=annotation.name,
        labels=annotation.reservation_selector or {},
        terms=None if required is None else required.reservation_selector_terms or (),
        tolerations=annotation.tolerations or (),
    )


def check_owners(owners: Iterable[Owner] | None) -> None:
    """ValueError when a selector of any of them is none: then no pod may take the reservation."""
    for number, owner in enumerate(owners or ()):
        try:
            if owner.label_selector is not None:
                label_selectors.matches(owner.label_selector, {})
        except ValueError as error:
            raise ValueError(f"owners[{number}].labelSelector: {error}") from error


def match_owners(owners: Iterable[Owner] | None, pod: PodObject) -> bool:
    """Tell whether one of them matches the pod; an empty one matches every pod. ValueError as of `check_owners`."""
    listed = tuple(owners or ())
    check_owners(listed)
    return any(_owns(owner, pod) for owner in listed)


def _owns(owner: Owner, pod: PodObject) -> bool:
    selector = owner.label_selector
    return (
        (owner.object is None or _is_object(owner.object, pod))
        and (owner.controller is None or _has_controller(owner.controller, pod))
        and (selector is None or label_selectors.labels_match(selector, pod.metadata.labels or {}))
    )


def _is_object(owner: ObjectReference, pod: PodObject) -> bool:
    """Pods are of version v1; Koordinator compares with a field that is empty in what a watch delivers."""
    meta = pod.metadata
    pairs = (owner.uid, meta.uid), (owner.name, meta.name), (owner.namespace, meta.namespace)
    return all(want in ("", has) for want, has in (*pairs, (owner.api_version, "v1")))


def _has_controller(owner: ControllerReference, pod: PodObject) -> bool:
    return owner.namespace in ("", pod.metadata.namespace) and any(
        owner.uid in ("", reference.uid)
        and owner.name in ("", reference.name)
        and owner.kind in ("", reference.kind)
        and owner.api_version in ("", reference.api_version)
        and owner.controller in (None, reference.controller)
        for reference in pod.metadata.owner_references or ()
    )


T = TypeVar("T", bound=msgspec.Struct)


def read(shape: type[T], annotations: Mapping[str, str] | None, key: str, owner: str) -> T | None:
    """Annotation `key` of object `owner`; None without it, InputError when it cannot be read. Empty text is `{}`."""
    text = (annotations or {}).get(key)
    if text is None:
        return None
    with refusing(owner, key, text, _DO):
        return (msgspec.json.decode(text, type=shape | None) if text else None) or shape()
