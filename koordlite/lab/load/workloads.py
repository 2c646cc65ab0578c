"""The running workloads: what they want, what cpusets, quotas and weights leave them, and who is charged.

All cores are equal here: hyperthreads, caches and memory bandwidth cost nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from koordlite.lab.cgroups import disk_files
from koordlite.lab.cgroups.trees import UNLIMITED, Cgroups, Group
from koordlite.lab.load.demand import NOTHING, Demand
from koordlite.lab.machine.machine import DISK_SPEED
from koordlite.lab.machine.pressure import PressureFile, Waits
from koordlite.lab.machine.processes import Process
from koordlite.model.cpuset import CPUSet

ALMOST_NOTHING = 1e-9


class Region(msgspec.Struct, frozen=True):
    """CPUs that exactly these claimants may use."""

    cpus: tuple[int, ...]
    claimants: tuple[int, ...]


def regions(allowed: Sequence[CPUSet]) -> tuple[Region, ...]:
    """The machine cut into regions: `allowed[i]` are the CPUs of claimant i. Fewest claimants first."""
    claimants: dict[int, list[int]] = {}
    for claimant, cpus in enumerate(allowed):
        for cpu in cpus:
            claimants.setdefault(cpu, []).append(claimant)
    cut: dict[tuple[int, ...], list[int]] = {}
    for cpu in sorted(claimants):
        cut.setdefault(tuple(claimants[cpu]), []).append(cpu)
    parts = (Region(tuple(cpus), who) for who, cpus in cut.items())
    return tuple(sorted(parts, key=lambda region: (len(region.claimants), region.cpus)))


def fill(amount: float, wants: Mapping[int, float], weights: Mapping[int, float]) -> dict[int, float]:
    """Weighted max-min: `amount` shared in proportion to the weights, no claimant above its want.

    What a satisfied claimant leaves goes to the others.
    """
    shares: dict[int, float] = {}
    order = sorted(wants, key=lambda claimant: (wants[claimant] / weights[claimant], claimant))
    weight = sum(weights[claimant] for claimant in order)
    for claimant in order:
        part = amount * weights[claimant] / weight if weight > 0 else 0.0
        shares[claimant] = max(0.0, min(wants[claimant], part))
        amount -= shares[claimant]
        weight -= weights[claimant]
    return shares


class SharedTime(msgspec.Struct, frozen=True):
    """The outcome of one step, in the unit of the wants."""

    used: tuple[float, ...]
    """Amounts by claimant."""
    by_cpu: Mapping[int, float]
    """Work done on each CPU that did any."""


def share_out(
    *, capacity: float, wants: Sequence[float], weights: Sequence[float], cut: Sequence[Region]
) -> SharedTime:
    """Meet the wants on the CPUs of `cut`, each of which can do `capacity` of work."""
    unmet = list(wants)
    by_cpu: dict[int, float] = {}
    for region in cut:
        hungry = {who: unmet[who] for who in region.claimants if unmet[who] > ALMOST_NOTHING}
        if not hungry:
            continue
        shares = fill(capacity * len(region.cpus), hungry, {who: weights[who] for who in hungry})
        for who, part in shares.items():
            unmet[who] -= part
        even = sum(shares.values()) / len(region.cpus)
        by_cpu.update(dict.fromkeys(region.cpus, even))
    return SharedTime(tuple(want - missing for want, missing in zip(wants, unmet, strict=True)), by_cpu)


def read_disks(cgroups: Cgroups, running: Sequence[Workload], *, seconds: float, step_us: int) -> None:
    """Let containers read for `step_us` at `seconds` after the start."""
    budgets: dict[int, float] = {}
    allowed: list[tuple[Group, float]] = []
    for workload in running:
        demand = workload.disk.milli(seconds) / 1000 * workload.share * step_us / 1e6
        group = cgroups.io.find(workload.group) if demand else None
        if group is not None:
            allowed.append((group, _within_limits(group, demand, budgets, step_us)))
    total = sum(amount for _, amount in allowed)
    part = min(1.0, DISK_SPEED * step_us / 1e6 / total) if total else 0.0
    for group, amount in allowed:
        for each in group.lineage():
            each.read_bytes += amount * part


def _within_limits(group: Group, demand: float, budgets: dict[int, float], step_us: int) -> float:
    """Rest of the limits on the way up in this step; it is taken off them."""
    limited = [(each, limit) for each in group.lineage() if (limit := disk_files.read_limit(each)) is not None]
    budget = [budgets.setdefault(id(each), limit * step_us / 1e6) for each, limit in limited]
    allowed = min(demand, *budget) if budget else demand
    for each, _ in limited:
        budgets[id(each)] -= allowed
    return allowed


class Workload(msgspec.Struct, eq=False):
    """A container, or a process outside Kubernetes; amounts are CPU-µs since it started."""

    uid: str
    """uid of its pod; empty outside Kubernetes."""
    name: str
    group: str
    """Group in which it was started. Which limits hold is decided by where its first thread sits now."""
    process: Process
    demand: Demand
    share: float = 1.0
    """Part of the pod's demand that is this container's."""
    memory: Demand = NOTHING
    """Demand in thousandths of a byte, as CPU is in thousandths of a CPU."""
    disk: Demand = NOTHING
    """Bytes a second it wants to read from the first disk, in thousandths too."""
    wanted_us: int = 0
    used_us: int = 0
    used_milli: float = 0.0
    """Use in the last step."""

    @property
    def container(self) -> str:
        """Name of the container."""
        return self.name.rpartition("/")[2]


class Branch(msgspec.Struct, eq=False):
    """A group with workloads in it (`leaves`, by number) or below it."""

    group: Group
    leaves: list[int] = msgspec.field(default_factory=list)
    children: list[Branch] = msgspec.field(default_factory=list)
    need: float = 0.0
    """CPU-µs wanted in this step below here, within the quotas on the way up to here."""
    wanted: float = 0.0
    """The same before this group's own quota."""


class Step(msgspec.Struct, frozen=True):
    """A step's numbers by workload: CPU-µs wanted, CPU-µs the quotas grant, and its weight on the whole node."""

    wants: list[float]
    granted: list[float]
    weights: list[float]


class Workloads:
    """All workloads of the node, and the CPU time they have used."""

    def __init__(self, cgroups: Cgroups, cpus: CPUSet) -> None:
        self._cgroups = cgroups
        self.cpu_us: dict[int, float] = dict.fromkeys(cpus, 0.0)
        """Busy time by CPU."""
        self.stalls = PressureFile()
        self._running: list[Workload] = []
        self._state: tuple[int, ...] = ()
        self._tree = Branch(cgroups.cpu.root)
        self._groups: list[Group] = []
        self._allowed: list[CPUSet] = []
        self._cut: tuple[Region, ...] = ()

    def add(self, workload: Workload) -> None:
        """Start it."""
        self._running.append(workload)
        self._state = ()

    def remove(self, workload: Workload) -> None:
        """It has ended."""
        self._running.remove(workload)
        self._state = ()

    def __iter__(self) -> Iterator[Workload]:
        return iter(self._running)

    def step(self, *, seconds: float, step_us: int) -> None:
        """Let `step_us` pass at `seconds` after the start."""
        self._refresh()
        wants = self._wants(seconds, step_us)
        step = Step(wants, [0.0] * len(wants), [0.0] * len(wants))
        _gather(self._tree, wants, step_us)
        _grant(self._tree, self._tree.need, 1.0, step)
        shares = share_out(capacity=step_us, wants=step.granted, weights=step.weights, cut=self._cut)
        for cpu, busy in shares.by_cpu.items():
            self.cpu_us[cpu] += busy
        self._charge(wants, shares.used, step_us)
        _count_periods(self._tree, step_us)

    def _refresh(self) -> None:
        """Read groups and cpusets again when one of them has changed."""
        state = tuple(hierarchy.epoch for hierarchy in self._cgroups.hierarchies)
        if state == self._state:
            return
        self._state = state
        self._tree = Branch(self._cgroups.cpu.root)
        branches = {id(self._tree.group): self._tree}
        first = [workload.process.tids[0] for workload in self._running]
        self._groups = [self._cgroups.cpu.home(tid) for tid in first]
        for number, group in enumerate(self._groups):
            _branch(group, branches).leaves.append(number)
        self._allowed = [self._cgroups.allowed(self._cgroups.cpuset.home(tid)) for tid in first]
        self._cut = regions(self._allowed)

    def _wants(self, seconds: float, step_us: int) -> list[float]:
        """CPU-µs each wants in this step; at most the CPUs it may run on."""
        wants = []
        for workload, cpus in zip(self._running, self._allowed, strict=True):
            milli = workload.demand.milli(seconds)
            demand = milli if math.isinf(milli) else milli * workload.share
            wants.append(min(demand, 1000.0 * len(cpus)) * step_us / 1000)
        return wants

    def _charge(self, wants: Sequence[float], used: Sequence[float], step_us: int) -> None:
        waits, longest = Waits(), 0.0
        for workload, home, want, got in zip(self._running, self._groups, wants, used, strict=True):
            done = int(got)
            workload.wanted_us += int(want)
            workload.used_us += done
            workload.process.used_us += done
            workload.process.waited_us += int(want) - done
            workload.used_milli = got * 1000 / step_us
            waiting = 1 - got / want if want > 0 else 0.0
            longest = max(longest, waiting)
            for group in home.lineage():
                group.usage_us += done
                waits.note(group.stalls, waiting, idle=want <= 0)
        waits.close(step_us)
        # For the whole node the kernel knows no `full` of CPU: some thread always runs.
        self.stalls.add(step_us, int(longest * step_us))


def _branch(group: Group, branches: dict[int, Branch]) -> Branch:
    """The branch of `group`, made with all above it when it is new."""
    branch = branches.get(id(group))
    if branch is None:
        branch = branches[id(group)] = Branch(group)
        if group.parent is not None:
            _branch(group.parent, branches).children.append(branch)
    return branch


def _gather(branch: Branch, wants: Sequence[float], step_us: int) -> float:
    """Bottom-up: what is wanted, cut at each quota."""
    branch.wanted = sum(_gather(child, wants, step_us) for child in branch.children)
    branch.wanted += sum(wants[leaf] for leaf in branch.leaves)
    branch.need = min(
        branch.wanted,
        math.inf if branch.group.quota_us == UNLIMITED else _refill(branch.group, step_us) + branch.group.saved_us,
    )
    return branch.need


def _refill(group: Group, step_us: int) -> float:
    return group.quota_us * step_us / group.period_us


def _grant(branch: Branch, amount: float, weight: float, step: Step) -> None:
    """Top-down: share out each quota by weight, and work out how much each workload weighs on the whole node."""
    claims: list[tuple[Branch | int, float, float]] = [
        (child, child.need, child.group.claim) for child in branch.children if child.need > 0
    ]
    # A workload beside groups counts as one of them, of the default weight.
    default = branch.group.default_weight
    claims += [(leaf, step.wants[leaf], default) for leaf in branch.leaves if step.wants[leaf] > 0]
    needs = {number: need for number, (_, need, _) in enumerate(claims)}
    weights = {number: each for number, (*_, each) in enumerate(claims)}
    parts, together = fill(amount, needs, weights), sum(weights.values())
    for number, (target, *_) in enumerate(claims):
        share = weight * weights[number] / together
        if isinstance(target, Branch):
            _grant(target, parts[number], share, step)
        else:
            step.granted[target], step.weights[target] = parts[number], share


def _count_periods(branch: Branch, step_us: int) -> None:
    """nr_periods and nr_throttled of every group with a quota that wanted to run; nr_bursts, burst_time, and what is
    left over for later, at most cpu.cfs_burst_us of it."""
    group = branch.group
    if group.quota_us != UNLIMITED:
        beyond = branch.need - _refill(group, step_us)
        if beyond > ALMOST_NOTHING:
            group.bursts += 1
            group.burst_used_us += int(beyond)
        group.saved_us = min(max(group.saved_us - beyond, 0.0), float(group.burst_us))
    if group.quota_us != UNLIMITED and branch.wanted > 0:
        # A shorter step counts as one period all the same.
        periods = max(1, round(step_us / group.period_us))
        group.periods += periods
        excess = branch.wanted - branch.need
        if excess > ALMOST_NOTHING:
            group.throttled += periods
            group.throttled_us += int(min(excess, step_us))
    for child in branch.children:
        _count_periods(child, step_us)
