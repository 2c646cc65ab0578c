"""The `info` folder of resctrl: what the hardware can do, and the messages of the last command."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable

from koordlite.lab.machine import kernel_text
from koordlite.lab.machine.rdt import Bandwidth, Cache, Monitoring
from koordlite.lab.machine.tree import Entry, File, Folder, constant, refusal
from koordlite.lab.resctrl import modes
from koordlite.lab.resctrl.files import guarded, refused
from koordlite.lab.resctrl.rmids import RMIDs
from koordlite.lab.resctrl.rules import BLANKS, Rejected
from koordlite.lab.resctrl.schema import Schema
from koordlite.lab.resctrl.state import State

_READ_ONLY = 0o555
_CONFIGURABLE_BITS = 0x7F
_CONFIG_DEFAULTS = {"mbm_total_bytes": 0x7F, "mbm_local_bytes": 0x15}
_DECIMAL = re.compile(r"\+?[0-9]+\Z", re.ASCII)
_HEX = re.compile(r"\+?(?:0[xX])?([0-9a-fA-F]+)\Z", re.ASCII)


def folder(state: State) -> Folder:
    """The folder as it is while these resources are mounted."""
    entries: dict[str, Entry] = {"last_cmd_status": File(lambda: str(state.status))}
    for name, schema in state.schemas.items():
        entries[name] = _folder(_cache(state, schema) if schema.cache else _bandwidth(state, schema))
    if state.rmids and state.rdt.monitoring:
        entries["L3_MON"] = _folder(_monitoring(state, state.rmids, state.rdt.monitoring))
    return _folder(entries)


def _folder(entries: dict[str, Entry]) -> Folder:
    return Folder(entries, make=refused, mode=_READ_ONLY)


def _cache(state: State, schema: Schema) -> dict[str, Entry]:
    cache = schema.cache or Cache()
    entries: dict[str, Entry] = {
        "bit_usage": File(lambda: modes.bit_usage(state, schema)),
        "cbm_mask": constant(f"{cache.full:x}\n"),
        "min_cbm_bits": constant(f"{cache.min_bits}\n"),
        "num_closids": constant(f"{schema.closids}\n"),
        "shareable_bits": constant(f"{cache.shareable:x}\n"),
    }
    if state.rdt.since(6, 7):
        entries["sparse_masks"] = constant(f"{int(cache.sparse)}\n")
    return entries


def _bandwidth(state: State, schema: Schema) -> dict[str, Entry]:
    limit = schema.hardware if isinstance(schema.hardware, Bandwidth) else Bandwidth()
    entries: dict[str, Entry] = {
        "bandwidth_gran": constant(f"{limit.granularity}\n"),
        "delay_linear": constant(f"{int(limit.linear)}\n"),
        "min_bandwidth": constant(f"{limit.minimum}\n"),
        "num_closids": constant(f"{schema.closids}\n"),
    }
    if limit.throttle and state.rdt.since(5, 10):
        entries["thread_throttle_mode"] = constant(f"{limit.throttle}\n")
    return entries


def _monitoring(state: State, rmids: RMIDs, monitoring: Monitoring) -> dict[str, Entry]:
    configurable = [event for event in monitoring.events if monitoring.configurable and event in _CONFIG_DEFAULTS]
    features = [
        name for event in monitoring.events for name in (event, *([f"{event}_config"] if event in configurable else []))
    ]
    entries: dict[str, Entry] = {
        "max_threshold_occupancy": File(lambda: f"{rmids.threshold}\n", guarded(state, _threshold(rmids))),
        "mon_features": constant("".join(f"{name}\n" for name in features)),
        "num_rmids": constant(f"{rmids.number}\n"),
    }
    for event in configurable:
        entries[f"{event}_config"] = _config(state, rmids, event)
    return entries


def _threshold(rmids: RMIDs) -> Callable[[bytes], None]:
    def write(data: bytes) -> None:
        number = kernel_text.integer(data, high=2**64 - 1)
        if not 0 <= number < 1 << 32:
            raise refusal(errno.EINVAL if number < 0 else errno.ERANGE)
        rmids.set_threshold(number)

    return write


def _config(state: State, rmids: RMIDs, event: str) -> File:
    """Kinds of traffic that a bandwidth event of AMD counts, by cache: BMEC. A change makes the counters of both events
    begin again."""
    chosen = state.counted.setdefault(event, {})

    def value(cache_id: int) -> int:
        return chosen.get(cache_id, _CONFIG_DEFAULTS[event])

    def choose(cache_id: int, bits: int) -> None:
        if bits != value(cache_id):
            chosen[cache_id] = bits
            rmids.counters.forget(cache_id)

    def read() -> str:
        return ";".join(f"{i}=0x{value(i):02x}" for i in state.layout.ids(3)) + "\n"

    def write(data: bytes) -> None:
        if not data.endswith(b"\n"):
            raise refusal(errno.EINVAL)
        state.status.clear()
        with state.status.judging():
            _choose(data[:-1].decode("utf-8", "replace").split("\0")[0], state.layout.ids(3), choose)

    return File(read, guarded(state, write))


def _choose(text: str, ids: tuple[int, ...], choose: Callable[[int, int], None]) -> None:
    """`ID=HEX;ID=HEX`: each piece takes effect as it is read."""
    pieces = text.split(";")
    if pieces[-1] == "":
        pieces.pop()
    for piece in pieces:
        number, equals, value = piece.strip(BLANKS).partition("=")
        if not _DECIMAL.match(number):
            raise Rejected("Missing '=' or non-numeric domain id")
        match = _HEX.match(value) if equals else None
        if match is None:
            raise Rejected("Non-numeric event configuration value")
        if int(match[1], 16) > _CONFIGURABLE_BITS:
            raise Rejected(f"Invalid event configuration: max valid mask is 0x{_CONFIGURABLE_BITS:02x}")
        if int(number) not in ids:
            raise Rejected("")
        choose(int(number), int(match[1], 16))
