"""Reservations that a pod asks for: annotation `scheduling.koordinator.sh/reservation-affinity`.

Source: Koordinator v1.9 `GetRequiredReservationAffinity` (pkg/util/reservation).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from koordlite.formulas.reservation.annotations import read
from koordlite.model import keys, node_selectors
from koordlite.model.errors import InputError, Problem
from koordlite.model.label_selectors import check_requirement
from koordlite.model.wire.objects import LabelRequirement, NodeSelectorTerm, Taint, Toleration
from koordlite.model.wire.reservation import AffinityText

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


def parse(annotations: Mapping[str, str] | None, owner: str) -> Affinity | None:
    """The affinity of pod `owner`; None without one, InputError when it cannot be read."""
    written = read(AffinityText, annotations, keys.RESERVATION_AFFINITY, owner)
    if written is None:
        return None
    required = written.required_during_scheduling_ignored_during_execution
    terms = None if required is None else required.reservation_selector_terms or ()
    try:
        for term in terms or ():
            _check(term)
    except ValueError as error:
        text, do = (annotations or {})[keys.RESERVATION_AFFINITY], "fix the selector; until then no reservation matches"
        raise InputError(Problem(owner, keys.RESERVATION_AFFINITY, text, str(error), do)) from error
    return Affinity(
        name=written.name,
        labels=written.reservation_selector or {},
        terms=terms,
        tolerations=written.tolerations or (),
    )


def _check(term: NodeSelectorTerm) -> None:
    """ValueError when a line of the term can hold for nothing as it stands."""
    for line in term.match_expressions or ():
        values = line.values or ()
        if line.operator in ("Gt", "Lt"):
            _check_number(line)
        else:
            check_requirement(line.key, line.operator, values)
    for line in term.match_fields or ():
        if line.operator not in ("In", "NotIn") or len(line.values or ()) != 1:
            raise ValueError(f"{line.key}: a field is compared with one value, by In or NotIn")


def _check_number(line: LabelRequirement) -> None:
    values = line.values or ()
    if len(values) != 1 or not values[0].lstrip("+-").isdigit():
        raise ValueError(f"{line.key}: {line.operator} needs one whole number")
