"""How long each plugin thinks, measured from outside: plugins and cycle have no clock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from descheduler.framework import Conversation, Handle, Plugin, View
from descheduler.plan import Profile, Setup


class Stopwatch:
    """Seconds by profile and plugin. The time a plugin waits for its answers is not its own, and not counted."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._spent: dict[tuple[str, str], float] = defaultdict(float)

    @property
    def seconds(self) -> Mapping[tuple[str, str], float]:
        """So far, by profile and plugin."""
        return dict(self._spent)

    def timed(self, setup: Setup) -> Setup:
        """The same policy with plugins that are watched."""
        return msgspec.structs.replace(setup, profiles=tuple(map(self._profile, setup.profiles)))

    def _profile(self, profile: Profile) -> Profile:
        plugins = tuple((self._plugin(profile.name, plugin), args) for plugin, args in profile.plugins)
        return msgspec.structs.replace(profile, plugins=plugins)

    def _plugin(self, profile: str, plugin: Plugin) -> Plugin:
        def judge(view: View, args: Any, handle: Handle) -> Conversation:
            return self._listen((profile, plugin.name), plugin.judge(view, args, handle))

        return msgspec.structs.replace(plugin, judge=judge)

    def _listen(self, name: tuple[str, str], conversation: Conversation) -> Conversation:
        verdict = None
        while True:
            began = self._monotonic()
            try:
                message = conversation.send(verdict)
            except StopIteration:
                return
            finally:
                self._spent[name] += self._monotonic() - began
            verdict = yield message
