"""Interrupts of devices in /proc/irq and /proc/interrupts.

`smp_affinity_list` is the set that is asked for, `effective_affinity_list` what the kernel made of it. A write is
refused with EIO where an interrupt cannot be moved: one that the kernel manages itself (queues of a disk, one a CPU),
or a chip that cannot. Source: Linux `kernel/irq/proc.c`, `Documentation/core-api/irq/irq-affinity.rst`.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping

from koordlite.host.cgroups.filesystem import vanished
from koordlite.model.cpuset import CPUSet
from koordlite.model.picture.irqs import DEFAULT, IRQ
from koordlite.ports import Files
from koordlite.resctrl.files import names, text

_IRQS, _DEFAULT = "/proc/irq", "/proc/irq/default_smp_affinity"
_ABOUT = "/sys/kernel/irq"
_WORD_BITS = 32


def numbers(files: Files) -> tuple[str, ...]:
    """Interrupts that have CPUs, and the default of new ones first; empty on a kernel without the folder."""
    listed = [name.rstrip("/") for name in names(files, _IRQS)]
    return (*((DEFAULT,) if "default_smp_affinity" in listed else ()), *sorted(filter(str.isdecimal, listed), key=int))


def read(files: Files, number: str) -> IRQ | None:
    """One interrupt, without its counts; None where there is none, it has no CPUs to choose, or they cannot be read."""
    try:
        if number == DEFAULT:
            cpus = _of_mask(files.read(_DEFAULT).decode())
            return IRQ(cpus, cpus, DEFAULT)
        cpus = CPUSet.parse(files.read(f"{_IRQS}/{number}/smp_affinity_list").decode().strip())
        effective = text(files, f"{_IRQS}/{number}/effective_affinity_list")
        effective_cpus = CPUSet.parse(effective) if effective else cpus
    except ValueError:
        return None
    except OSError as error:
        if vanished(error) or error.errno == errno.EIO:
            return None
        raise
    device = " ".join(filter(None, (text(files, f"{_ABOUT}/{number}/{name}") for name in ("chip_name", "actions"))))
    return IRQ(cpus, effective_cpus, device)


def write(files: Files, number: str, cpus: CPUSet) -> None:
    """Let these CPUs take the interrupt. OSError in the kernel's words where it cannot be moved there."""
    if number == DEFAULT:
        files.write(_DEFAULT, _mask(cpus).encode())
    else:
        files.write(f"{_IRQS}/{number}/smp_affinity_list", str(cpus).encode())


def counts(files: Files) -> dict[str, Mapping[int, int]]:
    """Number of times that each interrupt has come, by CPU; empty where the machine does not count."""
    lines = text(files, "/proc/interrupts").splitlines()
    cpus = [int(word[3:]) for word in lines[0].split() if word.startswith("CPU")] if lines else []
    by_number: dict[str, Mapping[int, int]] = {}
    for line in lines[1:]:
        name, _, columns = line.partition(":")
        fields = columns.split()[: len(cpus)]
        if name.strip().isdecimal() and len(fields) == len(cpus):
            by_cpu = zip(cpus, fields, strict=True)
            by_number[name.strip()] = {cpu: int(count) for cpu, count in by_cpu if count.isdecimal()}
    return by_number


def _of_mask(digits: str) -> CPUSet:
    """CPUs of groups of hexadecimal digits, the highest first: `3`, `ff,ffffffff`."""
    bits = int(digits.strip().replace(",", ""), 16)
    return CPUSet(cpu for cpu in range(bits.bit_length()) if bits >> cpu & 1)


def _mask(cpus: Iterable[int]) -> str:
    bits, words = sum(1 << cpu for cpu in cpus), list[str]()
    while bits or not words:
        words.insert(0, f"{bits % (1 << _WORD_BITS):08x}")
        bits >>= _WORD_BITS
    return ",".join(words)
