"""The `tasks` files: which threads are in a group, and how they are moved.

Follows `rdtgroup.c`: up to Linux 6.6 one number a write, later a list that is carried out until the first failure.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

from koordlite.lab.machine import kernel_text
from koordlite.lab.machine.tree import refusal
from koordlite.lab.resctrl.rules import BLANKS
from koordlite.lab.resctrl.state import RDTGroup, State

_MOST = 2**31 - 1
_LOCKING = "Pseudo-locking in progress"


def text(state: State, group: RDTGroup) -> str:
    """The threads of a group that the reader can see, those of its monitor groups included."""
    return "".join(f"{tid}\n" for tid in state.caller.shown(members(state, group)))


def members(state: State, group: RDTGroup) -> Iterator[int]:
    """Thread ids, ascending. A machine that only monitors lists nothing in its root group."""
    if group.parent is None and not state.rdt.can_allocate:
        return iter(())
    homes = {id(group), *(id(each) for each in group.monitors.values())}
    return (tid for tid in state.processes.tids() if id(state.home_of(tid)) in homes)


def write(state: State, group: RDTGroup, data: bytes) -> None:
    """Move threads into `group`, as a write to its `tasks` does."""
    written = data.decode("utf-8", "replace").split("\0")[0]
    if state.rdt.since(6, 7):
        _write_list(state, group, written)
        return
    pid = _number(written, low=0)
    if pid is None:
        raise refusal(errno.EINVAL)
    state.status.clear()
    _check_mode(state, group)
    _move(state, group, pid)


def _write_list(state: State, group: RDTGroup, written: str) -> None:
    state.status.clear()
    _check_mode(state, group)
    rest: str | None = written
    while rest and rest[0] != "\n":
        piece, _, rest = rest.partition(",")
        piece = piece.strip(BLANKS)
        pid = _number(piece, low=-_MOST - 1)
        if pid is None:
            raise state.status.refusal(errno.EINVAL, f"Task list parsing error pid {piece}")
        if pid < 0:
            raise state.status.refusal(errno.EINVAL, f"Invalid pid {pid}")
        try:
            _move(state, group, pid)
        except OSError:
            state.status.add(f"Error while processing task {pid}")
            raise


def _check_mode(state: State, group: RDTGroup) -> None:
    if group.mode.startswith("pseudo"):
        raise state.status.refusal(errno.EINVAL, _LOCKING)


def _number(written: str, *, low: int) -> int | None:
    try:
        return kernel_text.integer(written.encode("latin-1", "replace"), low=low, high=_MOST, outside=errno.EINVAL)
    except OSError:
        return None


def _move(state: State, group: RDTGroup, pid: int) -> None:
    """One thread; 0 is the writer itself."""
    tid = state.caller.find(pid) if pid else state.caller.tid
    if tid is None or (pid and state.processes.find(tid) is None):
        raise state.status.refusal(errno.ESRCH, f"No task {pid}")
    if state.caller.uid:
        # Every thread of the emulated machine is root's.
        raise state.status.refusal(errno.EPERM, f"No permission to move task {pid}")
    if group.parent and state.home_of(tid).control is not group.parent:
        raise state.status.refusal(errno.EINVAL, "Can't move task to different control group")
    if tid:
        state.home[tid] = group
