"""One place sets the image of every container of ours, in every folder and with every component."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import cyaml
import pytest

from koordlite import __version__
from tests.manifests.conftest import COMPONENTS, MANIFESTS, OVERLAYS, kubectl

FOREIGN = {"kube-scheduler"}
"""Images of others, which their own component names."""
ALONE = {"enforce", "tenant-guard"}
"""What overlays/enforce has already."""

# One worker makes what they share: each would have to make it for itself.
pytestmark = pytest.mark.xdist_group("manifests")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The images of each folder, and of each component over overlays/enforce, with a registry named once."""
    manifests = tmp_path_factory.mktemp("image") / "manifests"
    shutil.copytree(MANIFESTS, manifests)
    place = manifests / "image" / "kustomization.yaml"
    document = cyaml.safe_load(place.read_text())
    document["images"] = [{"name": "koordlite", "newName": "registry.invalid/k", "newTag": "9"}]
    place.write_text(cyaml.safe_dump(document))
    # All at once: kustomize takes its time, and no component takes away what another one adds.
    every = [name for name in COMPONENTS if name not in ALONE | {"colocation-profile-v1beta1"}]
    folder = manifests / "overlays" / "everything"
    folder.mkdir()
    head = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": ["../enforce"]}
    # It drops a mount that another one's container has.
    every = sorted(every, key=lambda name: name == "kubelet-tls-bootstrap")
    (folder / "kustomization.yaml").write_text(
        cyaml.safe_dump({**head, "components": [f"../../components/{name}" for name in every]})
    )
    folders = [*(f"overlays/{name}" for name in (*OVERLAYS, "everything")), "restore"]
    return {name: set(_images(manifests / name)) for name in folders}


def _images(folder: pathlib.Path) -> Iterator[str]:
    words = [kubectl(), "kustomize", str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    for item in cyaml.safe_load_all(done.stdout):
        yield from (each["image"] for each in _containers(item))


def _containers(item: Any) -> Iterator[dict[str, Any]]:
    if isinstance(item, dict):
        for key, value in item.items():
            if key in ("containers", "initContainers"):
                yield from (each for each in value if isinstance(each, dict) and "image" in each)
            yield from _containers(value)
    elif isinstance(item, list):
        for each in item:
            yield from _containers(each)


def test_the_image_that_is_set_once_is_everywhere(images: dict[str, set[str]]) -> None:
    for folder, found in images.items():
        ours = {each for each in found if each.partition(":")[0] not in FOREIGN}
        assert ours == {"registry.invalid/k:9"}, folder


def test_no_image_is_without_a_tag(images: dict[str, set[str]]) -> None:
    assert all(":" in each for found in images.values() for each in found)


def test_every_folder_with_a_container_of_ours_names_the_place() -> None:
    folders = {path.parent for path in MANIFESTS.rglob("*.yaml") if "image: koordlite\n" in path.read_text()}
    assert len(folders) >= 10
    for folder in folders:
        near = [folder / "kustomization.yaml", folder.parent / "kustomization.yaml"]
        assert any(path.exists() and "image" in path.read_text() for path in near), folder


def test_the_tag_that_ships_is_this_version() -> None:
    document = cyaml.safe_load((MANIFESTS / "image" / "kustomization.yaml").read_text())
    assert document["images"] == [{"name": "koordlite", "newName": "koordlite", "newTag": __version__}]
