"""Both forms of a record: text in one line, and JSON with the keys that log readers expect."""

from __future__ import annotations

import json
import logging
import sys

from koordlite.report.log_format import Fields, JsonFormatter, LineFormatter


def _record(message: str, *args: object, level: int = logging.INFO) -> logging.LogRecord:
    record = logging.LogRecord("koordlite.agent", level, "", 0, message, args, None)
    record.created = 1764322245.0789
    return record


def test_an_object_has_time_in_utc_with_milliseconds_level_logger_message_and_fields() -> None:
    record = _record("pod %s is bound", "a/b", level=logging.WARNING)
    record.pod, record.flow = "a/b", "bind"
    assert json.loads(JsonFormatter().format(record)) == {
        "ts": "2025-11-28T09:30:45.078Z",
        "level": "warning",
        "logger": "koordlite.agent",
        "msg": "pod a/b is bound",
        "pod": "a/b",
        "flow": "bind",
    }


def test_the_event_of_a_record_of_fields_is_its_message() -> None:
    record = _record("%s", Fields(event="cycle", number=3, text='a "b"\nc'))
    entry = json.loads(JsonFormatter().format(record))
    assert entry["msg"] == "cycle"
    assert "event" not in entry
    assert (entry["number"], entry["text"]) == (3, 'a "b"\nc')
    assert LineFormatter().format(record).endswith(r' INFO event=cycle number=3 text="a \"b\"\nc"')


def test_a_traceback_stays_in_the_object() -> None:
    try:
        raise ValueError("line 1\nline 2")
    except ValueError:
        record = _record("failed", level=logging.ERROR)
        record.exc_info = sys.exc_info()
    (line,) = JsonFormatter().format(record).splitlines()
    assert json.loads(line)["stacktrace"].endswith("ValueError: line 1\nline 2")


def test_a_line_begins_with_the_same_time_and_the_level() -> None:
    assert LineFormatter().format(_record("ready")) == "2025-11-28T09:30:45.078Z INFO ready"


def test_text_quotes_values_with_spaces() -> None:
    assert str(Fields(a="b", c='d "e"', f="")) == 'a=b c="d \\"e\\"" f=""'
