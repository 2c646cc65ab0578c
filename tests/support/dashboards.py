"""The expressions that dashboards and alerts ask Prometheus, and its programs."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
import shutil
from typing import Any

import cyaml
import pytest

ROOT = pathlib.Path(__file__).parents[2]
MONITORING = ROOT / "manifests" / "monitoring"
BOARDS = sorted((MONITORING / "dashboards").glob("*.json"))
_FUNCTIONS = re.compile(r"\b(?:koordlet|koordlite|descheduler|numa)_[a-z0-9_]+\b|\bup\b")


@dataclasses.dataclass(frozen=True)
class Question:
    """One expression and where it is asked."""

    where: str
    expression: str

    @property
    def metrics(self) -> set[str]:
        """The names in it."""
        return set(_FUNCTIONS.findall(re.sub(r'"[^"]*"', '""', self.expression)))

    def asked(self, *, node: str, window: str) -> str:
        """As Grafana sends it."""
        return self.expression.replace("$node", node).replace("$__rate_interval", window)


def boards() -> dict[str, dict[str, Any]]:
    """The dashboards by file name."""
    return {path.name: json.loads(path.read_text(encoding="utf-8")) for path in BOARDS}


def rule_groups() -> dict[str, Any]:
    """The alerts, as a file of rules for Prometheus itself."""
    spec = cyaml.safe_load((MONITORING / "rules.yaml").read_text())["spec"]
    return {"groups": spec["groups"]}


def questions() -> list[Question]:
    """Of all panels and alerts."""
    panels = [
        Question(f"{name}: {panel['title']}: {target['legendFormat']}", target["expr"])
        for name, board in boards().items()
        for panel in board["panels"]
        for target in panel.get("targets", ())
    ]
    rules = [rule for group in rule_groups()["groups"] for rule in group["rules"]]
    return panels + [Question(f"alert {rule['alert']}", rule["expr"]) for rule in rules]


def tool(name: str) -> str:
    """A program of Debian's package prometheus; skips where it is not installed."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed (Debian package prometheus)")
    return found
