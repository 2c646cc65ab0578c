"""`koordlite explain config` on one look and on a running agent."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Ask = Callable[..., Any]
SANDBOX = ("--sandbox", "small", "--cluster")


def test_one_look_shows_settings_and_origins(ask: Ask, manifests: Path) -> None:
    answer = ask("explain", "config.threshold", *SANDBOX, manifests)
    assert answer.code == 0
    rows = {row.split()[0]: row.split(maxsplit=2)[1:] for row in answer.out.splitlines() if row.startswith("  ")}
    assert rows["enable"] == ["true", "cluster"]
    assert rows["memoryEvictThresholdPercent"] == ["70", "default"]


def test_json_for_programs(ask: Ask, manifests: Path) -> None:
    answer = ask("explain", "config", "-o", "json", *SANDBOX, manifests)
    found = json.loads(answer.out)
    assert found["keys"]["colocation-config"] == "as written"
    assert len({line["key"] for line in found["settings"]}) >= 6


def test_a_key_that_is_none_is_refused_with_the_list(ask: Ask, manifests: Path) -> None:
    answer = ask("explain", "config.nope", *SANDBOX, manifests)
    assert answer.code == 2
    assert "resource-threshold-config" in answer.err


def test_a_running_agent_answers_the_same_question(running: Any, ask: Ask) -> None:
    _, url = running
    answer, deadline = ask("explain", "config.colocation", "--url", url), time.monotonic() + 20
    while "no tick has ended yet" in answer.err and time.monotonic() < deadline:
        answer = ask("explain", "config.colocation", "--url", url)
    assert answer.code == 0, answer.err
    assert answer.out.startswith("colocation-config: as written\n")
    assert json.loads(ask("explain", "config", "-o", "json", "--url", url).out)["kind"] == "koordlite-config"
