"""The policies of this project: members of one document of the ConfigMap that agents and the extender watch.

The document is JSON, so an edit may change its layout; what it says besides stays.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from koordlite.model.reading import declared
from koordlite.model.slo import config
from koordlite.model.slo.settings import NUMAPolicy
from koordlite.scheduler.policies import KEY


def is_open(field: str) -> Callable[[str], bool]:
    """Tell whether a text switches the member `field` on. ValueError where the text cannot be used."""
    return lambda text: bool(getattr(_read(text), field))


def edited(field: str, value: bool) -> Callable[[str], str]:
    """A text with the member `field` at `value`; the same text where it says so already. ValueError as of `is_open`."""

    def edit(text: str) -> str:
        if getattr(_read(text), field) is value:
            return text
        name, document = declared.camel(field), _object(text)
        # Names are read without regard to case.
        kept = {key: held for key, held in document.items() if key.lower() != name.lower()}
        return json.dumps({**kept, name: value}, indent=2) + "\n"

    return edit


def _read(text: str) -> NUMAPolicy:
    held = config.effective({KEY: text}, labels={}, annotations={})
    broken = [problem.why for problem in held.problems]
    if broken:
        raise ValueError("; ".join(broken))
    _object(text)
    return held.numa_policy


def _object(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(document, dict):
        raise ValueError("it is no JSON object")
    return document
