"""The undo journal itself, where it could not be brought up to date. Nobody asks for this: it is no kind of change."""

from __future__ import annotations

import re

from koordlite.model.place import PlaceKind

PLACE = PlaceKind(
    name="journal",
    form="journal",
    pattern=re.compile("journal"),
    metric=lambda parts: "journal",
    metrics=frozenset({"journal"}),
    update="",
)
