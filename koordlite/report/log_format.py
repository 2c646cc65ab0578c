"""Lines of the log: one a record, whatever the texts in it hold."""

from __future__ import annotations

import logging

from koordlite.model import printable


class LineFormatter(logging.Formatter):
    """Time, level, message. Line ends in a message are shown by their code; a traceback is indented below it.

    So no text of a pod's owner or of a server begins a line that looks like a record of ours.
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The record without its traceback, in one line."""
        return printable.one_line(super().formatMessage(record))

    def formatException(self, ei: object) -> str:
        """The traceback, every line of it indented."""
        found = super().formatException(ei)  # type: ignore[arg-type]
        return "\n".join(f"    {printable.one_line(line)}" for line in found.splitlines())
