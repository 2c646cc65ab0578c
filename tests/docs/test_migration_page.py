"""The tables of docs/migrate-from-koordlet.md name every gate of koordlet, and only what there is here."""

from __future__ import annotations

import pathlib
import re

import pytest

from koordlite import config, strategies

PAGE = (pathlib.Path(__file__).parents[2] / "docs/migrate-from-koordlet.md").read_text(encoding="utf-8")
GATES = (
    "AuditEvents",
    "AuditEventsHTTPHandler",
    "BECPUSuppress",
    "BECPUManager",
    "BECPUEvict",
    "BEMemoryEvict",
    "CPUEvict",
    "MemoryEvict",
    "CPUAllocatableEvict",
    "MemoryAllocatableEvict",
    "CPUBurst",
    "SystemConfig",
    "RdtResctrl",
    "CgroupReconcile",
    "NodeTopologyReport",
    "Accelerators",
    "RDMADevices",
    "CPICollector",
    "Libpfm4",
    "ResctrlCollector",
    "PSICollector",
    "BlkIOReconcile",
    "ColdPageCollector",
    "HugePageReport",
    "PodResourcesProxy",
    "HamiCoreVGPUMonitor",
    "PerCPUMetric",
    "NodeMetricPromMetrics",
    "GroupIdentity",
    "CPUSetAllocator",
    "GPUEnvInject",
    "BatchResource",
    "CPUNormalization",
    "CoreSched",
    "TerwayQoS",
    "TCNetworkQoS",
    "RDMADeviceInject",
    "Resctrl",
)
"""Koordinator `koordlet_features.go` and `runtimehooks/config.go`."""


def part(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def rows(title: str) -> list[list[str]]:
    lines = [line for line in part(title).splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_gate_has_a_row() -> None:
    named = [
        word for row in rows("Feature gates") for word in re.findall(r"\w+", row[0]) if word not in ("hook", "hooks")
    ]
    assert sorted(named) == sorted(GATES)


def test_strategies_that_are_named_are_there() -> None:
    known = {rule.name for rule in strategies.discover()}
    cells = [word for row in rows("Feature gates") for word in re.findall(r"`(\w+)`", row[2])]
    assert {word for word in cells if word not in ("explain",)} <= known
    block = PAGE.split("```yaml\n")[1].split("```")[0]
    chosen = config.parse(block, "the page")
    assert chosen.publish.node_resources == "manager"
    assert {name for name, section in chosen.strategies.items() if section.mode == "enforce"} <= known


@pytest.mark.parametrize(
    "option", sorted(set(re.findall(r"`((?:agent|cluster|publish|record|http|strategies)\.[\w.]+)", PAGE)))
)
def test_options_that_are_named_are_there(option: str) -> None:
    section, *path = option.split(".")
    held = config.default()
    found = getattr(held, section) if section != "strategies" else held.strategies[path.pop(0)]
    name = re.sub(r"([A-Z])", lambda m: f"_{m[1].lower()}", path[0])
    assert hasattr(found, name), option
