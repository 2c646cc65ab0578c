"""Refused writes in the log."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from koordlite.model import printable
from koordlite.model.place import Place
from koordlite.model.status import AppliedStep

LOG = logging.getLogger(__name__)


def log(applied: Iterable[AppliedStep], before: Mapping[Place, str]) -> Mapping[Place, str]:
    """Log refusals that are not in `before`, once for all places that share one; the refusals of now, by place."""
    refused = [step for step in applied if not step.ok]
    fresh: dict[str, list[AppliedStep]] = {}
    for step in refused:
        if before.get(step.place) != step.error:
            fresh.setdefault(step.error, []).append(step)
    for error, (first, *others) in fresh.items():
        more = f" and {len(others)} more" if others else ""
        LOG.warning("refused: %s = %s%s: %s", first.place, printable.shortened(first.value), more, error)
    return {step.place: step.error for step in refused}
