"""Disks that settings name, and what the groups that ask have of them. Costs nothing while no group asks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from koordlite.formulas.blkio import UNSET
from koordlite.host.block import devices
from koordlite.host.block import files as block_files
from koordlite.host.bundle import Host
from koordlite.model.picture.blocks import ROOT, Asker, BlockField, Blocks, askers
from koordlite.model.picture.groups import PodGroups
from koordlite.model.pod.values import Pod
from koordlite.model.slo.qos import Block
from koordlite.model.slo.settings import SLO
from koordlite.ports import Files

BLOCKS = "blocks"
_NOTHING = Blocks()


def read(
    host: Host, slo: SLO, pods: Iterable[Pod], places: Mapping[str, PodGroups], *, reads: Collection[str]
) -> Blocks:
    """Disks and limits, for the groups that the configuration and the pods' annotations name."""
    if BLOCKS not in reads:
        return _NOTHING
    groups = {uid: place.group for uid, place in places.items()}
    found = list(askers(slo.resource_qos, pods, groups, host.cgroups.layout.besteffort))
    if not found:
        return _NOTHING
    named = {asker.disk(block): (asker, block) for asker in found for block in asker.blocks}
    return Blocks(
        devices={name: _numbers(host.files, asker, block) for name, (asker, block) in named.items()},
        values={group: _values(host, group) for group in {ROOT, *(asker.group for asker in found)}},
    )


def _numbers(files: Files, asker: Asker, block: Block) -> tuple[str, ...]:
    match block.type:
        case "device":
            return devices.of_device(files, block.name)
        case "volumegroup":
            return devices.of_volume_group(files, block.name)
        case "podvolume" if asker.uid:
            return devices.of_pod_volume(files, asker.uid, block.name)
    return ()


def _values(host: Host, group: str) -> dict[BlockField, Mapping[str, str]]:
    found = ((field, block_files.read(host.files, host.cgroups, group, field)) for field in UNSET)
    return {field: lines for field, lines in found if lines is not None}
