"""The manifests as a cluster gets them: rendered by kubectl, or the files that stand by themselves."""

from __future__ import annotations

import functools
import pathlib
import shutil
import subprocess
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
def rendered(folder: str) -> tuple[Object, ...]:
    """The objects that `kubectl apply -k` would send."""
    done = subprocess.run([kubectl(), "kustomize", folder], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return tuple(item for item in cyaml.safe_load_all(done.stdout) if item)


@pytest.fixture(scope="session")
def manifests() -> pathlib.Path:
    """The folder."""
    return MANIFESTS


@pytest.fixture
def render(tmp_path: pathlib.Path) -> Render:
    """The objects of a folder of manifests, with components if some are named."""

    def objects(folder: str, *components: str) -> list[Object]:
        if not components:
            return list(rendered(str(MANIFESTS / folder)))
        # Kustomize takes relative paths only, and nothing from outside a copy.
        copy = tmp_path / "manifests"
        if not copy.exists():
            shutil.copytree(MANIFESTS, copy)
        made = copy / "overlays" / "made"
        made.mkdir(exist_ok=True)
        head = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
        paths = [f"../../components/{name}" for name in components]
        document = head | {"resources": [f"../../{folder}"], "components": paths}
        (made / "kustomization.yaml").write_text(cyaml.safe_dump(document))
        rendered.cache_clear()
        return list(rendered(str(made)))

    return objects


def named(objects: list[Object], kind: str, name: str) -> Object:
    """The one object of that kind and name."""
    found = [item for item in objects if item["kind"] == kind and item["metadata"]["name"] == name]
    assert len(found) == 1, f"{len(found)} objects {kind}/{name}"
    return found[0]


@pytest.fixture
def find() -> Callable[[list[Object], str, str], Object]:
    """`named`, for tests."""
    return named
