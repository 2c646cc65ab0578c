"""Settings of the whole kernel, and places in the queue of the OOM killer, as far as strategies ask to see them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from koordlite.formulas import system_settings
from koordlite.host import system_files
from koordlite.host.bundle import Host
from koordlite.model import keys
from koordlite.model.picture.groups import PodGroups, Process
from koordlite.model.pod.values import Pod
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
    wanted = [pod for pod in pods if pod.uid in places and (held or _asks(pod))]
    groups = [group for pod in wanted for group in places[pod.uid].containers.values()]
    return {group: tuple(system_files.oom_scores(host.files, host.cgroups, group)) for group in groups}


def _asks(pod: Pod) -> bool:
    return any(key in pod.annotations for key in (keys.OOM_SCORE_ADJ, keys.OOM_SCORE_ADJ_SPEC))
