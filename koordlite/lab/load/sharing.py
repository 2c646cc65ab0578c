"""Sharing of CPU in one step: numbers in, numbers out.

A simplified CFS. Within one set of CPUs the wants are met in proportion to the weights. No claimant gets more than it
wants, and nothing is left over while one wants more. CPUs that the same claimants may use are shared out together,
those with the fewest claimants first, so that a pinned claimant uses its own CPUs before it competes elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from koordlite.model.cpuset import CPUSet

ALMOST_NOTHING = 1e-9


class Region(msgspec.Struct, frozen=True):
    """CPUs that exactly these claimants may use."""

    cpus: tuple[int, ...]
    claimants: tuple[int, ...]


def regions(allowed: Sequence[CPUSet]) -> tuple[Region, ...]:
    """The machine cut into regions: `allowed[i]` are the CPUs of claimant i. Fewest claimants first."""
    claimants: dict[int, list[int]] = {}
    for claimant, cpus in enumerate(allowed):
        for cpu in cpus:
            claimants.setdefault(cpu, []).append(claimant)
    cut: dict[tuple[int, ...], list[int]] = {}
    for cpu in sorted(claimants):
        cut.setdefault(tuple(claimants[cpu]), []).append(cpu)
    found = (Region(tuple(cpus), who) for who, cpus in cut.items())
    return tuple(sorted(found, key=lambda region: (len(region.claimants), region.cpus)))


def fill(amount: float, wants: Mapping[int, float], weights: Mapping[int, float]) -> dict[int, float]:
    """Weighted max-min: `amount` shared in proportion to the weights, no claimant above its want.

    What a satisfied claimant leaves goes to the others.
    """
    given: dict[int, float] = {}
    order = sorted(wants, key=lambda claimant: (wants[claimant] / weights[claimant], claimant))
    weight = sum(weights[claimant] for claimant in order)
    for claimant in order:
        part = amount * weights[claimant] / weight if weight > 0 else 0.0
        given[claimant] = max(0.0, min(wants[claimant], part))
        amount -= given[claimant]
        weight -= weights[claimant]
    return given


class SharedTime(msgspec.Struct, frozen=True):
    """The outcome of one step, in the unit of the wants."""

    used: tuple[float, ...]
    """By claimant."""
    by_cpu: Mapping[int, float]
    """Work done on each CPU that did any."""


def share_out(
    *, capacity: float, wants: Sequence[float], weights: Sequence[float], cut: Sequence[Region]
) -> SharedTime:
    """Meet the wants on the CPUs of `cut`, each of which can do `capacity` of work."""
    left = list(wants)
    by_cpu: dict[int, float] = {}
    for region in cut:
        hungry = {who: left[who] for who in region.claimants if left[who] > ALMOST_NOTHING}
        if not hungry:
            continue
        given = fill(capacity * len(region.cpus), hungry, {who: weights[who] for who in hungry})
        for who, part in given.items():
            left[who] -= part
        even = sum(given.values()) / len(region.cpus)
        by_cpu.update(dict.fromkeys(region.cpus, even))
    return SharedTime(tuple(want - rest for want, rest in zip(wants, left, strict=True)), by_cpu)
