"""An applier on an emulated node, and the pictures it works from."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Self

from emulated import Emulated

from koordlite import plan
from koordlite.apply import Applier
from koordlite.host.journal.journal import Journal
from koordlite.model.change import Change
from koordlite.model.picture.groups import RunState
from koordlite.model.snapshot import Snapshot
from koordlite.model.status import AppliedStep
from koordlite.observe import Observer
from koordlite.plan import Plan


class Bench:
    """`needs` are what its observer is asked for, `files` what its host reads and writes."""

    def __init__(self, node: Emulated, journal: Journal, files: Any = None, **needs: Any) -> None:
        self.node, self.journal, self.host = node, journal, node.host(files)
        self.observer = Observer(self.host, node.cluster, tasks_seconds=1.0, **needs)
        self.applier = Applier(self.host, node.cluster, journal)

    @classmethod
    @contextlib.contextmanager
    def at(cls, node: Emulated, files: Any = None) -> Iterator[Self]:
        """One whose journal is held while the block runs."""
        with node.journal() as journal:
            yield cls(node, journal, files)

    def look(self) -> Snapshot:
        """A picture that knows what the applier has written."""
        return self.observer.observe(lambda *_: RunState(ours=self.applier.ours, found=self.applier.originals))

    def take(self, *changes: Change, owner: str = "") -> list[AppliedStep]:
        """Apply the changes as one plan of this strategy."""
        seen, owners = self.look(), {change.place: owner for change in changes}
        return list(self.applier.apply(Plan(plan.order(changes, seen.cgroups), owners=owners), seen))

    def foreign(self, seconds: float = 1.0) -> list[str]:
        """Places somebody else wrote, as of a look that many seconds later."""
        self.node.sandbox.advance(seconds)
        return [str(write.place) for write in self.applier.foreign_writes(self.observer.observe())]
