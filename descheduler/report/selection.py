"""The part of a plan that a person asked to see. What is decided stays the same."""

from __future__ import annotations

import msgspec

from descheduler.plan import EvictionPlan, Outcome
from koordlite.model.errors import InputError, Problem


class Selection(msgspec.Struct, frozen=True):
    """What of a plan is shown."""

    only: str = ""
    """Name of a plugin, a namespace or a node; empty: everything."""
    limit: int | None = None
    """Most pods to evict, and most that are kept; None: all."""

    def of(self, plan: EvictionPlan) -> EvictionPlan:
        """The plan with these pods alone. InputError when nothing has the name in `only`."""
        if self.only and not self._is_known(plan):
            do = f"plugins are {', '.join(plan.plugins)}; or name a namespace or a node of the cluster"
            raise InputError(
                Problem("command line", "--only", self.only, "no plugin, namespace or node has this name", do)
            )
        evict, spare = (tuple(filter(self._is_shown, some))[: self.limit] for some in (plan.evict, plan.spare))
        return msgspec.structs.replace(plan, evict=evict, spare=spare)

    def line(self, plan: EvictionPlan, shown: EvictionPlan) -> str:
        """What is not shown; empty when all is."""
        hidden = len(plan.outcomes) - len(shown.outcomes)
        of = f"only {self.only}; " if self.only else ""
        return f"shown     {of}{hidden} of {len(plan.outcomes)} pods with findings are left out here" if hidden else ""

    def _is_shown(self, outcome: Outcome) -> bool:
        names = {finding.plugin for finding in outcome.findings} | {outcome.pod.pod.namespace, outcome.pod.node}
        return not self.only or self.only in names

    def _is_known(self, plan: EvictionPlan) -> bool:
        if self.only in plan.plugins or self.only in plan.view.nodes:
            return True
        return any(pod.pod.namespace == self.only for pod in plan.view.by_uid.values())
