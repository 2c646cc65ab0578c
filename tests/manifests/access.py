"""Which requests each process makes, recorded on a real API server with the identity it is installed with.

`tests/e2e/test_installed.py` records and verifies them; here they are judged against the roles as built.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Iterable

Right = tuple[str, str, str, str, str]
"""Verb, API group, resource with its subresource, namespace, name."""
RECORDED = pathlib.Path(__file__).parent / "requests"
_BY_NAME = frozenset({"leases", "configmaps", "oenumas", "whitelists"})
"""Kinds whose rights are for single objects; of the others namespace and name are left out."""


@dataclasses.dataclass(frozen=True)
class Case:
    """A process: what is applied for it, and as whom it asks."""

    name: str
    folder: str
    components: tuple[str, ...]
    account: str
    namespace: str = "koordlite-system"

    @property
    def user(self) -> str:
        """The account as the API server names it."""
        return f"system:serviceaccount:{self.namespace}:{self.account}"

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups of every service account."""
        return "system:serviceaccounts", f"system:serviceaccounts:{self.namespace}", "system:authenticated"

    def recorded(self) -> list[Right]:
        """Its requests; none where nobody has recorded them yet."""
        path = RECORDED / f"{self.name}.json"
        return [tuple(each) for each in json.loads(path.read_text())] if path.exists() else []

    def write(self, rights: Iterable[Right]) -> None:
        """Add to what is recorded."""
        RECORDED.mkdir(exist_ok=True)
        lines = ",\n".join(json.dumps(each) for each in sorted({*self.recorded(), *rights}))
        (RECORDED / f"{self.name}.json").write_text(f"[\n{lines}\n]\n")


def rights_used(requests: Iterable[Right]) -> list[Right]:
    """What requests need, each once. The path of a request that creates has no name, so roles know none."""
    return sorted(
        {
            ("create", *rest[:3], "")
            if verb == "create" and rest[1] in _BY_NAME
            else (verb, *rest)
            if rest[1] in _BY_NAME
            else (verb, *rest[:2], "", "")
            for verb, *rest in requests
        }
    )


_AGENT = (
    "evictions",
    "node-metric-create",
    "crane-topology",
    "volcano-numatopology",
    "pod-affinity",
    "pod-affinity-report",
)
_DESCHEDULER = ("descheduler-evict", "descheduler-migrate", "descheduler-cordon", "descheduler-deletion-cost")
CASES = (
    Case("agent-observe", "overlays/observe", (), "koordlite"),
    Case("agent-enforce", "overlays/enforce", _AGENT, "koordlite"),
    Case("descheduler-plan", "overlays/observe", (), "descheduler"),
    Case("descheduler-evict", "overlays/enforce", _DESCHEDULER, "descheduler"),
    Case("descheduler-cron", "overlays/descheduler-cron", (), "descheduler"),
    Case("scheduler-extender", "overlays/observe", ("scheduler-extender",), "koordlite-scheduler"),
    Case("scheduler-service", "overlays/observe", ("scheduler-service",), "koordlite-scheduler-extender"),
    Case(
        "reservation-controller",
        "overlays/observe",
        ("reservation-controller",),
        "koordlite-reservation-controller",
    ),
    Case("numa-api", "overlays/observe", ("numa-api", "numa-api-policies", "numa-api-volcano"), "koordlite-numa-api"),
    Case("numa-exporter", "overlays/observe", ("numa-exporter",), "numa-exporter", "volcano-system"),
)
