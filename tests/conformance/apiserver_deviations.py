"""Where the tests' API server answers differently on purpose."""

from __future__ import annotations

from tests.conformance import apiserver_cases, apiserver_rules, apiserver_scope
from tests.conformance.deviation import Deviation

_FUNCTIONS = (apiserver_cases.INTERACTION,)

DEVIATIONS = (
    *(
        Deviation(_FUNCTIONS, apiserver_rules.out_of_scope(name), f"{name}: {why}")
        for name, why in apiserver_scope.RULES.items()
    ),
    Deviation(_FUNCTIONS, apiserver_rules.version_label, "apiserver-version: /version names the tests' own server"),
    Deviation(_FUNCTIONS, apiserver_rules.fewer_kinds, "apiserver-served: discovery lists what is served, no more"),
    Deviation(_FUNCTIONS, apiserver_rules.no_owners, "apiserver-managed-fields: nobody keeps who set which field"),
    Deviation(_FUNCTIONS, apiserver_rules.newer, "apiserver-1.36: a newer server answers so"),
)
