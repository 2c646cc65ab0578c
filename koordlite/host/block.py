"""Disks: the numbers of those behind a device, an LVM volume group or a pod's volume, and what cgroups have of them.

Limits hold for whole disks, so a partition stands for its disk, and a volume for the disks below it. Each file of
limits has a line for each disk; `io.max` of v2 is four files on v1, weight and cost are a v1 interface of Anolis
kernels. Rules: the kernel's cgroup-v2 document, "IO Interface Files"; Koordinator's file map.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from koordlite.formulas import blkio
from koordlite.host.cgroups.filesystem import Cgroups, vanished
from koordlite.model.file_names import BLOCK_COSTS, BLOCK_LIMITS
from koordlite.model.picture.blocks import BlockField
from koordlite.ports import Files
from koordlite.resctrl.files import names, text

_BLOCK = "/sys/block"
_PODS = "/var/lib/kubelet/pods"
_MOUNTS = ("/proc/1/mountinfo", "/proc/self/mountinfo")
_SINGLE_DASH = re.compile(r"(?<!-)-(?!-)")


def of_device(files: Files, name: str) -> tuple[str, ...]:
    """The disk of `vda`, `/dev/vda1` or `mapper/GROUP-VOLUME`; empty when there is none of that name."""
    short = name.removeprefix("/dev/")
    if "/" in short:
        short = next((dm for dm, alias in _mapped(files) if alias == short.removeprefix("mapper/")), "")
    for disk in _names(files, _BLOCK) if short else ():
        if short == disk or text(files, f"{_BLOCK}/{disk}/{short}/partition"):
            return _numbers(files, [disk])
    return ()


def of_volume_group(files: Files, name: str) -> tuple[str, ...]:
    """The disks below the volumes of an LVM group; empty for a group without any volume."""
    # `GROUP-VOLUME`, where a dash that belongs to a name is doubled.
    volumes = [dm for dm, alias in _mapped(files) if _SINGLE_DASH.split(alias)[0].replace("--", "-") == name]
    return _numbers(files, {disk for dm in volumes for disk in _below(files, dm)})


def of_pod_volume(files: Files, uid: str, name: str) -> tuple[str, ...]:
    """The disks below a CSI volume of a pod, named by its volume or its PersistentVolume.
    Which claim became which PersistentVolume only the API server knows; the only CSI volume of a pod needs no name."""
    folder = f"{_PODS}/{uid}/volumes/kubernetes.io~csi"
    mounted = _names(files, folder)
    volume = name if name in mounted else mounted[0] if len(mounted) == 1 else ""
    lines = (line.split() for path in _MOUNTS for line in text(files, path).splitlines()) if volume else ()
    point = f"{folder}/{volume}/mount"
    number = next((fields[2] for fields in lines if len(fields) > 4 and fields[4] == point), "")
    device = text(files, f"/sys/dev/block/{number}/uevent") if number else ""
    match = re.search(r"^DEVNAME=(\S+)$", device, re.MULTILINE)
    return _numbers(files, set(_below(files, match[1]))) if match else ()


def _below(files: Files, device: str) -> Iterator[str]:
    """The disks that a device, mapped or not, is made of."""
    layers = _names(files, f"{_BLOCK}/{device}/slaves")
    if layers:
        for each in layers:
            yield from _below(files, each)
        return
    for disk in _names(files, _BLOCK):
        if device == disk or text(files, f"{_BLOCK}/{disk}/{device}/partition"):
            yield disk


def _mapped(files: Files) -> Iterator[tuple[str, str]]:
    """Mapped devices and the names LVM gave them."""
    for disk in _names(files, _BLOCK):
        if disk.startswith("dm-"):
            yield disk, text(files, f"{_BLOCK}/{disk}/dm/name")


def _numbers(files: Files, disks: Sequence[str] | set[str]) -> tuple[str, ...]:
    numbers = (text(files, f"{_BLOCK}/{disk}/dev") for disk in sorted(disks))
    return tuple(number for number in numbers if number)


def _names(files: Files, folder: str) -> list[str]:
    return sorted(name.rstrip("/") for name in names(files, folder))


def path(cgroups: Cgroups, group: str, field: BlockField) -> str:
    """The file of a field."""
    name = BLOCK_LIMITS[field][0] if field in BLOCK_LIMITS else BLOCK_COSTS[field]
    if cgroups.layout.version == 2:
        name = "io.max" if field in BLOCK_LIMITS else field
    return f"{cgroups.folder(group, 'blkio')}/{name}"


def read(files: Files, cgroups: Cgroups, group: str, field: BlockField) -> dict[str, str] | None:
    """The value for each disk that has one; None where this kernel has no such file, or the group is gone."""
    try:
        content = files.read(path(cgroups, group, field)).decode()
    except OSError as error:
        if vanished(error):
            return None
        raise
    lines = (line.partition(" ") for line in content.splitlines())
    # v2 has a line `default 100` among the weights.
    return {device: _value(cgroups, field, text) for device, _, text in lines if ":" in device}


def write(files: Files, cgroups: Cgroups, group: str, field: BlockField, line: tuple[str, str]) -> None:
    """Write the (disk, value) `line`."""
    device, value = line
    files.write(path(cgroups, group, field), f"{device} {_written(cgroups, field, value)}".encode())


def _value(cgroups: Cgroups, field: BlockField, text: str) -> str:
    if field in BLOCK_LIMITS and cgroups.layout.version == 2:
        words = dict(word.partition("=")[::2] for word in text.split())
        return words.get(BLOCK_LIMITS[field][1], blkio.UNLIMITED)
    if field in BLOCK_LIMITS or field == "io.weight":
        return text.strip()
    terms = text.split()
    # The numbers of a disk that the kernel rates itself are its own: to write them would make them ours.
    return " ".join(term for term in terms if "ctrl=auto" not in terms or term.startswith(("ctrl=", "enable=")))


def _written(cgroups: Cgroups, field: BlockField, value: str) -> str:
    if cgroups.layout.version == 2:
        return f"{BLOCK_LIMITS[field][1]}={value}" if field in BLOCK_LIMITS else value
    if field == "io.weight" and value == blkio.DEFAULT_WEIGHT:
        return str(blkio.NEUTRAL_WEIGHT)
    return "0" if value == blkio.UNLIMITED else value
