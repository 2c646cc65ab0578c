"""CPUs that may take an interrupt, so that CPUs which pods have alone are left alone."""

from __future__ import annotations

from koordlite.model.cpuset import CPUSet


def target(current: CPUSet, *, exclusive: CPUSet, near: CPUSet, online: CPUSet) -> CPUSet:
    """current − exclusive; where nothing is left of that, near − exclusive, then online − exclusive, then `current`.

    `current` are the CPUs before us: what is left of them grows again when fewer CPUs are exclusive. `near` are those
    of the same NUMA nodes: a device's interrupts are best taken near it. An interrupt always has a CPU. Ours.
    """
    return next((allowed for cpus in (current, near, online) if (allowed := cpus - exclusive)), current)
