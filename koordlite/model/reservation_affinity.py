"""Annotation `scheduling.koordinator.sh/reservation-affinity` of a pod.

Source: Koordinator v1.9 `GetRequiredReservationAffinity` (pkg/util/reservation), of which every user of the annotation
gets the same value or the same error.
"""

from __future__ import annotations

from typing import Any

import msgspec

from koordlite.model import label_selectors
from koordlite.model.wire.objects import NodeSelectorTerm
from koordlite.model.wire.reservation import AffinityText

_OF_TEXTS = ("reservationSelector", "values")


def read(text: str) -> AffinityText:
    """Parse the annotation; empty text is `{}`. ValueError or another of `errors.UNREADABLE` when it is no JSON, has
    another shape, or a line of its terms can select nothing as it stands."""
    document = _with_zeros(msgspec.json.decode(text)) if text else None
    affinity = msgspec.convert(document, AffinityText | None) or AffinityText()
    required = affinity.required_during_scheduling_ignored_during_execution
    for term in required.reservation_selector_terms or () if required else ():
        _check(term)
    return affinity


def _with_zeros(value: Any, texts: bool = False) -> Any:
    """`value` with nulls as Go decodes them: an unset field, an empty element of a list, empty text among `texts`."""
    if isinstance(value, list):
        return [("" if texts else {}) if each is None else _with_zeros(each) for each in value]
    if not isinstance(value, dict):
        return value
    if texts:
        return {name: "" if each is None else each for name, each in value.items()}
    return {name: _with_zeros(each, name in _OF_TEXTS) for name, each in value.items() if each is not None}


def _check(term: NodeSelectorTerm) -> None:
    for line in term.match_expressions or ():
        values, is_number = line.values or (), line.operator in ("Gt", "Lt")
        # A sign does not begin the value of a label.
        if is_number and not (
            len(values) == 1 and values[0].isdigit() and label_selectors.whole_number(values[0]) is not None
        ):
            raise ValueError(f"{line.key!r}: {line.operator} needs one whole number without a sign")
        label_selectors.check_requirement(line.key, "In" if is_number else line.operator, values)
    for line in term.match_fields or ():
        if line.operator not in ("In", "NotIn") or len(line.values or ()) != 1:
            raise ValueError(f"{line.key!r}: a field is compared with one value, by In or NotIn")
