"""Disks that settings name, who asks for what of them, and what groups have of them at present.

A disk is known to cgroups by its number, `MAJOR:MINOR`; settings name a device, an LVM volume group or a pod's volume.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import msgspec

from koordlite.model.pod.values import Pod
from koordlite.model.slo import pod_overrides
from koordlite.model.slo.qos import Block, ResourceQOS

ROOT = ""
"""The root cgroup, by its path."""
BlockField = Literal[
    "io.read_bps", "io.write_bps", "io.read_iops", "io.write_iops", "io.weight", "io.cost.model", "io.cost.qos"
]
"""Setting of a group for one disk, the same for v1 and v2: bytes or operations a second, or `max`; a weight, or
`default`; for the root group the cost model and the latency targets, as the kernel writes them."""


class Blocks(msgspec.Struct, frozen=True):
    """Disks and their present settings."""

    devices: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """Numbers of disks by name (`Asker.disk`); empty when there is no such disk."""
    values: Mapping[str, Mapping[BlockField, Mapping[str, str]]] = msgspec.field(default_factory=dict)
    """Values by group, field and disk; a field this kernel has no file for is missing, and so is a disk without a
    value."""


class Asker(msgspec.Struct, frozen=True):
    """A group that is to have something of disks."""

    subject: str
    """`besteffort`, `root` or `pod/ns/name`, for decisions."""
    group: str
    blocks: tuple[Block, ...]
    uid: str = ""
    """uid of the pod."""

    def disk(self, block: Block) -> str:
        """The name of a block over all askers: a volume is known by its name in one pod only."""
        owner = f"{self.uid}/" if block.type == "podvolume" else ""
        return f"{block.type}/{owner}{block.name.removeprefix('/dev/')}"


def askers(qos: ResourceQOS, pods: Iterable[Pod], groups: Mapping[str, str], best_effort: str) -> Iterator[Asker]:
    """The root and the besteffort group by the ConfigMap, pods by their annotation; `groups` is by pod uid.
    Source: Koordinator strategy BlkioReconcile."""
    for subject, group, settings in (("root", ROOT, qos.cgroup_root), ("besteffort", best_effort, qos.be_class)):
        if settings.blkio_qos.enable and settings.blkio_qos.blocks:
            yield Asker(subject, group, settings.blkio_qos.blocks)
    for pod in pods:
        blocks, _ = pod_overrides.blkio_qos(pod)
        if blocks and pod.active and pod.uid in groups:
            yield Asker(f"pod/{pod.key}", groups[pod.uid], blocks, pod.uid)
