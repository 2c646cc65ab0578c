"""The `cpus` and `cpus_list` files: which group counts on a CPU for threads that are in the root group."""

from __future__ import annotations

import errno

from koordlite.lab.machine import kernel_text
from koordlite.lab.resctrl.state import RDTGroup, State
from koordlite.model.cpuset import EMPTY, CPUSet


def mask_text(state: State, group: RDTGroup) -> str:
    """The content of `cpus`."""
    return f"{kernel_text.hex_mask(group.cpus, state.layout.size)}\n"


def list_text(state: State, group: RDTGroup) -> str:
    """The content of `cpus_list`."""
    return f"{group.cpus}\n"


def write_mask(state: State, group: RDTGroup, data: bytes) -> None:
    """A write to `cpus`."""
    _write(state, group, data, as_list=False)


def write_list(state: State, group: RDTGroup, data: bytes) -> None:
    """A write to `cpus_list`."""
    _write(state, group, data, as_list=True)


def go_offline(state: State, cpu: int) -> None:
    """A CPU leaves its group, and its caches go with their last CPU."""
    state.layout.online -= CPUSet([cpu])
    for group in state.groups():
        group.cpus -= CPUSet([cpu])
    _follow(state)


def come_online(state: State, cpu: int) -> None:
    """A CPU comes back into the root group, a cache with no limit for any group and counting from 0."""
    if cpu in state.layout.online:
        return
    before = _counted(state)
    state.layout.online |= CPUSet([cpu])
    state.root.cpus |= CPUSet([cpu])
    _follow(state)
    if state.rmids:
        for cache, part in _counted(state) - before:
            for group in state.groups():
                state.rmids.counters.start(cache, state.rmids.hardware(cache, group.rmid)[part])


def _counted(state: State) -> set[tuple[int, int]]:
    """The caches, and the NUMA nodes below each, that something is counted for."""
    return {(cache, part) for cache in state.layout.ids(3) for part in state.layout.parts(cache)}


def _follow(state: State) -> None:
    for schema in state.schemas.values():
        schema.follow(state.layout.ids(schema.level))


def _write(state: State, group: RDTGroup, data: bytes, *, as_list: bool) -> None:
    """The status is never cleared by these files, and failures are appended."""
    if group.mode.startswith("pseudo"):
        raise state.status.refusal(errno.EINVAL, "Pseudo-locking in progress")
    wanted = _parsed(state, data, as_list=as_list)
    if not wanted <= state.layout.online:
        raise state.status.refusal(errno.EINVAL, "Can only assign online CPUs")
    if group.parent:
        _assign_to_monitor(state, group, group.parent, wanted)
    else:
        _assign_to_control(state, group, wanted)


def _parsed(state: State, data: bytes, *, as_list: bool) -> CPUSet:
    parse = kernel_text.cpu_list if as_list else kernel_text.cpu_mask
    try:
        return parse(data.decode("latin-1").split("\0")[0], state.layout.size)
    except OSError as error:
        raise state.status.refusal(error.errno or errno.EINVAL, "Bad CPU list/mask") from error


def _assign_to_control(state: State, group: RDTGroup, wanted: CPUSet) -> None:
    """CPUs come from the group that had them; those no longer wanted go to the root. Monitor groups lose theirs."""
    if group is state.root and not group.cpus <= wanted:
        raise state.status.refusal(errno.EINVAL, "Can't drop CPUs from default group")
    state.root.cpus |= group.cpus - wanted
    for other in state.groups():
        if other.control is not group:
            other.cpus -= wanted
    group.cpus = wanted
    for monitor in group.monitors.values():
        monitor.cpus = EMPTY


def _assign_to_monitor(state: State, group: RDTGroup, parent: RDTGroup, wanted: CPUSet) -> None:
    if not wanted <= parent.cpus:
        raise state.status.refusal(errno.EINVAL, "Can only add CPUs to mongroup that belong to parent")
    for other in parent.monitors.values():
        other.cpus -= wanted
    group.cpus = wanted
