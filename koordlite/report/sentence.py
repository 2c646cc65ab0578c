"""A decision as one English sentence, with its numbers in the formula's own terms."""

from __future__ import annotations

import re

from koordlite.model.decision import Decision
from koordlite.report import units

TEMPLATES = {
    "BECPUBudget": (
        "BE may use {budget_milli} cores: {capacity_milli} × {threshold_percent} − LS {prod_milli}"
        "[ − host applications {host_milli}] − system {system_milli}[, at least {min_percent} of the node]"
        "[; {does} {present_cpus} → {target_cpus} CPUs: {cpuset}]"
        "[; {does} quota {present_quota_us} → {quota_us} per 100 ms]"
    ),
    "BECPUBudget/hold": (
        "BE may use {budget_milli} cores: {capacity_milli} × {threshold_percent} − LS {prod_milli}"
        "[ − host applications {host_milli}] − system {system_milli}[, at least {min_percent} of the node]"
        "[; stays at {present_cpus} CPUs: {cpuset}][; quota stays at {quota_us} per 100 ms]"
    ),
    "NoCPULeftForBestEffort": "no CPU is left for BE: {forbidden} are reserved or exclusive; it keeps what it has",
    "NoMetrics": "use is unknown for {ageSeconds}; what holds stays for the time being",
    "NoMetricsReleased": "use is unknown for {ageSeconds}, longer than {holdSeconds}; BE is released",
    "Disabled": "switched off in the ConfigMap[; BE gets {cpuset}]",
    "PolicyIsQuota": "the policy is cfsQuota, so BE may run on {cpuset}",
    "PolicyIsCPUSet": "the policy is cpuset, so the quota is lifted",
    "NoBestEffortGroup": "there is no cgroup {group}; nothing to hold back",
    "NoQuotaFile": "the besteffort group has no quota file; is the cpu controller on?",
    "NoNode": "the Node object has not been seen yet",
    "ReservedByList": "{count} CPUs are reserved by list: {reservedCPUs}",
    "ReservedByQuantity": "{cpu} CPUs are reserved by quantity: {reservedCPUs}",
    "NothingReserved": "no CPU is reserved on this node",
    "ReservationFallback": "{fallback}; reserved: {reservedCPUs}",
    "BatchAllocatable": (
        "{result} = capacity {capacity} − margin {margin} − system {system} − high-priority pods {hp}"
        "[, at most {cap}][; third parties took {third_party} of {offered}][; published: {sync}]"
    ),
    "ZoneAllocatable": (
        "{result_milli} cores = capacity {capacity_milli} − margin {margin_milli} − system {system_milli}"
        " − high-priority pods {hp_milli}[, at most {cap_milli}]; memory alike, see its terms"
    ),
    "NoZoneSize": "nothing is offered in this zone: {why}",
    "MidAllocatable": (
        "{result}, {mode}: at most {threshold_percent} of capacity {node_capacity}"
        "[; {static_percent} of it][; reclaimable from prod pods {prod_reclaimable}]"
        "[; {unallocated_percent} of the {unallocated} that nobody requested][; published: {sync}]"
    ),
    "CPURatio": "a CPU of this node is worth {ratio} ({model}, hyperthreads {hyperThreads}, turbo {turbo})",
    "NoCPURatio": "what the CPUs are worth cannot be said: {why}",
    "NormalizationDisabled": "CPU normalization is off[; ratio {ratio}]",
    "ResourcesAmplified": "resources are promised times {ratios}",
    "NothingAmplified": "no resource is promised over what there is",
    "BadAmplification": "the ratios cannot be used: {why}",
    "ColocationDisabled": "colocation is switched off in the ConfigMap, so nothing is offered to BE",
    "DegradedNoMetrics": (
        "use is unknown for {ageSeconds}, longer than {degradeTimeMinutes} minutes; the offer is withdrawn"
    ),
    "SharedPools": "LS pods share CPUs {ls_pool}, BE pods {be_pool}[; reserved {reserved}]",
    "PinnedCPUs": (
        "{qos} pod keeps its own CPUs {cpuset}[; {absent} were promised too and are not here]"
        "[; {on_reserved} of them are reserved for the system]"
    ),
    "SharedPool": "class {qos} runs in the shared pool {cpuset}",
    "HostClassHasNoPool": "only host applications of class LS run in the shared pool[; this one has class {qos}]",
    "NoHostGroup": "there is no cgroup {group} with CPUs to set",
    "HostLeftPool": "no host application of class LS lives there any more; it gets back {cpuset}",
    "PinnedCPUsNotOnline": "CPUs {promised} were promised, none of them is online",
    "KubeletStaticPolicy": "kubelet's static CPU policy places this {qos} pod",
    "EmptyPool": "no CPU is left for class {qos}[: {reserved} are reserved]; its set stays",
    "NoResctrl": "no resctrl: {why}",
    "ClassSchemata": "the class gets[ {L3}][ {L3CODE}][ {L3DATA}][ {MB}]",
    "ClassDisabled": "the class is switched off; its group has no limits",
    "BadResctrlRange": "the range cannot be used: {why}",
    "MachineDescribed": (
        "{cpus} CPUs and {zones} NUMA zones are described[; kubelet's CPU manager policy is {kubelet}][; {changed}]"
    ),
    "PlacementObserved": "{containers} containers with a promised placement were looked at, generation {generation}",
    "PlacementUnchanged": "{containers} containers with a promised placement are where they were",
    "BadReservation": "the reservation annotation was refused: {why}; reserved: {reservedCPUs}",
}
"""By reason, or by reason/verdict where a verdict needs its own words. `[…]` is left out when one of its fields is
missing or all of them are nothing. A reason that is not here gets its evidence listed."""

_DOES = {"shrink": "shrinks", "grow": "grows", "set": "moves", "hold": "stays", "release": "is released"}
_FIELD = re.compile(r"\{(\w+)\}")
_OPTIONAL = re.compile(r"\[([^\]]*)\]")
_NOTHING = (0, "")
_RESOURCE_UNITS = {"/batch-cpu": "milli", "/batch-memory": "bytes", "/mid-cpu": "milli", "/mid-memory": "bytes"}
_IN_FULL = ("BatchAllocatable", "MidAllocatable")


def sentence(decision: Decision) -> str:
    """Why the decision is what it is, in one line without a full stop."""
    template = TEMPLATES.get(f"{decision.reason}/{decision.verdict}") or TEMPLATES.get(decision.reason)
    if template is None:
        return _generic(decision)
    template = _OPTIONAL.sub(lambda found: _if_known(found[1], decision), template)
    if not all(name == "does" or name in decision.evidence for name in _FIELD.findall(template)):
        return _generic(decision)
    return _FIELD.sub(lambda found: _value(found[1], decision), template)


def headline(decision: Decision) -> str:
    """Subject, verdict and reason in front of the sentence, for lists."""
    return f"{decision.subject}: {decision.verdict}, {decision.reason}: {sentence(decision)}"


def terms(decision: Decision) -> list[tuple[str, str]]:
    """The evidence as rows of name and value, in the order the strategy gave it."""
    return [(units.label(name), units.full(_named(name, decision), v)) for name, v in decision.evidence.items()]


def _if_known(part: str, decision: Decision) -> str:
    names = [name for name in _FIELD.findall(part) if name != "does"]
    known = all(name in decision.evidence for name in names)
    return part if known and any(decision.evidence[name] not in _NOTHING for name in names) else ""


def _value(name: str, decision: Decision) -> str:
    if name == "does":
        return _DOES.get(decision.verdict, decision.verdict)
    show = units.full if decision.reason in _IN_FULL else units.bare
    return show(_named(name, decision), decision.evidence[name])


def _named(name: str, decision: Decision) -> str:
    """The evidence name with its unit: terms about a resource of the node have the unit of that resource."""
    unit = next((unit for end, unit in _RESOURCE_UNITS.items() if decision.subject.endswith(end)), "")
    return f"{name}_{unit}" if unit and not units.has_unit(name) else name


def _generic(decision: Decision) -> str:
    """The reason's words and whatever numbers there are."""
    words = re.findall(r"[A-Z]+(?![a-z])s?|[A-Z][a-z]+|\d+", decision.reason)
    said = " ".join(word if word[1:2].isupper() else word.lower() for word in words) or decision.reason
    listed = ", ".join(f"{name} {value}" for name, value in terms(decision))
    return f"{said}: {listed}" if listed else said
