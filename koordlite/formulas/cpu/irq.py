"""CPUs that may take an interrupt, so that CPUs which pods have alone are left alone."""

from __future__ import annotations

from koordlite.model.cpuset import CPUSet


def target(found: CPUSet, *, exclusive: CPUSet, near: CPUSet, online: CPUSet) -> CPUSet:
    """found − exclusive; where nothing is left of that, near − exclusive, then online − exclusive, then `found`.

    `found` are the CPUs before us: what is left of them grows again when fewer CPUs are exclusive. `near` are the CPUs
    of the NUMA nodes of `found`: a device's interrupts are best taken near it. An interrupt always has a CPU. The rule
    is ours.
    """
    return next((rest for cpus in (found, near, online) if (rest := cpus - exclusive)), found)
