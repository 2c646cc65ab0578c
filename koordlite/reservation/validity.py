"""Mistakes in a Reservation, so that its author can fix it. Nothing is guessed: until then it waits."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from koordlite.model import times
from koordlite.model.errors import InputError, Problem
from koordlite.model.pod.pod_reader import effective_requests
from koordlite.model.wire.reservation import ALIGNED, RESTRICTED, ReservationObject
from koordlite.reservation import hand_over, lifecycle, placeholder
from koordlite.reservation.matching import check_owners

_FIX = "fix the Reservation; until then it holds nothing and no pod takes it"
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z", re.ASCII)


def problems(reservation: ReservationObject) -> tuple[Problem, ...]:
    """All of it; empty when the reservation can be placed and taken."""
    return (*_spec(reservation), *_template(reservation), *_annotations(reservation))


def _problem(reservation: ReservationObject, field: str, value: object, why: str) -> Problem:
    return Problem(f"reservation/{reservation.metadata.name}", field, str(value), why, _FIX)


def _spec(reservation: ReservationObject) -> Iterator[Problem]:
    spec = reservation.spec
    if why := lifecycle.invalid(reservation):
        yield _problem(reservation, "spec", "", why)
    if spec.allocate_policy not in ("", ALIGNED, RESTRICTED):
        why = f"there is no such policy; there are {ALIGNED}, which is the default, and {RESTRICTED}"
        yield _problem(reservation, "spec.allocatePolicy", spec.allocate_policy, why)
    if spec.pre_allocation:
        why = "only Koordinator's scheduler lays a place over running pods"
        yield _problem(reservation, "spec.preAllocation", "true", why)
    if spec.expires and times.parse_or_none(spec.expires) is None:
        yield _problem(reservation, "spec.expires", spec.expires, "no time like 2026-01-31T03:00:00Z")
    try:
        check_owners(spec.owners)
    except ValueError as error:
        yield _problem(reservation, "spec.owners", "", str(error))
    try:
        lifecycle.Lifetime.of(reservation)
    except InputError as error:
        yield from error.problems


def _template(reservation: ReservationObject) -> Iterator[Problem]:
    if reservation.spec.template is None:
        return
    try:
        pod = placeholder.as_pod(reservation)
    except msgspec.ValidationError as error:
        yield _problem(reservation, "spec.template", "", str(error))
        return
    problems: list[Problem] = []
    requests = effective_requests(pod.spec, f"reservation/{reservation.metadata.name}", problems)
    yield from (_problem(reservation, f"spec.template.{each.field}", each.value, each.why) for each in problems)
    if not pod.spec.containers:
        yield _problem(reservation, "spec.template.spec.containers", "", "the template has no container")
    elif not any(amount.nano for amount in requests.values()):
        why = "no container requests anything, so that there is nothing to hold"
        yield _problem(reservation, "spec.template.spec.containers", "", why)
    if not _NAMESPACE.match(placeholder.namespace(reservation)):
        where = "spec.template.metadata.namespace"
        yield _problem(reservation, where, placeholder.namespace(reservation), "no name of a namespace")


def _annotations(reservation: ReservationObject) -> Iterator[Problem]:
    try:
        placeholder.resources(reservation)
        yield from (p for p in lifecycle.holding(reservation)[1] if p.field != "spec.owners")
    except InputError as error:
        yield from error.problems
    except msgspec.ValidationError:
        return  # Named as a problem of the template.
    try:
        hand_over.read_or_raise(reservation)
    except InputError as error:
        yield from error.problems
