"""A plugin of NRI, the Node Resource Interface of containerd and CRI-O, in Python. See README.md.

`Plugin` registers with the runtime and answers its calls by a `Handler`, always in time. The library depends on
nothing but the standard library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from koordlite.nri.messages import (
        Container,
        ContainerAdjustment,
        LinuxContainer,
        LinuxContainerAdjustment,
        LinuxCPU,
        LinuxMemory,
        LinuxPodSandbox,
        LinuxRdt,
        LinuxResources,
        PodSandbox,
    )
    from koordlite.nri.plugin import (
        NOTHING,
        OOM_SCORE_SINCE,
        RDT_SINCE,
        SOCKET,
        VERSION,
        Answer,
        Handler,
        NRIError,
        Outcome,
        Plugin,
        Version,
        Work,
    )
    from koordlite.nri.ttrpc import ProtocolError

__all__ = [
    "NOTHING",
    "OOM_SCORE_SINCE",
    "RDT_SINCE",
    "SOCKET",
    "VERSION",
    "Answer",
    "Container",
    "ContainerAdjustment",
    "Handler",
    "LinuxCPU",
    "LinuxContainer",
    "LinuxContainerAdjustment",
    "LinuxMemory",
    "LinuxPodSandbox",
    "LinuxRdt",
    "LinuxResources",
    "NRIError",
    "Outcome",
    "Plugin",
    "PodSandbox",
    "ProtocolError",
    "Version",
    "Work",
]


def __getattr__(name: str) -> Any:
    """Import what has `name` when it is first used: messages take 400 KiB, and kubelet's reader needs none of them."""
    if name in __all__:
        for part in ("messages", "plugin", "ttrpc"):
            module = importlib.import_module(f"{__name__}.{part}")
            if hasattr(module, name):
                value = globals()[name] = getattr(module, name)
                return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
