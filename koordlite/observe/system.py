"""Facts about the machine that are read only while strategies ask for them, or while values of ours are there: settings
of the whole kernel, places in the queue of the OOM killer, disks and their limits, and cookies of core scheduling."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from koordlite.changes.system import INTERRUPT
from koordlite.formulas import system_settings
from koordlite.formulas.blkio import UNSET
from koordlite.host import block as block_devices
from koordlite.host import irqs, system_files
from koordlite.host.bundle import Host
from koordlite.host.core_scheduling import Cookies
from koordlite.model import keys
from koordlite.model.picture.blocks import ROOT, Asker, BlockField, Blocks, askers
from koordlite.model.picture.groups import CoreSched, PodGroups, Process, TaskCookie
from koordlite.model.picture.irqs import IRQ
from koordlite.model.place import Place
from koordlite.model.pod.values import Pod
from koordlite.model.slo.qos import Block
from koordlite.model.slo.settings import SLO
from koordlite.observe.rotation import Rotation
from koordlite.ports import Files

OOM_SCORES = "oom_score_adj"
SYSTEM = "system/"


def settings(files: Files, reads: Iterable[str], *, has_ours: bool) -> dict[str, str]:
    """The settings among `reads` (`system/NAME`), by name; all while one is ours (`has_ours`); missing where this
    kernel has none."""
    names = (field.removeprefix(SYSTEM) for field in reads if field.startswith(SYSTEM))
    texts = ((name, system_files.read(files, name)) for name in (system_settings.PATHS if has_ours else names))
    return {name: text for name, text in texts if text is not None}


def oom_scores(
    host: Host,
    pods: Iterable[Pod],
    places: Mapping[str, PodGroups],
    *,
    reads: Collection[str],
    has_ours: bool,
) -> dict[str, tuple[Process, ...]]:
    """Processes of containers by group, for the pods that ask for a number; for all while one is ours (`has_ours`).

    To read every process of the node in every tick would be dear, and few pods ask.
    """
    if OOM_SCORES not in reads and not has_ours:
        return {}
    annotations = {keys.OOM_SCORE_ADJ, keys.OOM_SCORE_ADJ_SPEC}
    selected = [pod for pod in pods if pod.uid in places and (has_ours or annotations & pod.annotations.keys())]
    groups = [group for pod in selected for group in places[pod.uid].containers.values()]
    return {group: tuple(system_files.oom_scores(host.files, host.cgroups, group)) for group in groups}


BLOCKS = "blocks"
_NOTHING = Blocks()


def disks(
    host: Host, slo: SLO, pods: Iterable[Pod], places: Mapping[str, PodGroups], *, reads: Collection[str]
) -> Blocks:
    """Disks and limits, for the groups that the configuration and the pods' annotations name."""
    if BLOCKS not in reads:
        return _NOTHING
    groups = {uid: place.group for uid, place in places.items()}
    requests = list(askers(slo.resource_qos, pods, groups, host.cgroups.layout.besteffort))
    if not requests:
        return _NOTHING
    named = {asker.disk(block): (asker, block) for asker in requests for block in asker.blocks}
    return Blocks(
        devices={name: _numbers(host.files, asker, block) for name, (asker, block) in named.items()},
        values={group: _values(host, group) for group in {ROOT, *(asker.group for asker in requests)}},
    )


def _numbers(files: Files, asker: Asker, block: Block) -> tuple[str, ...]:
    match block.type:
        case "device":
            return block_devices.of_device(files, block.name)
        case "volumegroup":
            return block_devices.of_volume_group(files, block.name)
        case "podvolume" if asker.uid:
            return block_devices.of_pod_volume(files, asker.uid, block.name)
    return ()


def _values(host: Host, group: str) -> dict[BlockField, Mapping[str, str]]:
    by_field = ((field, block_devices.read(host.files, host.cgroups, group, field)) for field in UNSET)
    return {field: lines for field, lines in by_field if lines is not None}


IRQS = "irqs"
IRQ_SECONDS = 10.0
"""Greatest age of the picture of an interrupt that is not ours."""


class IRQReader:
    """Remembers interrupts and their counts. Those that hold a value of ours are read in every tick: what others write
    there is seen at once."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._read_at: float | None = None
        self._irqs: dict[str, IRQ] = {}
        self._counts: Mapping[str, Mapping[int, int]] = {}

    def read(self, now: float, ours: Collection[Place], *, enabled: bool) -> Mapping[str, IRQ]:
        """Interrupts by number; none while nobody wants them."""
        if not enabled:
            self._read_at, self._irqs = None, {}
            return self._irqs
        if self._read_at is None or not 0 <= now - self._read_at < IRQ_SECONDS:
            counts = irqs.counts(self._files)
            seconds = now - self._read_at if self._read_at is not None and now > self._read_at else 0.0
            listed = {number: irqs.read(self._files, number) for number in irqs.numbers(self._files)}
            self._irqs = {
                number: msgspec.structs.replace(irq, rates=self._rates(number, counts, seconds))
                for number, irq in listed.items()
                if irq is not None
            }
            self._read_at, self._counts = now, counts
            return self._irqs
        fresh = {place.part("number") for place in ours if place.kind is INTERRUPT} & self._irqs.keys()
        for number in fresh:
            present = irqs.read(self._files, number)
            last = self._irqs[number]
            if present is None:
                self._irqs = {name: each for name, each in self._irqs.items() if name != number}
            elif (present.cpus, present.effective, present.device) != (last.cpus, last.effective, last.device):
                self._irqs = {**self._irqs, number: msgspec.structs.replace(present, rates=last.rates)}
        return self._irqs

    def _rates(self, number: str, counts: Mapping[str, Mapping[int, int]], seconds: float) -> dict[int, float]:
        before = self._counts.get(number)
        if before is None or not seconds:
            return {}
        came = {cpu: count - before.get(cpu, 0) for cpu, count in counts.get(number, {}).items()}
        return {cpu: round(count / seconds, 2) for cpu, count in came.items() if count > 0}


CORE_SCHED = "core_sched"
"""Word by which a strategy asks to see them (`Strategy.reads`)."""
COOKIE_SECONDS = 30.0
"""Time within which a process without a cookie is noticed: children inherit one, so that only processes that enter a
container from outside have none."""
COOKIES_AT_LEAST = 16
_NOT_READ = CoreSched()


class CoreCookieReader:
    """Remembers what was read from one turn to the next."""

    def __init__(self, cookies: Cookies) -> None:
        self._cookies = cookies
        self._groups = Rotation(cookies.of_group, seconds=COOKIE_SECONDS, at_least=COOKIES_AT_LEAST)
        self._enabled = False

    def read(self, now: float, places: Iterable[PodGroups], *, enabled: bool) -> CoreSched:
        """Cookies of all containers, pause containers as well; nothing while nobody wants it."""
        self._enabled = enabled
        if not enabled:
            self._groups.clear()
            return _NOT_READ
        missing = self._cookies.missing()
        if missing:
            return CoreSched(missing)
        groups = (group for place in places for group in place.inside)
        return CoreSched("", self._groups.turn(now, groups, fresh=self._cookies.take_written()))

    def with_new(self, snapshot: CoreSched, places: Iterable[PodGroups], groups: Collection[str]) -> CoreSched:
        """`snapshot` with the containers of `groups` as they are now."""
        if not self._enabled or snapshot.missing:
            return snapshot
        fresh: Mapping[str, tuple[TaskCookie, ...]] = {
            group: tasks
            for place in places
            for group in place.inside
            if group in groups and (tasks := self._groups.reread(group)) is not None
        }
        return CoreSched("", {**snapshot.tasks, **fresh})
