"""Label selectors as Kubernetes writes them: does this set of labels match?

Source: metav1.LabelSelector and `LabelSelectorAsSelector`: no selector matches nothing, an empty one everything.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from koordlite.model.reading import declared, given
from koordlite.model.reading.lenient_json import Document

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?\Z", re.ASCII)
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?\Z", re.ASCII)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One entry of `matchExpressions`."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """A label selector as written; whether it means anything is known when it is used."""

    match_labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    match_expressions: tuple[Requirement, ...] = ()


def read(document: Document, value: Any, path: str) -> Selector:
    """The selector that stands at `path`; a value of the wrong type spoils the document."""
    members = document.object(value, path, declared.settings(Selector))
    values, _ = given.read(document, Selector, members, path, "")
    return declared.build(Selector(), values)


def matches(selector: Selector, labels: Mapping[str, str]) -> bool:
    """Whether `labels` satisfy every requirement; ValueError when one of them is none."""
    exact = [Requirement(key=key, operator="In", values=(value,)) for key, value in selector.match_labels.items()]
    wanted = [*exact, *selector.match_expressions]
    # Every requirement is checked before the first is judged: a mistake must not hide behind a mismatch.
    for requirement in wanted:
        _check(requirement)
    return all(_meets(labels.get(each.key), each) for each in wanted)


def _check(wanted: Requirement) -> None:
    if not wanted.key:
        raise ValueError("an entry of matchExpressions has no key")
    prefix, _, name = wanted.key.rpartition("/")
    if not _NAME.match(name) or ("/" in wanted.key and not _PREFIX.match(prefix)):
        raise ValueError(f"{wanted.key[:80]!r} is not a label's name")
    if wanted.operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
        raise ValueError(f"operator {wanted.operator[:80]!r} of {wanted.key} is not In, NotIn, Exists or DoesNotExist")
    if bool(wanted.values) != (wanted.operator in ("In", "NotIn")):
        takes = "no" if wanted.values else "at least one"
        raise ValueError(f"operator {wanted.operator} of {wanted.key} takes {takes} value")
    wrong = next((value for value in wanted.values if value and not _NAME.match(value)), None)
    if wrong is not None:
        raise ValueError(f"{wrong[:80]!r} of {wanted.key} is not a label's value")


def _meets(value: str | None, wanted: Requirement) -> bool:
    if wanted.operator in ("Exists", "DoesNotExist"):
        return (value is not None) == (wanted.operator == "Exists")
    return (value in wanted.values) == (wanted.operator == "In")
