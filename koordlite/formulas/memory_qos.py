"""Memory of a pod that is kept from reclaim, the amount where reclaim begins, needs of the levels above, and swap."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from koordlite.model import keys
from koordlite.model.cgroup_fields import CgroupField
from koordlite.model.pod.qos import QoSClass
from koordlite.model.pod.values import ContainerInfo, Pod
from koordlite.model.slo.qos import MemoryQOS

Values = dict[CgroupField, int]
UNLIMITED = -1
PAGE = 4096
_IN_PAGES = frozenset({"memory.min", "memory.low", "memory.high", "memory.swap.max"})


def resource(pod: Pod) -> str:
    """The resource whose amounts count. Best-effort pods have batch memory by their label, not by default."""
    return keys.BATCH_MEMORY if pod.raw_qos is QoSClass.BE else "memory"


def amount(container: ContainerInfo, resource: str, which: Literal["requests", "limits"]) -> int:
    """Bytes of a container's request or limit, 0 without one."""
    amounts = container.requests if which == "requests" else container.limits
    return amounts[resource].value if resource in amounts else 0


def pod_amounts(pod: Pod) -> tuple[int, int]:
    """Memory request and limit of a pod. The limit is 0 when a container that stays has none: then kubelet sets none
    for the pod either. Init containers that end count in requests of plain memory alone.

    Sources: Koordinator `GetPodBEMemoryByteRequestIgnoreUnlimited` and `GetPodBEMemoryByteLimit`.
    """
    name = resource(pod)
    staying = [container for container in pod.containers if not container.one_shot]
    limits = [amount(each, name, "limits") for each in staying]
    is_batch = name == keys.BATCH_MEMORY
    request = sum(amount(each, name, "requests") for each in staying) if is_batch else pod.request_value(name)
    return request, sum(limits) if all(limits) else 0


def protection(qos: MemoryQOS, request: int) -> Values:
    """request × percent of `memory.min` and `memory.low`; a low that is set is at least min.

    Source: Koordinator `calculatePodResources`.

    >>> protection(MemoryQOS(min_limit_percent=50, low_limit_percent=20), 1000)
    {'memory.min': 500, 'memory.low': 500}
    """
    request = max(request, 0)
    low, least = request * qos.low_limit_percent // 100, request * qos.min_limit_percent // 100
    return {"memory.min": least, "memory.low": max(low, least) if low > 0 else low}


def throttling(qos: MemoryQOS, *, request: int, limit: int, allocatable: int, page: int = PAGE) -> int:
    """request + (limit - request) × percent in whole pages, at least `memory.min`: `memory.high`; -1 for none.

    Without a limit (0) that of the node, `allocatable`, counts. Source: Koordinator `calculateContainerResources`.

    >>> throttling(MemoryQOS(throttling_percent=80), request=2**29, limit=2**30, allocatable=0)
    966365184
    """
    if qos.throttling_percent == 0:
        return UNLIMITED
    request, top = max(request, 0), limit if limit > 0 else allocatable
    begin = request + (top - request) * qos.throttling_percent // 100
    high = begin // page * page
    return max(high, protection(qos, request)["memory.min"]) if high > 0 else high


def swap_max(percent: int, *, request: int, limit: int) -> int:
    """limit × percent: `memory.swap.max`; without a limit (0) of the request. Whoever has neither gets no swap, as from
    kubelet (LimitedSwap).

    >>> swap_max(50, request=2**29, limit=2**30), swap_max(50, request=0, limit=0)
    (536870912, 0)
    """
    return max(limit if limit > 0 else request, 0) * percent // 100


def rounded(field: CgroupField, value: int, *, page: int = PAGE) -> int:
    """Value as the kernel keeps it: amounts of memory in whole pages, the rest as it is written.

    Otherwise what stands there would never be what was asked for. Source: Linux `page_counter_memparse`.

    >>> rounded("memory.min", 10_000), rounded("memory.high", UNLIMITED), rounded("memory.wmark_ratio", 95)
    (8192, -1, 95)
    """
    return value // page * page if field in _IN_PAGES and value > 0 else value


def fixed(qos: MemoryQOS) -> Values:
    """Values copied from the settings, in the order Koordinator writes it."""
    return {
        "memory.wmark_ratio": qos.wmark_ratio,
        "memory.wmark_scale_factor": qos.wmark_scale_permill,
        "memory.wmark_min_adj": qos.wmark_min_adj,
        **of_class(qos),
    }


def of_class(qos: MemoryQOS) -> Values:
    """Values of a QoS level itself: its place before the OOM killer."""
    return {
        "memory.priority": qos.priority,
        "memory.use_priority_oom": qos.priority_enable,
        "memory.oom.group": qos.oom_kill_group,
    }


def pod_values(qos: MemoryQOS, *, request: int, limit: int) -> Values:
    """All values of a pod's group, in the order Koordinator writes them."""
    return {**protection(qos, request), **fixed(qos), **page_cache(qos, limit=limit)}


def container_values(qos: MemoryQOS, *, request: int, limit: int, allocatable: int, page: int = PAGE) -> Values:
    """All values of a container's group, in the order Koordinator writes them."""
    high = throttling(qos, request=request, limit=limit, allocatable=allocatable, page=page)
    return {**protection(qos, request), "memory.high": high, **fixed(qos)}


def page_cache(qos: MemoryQOS, *, limit: int) -> Values:
    """The limit on a pod's page cache: its size, at most the pod's memory limit, or a part of that; 0 is off. A part of
    no limit says nothing.

    A switch that is given overrides what the size says. Source: Koordinator `calculatePodPageCacheLimit`.

    >>> page_cache(MemoryQOS(page_cache_limit_percent=50), limit=2**30)["memory.pagecache_limit.size"]
    536870912
    """
    values: Values = {}
    size, percent = None, qos.page_cache_limit_percent
    if qos.page_cache_limit_size is not None:
        size = qos.page_cache_limit_size.value
        size = max(min(size, limit) if limit > 0 else size, 0)
    elif percent is not None and limit > 0:
        size = limit * percent // 100
    if size is not None:
        values = {"memory.pagecache_limit.enable": int(size > 0), "memory.pagecache_limit.size": size}
        if size > 0:
            values["memory.pagecache_limit.sync"] = int(bool(qos.page_cache_reclaim_sync))
    if qos.page_cache_enable is not None:
        values["memory.pagecache_limit.enable"] = int(qos.page_cache_enable)
    return values


def sums(pods: Iterable[Mapping[CgroupField, int]]) -> Values:
    """Σ of what the pods below have of `memory.min` and `memory.low`: a level protects no more than its own.

    Koordinator sums lows before they are raised to min, so that pods could have more than their level.
    """
    levels = tuple(pods)
    return {
        "memory.min": sum(pod.get("memory.min", 0) for pod in levels),
        "memory.low": sum(pod.get("memory.low", 0) for pod in levels),
    }
