"""What is read of the machine only while strategies ask for it, or while values of ours are there: settings of the
whole kernel, places in the queue of the OOM killer, disks and their limits, and cookies of core scheduling."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from koordlite.formulas import system_settings
from koordlite.formulas.blkio import UNSET
from koordlite.host import block as block_devices
from koordlite.host import system_files
from koordlite.host.bundle import Host
from koordlite.host.core_scheduling import Cookies
from koordlite.model import keys
from koordlite.model.picture.blocks import ROOT, Asker, BlockField, Blocks, askers
from koordlite.model.picture.groups import CoreSched, PodGroups, Process, TaskCookie
from koordlite.model.pod.values import Pod
from koordlite.model.slo.qos import Block
from koordlite.model.slo.settings import SLO
from koordlite.observe.rotation import Rotation
from koordlite.ports import Files

OOM_SCORES = "oom_score_adj"
SYSTEM = "system/"


def settings(files: Files, reads: Iterable[str], *, held: bool) -> dict[str, str]:
    """The settings among `reads` (`system/NAME`), by name; all while one is `held` by us; missing where this kernel has
    none."""
    asked = (wanted.removeprefix(SYSTEM) for wanted in reads if wanted.startswith(SYSTEM))
    found = ((name, system_files.read(files, name)) for name in (system_settings.PATHS if held else asked))
    return {name: text for name, text in found if text is not None}


def oom_scores(
    host: Host,
    pods: Iterable[Pod],
    places: Mapping[str, PodGroups],
    *,
    reads: Collection[str],
    held: bool,
) -> dict[str, tuple[Process, ...]]:
    """Processes of containers by group, for the pods that ask for a number; for all while one is `held` by us.

    To read every process of the node in every tick would be dear, and few pods ask.
    """
    if OOM_SCORES not in reads and not held:
        return {}
    annotations = {keys.OOM_SCORE_ADJ, keys.OOM_SCORE_ADJ_SPEC}
    wanted = [pod for pod in pods if pod.uid in places and (held or annotations & pod.annotations.keys())]
    groups = [group for pod in wanted for group in places[pod.uid].containers.values()]
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
    found = list(askers(slo.resource_qos, pods, groups, host.cgroups.layout.besteffort))
    if not found:
        return _NOTHING
    named = {asker.disk(block): (asker, block) for asker in found for block in asker.blocks}
    return Blocks(
        devices={name: _numbers(host.files, asker, block) for name, (asker, block) in named.items()},
        values={group: _values(host, group) for group in {ROOT, *(asker.group for asker in found)}},
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
    found = ((field, block_devices.read(host.files, host.cgroups, group, field)) for field in UNSET)
    return {field: lines for field, lines in found if lines is not None}


CORE_SCHED = "core_sched"
"""What a strategy names to see them (`Strategy.reads`)."""
COOKIE_SECONDS = 30.0
"""Within which a process without a cookie is found in a container: its children inherit one, so that only processes
that enter from outside have none."""
COOKIES_AT_LEAST = 16
_NOT_READ = CoreSched()


class CoreCookieReader:
    """Remembers what was read from one turn to the next."""

    def __init__(self, cookies: Cookies) -> None:
        self._cookies = cookies
        self._groups = Rotation(cookies.of_group, seconds=COOKIE_SECONDS, at_least=COOKIES_AT_LEAST)
        self._wanted = False

    def read(self, now: float, places: Iterable[PodGroups], *, wanted: bool) -> CoreSched:
        """Cookies of all containers, pause containers as well; nothing while nobody wants it."""
        self._wanted = wanted
        if not wanted:
            self._groups.clear()
            return _NOT_READ
        missing = self._cookies.missing()
        if missing:
            return CoreSched(missing)
        self._groups.begin(now, fresh=self._cookies.take_written())
        found = self._groups.all(_inside(places))
        self._groups.end()
        return CoreSched("", found)

    def with_new(self, snapshot: CoreSched, places: Iterable[PodGroups], groups: Collection[str]) -> CoreSched:
        """`snapshot` with the containers of `groups` as they are now."""
        if not self._wanted or snapshot.missing:
            return snapshot
        fresh: Mapping[str, tuple[TaskCookie, ...]] = {
            group: found
            for group in _inside(places)
            if group in groups and (found := self._groups.again(group)) is not None
        }
        return CoreSched("", {**snapshot.tasks, **fresh})


def _inside(places: Iterable[PodGroups]) -> list[str]:
    return [group for place in places for group in (*place.containers.values(), *place.sandboxes)]
