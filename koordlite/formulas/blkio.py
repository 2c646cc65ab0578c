"""Values from the settings of a disk: limits and weight of a group, latency targets and cost model of the machine.

Only what is set is written. Koordinator switches latency targets on with defaults as soon as a disk is named.
"""

from __future__ import annotations

from collections.abc import Mapping

from koordlite.model.picture.blocks import BlockField
from koordlite.model.slo.qos import IOConfig

UNLIMITED, DEFAULT_WEIGHT = "max", "default"
NEUTRAL_WEIGHT = 100
LATENCY_US, LATENCY_PERCENT = 3000, 95
"""Defaults of a latency target that is given in part. Source: Koordinator `DefaultBlkIOQOS`."""
UNSET: Mapping[BlockField, str] = {
    "io.read_bps": UNLIMITED,
    "io.write_bps": UNLIMITED,
    "io.read_iops": UNLIMITED,
    "io.write_iops": UNLIMITED,
    "io.weight": DEFAULT_WEIGHT,
    "io.cost.qos": "enable=0",
    "io.cost.model": "ctrl=auto",
}
"""Values of a kernel where nobody wrote."""


def of_group(config: IOConfig) -> dict[BlockField, str]:
    """Limits a second, 0 for none, and the weight of a group.

    >>> of_group(IOConfig(read_bps=1048576, write_iops=0, io_weight_percent=60))
    {'io.read_bps': '1048576', 'io.write_iops': 'max', 'io.weight': '60'}
    """
    limits: dict[BlockField, int | None] = {
        "io.read_bps": config.read_bps,
        "io.write_bps": config.write_bps,
        "io.read_iops": config.read_iops,
        "io.write_iops": config.write_iops,
    }
    values = {field: str(limit or UNLIMITED) for field, limit in limits.items() if limit is not None}
    if config.io_weight_percent is not None:
        values["io.weight"] = str(config.io_weight_percent)
    return values


def of_machine(config: IOConfig) -> dict[BlockField, str]:
    """Cost model and latency targets of a disk; ValueError for a model of its own that lacks a number.

    Source: Koordinator `getBlkIOUpdaterFromBlockCfg` of the root group; the kernel's cgroup-v2 document, "io.cost.qos".

    >>> of_machine(IOConfig(read_latency=2000))["io.cost.qos"]
    'enable=1 ctrl=user rpct=95 rlat=2000 wpct=95 wlat=3000'
    """
    values = _model(config)
    parts = {
        "rpct": (config.read_latency_percent, LATENCY_PERCENT),
        "rlat": (config.read_latency, LATENCY_US),
        "wpct": (config.write_latency_percent, LATENCY_PERCENT),
        "wlat": (config.write_latency, LATENCY_US),
    }
    if any(value is not None for value, _ in parts.values()):
        words = (f"{name}={usual if value is None else value}" for name, (value, usual) in parts.items())
        values["io.cost.qos"] = " ".join(("enable=1 ctrl=user", *words))
    return values


def holds(present: str, target: str) -> bool:
    """Tell whether a value is there already, however the kernel prints its numbers.

    >>> holds("enable=1 ctrl=user rpct=95.00 rlat=3000 min=1.00", "enable=1 rpct=95 rlat=3000")
    True
    """
    words = set(map(_plain, present.split()))
    return all(_plain(word) in words for word in target.split())


def _plain(word: str) -> str:
    name, equals, value = word.partition("=")
    whole, point, fraction = value.partition(".")
    return f"{name}={whole}" if equals and point and not fraction.strip("0") else word


def _model(config: IOConfig) -> dict[BlockField, str]:
    if config.enable_user_model is None:
        return {}
    if not config.enable_user_model:
        return {"io.cost.model": UNSET["io.cost.model"]}
    numbers = {
        "rbps": config.model_read_bps,
        "rseqiops": config.model_read_seq_iops,
        "rrandiops": config.model_read_rand_iops,
        "wbps": config.model_write_bps,
        "wseqiops": config.model_write_seq_iops,
        "wrandiops": config.model_write_rand_iops,
    }
    lacking = [name for name, value in numbers.items() if value is None]
    if lacking:
        raise ValueError(f"a cost model of your own needs {', '.join(lacking)} as well")
    return {"io.cost.model": " ".join(("ctrl=user", *(f"{name}={value}" for name, value in numbers.items())))}
