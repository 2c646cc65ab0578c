"""Key `resource-qos-config`: what the classes of pods get of each resource. The values and their defaults.

A part whose `enable` is false has the values that change nothing, whatever else is written: so switching off resets a
node. Source: Koordinator `DefaultResourceQOSStrategy`, `NoneResourceQOS` and its validating webhook.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from koordlite.model.quantity import Quantity
from koordlite.model.reading.declared import AtLeast0, OneOf, OnOff, Path, Percent, Within

Positive = Annotated[int, Within(low=1)]
Bandwidth = Annotated[int | str, Within(low=0, high=100)]
"""A percentage of the node's bandwidth, or a quantity of bits per second."""


class CPUQOS(msgspec.Struct, frozen=True, kw_only=True):
    """`cpuQOS`: which class may displace which on a core."""

    enable: bool = False
    group_identity: Annotated[int, Within(low=-1, high=2)] = 0
    sched_idle: OnOff = 0
    core_expeller: bool = False


class MemoryQOS(msgspec.Struct, frozen=True, kw_only=True):
    """`memoryQOS`: protection from reclaim, its beginning, and swap. Percentages are of a container's request or
    limit."""

    enable: bool = False
    min_limit_percent: Percent = 0
    low_limit_percent: Percent = 0
    throttling_percent: Percent = 0
    wmark_ratio: Percent = 0
    wmark_scale_permill: Annotated[int, Within(low=1, high=1000)] = 50
    wmark_min_adj: Annotated[int, Within(low=-25, high=50)] = 0
    priority_enable: OnOff = 0
    priority: Annotated[int, Within(low=0, high=12)] = 0
    oom_kill_group: OnOff = 0
    page_cache_enable: bool | None = None
    page_cache_limit_percent: Percent | None = None
    page_cache_limit_size: Quantity | None = None
    page_cache_reclaim_sync: bool | None = None
    swap_max_percent: Percent | None = None
    """Ours: swap of a container; None leaves it to others."""


class IOConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`ioCfg` of a block device; rates per second, latencies in microseconds, 0 of a rate is unlimited."""

    read_iops: AtLeast0 | None = None
    write_iops: AtLeast0 | None = None
    read_bps: AtLeast0 | None = None
    write_bps: AtLeast0 | None = None
    io_weight_percent: Annotated[int, Within(low=1, high=100)] | None = None
    read_latency: AtLeast0 | None = None
    write_latency: AtLeast0 | None = None
    read_latency_percent: Percent | None = None
    write_latency_percent: Percent | None = None
    enable_user_model: bool | None = None
    model_read_bps: Positive | None = None
    model_write_bps: Positive | None = None
    model_read_seq_iops: Positive | None = None
    model_write_seq_iops: Positive | None = None
    model_read_rand_iops: Positive | None = None
    model_write_rand_iops: Positive | None = None


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of `blkioQOS.blocks`."""

    name: str = ""
    type: Annotated[str, OneOf(("device", "volumegroup", "podvolume"), "nothing")] = ""
    io_cfg: IOConfig = IOConfig()


class BlkioQOS(msgspec.Struct, frozen=True, kw_only=True):
    """`blkioQOS`: shares and limits of block devices."""

    enable: bool = False
    blocks: tuple[Block, ...] = ()


class ResctrlQOS(msgspec.Struct, frozen=True, kw_only=True):
    """`resctrlQOS`: the part of the last cache as a range in percent, and of the memory bandwidth."""

    ORDERED: ClassVar[tuple[tuple[str, str], ...]] = (("cat_range_start_percent", "cat_range_end_percent"),)

    enable: bool = False
    cat_range_start_percent: Percent = 0
    cat_range_end_percent: Percent = 100
    mba_percent: Percent | None = 100


class NetworkQOS(msgspec.Struct, frozen=True, kw_only=True):
    """`networkQOS`: guaranteed and largest bandwidth."""

    enable: bool = False
    ingress_request: Bandwidth = 0
    ingress_limit: Bandwidth = 0
    egress_request: Bandwidth = 0
    egress_limit: Bandwidth = 0


class ClassQOS(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one class of pods."""

    cpu_qos: CPUQOS = CPUQOS()
    memory_qos: MemoryQOS = MemoryQOS()
    blkio_qos: BlkioQOS = BlkioQOS()
    resctrl_qos: ResctrlQOS = ResctrlQOS()
    network_qos: NetworkQOS = NetworkQOS()


class QOSPolicies(msgspec.Struct, frozen=True, kw_only=True):
    """Means of the kernel by which CPU and network QoS are kept."""

    cpu_policy: Annotated[str, OneOf(("groupIdentity", "coreSched"))] = "groupIdentity"
    net_qos_policy: Annotated[str, OneOf(("tc", "terway-qos"))] = "tc"


class ResourceQOS(msgspec.Struct, frozen=True, kw_only=True):
    """The whole key. Without arguments: everything switched off."""

    policies: QOSPolicies = QOSPolicies()
    lsr_class: ClassQOS = ClassQOS()
    ls_class: ClassQOS = ClassQOS()
    be_class: ClassQOS = ClassQOS()
    system_class: ClassQOS = ClassQOS()
    cgroup_root: ClassQOS = ClassQOS()


OFF = ResourceQOS()
_LATENCY_SENSITIVE = ClassQOS(
    cpu_qos=CPUQOS(group_identity=2, core_expeller=True),
    memory_qos=MemoryQOS(wmark_ratio=95, wmark_scale_permill=20, wmark_min_adj=-25),
)
_BEST_EFFORT = ClassQOS(
    cpu_qos=CPUQOS(group_identity=-1),
    memory_qos=MemoryQOS(wmark_ratio=95, wmark_scale_permill=20, wmark_min_adj=50),
    resctrl_qos=ResctrlQOS(cat_range_end_percent=30),
)
DEFAULTS = ResourceQOS(lsr_class=_LATENCY_SENSITIVE, ls_class=_LATENCY_SENSITIVE, be_class=_BEST_EFFORT)
"""Base that the settings are laid over; `settled` then resets the parts that are off."""

_PARTS = {"cpuQOS": "cpu_qos", "memoryQOS": "memory_qos", "resctrlQOS": "resctrl_qos"}


def settled(qos: ResourceQOS) -> tuple[ResourceQOS, tuple[Path, ...]]:
    """`qos` with the parts that are off reset, and their paths. SYSTEM and the root are left as written."""
    lsr, ls, be = _reset(qos.lsr_class), _reset(qos.ls_class), _reset(qos.be_class)
    named = (("lsrClass", lsr), ("lsClass", ls), ("beClass", be))
    off = tuple((name, part) for name, (_, parts) in named for part in parts)
    return msgspec.structs.replace(qos, lsr_class=lsr[0], ls_class=ls[0], be_class=be[0]), off


def _reset(settings: ClassQOS) -> tuple[ClassQOS, list[str]]:
    parts = {part: attribute for part, attribute in _PARTS.items() if not getattr(settings, attribute).enable}
    blank = {attribute: getattr(ClassQOS(), attribute) for attribute in parts.values()}
    return msgspec.structs.replace(settings, **blank), list(parts)
