"""The log of every program, on standard error: lines for people, or one JSON object a line for programs that read logs.

Times are RFC 3339 in UTC, with milliseconds. Keys of an object: `ts`, `level`, `logger`, `msg`, then the fields.
"""

from __future__ import annotations

import datetime
import json
import logging
import sys
from typing import TextIO

from koordlite.model import printable

FORMS = ("text", "json")
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
"""Attributes of any record; all others are fields that were given in `extra`."""


class Fields(dict[str, object]):
    """A record made of fields, the only argument of its message. Text has `key=value`, with values quoted as in JSON
    where they have spaces; in JSON the field `event` is the message."""

    def __str__(self) -> str:
        return " ".join(f"{key}={_value(value)}" for key, value in self.items())


def _value(value: object) -> str:
    text = str(value)
    return text if text and not any(c in text for c in ' "=\n') else json.dumps(text, ensure_ascii=False)


def _time(record: logging.LogRecord) -> str:
    time = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
    return f"{time:%Y-%m-%dT%H:%M:%S}.{time.microsecond // 1000:03}Z"


class LineFormatter(logging.Formatter):
    """Time, level, message. Line ends in a message are shown by their code; a traceback is indented below it.

    So no text of a pod's owner or of a server begins a line that looks like a record of ours.
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """RFC 3339 in UTC, as in JSON."""
        return _time(record)

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The record without its traceback, in one line."""
        return printable.one_line(super().formatMessage(record))

    def formatException(self, ei: object) -> str:
        """The traceback, every line of it indented."""
        traceback = super().formatException(ei)  # type: ignore[arg-type]
        return "\n".join(f"    {printable.one_line(line)}" for line in traceback.splitlines())


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    for_programs = True
    """`commandline.exit_code` writes why a program ended into a log of this form."""

    def format(self, record: logging.LogRecord) -> str:
        """The record with its fields, and its traceback as `stacktrace`."""
        entry: dict[str, object] = {
            "ts": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        # logging takes a single mapping out of its tuple.
        if isinstance(record.args, Fields):
            fields = dict(record.args)
            entry |= {"msg": fields.pop("event")} | fields
        else:
            entry["msg"] = record.getMessage()
        entry |= {key: value for key, value in vars(record).items() if key not in _STANDARD}
        if record.exc_info:
            entry["stacktrace"] = self.formatException(record.exc_info)
        return printable.in_json(json.dumps(entry, ensure_ascii=False, default=str))


class _Stderr(logging.StreamHandler[TextIO]):
    """Writes to whatever stderr is at the moment: the live view puts its own in place while it is drawn."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def start(form: str, level: int = logging.INFO, *levels: logging.Filter) -> None:
    """Log to standard error from now on, in one of FORMS and through these filters, in place of any other log."""
    handler = _Stderr()
    for each in levels:
        handler.addFilter(each)
    logging.basicConfig(level=level, handlers=[handler], force=True)
    use(form)


def use(form: str) -> None:
    """Go on in this form, where the log was started."""
    for handler in logging.root.handlers:
        if isinstance(handler, _Stderr):
            handler.setFormatter(JsonFormatter() if form == "json" else LineFormatter())
