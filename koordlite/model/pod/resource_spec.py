"""A pod's preferences for its CPUs: annotation `scheduling.koordinator.sh/resource-spec`, written by its author.

Source: Koordinator `apis/extension`, `GetResourceSpec`.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from koordlite.model import keys
from koordlite.model.errors import Problem
from koordlite.model.reading import declared
from koordlite.model.reading.declared import UNKNOWN, JSONDocument, OneOf, build

BindPolicy = Annotated[str, OneOf(("Default", "FullPCPUs", "SpreadByPCPUs", "ConstrainedBurst"))]
ExclusivePolicy = Annotated[str, OneOf(("None", "PCPULevel", "NUMANodeLevel"))]


class ResourceSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Preference given to the scheduler; empty text is no preference."""

    required_cpu_bind_policy: BindPolicy = ""
    """Whole cores, or spread over cores; a node that cannot give it is no node for the pod."""
    preferred_cpu_bind_policy: BindPolicy = ""
    preferred_cpu_exclusive_policy: ExclusivePolicy = ""
    """Not beside the CPUs of pods that ask for the same: on none of their cores, or none of their NUMA nodes."""


NO_PREFERENCE = ResourceSpec()


def parse(text: str | None, owner: str, problems: list[Problem]) -> ResourceSpec:
    """The preferences in the annotation of pod `owner`; what cannot be read is none, and is added to `problems`."""
    if not text:
        return NO_PREFERENCE
    document = JSONDocument(owner, keys.RESOURCE_SPEC, "the pod counts as one without preferences")
    values, _ = declared.read_text(document, ResourceSpec, text)
    problems += [problem for problem in document.problems if problem.why != UNKNOWN]
    return NO_PREFERENCE if document.broken else build(NO_PREFERENCE, values)
