"""In the guest: what root may still do on a real kernel with few capabilities, or none.

Run with a JSON list of capability numbers to keep. The first process makes what kubelet would have made, drops the rest
from its bounding set and starts itself again; the second tries, and prints one line of JSON.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from koordlite.host.core_scheduling import RealCoreScheduling

GROUP = pathlib.Path("/sys/fs/cgroup/kubepods/besteffort")
RESCTRL = pathlib.Path("/sys/fs/resctrl")
HIGHEST, PR_CAPBSET_DROP = 40, 24


def prepare(keep: list[int]) -> None:
    """Groups, a process of root and one of somebody else; then only `keep` for what follows."""
    for folder in (GROUP.parent.parent, GROUP.parent):
        GROUP.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup.subtree_control").write_text("+cpuset +cpu +memory")
    ours = subprocess.Popen(["sleep", "100"])
    theirs = subprocess.Popen(["sleep", "100"], user=1000)
    libc = ctypes.CDLL(None, use_errno=True)
    for number in range(HIGHEST + 1):
        if number not in keep:
            libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)
    subprocess.run([sys.executable, __file__, "try", str(ours.pid), str(theirs.pid)], check=True)
    ours.kill()
    theirs.kill()


def write(path: str | pathlib.Path, text: str) -> Callable[[], None]:
    """Writes once, without truncating."""

    def act() -> None:
        descriptor = os.open(path, os.O_WRONLY)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)

    return act


def give_cookie(pid: int) -> None:
    """As the strategy coreSched does."""
    with RealCoreScheduling().helper() as helper:
        helper.create()
        helper.give(pid, whole_process=True)


def outcome(act: Callable[[], object]) -> str:
    try:
        act()
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "ok"


def attempt(ours: str, theirs: str) -> dict[str, str]:
    line = (RESCTRL / "schemata").read_text().splitlines()[0].strip()
    trials = {
        "cpus": write(GROUP / "cpuset.cpus", "0-1"),
        "quota": write(GROUP / "cpu.max", "50000 100000"),
        "idle": write(GROUP / "cpu.idle", "0"),
        "memory": write(GROUP / "memory.high", "max"),
        "schemata": write(RESCTRL / "schemata", f"{line}\n"),
        "threads": write(RESCTRL / "tasks", theirs),
        "group": (RESCTRL / "mine").mkdir,
        "oom of root": write(f"/proc/{ours}/oom_score_adj", "10"),
        "oom of others": write(f"/proc/{theirs}/oom_score_adj", "10"),
        "oom below": write(f"/proc/{ours}/oom_score_adj", "-5"),
        "cookie of others": lambda: give_cookie(int(theirs)),
        "trigger": write("/proc/pressure/cpu", "some 50000 500000"),
    }
    return {name: outcome(act) for name, act in trials.items()}


if __name__ == "__main__":
    if sys.argv[1] == "try":
        print(json.dumps(attempt(sys.argv[2], sys.argv[3])), flush=True)
    else:
        prepare(json.loads(sys.argv[1]))
