"""Sharing of cache bits: modes, overlaps, what a new group is given, `bit_usage`."""

from __future__ import annotations

import errno

from koordlite.lab.machine.rdt import Cache
from koordlite.lab.machine.tree import refusal
from koordlite.lab.resctrl.rules import Rejected, lowest_run
from koordlite.lab.resctrl.schema import Schema
from koordlite.lab.resctrl.state import RDTGroup, State

EXCLUSIVE = "exclusive"
SHAREABLE = "shareable"


def write(state: State, group: RDTGroup, data: bytes) -> None:
    """A write to `mode`."""
    if not data.endswith(b"\n"):
        raise refusal(errno.EINVAL)
    state.status.clear()
    wanted = data[:-1].decode("utf-8", "replace").split("\0")[0]
    if wanted == group.mode:
        return
    with state.status.judging():
        if wanted == "pseudo-locksetup":
            raise Rejected(_why_not_locked(state, group))
        if wanted not in (SHAREABLE, EXCLUSIVE):
            raise Rejected("Unknown or unsupported mode")
        if wanted == EXCLUSIVE:
            caches = [schema for schema in state.schemas.values() if schema.cache]
            if not caches:
                raise Rejected("Cannot be exclusive without CAT/CDP")
            for schema in caches:
                if any(_shares(state, group, schema, i, bits) for i, bits in schema.values(group.closid).items()):
                    raise Rejected("Schemata overlaps")
        group.mode = wanted


def check(state: State, group: RDTGroup, schema: Schema, cache_id: int, bits: int) -> int:
    """The mask, unless it overlaps an exclusive group; else Rejected."""
    if any(other.mode == EXCLUSIVE for other in _overlapping(state, group, schema, cache_id, bits)):
        raise Rejected("Overlaps with exclusive group")
    if group.mode == EXCLUSIVE and _shares(state, group, schema, cache_id, bits):
        raise Rejected("Overlaps with other group")
    return bits


def first_masks(state: State, schema: Schema, cache: Cache) -> dict[int, int]:
    """Share of a new group in a cache: the lowest run of bits that are not exclusive to a group.

    OSError ENOSPC when there is too little of it, and the status says where.
    """
    masks = {i: lowest_run(_free_bits(state, schema, cache, i)) for i in schema.domains}
    for cache_id, bits in masks.items():
        if bits.bit_count() < cache.min_bits:
            raise state.status.refusal(errno.ENOSPC, f"No space on {schema.name}:{cache_id}")
    return masks


def bit_usage(state: State, schema: Schema) -> str:
    """One letter per bit and cache, the highest bit first."""
    return ";".join(f"{i}={_letters(state, schema, i)}" for i in schema.domains) + "\n"


def _why_not_locked(state: State, group: RDTGroup) -> str:
    if group is state.root:
        return "Cannot pseudo-lock default group"
    if any(schema.peer for schema in state.schemas.values()):
        return "CDP enabled"
    # Only some old Intel models can do it, and those are not emulated.
    return "Pseudo-locking not supported"


def _shares(state: State, group: RDTGroup, schema: Schema, cache_id: int, bits: int) -> bool:
    """Another group or other hardware uses some of these bits."""
    hardware = schema.cache.shareable if schema.cache else 0
    return bool(hardware & bits) or bool(_overlapping(state, group, schema, cache_id, bits))


def _overlapping(state: State, group: RDTGroup, schema: Schema, cache_id: int, bits: int) -> list[RDTGroup]:
    """Other control groups that use some of these bits, for code or for data."""
    others = (other for other in state.controls.values() if other is not group)
    return [other for other in others if _used(other, schema, cache_id) & bits]


def _used(group: RDTGroup, schema: Schema, cache_id: int) -> int:
    halves = [schema] if schema.peer is None else [schema, schema.peer]
    used = 0
    for half in halves:
        used |= half.domains[cache_id][group.closid]
    return used


def _free_bits(state: State, schema: Schema, cache: Cache, cache_id: int) -> int:
    """Unused bits, bits of hardware, and of groups that share."""
    kept, shared = 0, cache.shareable
    for group in state.controls.values():
        used = _used(group, schema, cache_id)
        kept |= used
        shared |= used if group.mode == SHAREABLE else 0
    return shared | (cache.full & ~(kept | cache.shareable))


def _letters(state: State, schema: Schema, cache_id: int) -> str:
    cache = schema.cache
    if cache is None:
        return ""
    used = {SHAREABLE: 0, EXCLUSIVE: 0}
    for group in state.controls.values():
        used[group.mode] |= schema.domains[cache_id][group.closid]
    return "".join(
        _letter(cache.shareable >> bit & 1, used[SHAREABLE] >> bit & 1, used[EXCLUSIVE] >> bit & 1)
        for bit in reversed(range(cache.bits))
    )


def _letter(hardware: int, shared: int, exclusive: int) -> str:
    """X both, H hardware only, S shared by groups, E exclusive, 0 unused."""
    if hardware:
        return "X" if shared else "H"
    if shared:
        return "S"
    return "E" if exclusive else "0"
