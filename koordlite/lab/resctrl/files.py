"""The files of a resctrl group, as functions over the driver's memory."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable

from koordlite.lab.machine.tree import Entry, File, Folder, refusal
from koordlite.lab.resctrl import cpus, modes, rules, tasks
from koordlite.lab.resctrl.rmids import total
from koordlite.lab.resctrl.rules import Target
from koordlite.lab.resctrl.schema import Schema
from koordlite.lab.resctrl.state import RDTGroup, State

LONGEST_WRITE = 4096

Writer = Callable[[State, RDTGroup, bytes], None]
Reader = Callable[[State, RDTGroup], str]

_PLAIN: dict[str, tuple[Reader, Writer]] = {
    "cpus": (cpus.mask_text, cpus.write_mask),
    "cpus_list": (cpus.list_text, cpus.write_list),
    "tasks": (tasks.text, tasks.write),
}


def of_group(state: State, group: RDTGroup) -> dict[str, Entry]:
    """The files of a control or monitor group, without its folders."""
    files: dict[str, Entry] = {name: _file(state, group, *pair) for name, pair in _PLAIN.items()}
    if group.parent is None:
        files["mode"] = _file(state, group, lambda _, group: f"{group.mode}\n", modes.write)
        files["schemata"] = _file(
            state,
            group,
            lambda state, group: state.columns.schemata(state.schemas.values(), group.closid),
            _write_schemata,
        )
        files["size"] = _file(
            state, group, lambda state, group: state.columns.sizes(state.schemas.values(), group.closid, state.layout)
        )
    if state.options and "debug" in state.options:
        if group.parent is None:
            files["ctrl_hw_id"] = _file(state, group, lambda _, group: f"{group.closid}\n")
        if state.rmids:
            files["mon_hw_id"] = _file(state, group, lambda _, group: f"{group.rmid}\n")
    if group.parent is None and state.options and "mba_MBps" in state.options and state.rdt.since(6, 14):
        files["mba_MBps_event"] = _file(state, group, lambda _state, _group: "mbm_local_bytes\n")
    return files


def mon_data(state: State, group: RDTGroup, mode: int) -> Folder:
    """The folder of counters: one folder for each cache that has online CPUs."""

    def cache(name: str) -> Folder | None:
        caches = {f"mon_L3_{i:02}": i for i in state.layout.ids(3)}
        return _counters(state, group, caches[name], mode) if name in caches else None

    def names() -> list[str]:
        return [f"mon_L3_{i:02}" for i in state.layout.ids(3)]

    return Folder(make=refused, lookup=cache, folders=names, mode=mode)


def refused(name: str) -> None:
    """mkdir where the driver has no groups."""
    raise refusal(errno.EINVAL if "\n" in name else errno.EPERM)


def guarded(state: State, write: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """A write as the file system takes it: one page at most, none when mounted read-only."""

    def checked(data: bytes) -> None:
        if state.read_only:
            raise refusal(errno.EROFS)
        if len(data) > LONGEST_WRITE:
            raise refusal(errno.E2BIG)
        write(data)

    return checked


def _file(state: State, group: RDTGroup, read: Reader, write: Writer | None = None) -> File:
    """A file that is dead when its group is."""

    def reads() -> str:
        _check_alive(group)
        return read(state, group)

    def writes(data: bytes) -> None:
        _check_alive(group)
        if write:
            write(state, group, data)

    return File(reads, guarded(state, writes) if write else None)


def _check_alive(group: RDTGroup) -> None:
    if group.removed:
        raise refusal(errno.ENODEV)


def _write_schemata(state: State, group: RDTGroup, data: bytes) -> None:
    """All or nothing: what is wanted is read and checked before anything is set."""
    if not data.endswith(b"\n"):
        raise refusal(errno.EINVAL)
    state.status.clear()
    text = data[:-1].decode("utf-8", "replace").split("\0")[0]
    targets = {name: _target(state, group, schema) for name, schema in state.schemas.items()}
    with state.status.judging():
        for name, values in rules.staged(text, targets).items():
            state.schemas[name].put(group.closid, values)


def _target(state: State, group: RDTGroup, schema: Schema) -> Target:
    ids, hardware = tuple(schema.domains), schema.hardware
    if schema.mbps:

        def keep(cache_id: int, value: int) -> None:
            schema.put(group.closid, {cache_id: value})

        return Target(ids, lambda _id, text: rules.megabytes(text), keep)
    cache = schema.cache
    if cache is None:
        return Target(ids, lambda _id, text: rules.bandwidth(text, hardware))  # type: ignore[arg-type]

    def mask(cache_id: int, text: str) -> int:
        return modes.check(state, group, schema, cache_id, rules.mask(text, cache))

    return Target(ids, mask)


def _counters(state: State, group: RDTGroup, cache_id: int, mode: int) -> Folder:
    """One cache: the events over all its NUMA nodes, and a folder for each node where they are counted apart."""
    parts, clusters = state.layout.parts(cache_id), state.layout.clusters(cache_id)
    folder = Folder(_events(state, group, cache_id, parts), make=refused, mode=mode)
    for number in parts if clusters else ():
        part = Folder(_events(state, group, cache_id, [number]), make=refused, mode=mode)
        folder.entries[f"mon_sub_L3_{clusters[number]:02}"] = part
    return folder


def _events(state: State, group: RDTGroup, cache_id: int, parts: Iterable[int]) -> dict[str, Entry]:
    events = state.rdt.monitoring.events if state.rdt.monitoring else ()
    return {event: _file(state, group, _counter(cache_id, list(parts), event)) for event in events}


def _counter(cache_id: int, parts: list[int], event: str) -> Reader:
    """The sum over a control group and its monitor groups, or the word for why there is none."""

    def text(state: State, group: RDTGroup) -> str:
        if state.rmids is None:
            return "Unavailable\n"
        members = [group, *group.monitors.values()]
        numbers = [state.rmids.hardware(cache_id, member.rmid)[part] for member in members for part in parts]
        try:
            places = [(cache_id, rmid, event) for rmid in numbers]
            return f"{total(state.rmids.counters, places)}\n"
        except OSError as error:
            # A sum over NUMA nodes that fails is Unavailable, whatever the hardware answered.
            return "Error\n" if error.errno == errno.EIO and len(parts) == 1 else "Unavailable\n"

    return text
