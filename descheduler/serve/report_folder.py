"""Reports as files: text, JSON and page in one folder, with what changed since the report that was there before."""

from __future__ import annotations

import json
import logging
import os
import pathlib
from collections.abc import Iterable

import msgspec

from descheduler.evictors import eviction_api
from descheduler.plan import Attempt, EvictionPlan
from descheduler.report import diff, document, html, text
from descheduler.report.diff import Difference
from descheduler.serve.loop import CycleResult
from koordlite.model import printable

LOG = logging.getLogger("descheduler")
NAMES = ("plan.txt", "plan.json", "plan.html", "changes.json")


class Folder:
    """A folder that holds the last report. Files change at once: who reads never sees half of one."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path

    def tell(self, result: CycleResult) -> None:
        """Write the report of a cycle; one that failed leaves the last one there."""
        if result.plan is not None:
            self.write(result.plan, result.attempts, dry=result.dry_run)

    def tell_on(self, result: CycleResult) -> None:
        """`tell` for a loop: a report that cannot be written is logged, for a full disk is no reason to end, to be
        restarted and so to evict before the interval is over."""
        try:
            self.tell(result)
        except OSError as error:
            LOG.error("the report in %s was not written: %s", self._path, error)

    def write(self, plan: EvictionPlan, attempts: tuple[Attempt, ...] | None = None, *, dry: bool = True) -> None:
        """Write it; OSError when that cannot be done."""
        self._path.mkdir(parents=True, exist_ok=True)
        difference = self._difference(plan)
        done = eviction_api.prepare(plan) if attempts is None else attempts
        rows = [msgspec.structs.asdict(row) for row in difference.rows]
        counts = {"since": difference.since, "whyNot": difference.why_not, "unchanged": difference.same}
        changes = printable.in_json(json.dumps({**counts, "changes": rows}, indent=2, ensure_ascii=False)) + "\n"
        reports: tuple[Iterable[str], ...] = (
            text.pieces(plan, difference, attempts=done, dry=dry),
            document.pieces(plan, done, dry=dry),
            (html.render(plan, difference, attempts=done, dry=dry),),
            (changes,),
        )
        for name, content in zip(NAMES, reports, strict=True):
            fresh = self._path / f".{name}.new"
            with fresh.open("w", encoding="utf-8") as file:
                file.writelines(content)
            os.replace(fresh, self._path / name)

    def _difference(self, plan: EvictionPlan) -> Difference:
        path = self._path / "plan.json"
        try:
            return diff.compare(diff.read(path.read_bytes()), plan)
        except FileNotFoundError:
            return Difference("")
        except (OSError, ValueError) as error:
            return Difference("", why_not=f"{path} cannot be compared with: {error}")
