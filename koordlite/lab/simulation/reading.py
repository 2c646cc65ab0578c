"""Files of scenarios and of configurations to compare → what to play."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import msgspec

from koordlite import config
from koordlite.config import Settings
from koordlite.kube.folder import manifest_files
from koordlite.lab.cluster import scenario
from koordlite.lab.cluster.scenario import Scenario
from koordlite.model.errors import ConfigError, Problem, reason
from koordlite.model.reading import strict


class Play(msgspec.Struct, frozen=True):
    """A scenario with the settings of the agent."""

    name: str
    scenario: Scenario
    settings: Settings
    manifests: Path | None = None
    label: str = ""
    """Name of the configuration, where there are several."""


def load(path: Path) -> Play:
    """The scenario in the file; ConfigError lists every mistake in it."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(Problem(str(path), "$", "", reason(error), "name a readable YAML file")) from error
    return parse(text, str(path))


def parse(text: str, source: str) -> Play:
    """The scenario that `text` writes; folders in it are seen from that of `source`. ConfigError for one of nothing."""
    shape = scenario.shape(config.shape())
    read: Any = strict.load(text, shape, source)
    if read == shape():
        do = "write at least pods, manifests or events; configs/scenarios has examples"
        raise ConfigError(Problem(source, "$", "", "the file describes no scenario: there is no work and no event", do))
    path = Path(source)
    manifests = path.parent / read.manifests if read.manifests else None
    if manifests and not manifests.is_dir():
        do = "name a folder of manifests, seen from the folder of the scenario"
        raise ConfigError(Problem(source, "$.manifests", read.manifests, "there is no such folder", do))
    return Play(path.stem, read, config.settings_of(read.settings), manifests)


def variant(play: Play, path: Path) -> Play:
    """The same with another configuration: a koordlite.yaml, or a manifest of the ConfigMap slo-controller-config."""
    data = manifest_files.config_map(path)
    if data is None:
        return msgspec.structs.replace(play, settings=config.load(path), label=path.stem)
    changed = dataclasses.replace(play.scenario, config={**play.scenario.config, **data})
    return msgspec.structs.replace(play, scenario=changed, label=path.stem)


def without(play: Play) -> Play:
    """The same where the agent only observes: nothing limits batch work but the kernel."""
    observing = dataclasses.replace(play.scenario, mode="observe", expect=())
    return msgspec.structs.replace(play, scenario=observing, label="without")


def in_force(play: Play) -> Settings:
    """The settings in the mode of the scenario; what is off stays off."""
    mode = play.scenario.mode
    if mode == "asWritten":
        return play.settings
    on = frozenset(name for name, section in play.settings.strategies.items() if section.mode != "off")
    return config.with_modes(play.settings, mode, on)
