"""A decision as one English sentence, with its numbers in the formula's own terms."""

from __future__ import annotations

import re

from koordlite.model.decision import Decision
from koordlite.report import units

TEMPLATES = {
    "BECPUBudget": (
        "BE may use {budget_milli} cores: {capacity_milli} × {threshold_percent} − LS {prod_milli}"
        "[ − host applications {host_milli}] − system {system_milli}[, at least {min_percent} of the node]"
        "[; the limit follows {followed_milli}][; {does} {present_cpus} → {target_cpus} CPUs: {cpuset}]"
        "[; {does} quota {present_quota_us} → {quota_us} per 100 ms]"
    ),
    "BECPUBudget/hold": (
        "BE may use {budget_milli} cores: {capacity_milli} × {threshold_percent} − LS {prod_milli}"
        "[ − host applications {host_milli}] − system {system_milli}[, at least {min_percent} of the node]"
        "[; the limit follows {followed_milli}][; stays at {present_cpus} CPUs: {cpuset}]"
        "[; quota stays at {quota_us} per 100 ms]"
    ),
    "NoCPULeftForBestEffort": "no CPU is left for BE: {forbidden} are reserved or exclusive; it keeps what it has",
    "NoMetrics": "use is unknown for {ageSeconds}; what holds stays for the time being",
    "NoMetricsReleased": "use is unknown for {ageSeconds}, longer than {holdSeconds}; BE is released",
    "NoNodeReleased": "the Node object has been gone for {ageSeconds}, longer than {holdSeconds}; BE is released",
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
    "ClassSchemata": "the class gets[ {L3}][ {L3CODE}][ {L3DATA}][ {MB}][ {nothing}][: {cache}][; {bandwidth}]",
    "NothingToDivide": "percentages are of L3 and MB, and this machine divides only {divided}[; {bandwidth}]",
    "ClassDisabled": "the class is switched off",
    "PodSchemata": (
        "the pod has group {group} with[ {L3}][ {L3CODE}][ {L3DATA}][ {MB}][ {nothing}][: {cache}][; {bandwidth}]"
        "[; caches {absent_caches} are not here]"
    ),
    "PodAsksForNothing": "the annotation asks for nothing, so the pod stays in the root group, which has everything",
    "BadPodResctrl": "the annotation cannot be read: {why}; what the pod has stays",
    "PodGroupEnded": "the pod is gone or does not ask any more; its group is given back",
    "NoGroupLeft": "the hardware has {groups} groups, and all are taken: {held_by}",
    "ResctrlMounted": "resctrl is to be mounted, since somebody asks for a part: {why}",
    "ResctrlRequired": "resctrl is required by the configuration, and absent: {why}",
    "ResctrlSwitchedOff": "resctrl is switched off in the configuration",
    "PodMonitored": "pod {pod} has a monitoring group",
    "PodNotMonitored": "the pod is gone, changed its class, or monitoring is off; its monitoring group is given back",
    "NoMonitorLeft": "{monitored} of {pods} pods are monitored; the hardware has {num_rmids} ids for all groups",
    "BadResctrlRange": "the range cannot be used: {why}",
    "MachineDescribed": (
        "{cpus} CPUs and {zones} NUMA zones are described[; kubelet's CPU manager policy is {kubelet}][; {changed}]"
    ),
    "PlacementObserved": "{containers} containers with a promised placement were looked at, generation {generation}",
    "PlacementUnchanged": "{containers} containers with a promised placement are where they were",
    "NoEvictionRule": "no rule that evicts pods is switched on",
    "StaleInput": "nobody is evicted on old news: {ages}",
    "CoolingDown": (
        "nobody is evicted for another {left_seconds}: {cool_down_seconds} after the last eviction or the start"
    ),
    "BadEvictionConfig": "the thresholds cannot be used: {why}",
    "TooFewSamples": "{samples} samples in {window_seconds} are too few to evict anybody",
    "BestEffortSatisfied": (
        "BE may use enough of what it requests, or does not use it[: in the mean it may use {mean_limit_milli}"
        " of {mean_request_milli} cores and uses {mean_used_milli}]"
    ),
    "BestEffortStarved": (
        "BE may use too little of what it requests[: in the mean {mean_limit_milli} of {mean_request_milli} cores]"
        "; requests of {release_batch_cpu_milli} cores have to go"
    ),
    "UseUnderThreshold": "{used_percent} of the node are used, {threshold_percent} are allowed",
    "UseOverThreshold": (
        "{used_percent} of the node are used, {threshold_percent} are allowed; down to {lower_percent}"
        "[: {release_cpu_milli} cores have to go][: {release_memory_bytes} have to go]"
    ),
    "RequestsUnderThreshold": "batch and mid pods request no more than {threshold_percent} of what the node promises",
    "RequestsOverThreshold": (
        "batch and mid pods request more than {threshold_percent} of what the node promises; down to {lower_percent}"
        "[: {release_batch_cpu_milli} cores of batch have to go][: {release_mid_cpu_milli} cores of mid have to go]"
        "[: {release_batch_memory_bytes} of batch have to go][: {release_mid_memory_bytes} of mid have to go]"
    ),
    "AllocatableJustGone": "the node promises nothing, but not for long enough to evict anybody for it",
    "EvictionRound": (
        "{chosen} pods have to go[; {missing_cpu_milli} cores are still missing then]"
        "[; {missing_memory_bytes} are still missing then]"
    ),
    "ChosenForEviction": "evicted by {feature}: number {rank} of {candidates} candidates, priority {priority}",
    "AlreadyLeaving": "on its way out already; counted as released",
    "EvictionRefused": "the cluster does not let it go at present: {why}",
    "NextRound": "would go, but this round is full; number {rank} of {candidates} candidates",
    "EnoughReleased": "stays: those before it release enough; it is number {rank} of {candidates} candidates",
    "ReleasesNothing": "stays: it would release nothing of what {feature} misses",
    "NoPodSample": "stays: its use is unknown",
    "EvictionNotEnabled": "stays: it has no label koordinator.sh/eviction-enabled: true, which {feature} asks for",
    "PriorityTooHigh": "stays: its priority {priority} is above the threshold of {feature}",
    "EvictionPolicyForbids": "stays: its annotation koordinator.sh/eviction-policy does not list {feature}",
    "NotBestEffort": "stays: {feature} evicts only pods of class BE",
    "PodHasEnded": "it has ended",
    "UnsupportedByKernel": "this kernel has no {file}, so the setting has no effect",
    "BurstOff": "no pod may go beyond its CPU limit",
    "SharedCPUState": (
        "the CPUs that pods share are {state}[: {used_milli} of {total_milli} cores used, {threshold_percent} is full]"
    ),
    "ThrottledBurst": "throttled while shared CPUs are idle, so quotas grow: {containers}",
    "BurstLowered": "raised quotas come down, the node is {state}: {containers}",
    "BurstReset": "policy {policy} raises no quotas, so they go back[: {containers}]",
    "BurstSteady": "quotas stay: {containers}",
    "BadBurstAnnotation": "annotation {annotation} cannot be used: {why}; the node's settings hold",
    "MemoryQOS": "the pod is protected: min {min_bytes}, low {low_bytes}",
    "MemoryQOSLevel": "as much is protected as in the pods below: min {min_bytes}, low {low_bytes}",
    "MemoryQOSReleased": "{files} files get back what was found",
    "MemoryQOSOn": "{groups} groups have memory QoS",
    "MemoryQOSOff": "no class and no pod has memory QoS",
    "BadMemoryQOSAnnotation": "annotation {annotation} cannot be used: {why}; the settings of the class hold",
    "CPUIdentity": "{file} is {value} for identity {identity}",
    "CPUIdentityReleased": "{files} files get back what was found",
    "CPUIdentityOn": "{groups} groups have their rank",
    "CPUIdentityOff": "no class has a rank that this kernel knows",
    "BlockQOS": "{settings} settings of disks[ {disks}] are asked for",
    "NoSuchDisk": "there is no {disk}",
    "DiskNotWeighed": "the kernel does not weigh the use of {disks}: it has no latency targets and no cost model",
    "BadBlockSetting": "the settings of {disk} cannot be used: {why}",
    "BadBlockAnnotation": "annotation {annotation} cannot be used: {why}; the pod has no limits of its own",
    "BlockClassHasNoGroup": "{class} has no group of its own that disks could be shared by",
    "BlockQOSReleased": "{files} settings get back what was found",
    "BlockQOSOn": "{groups} groups have their part of disks",
    "BlockQOSOff": "no class and no pod asks for a part of a disk",
    "NoSystemSettings": "nothing is asked of the kernel's settings",
    "SystemSetting": "{name} is {value}",
    "SettingOutOfRange": "{name} would be {value}, which is not within {least} to {greatest}; it stays as it is",
    "SettingGivenBack": "{name} is no longer asked for and goes back to {value}",
    "NoOOMScores": "no pod asks for a place in the queue of the OOM killer",
    "OOMScoreReleased": "no longer asked for; {processes} processes get back what they had",
    "BadOOMScore": "the number for container {container} cannot be used: {why}",
    "BadReservation": "the reservation annotation was refused: {why}; reserved: {reservedCPUs}",
}
"""By reason, or by reason/verdict where a verdict needs its own words. `[…]` is left out when one of its fields is
missing or all of them are nothing. A reason that is not here gets its evidence listed."""

_DOES = {
    "shrink": "shrinks",
    "grow": "grows",
    "set": "moves",
    "hold": "stays",
    "release": "is released",
    "evict": "goes",
}
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
    return [(units.label(name), term(name, value, decision)) for name, value in decision.evidence.items()]


def term(name: str, value: int | float | str, decision: Decision) -> str:
    """A value of one evidence field of `decision` with its unit."""
    return units.full(_named(name, decision), value)


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
