"""A node on which things go wrong: the same things at the same moments in every run with the same seed.

Files fail, groups vanish with their processes, and a hostile second writer changes sets and quotas. Nothing here breaks
the kernel's own rules: what the hostile writer may not write is refused, as for every writer.
"""

from __future__ import annotations

import contextlib
import errno
import random
from collections.abc import Iterator

import msgspec

from koordlite.lab.kernel_trees import CGROUP_ROOT
from koordlite.lab.sandbox import Sandbox

WRITE_ERRORS = (errno.EBUSY, errno.EINVAL, errno.ENOENT, errno.EIO)
READ_ERRORS = (errno.ENOENT, errno.ENODEV, errno.EIO)
"""ENODEV is what a kernel file answers whose group was removed while it was open."""

_TARGETS = ("cpuset.cpus", "cpu.max", "cpu.cfs_quota_us")


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Likelihood of each kind of trouble: for files at each call, else at each `stir`."""

    write: float = 0.05
    read: float = 0.002
    vanish: float = 0.05
    hostile: float = 0.2


QUIET = Rates(write=0, read=0, vanish=0, hostile=0)


class Chaos:
    """Trouble on one emulated node, from the first call of `stir` or the first access of a cgroup file on.

    The node itself, its kubelet and its workloads, are never hit: they do not go through files.
    """

    def __init__(self, sandbox: Sandbox, *, seed: int, rates: Rates | None = None) -> None:
        self._sandbox, self._rates = sandbox, rates or Rates()
        self._random = random.Random(f"chaos/{seed}")
        self.hostile: dict[str, bytes] = {}
        """Files the second writer wrote, and what stood in them right after."""
        self.events: list[str] = []
        """Faults in order, for people."""
        sandbox.files.trouble = self._trouble

    def stir(self) -> None:
        """Let a group vanish and the second writer write, or not: once between two ticks."""
        chance = self._random
        if chance.random() < self._rates.vanish:
            # A container or a whole pod, never a group of a QoS class.
            groups = list(self._pod_groups())
            if groups:
                group = self._random.choice(groups)
                self.events.append(f"vanish {group}")
                self._sandbox.vanish(group)
        if chance.random() < self._rates.hostile:
            self._write_hostile()

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Files work for a while, so that the outcome can be read."""
        self._sandbox.files.trouble = None
        try:
            yield
        finally:
            self._sandbox.files.trouble = self._trouble

    def end(self) -> None:
        """No more trouble."""
        self._sandbox.files.trouble = None
        self._rates = QUIET

    def _trouble(self, verb: str, path: str) -> int | None:
        if not path.startswith(CGROUP_ROOT) or verb not in ("read", "write"):
            return None
        rate, codes = (self._rates.write, WRITE_ERRORS) if verb == "write" else (self._rates.read, READ_ERRORS)
        if self._random.random() >= rate:
            return None
        code = self._random.choice(codes)
        self.events.append(f"{verb} {path}: {errno.errorcode[code]}")
        return code

    def _pod_groups(self) -> Iterator[str]:
        for pod in self._sandbox.kubelet.running.values():
            groups = (pod.group, *(workload.group for workload in pod.workloads))
            yield from (group for group in groups if self._sandbox.cgroups.cpu.find(group) is not None)

    def _write_hostile(self) -> None:
        """One write to a set or quota of kubelet's groups; what the kernel refuses does not happen."""
        with self.quiet():
            paths = [
                p
                for p in self._sandbox.files.paths(CGROUP_ROOT)
                if (p.rpartition("/")[2] in _TARGETS and f"/{self._sandbox.kubelet.layout.besteffort}" in p)
            ]
            path = self._random.choice(sorted(paths))
            text = self._text(path)
            with contextlib.suppress(OSError):
                self._sandbox.files.write(path, text)
                self.hostile[path] = self._sandbox.files.read(path)
                self.events.append(f"hostile {path} = {text.decode()}")

    def _text(self, path: str) -> bytes:
        if not path.endswith("cpuset.cpus"):
            return str(self._random.randrange(1000, 400_000)).encode()
        cpus = sorted(self._sandbox.machine.cpuset)
        return ",".join(map(str, self._random.sample(cpus, self._random.randrange(1, len(cpus) + 1)))).encode()
