"""Container of a pod to which a process belongs, before the pod's status says so.

kubelet binds a file `…/pods/UID/containers/NAME/…` over the termination log of every container, whatever the runtime.
The sandbox of a pod has none. Source: kubelet 1.35, `makeMounts` in kuberuntime_container.go.
"""

from __future__ import annotations

import re

from koordlite.host.bundle import Host
from koordlite.ports import Files

_TERMINATION_LOG = re.compile(r"/pods/([^/]+)/containers/([^/]+)/[^/]+\Z")


def of_group(host: Host, group: str, uid: str = "") -> str | None:
    """The name of the container of the pod `uid` (any pod without) that `group` belongs to, by the mounts of its first
    process; None where there is no process yet, or its mounts do not say."""
    try:
        pids = host.cgroups.procs(group)
        return of_process(host.files, pids[0], uid) if pids else None
    except (OSError, ValueError):
        return None  # The group or the process ended meanwhile.


def of_process(files: Files, pid: int, uid: str = "") -> str | None:
    """The name of the container of the pod `uid` (any pod without) in which process `pid` runs, by its mounts; None
    where they do not say, as before the runtime has made them. OSError when the process is gone."""
    for line in files.read(f"/proc/{pid}/mountinfo").decode(errors="replace").splitlines():
        fields = line.split(" ")
        match = _TERMINATION_LOG.search(fields[3]) if len(fields) > 4 else None
        if match and uid in ("", match[1]):
            return match[2]
    return None
