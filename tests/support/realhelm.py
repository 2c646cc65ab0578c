"""Helm itself, to hold the chart to: the program, or the library that helm-python-sdk of PyPI brings."""

from __future__ import annotations

import importlib
import importlib.util
import json
import pathlib
import shutil
import subprocess
from typing import Any

import cyaml

NAMESPACE = "koordlite-system"
PROGRAM = shutil.which("helm")
MISSING = not PROGRAM and importlib.util.find_spec("helm_python") is None
WHY = "Helm is not installed (the program helm, or `pip install helm-python-sdk`): nothing here can be templated"


class Refused(Exception):
    """What Helm says against values or a chart."""


def template(chart: pathlib.Path, values: dict[str, Any]) -> list[Any]:
    """The objects that an installation with these values makes."""
    if PROGRAM:
        words = [PROGRAM, "template", "k", str(chart), "-n", NAMESPACE, "-f", "-"]
        return list(cyaml.safe_load_all(_said(words, json.dumps(values))))
    helm: Any = importlib.import_module("helm_python")
    with helm.Chart.load(chart) as loaded:
        try:
            made: dict[str, str] = loaded.render(values, name="k", namespace=NAMESPACE)
        except helm.HelmError as error:
            raise Refused(str(error)) from error
    return [each for path, text in made.items() if path.endswith(".yaml") for each in cyaml.safe_load_all(text)]


def lint(chart: pathlib.Path) -> list[str]:
    """What `helm lint --strict` complains about."""
    if PROGRAM:
        try:
            _said([PROGRAM, "lint", "--strict", str(chart)])
        except Refused as error:
            return [str(error)]
        return []
    helm: Any = importlib.import_module("helm_python")
    report: dict[str, Any] = helm.chart.lint(chart, strict=True)
    return [each["error"] for each in report["messages"] if each["severity"] >= 2] + report["errors"]


def _said(words: list[str], given: str = "") -> str:
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=60, input=given)
    if done.returncode:
        raise Refused(done.stdout + done.stderr)
    return done.stdout
