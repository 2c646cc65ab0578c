"""The policy of a descheduler that goes on running: read again when it changes, the last good one kept meanwhile.

With a folder the last good one also outlives the process.
"""

from __future__ import annotations

import dataclasses
import datetime
import os
import pathlib

from descheduler.arguments import pacing
from descheduler.arguments.pacing import Cron
from descheduler.policy import reader
from descheduler.policy.koordinator import LeaderElection
from descheduler.policy.reader import Configuration, PolicyDocument
from descheduler.policy.upstream import Policy
from koordlite.model import duration
from koordlite.model.errors import ConfigError, Problem, reason

KEPT = "good-policy.yaml"
"""File of the folder."""


class PolicyFile:
    """A policy file, or the policy that holds without one.

    The text is compared, not the time of the file: kubelet changes the link to a ConfigMap's folder, and the file in it
    may be older than the one before.
    """

    def __init__(self, path: str | None, folder: str | None = None) -> None:
        """ConfigError when the file cannot be used at the start and `folder` keeps no good one of an earlier run."""
        self._path = path
        self._copy = pathlib.Path(folder, KEPT) if folder and path else None
        self.notices: list[Problem] = []
        """Parts of the policy that are no mistakes, but worth checking."""
        self.problems: tuple[Problem, ...] = ()
        """Reasons why the present file does not hold; empty when it does."""
        self._text: str | None = None
        """Text at the last reading; None when it could not be read."""
        self.document: PolicyDocument = self._first()
        """The policy that holds."""

    @property
    def dry_run(self) -> bool:
        """The policy itself asks for a dry run, as Koordinator's may."""
        return isinstance(self.document, Configuration) and self.document.dry_run

    @property
    def leader_election(self) -> LeaderElection | None:
        """Koordinator's settings of the Lease; None for a policy of upstream."""
        return self.document.leader_election if isinstance(self.document, Configuration) else None

    @property
    def bind_addresses(self) -> tuple[tuple[str, int], ...]:
        """Addresses of health and metrics by the policy; empty when it does not say."""
        return self.document.bind_addresses if isinstance(self.document, Configuration) else ()

    @property
    def schedule(self) -> Cron | None:
        """The schedule of cycles by the policy; None when it does not say."""
        policy = self.document
        if not isinstance(policy, Policy) or not policy.schedule:
            return None
        return pacing.parse(policy.schedule, policy.time_zone)

    @property
    def interval_seconds(self) -> float:
        """The interval that the policy itself asks for; 0 when it asks for none."""
        interval = self.document.descheduling_interval if isinstance(self.document, Configuration) else "0"
        return duration.seconds(interval)

    def refresh(self) -> bool:
        """Read the file again. True when another policy holds; an unusable file changes nothing but `problems`."""
        before, self._text = self._text, None
        try:
            self._text = reader.text_of(self._path) if self._path is not None else ""
            if self._text == before:
                return False
            self.document = self._load(self._text)
        except ConfigError as error:
            self.problems = tuple(error.problems)
            return False
        self.problems = ()
        return True

    def _first(self) -> PolicyDocument:
        try:
            self._text = reader.text_of(self._path) if self._path is not None else ""
            return self._load(self._text)
        except ConfigError as error:
            if self._copy is None or not self._copy.is_file():
                raise
            document = self._parse(self._copy.read_text(encoding="utf-8"), str(self._copy))
            written = datetime.datetime.fromtimestamp(self._copy.stat().st_mtime, datetime.UTC)
            do = f"fix it; the last good one of {written:%Y-%m-%dT%H:%M:%SZ} holds ({self._copy})"
            self.problems = tuple(dataclasses.replace(problem, do=do) for problem in error.problems)
            return document

    def _load(self, text: str) -> PolicyDocument:
        if self._path is None:
            return reader.default()
        document = self._parse(text, self._path)
        self._keep(text)
        return document

    def _parse(self, text: str, path: str) -> PolicyDocument:
        notices: list[Problem] = []
        document = reader.parse(text, path, notices)
        reader.setup(document)
        self.notices = notices
        return document

    def _keep(self, text: str) -> None:
        if self._copy is None:
            return
        aside = self._copy.with_suffix(".new")
        try:
            aside.write_text(text, encoding="utf-8")
            os.replace(aside, self._copy)
        except OSError as error:
            do = "make it writable; until then a restart with a broken policy ends with an error"
            self.notices.append(Problem(str(self._copy), "file", "", reason(error), do))
