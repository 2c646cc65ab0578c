"""Pods that may take a reservation.

Source: Koordinator v1.9 `MatchReservationOwners` (pkg/util/reservation).
"""

from __future__ import annotations

from collections.abc import Iterable

from koordlite.model import label_selectors
from koordlite.model.wire.objects import OwnerReference, PodObject
from koordlite.model.wire.reservation import ControllerReference, ObjectReference, Owner


def check(owners: Iterable[Owner] | None) -> None:
    """ValueError when a selector of any of them is none: then no pod may take the reservation."""
    for number, owner in enumerate(owners or ()):
        try:
            if owner.label_selector is not None:
                label_selectors.matches(owner.label_selector, {})
        except ValueError as error:
            raise ValueError(f"owners[{number}].labelSelector: {error}") from error


def match(owners: Iterable[Owner] | None, pod: PodObject) -> bool:
    """Tell whether one of them matches the pod; an empty one matches every pod. ValueError as of `check`."""
    listed = tuple(owners or ())
    check(listed)
    return any(_is_owner(owner, pod) for owner in listed)


def _is_owner(owner: Owner, pod: PodObject) -> bool:
    selector = owner.label_selector
    return (
        (owner.object is None or _is_object(owner.object, pod))
        and (owner.controller is None or _has_controller(owner.controller, pod))
        and (selector is None or label_selectors.labels_match(selector, pod.metadata.labels or {}))
    )


def _is_object(wanted: ObjectReference, pod: PodObject) -> bool:
    """Pods are of version v1; Koordinator compares with a field that is empty in what a watch delivers."""
    meta = pod.metadata
    pairs = (wanted.uid, meta.uid), (wanted.name, meta.name), (wanted.namespace, meta.namespace)
    return all(want in ("", has) for want, has in (*pairs, (wanted.api_version, "v1")))


def _has_controller(wanted: ControllerReference, pod: PodObject) -> bool:
    if wanted.namespace not in ("", pod.metadata.namespace):
        return False
    return any(_is_reference(wanted, reference) for reference in pod.metadata.owner_references or ())


def _is_reference(wanted: ControllerReference, has: OwnerReference) -> bool:
    pairs = (wanted.uid, has.uid), (wanted.name, has.name), (wanted.kind, has.kind)
    same = all(want in ("", value) for want, value in (*pairs, (wanted.api_version, has.api_version)))
    return same and (wanted.controller is None or wanted.controller == has.controller)
