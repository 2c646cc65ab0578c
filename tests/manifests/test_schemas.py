"""Every object is what the API servers of the versions we name understand, field by field."""

from __future__ import annotations

import functools
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import cyaml
import kubernetes_validate
import pytest
import slices
from kubernetes_validate import utils

ROOT = pathlib.Path(__file__).parents[2]
MANIFESTS = ROOT / "manifests"
VERSIONS = ("1.30", "1.31", "1.32", "1.33", "1.34", "1.35", "1.36", "1.37")
"""Kubernetes versions that docs/install.md names."""
TARGETS = tuple(sorted(str(p.parent.relative_to(MANIFESTS)) for p in MANIFESTS.glob("**/kustomization.yaml")))
ELSEWHERE = ("monitoring.coreos.com", "kustomize.config.k8s.io")
"""Groups that Kubernetes itself has no schemas of."""
SINCE = {"admissionregistration.k8s.io/v1": "1.36", "admissionregistration.k8s.io/v1beta1": "1.34"}
"""First version with MutatingAdmissionPolicy, by API version; its component is for these and newer ones only."""


@pytest.fixture(scope="module", autouse=True)
def schemas() -> Iterator[None]:
    """The library reads its schemas again for each object, among them one of a megabyte."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(utils, "schema_contents", functools.cache(utils.schema_contents))
        yield


@functools.cache
def known(version: str) -> bool:
    """Whether the installed package brings this version's schemas."""
    folder = pathlib.Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
    return (folder / f"v{version}.0-local-strict").is_dir()


def judged(item: dict[str, Any], version: str) -> str:
    """What is wrong with an object; empty when nothing is."""
    return _judged(json.dumps(item), version)


@functools.cache
def _judged(text: str, version: str) -> str:
    """The same of an object as JSON: overlays have most of their objects in common."""
    item = json.loads(text)
    if item["apiVersion"].partition("/")[0] in ELSEWHERE:
        return ""
    if item["kind"].startswith("MutatingAdmissionPolicy") and version < SINCE[item["apiVersion"]]:
        return ""
    try:
        kubernetes_validate.validate(item, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return f"{item['kind']}/{item['metadata']['name']}: {error.message} at {list(error.path)}"
    return ""


def standing_alone() -> dict[str, dict[str, Any]]:
    """Objects that need no kustomize: those that a kustomization lists as resources."""
    found = {}
    for target in MANIFESTS.glob("**/kustomization.yaml"):
        for name in cyaml.safe_load(target.read_text()).get("resources", ()):
            path = target.parent / name
            if path.is_file():
                for item in cyaml.safe_load_all(path.read_text()):
                    found[f"{path.relative_to(MANIFESTS)}:{item['kind']}/{item['metadata']['name']}"] = item
    return found


@pytest.mark.parametrize("version", slices.first((VERSIONS[0], VERSIONS[-1], *VERSIONS[1:-1]), 2))
def test_every_file_is_understood_by(version):
    assert known(version), f"kubernetes-validate has no schemas of {version}"
    assert [wrong for item in standing_alone().values() if (wrong := judged(item, version))] == []


@pytest.mark.parametrize("version", (VERSIONS[0], VERSIONS[-1]))
@pytest.mark.parametrize("folder", [each for each in TARGETS if not each.startswith("components")])
def test_what_kubectl_sends_is_understood(render, folder, version):
    assert [wrong for item in render(folder) if (wrong := judged(item, version))] == []


@pytest.mark.parametrize("version", (VERSIONS[0], VERSIONS[-1]))
def test_every_component_fits_the_agents_overlay(render, version):
    names = [path.parent.name for path in (MANIFESTS / "components").glob("*/kustomization.yaml")]
    # The overlay names two of them itself.
    ours = sorted(name for name in names if name not in ("enforce", "tenant-guard", "colocation-profile-v1beta1"))
    objects = render("overlays/enforce", *ours)
    assert [wrong for item in objects if (wrong := judged(item, version))] == []


@pytest.mark.parametrize(
    ("component", "api"), [("colocation-profile", "v1"), ("colocation-profile-v1beta1", "v1beta1")]
)
def test_mutating_policies_are_of_the_version_that_their_component_is_for(render, component, api):
    version = SINCE[f"admissionregistration.k8s.io/{api}"]
    found = [item for item in render("overlays/observe", component) if item["kind"].startswith("Mutating")]
    assert {item["apiVersion"] for item in found} == {f"admissionregistration.k8s.io/{api}"}
    assert [wrong for item in found if (wrong := judged(item, version))] == []


def test_a_field_that_does_not_exist_is_found():
    item = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}, "sepc": {}}
    assert "sepc" in judged(item, VERSIONS[-1])


def test_the_install_page_names_these_versions():
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    assert f"Kubernetes {VERSIONS[0]} to {VERSIONS[-1]}" in page
