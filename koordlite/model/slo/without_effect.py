"""Settings of the ConfigMap that can be read and that nothing here acts on: each is reported where it is given.

An author who writes such a setting expects an effect, and koordlet or Koordinator's other parts may give it one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

from koordlite.model.errors import Problem
from koordlite.model.reading import declared
from koordlite.model.slo.settings import SLO

_NETWORK = "keep koordlet on nodes that need it, limit pods in the network plugin, or remove it"
_CORES = "set strategies.coreSched.mode to observe or enforce and cpuPolicy to coreSched, or remove it"
_REMOVE = "remove it, or keep koordlet on nodes that need it"


class _Rule(msgspec.Struct, frozen=True):
    """Settings without effect: those of a key whose path matches and whose value is none of `harmless`."""

    key: str
    path: str
    """Regular expression."""
    harmless: tuple[Any, ...]
    why: str
    do: str = _REMOVE
    cores: bool = False
    """True where core scheduling acts on it, if that is on."""


_QOS, _OFF = "resource-qos-config", (False, None)
RULES = (
    _Rule(
        "colocation-config",
        "metricMemoryCollectPolicy",
        ("usageWithoutPageCache", ""),
        "memory is measured without page cache, whatever this says",
        "remove it; batch memory is then offered as before",
    ),
    _Rule("colocation-config", r"extensions\..*|extensions", (None, {}), "no plug-in of Koordinator runs here"),
    _Rule(_QOS, r"\w+\.networkQOS\.enable", _OFF, "network bandwidth is not limited", _NETWORK),
    _Rule(_QOS, r"policies\.netQOSPolicy", (None,), "network bandwidth is not limited", _NETWORK),
    _Rule(_QOS, r"policies\.cpuPolicy", ("groupIdentity", ""), "the strategy coreSched is off", _CORES, cores=True),
    _Rule(
        _QOS,
        r"l\w+\.cpuQOS\.coreExpeller|beClass\.cpuQOS\.coreExpeller",
        _OFF,
        "it takes policies.cpuPolicy: coreSched, and the strategy coreSched",
        _CORES,
        cores=True,
    ),
    _Rule(_QOS, r"(systemClass|cgroupRoot)\.cpuQOS\.coreExpeller", _OFF, "cores are kept for classes of pods only"),
    _Rule(
        _QOS,
        r"(systemClass|cgroupRoot)\.(cpuQOS|resctrlQOS)\.enable|cgroupRoot\.memoryQOS\.enable",
        _OFF,
        "there is no group of pods that it could hold for",
    ),
    _Rule("system-config", "totalNetworkBandwidth", ("0", 0, None), "network bandwidth is not limited", _NETWORK),
)


class Unused(msgspec.Struct, frozen=True):
    """One setting that was given and has no effect."""

    key: str
    name: str
    """Path inside a strategy."""
    value: str
    origin: str
    why: str
    do: str


OFF = frozenset({"coreSched"})
"""Strategies that are off unless koordlite.yaml says otherwise, and that settings stand on."""


def found(slo: SLO, sections: Mapping[str, str], off: Collection[str] = OFF) -> Iterator[Unused]:
    """Settings given in vain, while the strategies `off` are off. `sections` names the attribute of the SLO by key of
    the ConfigMap."""
    cores = "coreSched" not in off and slo.resource_qos.policies.cpu_policy == "coreSched"
    for key in dict.fromkeys(rule.key for rule in RULES):
        attribute = sections[key]
        section = declared.camel(attribute)
        for path, value in declared.flatten(getattr(slo, attribute)):
            name = ".".join(path)
            origin = slo.origins.get(f"{section}.{name}", "")
            if not origin or origin.startswith("off:"):
                continue
            rule = next((rule for rule in RULES if rule.key == key and re.fullmatch(rule.path, name)), None)
            if rule and value not in rule.harmless and not (rule.cores and cores):
                text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                yield Unused(key, name, text, origin, rule.why, rule.do)


def problem(unused: Unused, owner: str, node_owner: str) -> Problem:
    """The report for its author."""
    of_node = unused.origin.startswith(("annotation ", "label "))
    about, field = (node_owner, unused.origin.partition(" ")[2]) if of_node else (owner, f"{unused.key}.{unused.name}")
    where = "" if of_node or unused.origin == "cluster" else f" ({unused.origin})"
    return Problem(about, field, unused.value, f"this has no effect here{where}: {unused.why}", unused.do)
