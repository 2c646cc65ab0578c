"""The alerts are read by Prometheus' own tool, fire when they should, and are silent otherwise."""

from __future__ import annotations

import pathlib
import subprocess
from typing import Any

import cyaml
import dashboards
import pytest

QUIET, LOUD = "quiet", "loud"
AT = "5h"
"""When alerts are looked at: long after every `for` but that of a pause."""
NODE = 'node="n1"'
SERIES: dict[str, tuple[str, str, str]] = {
    # alert: (series, values of a healthy hour, values when something is wrong), one a minute
    "KoordliteDown": (f'up{{job="koordlite",{NODE}}}', "1x400", "0x400"),
    "KoordliteInputStale": (f'koordlite_input_age_seconds{{{NODE},input="pods"}}', "20x400", "0+60x400"),
    "KoordliteDegraded": (f'koordlite_status_info{{{NODE},status="degraded"}}', "_x400", "1x400"),
    "KoordliteFaults": (f"koordlite_faults_total{{{NODE}}}", "2x400", "0+1x400"),
    "KoordliteRestoreFailed": (f"koordlite_unrestored_places{{{NODE}}}", "0x400", "3x400"),
    "KoordliteFightsAnotherWriter": (f'koordlite_foreign_writes_total{{{NODE},kind="cpus"}}', "3x400", "0+1x400"),
    "KoordliteWritesRefused": (
        f'koordlite_writes_total{{{NODE},kind="cpus",result="refused"}}',
        "0x400",
        "0+3x400",
    ),
    "KoordliteBestEffortStarved": (f'koordlet_be_suppress_cpu_cores{{{NODE},type="cpuset"}}', "6x400", "2x400"),
    "KoordliteConfigurationRefused": (f"koordlite_problems{{{NODE}}}", "0x400", "1x400"),
    "KoordlitePaused": (f'koordlite_paused{{{NODE},by="me"}}', "0x2000", "1x2000"),
    "DeschedulerCycleTooOld": ('descheduler_last_success_timestamp_seconds{instance="d"}', "0+60x400", "0x400"),
    "DeschedulerFaults": ('descheduler_faults_total{instance="d"}', "2x400", "0+1x400"),
    "DeschedulerPolicyRefused": ('descheduler_policy_reload_success{instance="d"}', "1x400", "0x400"),
    "DeschedulerNoLeader": ('descheduler_leader{instance="d"}', "1x400", "0x400"),
    "DeschedulerEvictionsFail": (
        'descheduler_pods_evicted_total{strategy="S",result="error"}',
        "2x400",
        "0+1x400",
    ),
}
BESIDE = {"KoordliteBestEffortStarved": (f"koordlet_be_suppress_be_used_cpu_cores{{{NODE}}}", "2x400")}


def rules() -> list[dict[str, Any]]:
    return [rule for group in dashboards.rule_groups()["groups"] for rule in group["rules"]]


def told(folder: pathlib.Path, *words: str) -> str:
    """What promtool answers; it must be content."""
    (folder / "rules.yaml").write_text(cyaml.safe_dump(dashboards.rule_groups()))
    command = [dashboards.tool("promtool"), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_prometheus_reads_the_rules(tmp_path):
    assert f"{len(rules())} rules found" in told(tmp_path, "check", "rules", "rules.yaml")


def test_each_alert_has_a_trial_here_or_is_tried_by_its_buckets():
    assert SERIES.keys() | {"KoordliteTickSlow"} == {rule["alert"] for rule in rules()}


@pytest.mark.parametrize("mood", [QUIET, LOUD])
def test_alerts_fire_when_something_is_wrong_and_only_then(tmp_path, mood):
    trials = [_trial(name, mood) for name in SERIES] + [_slow_ticks(mood)]
    # Every trial is evaluated from its beginning to its last moment: thirty hours for the alert about a long pause.
    document = {"rule_files": ["rules.yaml"], "evaluation_interval": "5m", "tests": trials}
    (tmp_path / "trials.yaml").write_text(cyaml.safe_dump(document))
    told(tmp_path, "test", "rules", "trials.yaml")


def _trial(name: str, mood: str) -> dict[str, Any]:
    series, healthy, wrong = SERIES[name]
    given = [(series, wrong if mood == LOUD else healthy), *([BESIDE[name]] if name in BESIDE else [])]
    return _expected(name, mood, given, at="30h" if name == "KoordlitePaused" else AT)


def _slow_ticks(mood: str) -> dict[str, Any]:
    """All ticks below 2.5 ms, or all above a second."""
    low = "0+60x400" if mood == QUIET else "0x400"
    buckets = [("0.0025", low), ("1.0", low), ("+Inf", "0+60x400")]
    given = [(f'koordlite_tick_seconds_bucket{{{NODE},le="{le}"}}', values) for le, values in buckets]
    return _expected("KoordliteTickSlow", mood, given, at=AT)


def _expected(name: str, mood: str, given: list[tuple[str, str]], *, at: str) -> dict[str, Any]:
    found: dict[str, Any] = {"alertname": name, "eval_time": at, "exp_alerts": []}
    trial = {"interval": "1m", "input_series": [{"series": s, "values": v} for s, v in given]}
    if mood == QUIET:
        return trial | {"alert_rule_test": [found]}
    # The labels and the texts are those of the rule; how many fire is what matters.
    return trial | {"promql_expr_test": [_firing(name, at)]}


def _firing(name: str, at: str) -> dict[str, Any]:
    expression = f'count(ALERTS{{alertname="{name}",alertstate="firing"}})'
    return {"expr": expression, "eval_time": at, "exp_samples": [{"labels": "{}", "value": 1}]}
