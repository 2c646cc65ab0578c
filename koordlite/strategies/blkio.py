"""Share block devices: limits and weights of best-effort work and of pods that ask, latency targets of the machine.

`blkioQOS` of the class BE is for the besteffort group, that of `cgroupRoot` sets latency targets and cost model of the
disks, annotation `koordinator.sh/blkioQOS` is for one pod. Only what is set is written, and only lines of ours are
given back. Source: Koordinator strategy BlkioReconcile.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import msgspec

from koordlite.changes import block_device
from koordlite.changes.block_device import BlockChange
from koordlite.formulas import blkio
from koordlite.model.decision import Decision
from koordlite.model.keys import BLKIO_QOS
from koordlite.model.picture.blocks import ROOT, Asker, BlockField, askers
from koordlite.model.place import Place
from koordlite.model.pod.values import Pod
from koordlite.model.settings import StrategySettings, bounded
from koordlite.model.slo import pod_overrides
from koordlite.model.slo.settings import SLO
from koordlite.model.snapshot import Snapshot

NAME = "blkio"
NEW_CONTAINERS = "theirs"
_MACHINE: tuple[BlockField, ...] = ("io.cost.qos", "io.cost.model")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config(StrategySettings):
    """Section `blkio`. Disks come from `blkioQOS` of the ConfigMap key `resource-qos-config` and from annotations."""

    pod_weight_percent: int = bounded(100, ge=1, le=100)
    """The largest weight that the annotation of a pod may ask for; 100 is what a group has without one."""
    disks_per_pod: int = bounded(16, ge=0, le=1000)
    """Maximum number of disks in an annotation; those after them are left out."""


def reads(slo: SLO, pods: Sequence[Pod]) -> tuple[str, ...]:
    """Disks that are named, while a class or a pod names one."""
    by_class = (slo.resource_qos.cgroup_root, slo.resource_qos.be_class)
    is_on = any(each.blkio_qos.enable for each in by_class) or any(BLKIO_QOS in pod.annotations for pod in pods)
    return ("blocks",) if is_on else ()


def decide(snapshot: Snapshot, config: Config) -> Iterator[Decision]:
    """Decide about each group that asks, what is wrong with what it asks, and about what is given back."""
    targets, missing = set[Place](), set[BlockField]()
    groups = {uid: place.group for uid, place in snapshot.places.items()}
    requests = list(askers(snapshot.slo.resource_qos, snapshot.pods, groups, snapshot.layout.besteffort))
    allowances = [_within(asker, config) for asker in requests]
    yield from _unusable(snapshot)
    answers = [_settings(snapshot, asker) for asker in allowances]
    # Disks whose use the kernel weighs: those with a latency target or a cost model, or about to get one. It refuses a
    # weight for any other (`blkg_conf_prep`, EOPNOTSUPP).
    of_root = snapshot.blocks.values.get(ROOT, {})
    weighed = {device for field in _MACHINE for device in of_root.get(field, {})}
    roots = (settings for asker, (settings, _) in zip(allowances, answers, strict=True) if asker.group == ROOT)
    weighed |= {device for settings in roots for device, _ in settings}
    for before, asker, (settings, mistakes) in zip(requests, allowances, answers, strict=True):
        lines = {key: value for key, value in settings.items() if key[1] != "io.weight" or key[0] in weighed}
        if unweighed := settings.keys() - lines.keys():
            disks = ", ".join(sorted(device for device, _ in unweighed))
            yield Decision(asker.subject, "skip", "DiskNotWeighed", {"disks": disks})
        targets |= {BlockChange(asker.group, *key, None).place for key in lines}
        yield from mistakes
        present, clipped = snapshot.blocks.values.get(asker.group, {}), _clipped(before, asker)
        # A group that is gone has no files, and asks for none.
        if asker.group in snapshot.cgroups or asker.group == ROOT:
            missing |= {field for _, field in settings if field not in present}
        changes = tuple(
            BlockChange(asker.group, device, field, value)
            for (device, field), value in lines.items()
            if field in present and not blkio.holds(present[field].get(device, blkio.UNSET[field]), value)
        )
        disks = ", ".join(sorted({device for device, _ in lines}))
        evidence: dict[str, int | str] = {"disks": disks, "settings": len(lines), "files": len(changes)}
        evidence |= {"clipped": clipped} if clipped else {}
        yield Decision(asker.subject, "set" if changes else "hold", "BlockQOS", evidence, changes)
    if missing:
        yield Decision("node", "skip", "UnsupportedByKernel", {"file": ", ".join(sorted(missing))})
    # What nobody asks for any more goes back.
    places = (place for place in sorted(snapshot.ours) if place.kind is block_device.PLACE and place not in targets)
    changes = tuple(
        BlockChange(group, device, _FIELDS[field], None, gives_back=True)
        for group, device, field in (place.parts for place in places)
    )
    if changes:
        yield Decision("node", "release", "BlockQOSReleased", {"files": len(changes)}, changes)
    else:
        yield Decision("node", "hold", "BlockQOSOn" if allowances else "BlockQOSOff", {"groups": len(allowances)})


def _unusable(snapshot: Snapshot) -> Iterator[Decision]:
    """Refuse what nobody can carry out: an annotation that cannot be read, disks for a class without a group of its
    own."""
    for pod in snapshot.pods:
        _, bad = pod_overrides.blkio_qos(pod)
        if bad:
            yield Decision(f"pod/{pod.key}", "refuse", "BadBlockAnnotation", {"annotation": bad.key, "why": bad.why})
    qos = snapshot.slo.resource_qos
    for name, settings in (("lsrClass", qos.lsr_class), ("lsClass", qos.ls_class), ("systemClass", qos.system_class)):
        if settings.blkio_qos.enable and settings.blkio_qos.blocks:
            yield Decision("node", "skip", "BlockClassHasNoGroup", {"class": name})


def _within(asker: Asker, config: Config) -> Asker:
    """Clip what a pod asks for; what the operator asks for holds as it is."""
    if not asker.uid:
        return asker
    blocks = list(asker.blocks[: config.disks_per_pod])
    for index, block in enumerate(blocks):
        if (block.io_cfg.io_weight_percent or 0) > config.pod_weight_percent:
            lighter = msgspec.structs.replace(block.io_cfg, io_weight_percent=config.pod_weight_percent)
            blocks[index] = msgspec.structs.replace(block, io_cfg=lighter)
    return msgspec.structs.replace(asker, blocks=tuple(blocks))


def _clipped(before: Asker, asker: Asker) -> str:
    """Parts of the annotation that do not hold, in words."""
    lower = [
        f"weight {block.io_cfg.io_weight_percent} → {allowance.io_cfg.io_weight_percent}"
        for block, allowance in zip(before.blocks, asker.blocks, strict=False)
        if block != allowance
    ]
    left_out = len(before.blocks) - len(asker.blocks)
    return "; ".join((*lower, *([f"{left_out} more disks are left out"] if left_out else ())))


_Settings = dict[tuple[str, BlockField], str]


def _settings(snapshot: Snapshot, asker: Asker) -> tuple[_Settings, list[Decision]]:
    """Target values of this group by disk and field; and one decision each about disks that are not there, and about
    settings that cannot be used, whatever their number."""
    settings, absent, bad = _Settings(), list[str](), dict[str, str]()
    for block in asker.blocks:
        name, devices = f"{block.type or 'block'} {block.name}", snapshot.blocks.devices.get(asker.disk(block), ())
        try:
            values = blkio.of_machine(block.io_cfg) if asker.group == ROOT else blkio.of_group(block.io_cfg)
        except ValueError as error:
            bad.setdefault(name, str(error))
            continue
        absent += [] if devices else [name]
        settings |= {(device, field): value for device in devices for field, value in values.items()}
    mistakes = []
    if bad:
        why = {"disk": ", ".join(bad), "why": next(iter(bad.values()))}
        mistakes.append(Decision(asker.subject, "refuse", "BadBlockSetting", why))
    if absent:
        mistakes.append(Decision(asker.subject, "skip", "NoSuchDisk", {"disk": ", ".join(absent)}))
    return settings, mistakes


_FIELDS: dict[str, BlockField] = {str(field): field for field in blkio.UNSET}
