"""Settings of the whole kernel that an agent may write: sysctls, scheduler features, switches of the Anolis kernel, and
the CPUs of interrupts: a few that move, and queues of a disk that the kernel manages itself.

Only `vm.min_free_kbytes` changes how the emulated node behaves; the others keep what is written.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping

import msgspec

from koordlite.lab.machine import kernel_text
from koordlite.lab.machine.machine import Machine
from koordlite.lab.machine.tree import File, Tree, constant, refusal
from koordlite.model.cpuset import CPUSet

MIN_FREE = "/proc/sys/vm/min_free_kbytes"
FEATURES = "/sys/kernel/debug/sched/features"
OLD_FEATURES = "/sys/kernel/debug/sched_features"
"""Their place in kernels before 5.13, the Anolis kernel among them."""

_INT = 2**31 - 1
_RANGES: Mapping[str, tuple[int, int, int]] = {
    MIN_FREE: (0, _INT, 67_584),
    "/proc/sys/vm/watermark_scale_factor": (1, 3000, 10),
}
"""Path → least, greatest and first value."""
_EXTENDED: Mapping[str, tuple[int, int, int]] = {
    "/proc/sys/kernel/sched_group_identity_enabled": (0, 1, 0),
    "/proc/sys/kernel/sched_idle_saver_wmark": (0, _INT, 0),
    "/sys/kernel/mm/memcg_reaper/reap_background": (0, 1, 0),
    "/sys/kernel/mm/pagecache_limit/enabled": (0, 1, 0),
}
_FEATURES = ("GENTLE_FAIR_SLEEPERS", "START_DEBIT", "NEXT_BUDDY", "WAKEUP_PREEMPTION", "TTWU_QUEUE", "UTIL_EST")
_EXTENDED_FEATURES = ("ID_IDLE_AVG", "ID_RESCUE_EXPELLEE", "ID_EXPELLEE_NEVER_HOT", "ID_ABSOLUTE_EXPEL")


class KernelSettings(msgspec.Struct, eq=False):
    """The present values, by path."""

    numbers: dict[str, int]
    features: dict[str, bool]

    @property
    def min_free(self) -> int:
        """Bytes the kernel keeps free for itself."""
        return self.numbers[MIN_FREE] * 1024


def plant(tree: Tree, machine: Machine) -> KernelSettings:
    """Put the settings of this machine's kernel into the tree."""
    ranges = {**_RANGES, **(_EXTENDED if machine.extended else {})}
    names = (*_FEATURES, *(_EXTENDED_FEATURES if machine.extended else ()))
    settings = KernelSettings({path: first for path, (*_, first) in ranges.items()}, dict.fromkeys(names, True))
    for path, (low, high, _) in ranges.items():
        tree.place(path, _number(settings.numbers, path, low, high))
    features = File(
        lambda: " ".join(name if on else f"NO_{name}" for name, on in settings.features.items()) + "\n",
        lambda data: _set_feature(settings.features, data),
    )
    tree.place(OLD_FEATURES if machine.extended else FEATURES, features)
    return settings


def _number(numbers: dict[str, int], path: str, low: int, high: int) -> File:
    def write(data: bytes) -> None:
        numbers[path] = kernel_text.integer(data, low=low, high=high, outside=errno.EINVAL)

    return File(lambda: f"{numbers[path]}\n", write)


def _set_feature(features: dict[str, bool], data: bytes) -> None:
    """One name a write, `NO_` before it to switch it off; EINVAL for an unknown one (`sched_feat_write`)."""
    word = data.decode("latin-1").strip()
    name = word.removeprefix("NO_")
    if name not in features:
        raise refusal(errno.EINVAL)
    features[name] = name == word


MOVABLE = {"24": ("IO-APIC", "ACPI:Ged"), "30": ("PCI-MSIX-0000:00:03.0", "eth0-rx"), "31": ("PCI-MSIX", "eth0-tx")}
MANAGED = {"40": ("PCI-MSIX-0000:00:04.0", "nvme0q1")}
"""Chip and action by number."""


def plant_irqs(tree: Tree, machine: Machine) -> None:
    """Put them into the tree; each has all CPUs, and the kernel takes the last of those it may."""
    online = CPUSet(cpu.id for cpu in machine.cpus)
    affinity = dict.fromkeys(("default", *MOVABLE, *MANAGED), online)

    def default(data: bytes) -> None:
        bits = int(data.decode().strip().replace(",", ""), 16)
        affinity["default"] = CPUSet(cpu for cpu in online if bits >> cpu & 1)

    def mask() -> str:
        return f"{sum(1 << cpu for cpu in affinity['default']):x}\n"

    tree.place("/proc/irq/default_smp_affinity", File(mask, default))
    for number, (chip, action) in {**MOVABLE, **MANAGED}.items():
        folder, about = f"/proc/irq/{number}", f"/sys/kernel/irq/{number}"

        def move(data: bytes, number: str = number) -> None:
            cpus = CPUSet.parse(data.decode().strip()) & online
            if number in MANAGED:
                raise refusal(errno.EIO)
            if not cpus:
                raise refusal(errno.EINVAL)
            affinity[number] = cpus

        tree.place(f"{folder}/smp_affinity_list", File(lambda n=number: f"{affinity[n]}\n", move))  # type: ignore[misc]
        tree.place(f"{folder}/effective_affinity_list", File(lambda n=number: f"{max(affinity[n])}\n"))  # type: ignore[misc]
        tree.place(f"{about}/chip_name", constant(f"{chip}\n"))
        tree.place(f"{about}/actions", constant(f"{action}\n"))
    head = "".join(f"{f'CPU{cpu}':>11}" for cpu in online)
    rows = [
        f"{number:>4}:{'          0' * len(online)}  {chip}  {action}" for number, (chip, action) in MOVABLE.items()
    ]
    tree.place("/proc/interrupts", constant("\n".join((f"     {head}", *rows)) + "\n"))
