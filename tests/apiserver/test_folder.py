"""`--objects DIR`: what is wrong with a folder of manifests is told with the file it is in."""

from __future__ import annotations

from pathlib import Path

import pytest
from apiserver import ApiServer

from koordlite.model.errors import InputError

NODE = "apiVersion: v1\nkind: Node\nmetadata: {name: n}\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [\n", "b.yaml: it cannot be read: while parsing a flow node"),
        ("- 1\n", "b.yaml: $ = 'list': this is no object; write apiVersion, kind and metadata"),
        (
            "apiVersion: v9\nkind: Sock\nmetadata: {name: x}\n",
            "b.yaml: object: kind = 'v9 Sock': no such kind is served",
        ),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: 5}\n", "b.yaml: Pod x: fields"),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {namespace: x}\n",
            "b.yaml: Pod: metadata.name: the object has no name",
        ),
        ("apiVersion: v1\nkind: Pod\nmetadata: 3\n", "b.yaml: Pod: metadata.name: the object has no name"),
    ],
)
def test_a_bad_object_is_told_with_its_file(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "a.yaml").write_text(NODE)
    (tmp_path / "b.yaml").write_text(text)
    with pytest.raises(InputError) as refused:
        ApiServer().objects.load_folder(tmp_path)
    assert f"{tmp_path}/{words}" in str(refused.value)


def test_every_bad_file_is_told(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text('{"apiVersion": "v9", "kind": "Sock", "metadata": {"name": "x"}}')
    with pytest.raises(InputError) as refused:
        ApiServer().objects.load_folder(tmp_path)
    assert [Path(each.object.split(":")[0]).name for each in refused.value.problems] == ["a.json", "b.json"]


def test_good_objects_are_all_loaded(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(f"{NODE}---\n---\n{NODE.replace('name: n', 'name: m')}")
    (tmp_path / "kustomization.yaml").write_text("apiVersion: kustomize.config.k8s.io/v1\nkind: Kustomization\n")
    assert [each["metadata"]["name"] for each in ApiServer().objects.load_folder(tmp_path)] == ["n", "m"]
