"""Where the sandbox's API server answers differently on purpose."""

from __future__ import annotations

from tests.conformance import apiserver_cases, apiserver_rules
from tests.conformance.deviation import Deviation

DEVIATIONS = (
    Deviation(
        (apiserver_cases.INTERACTION,),
        apiserver_rules.version_label,
        "apiserver-version: /version names the sandbox, with a full version number",
    ),
    Deviation(
        (apiserver_cases.INTERACTION,),
        apiserver_rules.health_details,
        "apiserver-health: ?verbose lists the sandbox's own checks",
    ),
    Deviation(
        (apiserver_cases.INTERACTION,),
        apiserver_rules.streaming,
        "apiserver-streaming: subresources that reach into containers or proxy are not served",
    ),
    Deviation(
        (apiserver_cases.INTERACTION,),
        apiserver_rules.unserved_kinds,
        "apiserver-kinds: discovery lists the kinds that are served, and no others",
    ),
    Deviation(
        (apiserver_cases.INTERACTION,),
        apiserver_rules.protobuf,
        "apiserver-protobuf: a client that accepts nothing but protobuf is refused in JSON",
    ),
)
