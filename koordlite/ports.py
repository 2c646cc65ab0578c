"""The narrow seams between the rules and the world: protocols only.

Everything behind `Files` obeys the kernel's rules and raises OSError with the kernel's errno: the real machine
(`host.files`), the emulated node (`lab`) and a recorded folder (`host.recorded`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from koordlite.changes.eviction import EvictPod
from koordlite.model.change import ClusterChange
from koordlite.model.errors import Problem
from koordlite.model.picture.kubelet import Kubelet
from koordlite.model.status import WatchState
from koordlite.model.wire import objects
from koordlite.model.wire.affinity import OenumaObject, WhitelistObject


class Files(Protocol):
    """Files of /proc, /sys and /var/lib/kubelet, by absolute path as they are on the node."""

    def read(self, path: str) -> bytes:
        """The whole content."""

    def write(self, path: str, data: bytes) -> None:
        """Make one write(2) of `data` to an existing file; never creates one."""

    def list(self, path: str) -> Sequence[str]:
        """Names in a folder; those of folders end with `/`."""

    def mkdir(self, path: str) -> None:
        """Make one folder."""

    def rmdir(self, path: str) -> None:
        """Remove one folder."""


class CookieHelper(Protocol):
    """A thread of ours without a cookie, by which cookies are made and handed on: the kernel takes none by number."""

    def create(self) -> int:
        """Give the helper a cookie that nobody else has; its number."""

    def take(self, tid: int) -> int:
        """Give the helper the cookie of a thread; its number."""

    def give(self, tid: int, *, whole_process: bool) -> None:
        """Give a thread, or all threads of its process, the cookie of the helper, also none."""


class CoreScheduling(Protocol):
    """prctl(PR_SCHED_CORE): threads with different cookies never run on the hyperthreads of one core at the same time.

    Errors are the kernel's: ESRCH for a thread that is gone, EPERM for one that we may not trace, ENODEV without
    hyperthreads, EINVAL from a kernel that was built without it.
    """

    def cookie(self, tid: int) -> int:
        """The cookie of a thread, 0 for none; thread 0 is the caller."""

    def helper(self) -> contextlib.AbstractContextManager[CookieHelper]:
        """A helper that ends with the block."""


class Clock(Protocol):
    """Time: monotonic for rules, wall only for what people read."""

    def monotonic(self) -> float:
        """Seconds that never go back."""

    def wall(self) -> float:
        """Seconds since the epoch."""

    def wait(self, seconds: float) -> bool:
        """Pass `seconds`; True when the run was asked to stop meanwhile."""


class ClusterView(msgspec.Struct, frozen=True):
    """The cluster's objects about this node. Objects that did not change keep their identity from view to view."""

    node: objects.NodeObject | None
    pods: tuple[objects.PodObject, ...]
    config: Mapping[str, str] | None
    """data of the slo-controller-config ConfigMap; None when there is no such ConfigMap."""
    topology: objects.NRTObject | None
    kubelet: Kubelet
    ages: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Seconds since node, pods, config and kubelet were last confirmed."""
    problems: tuple[Problem, ...] = ()
    """Objects that could not be read; the last good ones are in the view."""
    watches: tuple[WatchState, ...] = ()
    """Watches by which the parts are kept up to date, where that takes requests."""
    config_version: str = ""
    """resourceVersion of that ConfigMap; empty without an API server."""
    oenuma: OenumaObject | None = None
    """NUMA nodes that pods are to have, by node; None where there is none, or it is not read."""
    whitelist: WhitelistObject | None = None
    """Pods that may be brought onto one NUMA node."""
    whitelist_known: bool = True
    """True where it is known whether there is such an object."""


class Cluster(Protocol):
    """The cluster as seen from one node."""

    def view(self) -> ClusterView:
        """The newest state, without waiting for the network."""

    def publish(self, changes: Sequence[ClusterChange]) -> None:
        """Write the node's extended resources and its NodeResourceTopology."""

    def evict(self, pod: EvictPod) -> None:
        """Ask for the eviction of one pod and return once it is accepted; a pod that is gone is accepted.

        EvictionRefused when a disruption budget or the API server says no, OSError when it cannot be reached.
        """


@runtime_checkable
class Changes(Protocol):
    """A cluster that may have something to be published before the next tick is due."""

    def take_changes(self) -> bool:
        """Tell whether there is something new since this was asked last; never waits."""
