"""The resctrl file system: control groups, their schemata, threads and CPUs, as Linux 6.1 without monitoring."""

from __future__ import annotations

import dataclasses
import errno
from collections.abc import Callable, Iterator

from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.sandbox import kernel_text, resctrl_rules
from koordlite.sandbox.machines import RDT, Machine
from koordlite.sandbox.processes import Processes
from koordlite.sandbox.resctrl_rules import Rejected, Schema, Values
from koordlite.sandbox.tree import Entry, File, Folder, constant, refusal

POINT = "/sys/fs/resctrl"
LONGEST_WRITE = 4096


@dataclasses.dataclass(eq=False, slots=True)
class ControlGroup:
    """One group: what its threads may use. `cpus` of the root are those no other group took."""

    name: str
    values: dict[str, Values]
    cpus: CPUSet = EMPTY
    mode: str = "shareable"


class Resctrl:
    """The mounted file system; `folder` goes to /sys/fs/resctrl."""

    def __init__(self, machine: Machine, rdt: RDT, processes: Processes) -> None:
        self._machine, self._rdt, self._processes = machine, rdt, processes
        self._ids = machine.l3_ids
        self._everything = (1 << rdt.cbm_bits) - 1
        self._status: list[str] = []
        self._group_of: dict[int, str] = {}
        root = ControlGroup("", {"MB": self._full_bandwidth(), "L3": dict.fromkeys(self._ids, self._everything)})
        root.cpus = machine.cpuset
        self.groups = {"": root}
        self.folder = Folder(self._files(root), make=self._make, remove=self._remove)
        self.folder.entries["info"] = self._info()

    def group_of(self, tid: int) -> str:
        """The group a thread is in; the root's name is empty."""
        return self._group_of.get(tid, "")

    def _full_bandwidth(self) -> Values:
        return dict.fromkeys(self._ids, self._rdt.mb_max)

    def _info(self) -> Folder:
        rdt = self._rdt
        cache = {
            "bit_usage": File(self._bit_usage),
            "cbm_mask": constant(f"{self._everything:x}\n"),
            "min_cbm_bits": constant(f"{rdt.min_cbm_bits}\n"),
            "num_closids": constant(f"{rdt.l3_closids}\n"),
            "shareable_bits": constant("0\n"),
        }
        bandwidth = {
            "bandwidth_gran": constant(f"{rdt.mb_gran}\n"),
            "delay_linear": constant("0\n" if rdt.amd else "1\n"),
            "min_bandwidth": constant(f"{rdt.mb_min}\n"),
            "num_closids": constant(f"{rdt.mb_closids}\n"),
        }
        if not rdt.amd:
            bandwidth["thread_throttle_mode"] = constant("max\n")
        status = File(lambda: "\n".join(self._status) + "\n" if self._status else "ok\n")
        return Folder({"last_cmd_status": status, "L3": Folder(dict(cache)), "MB": Folder(dict(bandwidth))})

    def _files(self, group: ControlGroup) -> dict[str, Entry]:
        size = len(self._machine.cpus)

        def move(data: bytes) -> None:
            self._move(group, data)

        return {
            "cpus": File(
                lambda: f"{kernel_text.hex_mask(group.cpus, size)}\n", self._cpu_taker(group, kernel_text.cpu_mask)
            ),
            "cpus_list": File(lambda: f"{group.cpus}\n", self._cpu_taker(group, kernel_text.cpu_list)),
            "mode": File(lambda: f"{group.mode}\n", lambda data: self._set_mode(group, data)),
            "schemata": File(lambda: resctrl_rules.shown(group.values, self._rdt), self._schemata_of(group)),
            "size": File(lambda: self._size(group)),
            "tasks": File(lambda: "".join(f"{tid}\n" for tid in self._tids(group)), move),
        }

    def _make(self, name: str) -> None:
        """mkdir: takes a CLOSID and the bits nobody has for himself; appends to the status, never clears it."""
        if "\n" in name:
            raise refusal(errno.EINVAL)
        if len(self.groups) >= min(self._rdt.l3_closids, self._rdt.mb_closids):
            self._status.append("Out of CLOSIDs")
            raise refusal(errno.ENOSPC)
        masks = {cache_id: self._free_bits(cache_id) for cache_id in self._ids}
        full = next((i for i, bits in masks.items() if bits.bit_count() < self._rdt.min_cbm_bits), None)
        if full is not None:
            self._status.append(f"No space on L3:{full}")
            raise refusal(errno.ENOSPC)
        group = self.groups[name] = ControlGroup(name, {"MB": self._full_bandwidth(), "L3": masks})
        self.folder.entries[name] = Folder(self._files(group))

    def _free_bits(self, cache_id: int) -> int:
        taken = 0
        for group in self.groups.values():
            taken |= group.values["L3"][cache_id] if group.mode == "exclusive" else 0
        return resctrl_rules.lowest_run(self._everything & ~taken)

    def _remove(self, name: str) -> None:
        """rmdir: threads and CPUs go to the root."""
        if name not in self.groups:
            raise refusal(errno.EPERM)
        self.groups[""].cpus |= self.groups.pop(name).cpus
        del self.folder.entries[name]
        self._group_of = {tid: group for tid, group in self._group_of.items() if group != name}

    def _tids(self, group: ControlGroup) -> Iterator[int]:
        return (tid for tid in self._processes.tids() if self.group_of(tid) == group.name)

    def _move(self, group: ControlGroup, data: bytes) -> None:
        tid = kernel_text.integer(data, low=0, high=2**31 - 1, outside=errno.EINVAL)
        self._status.clear()
        # 0 is the writing thread, which is no thread of the emulated node.
        if tid and self._processes.find(tid) is None:
            self._status.append(f"No task {tid}")
            raise refusal(errno.ESRCH)
        self._group_of[tid] = group.name

    def _cpu_taker(self, group: ControlGroup, parse: Callable[[str, int], CPUSet]) -> Callable[[bytes], None]:
        def take(data: bytes) -> None:
            try:
                wanted = parse(data.decode("latin-1"), len(self._machine.cpus))
            except OSError:
                self._status.append("Bad CPU list/mask")
                raise
            self._take_cpus(group, wanted)

        return take

    def _take_cpus(self, group: ControlGroup, wanted: CPUSet) -> None:
        """CPUs come from the group that had them; those no longer wanted go to the root."""
        if group.name == "" and not group.cpus <= wanted:
            self._status.append("Can't drop CPUs from default group")
            raise refusal(errno.EINVAL)
        self.groups[""].cpus |= group.cpus - wanted
        for other in self.groups.values():
            other.cpus -= wanted
        group.cpus = wanted

    def _schemata_of(self, group: ControlGroup) -> Callable[[bytes], None]:
        schemas = {
            "MB": Schema("MB", self._ids, lambda text: resctrl_rules.bandwidth(text, self._rdt)),
            "L3": Schema(
                "L3",
                self._ids,
                lambda text: resctrl_rules.mask(text, self._rdt),
                lambda cache_id, bits: self._collision(group, cache_id, bits),
            ),
        }

        def write(data: bytes) -> None:
            if len(data) > LONGEST_WRITE:
                raise refusal(errno.E2BIG)
            with self._reporting(data):
                for resource, values in resctrl_rules.staged(data, schemas).items():
                    group.values[resource].update(values)

        return write

    def _collision(self, group: ControlGroup, cache_id: int, bits: int) -> str:
        others = [other for other in self.groups.values() if other is not group]
        overlapping = [other for other in others if other.values["L3"][cache_id] & bits]
        if any(other.mode == "exclusive" for other in overlapping):
            return "Overlaps with exclusive group"
        return "Overlaps with other group" if overlapping and group.mode == "exclusive" else ""

    def _set_mode(self, group: ControlGroup, data: bytes) -> None:
        with self._reporting(data):
            wanted = data[:-1].decode("latin-1")
            if wanted == "pseudo-locksetup":
                raise Rejected("Pseudo-locking not supported" if group.name else "Cannot pseudo-lock default group")
            if wanted not in ("shareable", "exclusive"):
                raise Rejected("Unknown or unsupported mode")
            if wanted == "exclusive" and self._overlaps(group):
                raise Rejected("Schemata overlaps")
            group.mode = wanted

    def _overlaps(self, group: ControlGroup) -> bool:
        others = (other for other in self.groups.values() if other is not group)
        return any(other.values["L3"][i] & bits for other in others for i, bits in group.values["L3"].items())

    def _reporting(self, data: bytes) -> Report:
        if not data.endswith(b"\n"):
            raise refusal(errno.EINVAL)
        self._status.clear()
        return Report(self._status)

    def _size(self, group: ControlGroup) -> str:
        """Bytes of cache each mask stands for; bandwidth as it is."""
        per_bit = self._machine.l3_bytes // self._rdt.cbm_bits
        sizes = {i: per_bit * bits.bit_count() for i, bits in group.values["L3"].items()}
        width = 6 if self._rdt.cdp else 2
        rows = {"MB": group.values["MB"], "L3": sizes}
        return "".join(f"{n:>{width}}:{';'.join(f'{i}={v}' for i, v in row.items())}\n" for n, row in rows.items())

    def _bit_usage(self) -> str:
        return ";".join(f"{i}={self._letters(i)}" for i in self._ids) + "\n"

    def _letters(self, cache_id: int) -> str:
        """One letter per bit, the highest first: 0 unused, S shared, E exclusive."""
        used = {"E": 0, "S": 0}
        for group in self.groups.values():
            used["E" if group.mode == "exclusive" else "S"] |= group.values["L3"][cache_id]
        return "".join(
            next((letter for letter in "SE" if used[letter] >> bit & 1), "0")
            for bit in reversed(range(self._rdt.cbm_bits))
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """Turns what a rule rejects into EINVAL and its text into `last_cmd_status`."""

    status: list[str]

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Rejected):
            if str(error):
                self.status.append(str(error))
            raise refusal(errno.EINVAL) from error
