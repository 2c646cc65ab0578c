"""The manifests as a cluster gets them: rendered by kubectl, or the files that stand by themselves."""

from __future__ import annotations

import functools
import os
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from typing import Any

import cyaml
import pytest

ROOT = pathlib.Path(__file__).parents[2]
MANIFESTS = ROOT / "manifests"
OVERLAYS = tuple(sorted(path.name for path in (MANIFESTS / "overlays").iterdir()))
TARGETS = (*(f"overlays/{name}" for name in OVERLAYS), "crds", "settings", "restore")
"""Folders that are applied with `kubectl apply -k`."""
COMPONENTS = tuple(sorted(path.name for path in (MANIFESTS / "components").iterdir()))

Object = dict[str, Any]
Render = Callable[..., list[Object]]


@functools.cache
def kubectl() -> str:
    """The real kubectl; skips where there is none."""
    found = shutil.which("kubectl")
    if found is None:
        pytest.skip("kubectl is not installed: nothing here can be rendered")
    return found


@functools.cache
def rendered(folder: str, *components: str) -> tuple[Object, ...]:
    """The objects that `kubectl apply -k` would send for a folder of manifests, with components if some are named."""
    return overlay(folder, *components) if components else _rendered(MANIFESTS / folder)


def overlay(folder: str, *components: str, **more: Any) -> tuple[Object, ...]:
    """The objects of an operator's overlay; `more` stands in its kustomization.yaml, such as patches."""
    with tempfile.TemporaryDirectory() as around:
        # Kustomize takes relative paths only.
        here = os.path.relpath(MANIFESTS.resolve(), pathlib.Path(around).resolve())
        head = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
        paths = [f"{here}/components/{name}" for name in components]
        document = head | {"resources": [f"{here}/{folder}"], "components": paths} | more
        pathlib.Path(around, "kustomization.yaml").write_text(cyaml.safe_dump(document))
        return _rendered(pathlib.Path(around))


def _rendered(folder: pathlib.Path) -> tuple[Object, ...]:
    done = subprocess.run(
        [kubectl(), "kustomize", str(folder)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return tuple(item for item in cyaml.safe_load_all(done.stdout) if item)


@pytest.fixture(scope="session")
def manifests() -> pathlib.Path:
    """The folder."""
    return MANIFESTS


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker renders: each would have to do it all for itself."""
    for item in items:
        if isinstance(item, pytest.Function) and "render" in item.fixturenames:
            item.add_marker(pytest.mark.xdist_group("manifests"))


@pytest.fixture(scope="session")
def render() -> Render:
    """`rendered`, for tests."""
    return lambda folder, *components: list(rendered(folder, *components))


def named(objects: list[Object], kind: str, name: str) -> Object:
    """The one object of that kind and name."""
    found = [item for item in objects if item["kind"] == kind and item["metadata"]["name"] == name]
    assert len(found) == 1, f"{len(found)} objects {kind}/{name}"
    return found[0]


@pytest.fixture
def find() -> Callable[[list[Object], str, str], Object]:
    """`named`, for tests."""
    return named
