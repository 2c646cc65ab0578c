"""Settings of the whole kernel by the names we call them, wherever this kernel keeps them; and oom_score_adj.

Nothing is remembered: a file that appears later is used from then on.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

from koordlite.formulas import system_settings
from koordlite.formulas.system_settings import PATHS
from koordlite.host import procfs
from koordlite.host.cgroups.filesystem import Cgroups, vanished
from koordlite.model.picture.groups import Process
from koordlite.ports import Files


def read(files: Files, name: str) -> str | None:
    """The present text of a setting; None where this kernel does not have it, or hides it (debugfs not mounted).
    `sched_features/NAME` is the word of one feature, `NAME` or `NO_NAME`. KeyError for a name we do not know."""
    setting, _, feature = name.partition("/")
    located = _find(files, setting)
    if located is None or not feature:
        return located and located[1]
    present = system_settings.features(located[1])
    return system_settings.feature_word(feature, present[feature]) if feature in present else None


def write(files: Files, name: str, text: str) -> None:
    """Give a setting its text; FileNotFoundError where this kernel does not have it."""
    files.write(path(files, name), text.encode())


def path(files: Files, name: str) -> str:
    """The file of a setting; FileNotFoundError where this kernel has none."""
    setting = name.partition("/")[0]
    located = _find(files, setting)
    if located is None:
        raise FileNotFoundError(errno.ENOENT, "this kernel has no such setting", PATHS[setting][0])
    return located[0]


def oom_score_adj(files: Files, pid: int) -> int | None:
    """The number of a process; None when it is gone."""
    try:
        return int(files.read(f"/proc/{pid}/oom_score_adj"))
    except OSError as error:
        if vanished(error):
            return None
        raise


def oom_scores(files: Files, cgroups: Cgroups, group: str) -> Iterator[Process]:
    """Processes of a group with their numbers; none where it is gone."""
    try:
        pids = cgroups.procs(group)
    except OSError as error:
        if vanished(error):
            return
        raise
    for pid in pids:
        stat = procfs.process(files, pid)
        if stat is None or stat.has_ended:
            continue
        started, score = procfs.start_time(files, pid), oom_score_adj(files, pid)
        if started is not None and score is not None:
            yield Process(pid, started, score)


def write_oom_score_adj(files: Files, pid: int, start_time: int, value: int) -> bool:
    """Give a process its number; False when it is gone, also when another has its id meanwhile."""
    if procfs.start_time(files, pid) != start_time:
        return False
    try:
        files.write(f"/proc/{pid}/oom_score_adj", b"%d" % value)
    except OSError as error:
        if vanished(error):
            return False
        raise
    return True


def _find(files: Files, setting: str) -> tuple[str, str] | None:
    for candidate in PATHS[setting]:
        try:
            return candidate, files.read(candidate).decode().strip()
        except OSError as error:
            if not vanished(error) and error.errno not in (errno.EACCES, errno.EPERM):
                raise
    return None
