"""The Helm chart installs what the overlays install."""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess
import sys
from typing import Any

import cyaml
import pytest

from koordlite import __version__
from tests.manifests.conftest import OVERLAYS, kubectl, rendered

ROOT = pathlib.Path(__file__).parents[2]
NEEDS_HELM = pytest.mark.skipif(not shutil.which("helm"), reason="helm is not installed: nothing here can be templated")


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("chart") / "koordlite"
    kubectl()
    subprocess.run([sys.executable, ROOT / "scripts" / "chart", folder], check=True, capture_output=True, timeout=60)
    return folder


def test_without_kubectl_the_script_says_so(tmp_path: pathlib.Path) -> None:
    command = [sys.executable, ROOT / "scripts" / "chart", tmp_path / "chart"]
    done = subprocess.run(command, env={"PATH": str(tmp_path)}, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("chart: kubectl is not on the PATH")
    assert not (tmp_path / "chart").exists()


def by_name(objects: Any) -> dict[tuple[str, str, str], Any]:
    return {(o["kind"], o["metadata"].get("namespace", ""), o["metadata"]["name"]): o for o in objects if o}


def filled(template: str, overlay: str) -> list[Any]:
    """What Helm makes of the few constructs that the chart uses."""
    first, *lines, last = template.strip().splitlines()
    assert (first, last) == (f'{{{{- if eq .Values.overlay "{overlay}" }}}}', "{{- end }}")
    values = {
        "{{ .Release.Namespace }}": "koordlite-system",
        "{{ .Values.image.repository }}": "koordlite",
        "{{ .Values.image.tag }}": __version__,
        "{{- if .Values.createNamespace }}": "",
        "{{- end }}": "",
        '{{ "{{" }}': "{{",
    }
    return list(cyaml.safe_load_all(re.sub("|".join(map(re.escape, values)), lambda m: values[m[0]], "\n".join(lines))))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_each_overlay_is_a_template_with_the_same_objects(chart: pathlib.Path, overlay: str) -> None:
    found = filled((chart / "templates" / f"{overlay}.yaml").read_text(encoding="utf-8"), overlay)
    assert by_name(found) == by_name(rendered(f"overlays/{overlay}"))


def test_the_default_observes_and_the_kinds_come_with_it(chart: pathlib.Path) -> None:
    assert cyaml.safe_load((chart / "values.yaml").read_text(encoding="utf-8"))["overlay"] == "observe"
    assert (chart / "crds" / "noderesourcetopologies.yaml").exists()


@NEEDS_HELM
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_helm_makes_the_same(chart: pathlib.Path, overlay: str) -> None:
    words = [
        "helm",
        "template",
        "k",
        chart,
        "-n",
        "koordlite-system",
        "--set",
        f"overlay={overlay},createNamespace=true",
    ]
    done = subprocess.run(words, check=True, capture_output=True, text=True, timeout=60)
    wanted = by_name(rendered(f"overlays/{overlay}"))
    assert by_name(cyaml.safe_load_all(done.stdout)) == wanted


@NEEDS_HELM
def test_helm_refuses_an_overlay_that_there_is_not(chart: pathlib.Path) -> None:
    words = ["helm", "template", "k", chart, "--set", "overlay=enforced"]
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode and 'there is no overlay "enforced"; choose one of' in done.stderr
