"""Core sharing: names of core groups, and the cookie that a group has."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

EXPELLER = ":expeller"
"""Ends the name of a group whose class shares no core with a class that is not so marked."""
EVERYBODY = "default"
_LABEL = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")


def is_label(text: str) -> bool:
    """Tell whether `text` may be the value of a label: an API server lets no other value through."""
    return _LABEL.fullmatch(text) is not None


def name(*, namespace: str, group_id: str, exclusive_uid: str, expeller: bool, shared_ids: Collection[str] = ()) -> str:
    """The core group of a pod. No two of these are ever the same: values of labels and namespaces have no `:` and no
    `/`, and no namespace is called `*`.

    | pod | name |
    |---|---|
    | policy `exclusive` | `uid:UID` |
    | group id among `shared_ids` | `*/ID` |
    | group id | `NAMESPACE/ID` |
    | neither | `default` |

    With `expeller` of its class, `:expeller` follows. Source: Koordinator hook CoreSched, which knows no namespaces and
    adds `-expeller`: there a pod may name itself into the group of another class.
    """
    if exclusive_uid:
        group = f"uid:{exclusive_uid}"
    elif group_id:
        group = f"{'*' if group_id in shared_ids else namespace}/{group_id}"
    else:
        group = EVERYBODY
    return f"{group}{EXPELLER}" if expeller else group


def cookie(counts: Mapping[int, int]) -> int:
    """The cookie of a core group, given how many of its processes have each: the one that most have, of equal ones the
    smallest. 0 while no process has one."""
    return min(counts, key=lambda each: (-counts[each], each), default=0)
