"""YAML that a stranger wrote: whatever stands in it is a mistake with its place, and never the end of the process."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from koordlite import config
from koordlite.kube.folder import manifest_files
from koordlite.model.errors import ConfigError, InputError
from koordlite.model.reading import yaml_bounds

DEEP = {
    "flow lists": "a: " + "[" * 100_000,
    "flow mappings": "a: " + "{a: " * 100_000,
    "closed in quotes": 'a: ["]]]]]]", ' * 50_000,
    "block lists": "a:\n  " + "- " * 100_000 + "1",
    "block mappings": "".join(f"{' ' * n}a:\n" for n in range(3000)),
    "questions": "? " * 50_000 + "a",
}
BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 10)}]\n" for n in range(9)
)
STRANGE = {
    "a timestamp that is none": "agent: {intervalSeconds: 2026-99-99}",
    "a number of 5,000 digits": f"agent: {{intervalSeconds: {'9' * 5000}}}",
    "a number of 400 digits": f"agent: {{intervalSeconds: {'9' * 400}}}",
    "infinity": "agent: {intervalSeconds: .inf}",
    "no number": "agent: {intervalSeconds: .nan}",
    "a float beyond all": "agent: {intervalSeconds: 1e999}",
    "sexagesimal": "agent: {intervalSeconds: 1:99:99}",
    "a word as bool": "http: {enable: !!bool x}",
    "nothing as int": "http: {port: !!int ''}",
    "text as timestamp": "agent: {intervalSeconds: !!timestamp x}",
    "no base64": "agent: {intervalSeconds: !!binary '%%%'}",
    "a python object": "agent: {node: !!python/object/apply:os.system [id]}",
    "a list as key": "{[a]: b}",
    "itself": "agent: &x {node: *x}",
}


@pytest.mark.parametrize("text", [*DEEP.values(), BOMB], ids=[*DEEP, "aliases of aliases"])
def test_what_is_too_deep_or_too_large_is_refused_with_its_place(tmp_path: Path, text: str) -> None:
    began = time.process_time()
    with pytest.raises(ConfigError) as refused:
        config.parse(text, "koordlite.yaml")
    (problem,) = refused.value.problems
    assert problem.object.startswith("koordlite.yaml:")
    path = tmp_path / "pod.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=r"pod\.yaml:\d+:\d+"):
        manifest_files.read(path)
    assert time.process_time() - began < 4


def test_check_config_survives_what_libyaml_does_not(tmp_path: Path) -> None:
    path = tmp_path / "koordlite.yaml"
    path.write_text(DEEP["flow lists"])
    command = [sys.executable, "-m", "koordlite", "check-config", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (1, 2), done.returncode
    assert "nested deeper than" in done.stdout + done.stderr


@pytest.mark.parametrize("text", STRANGE.values(), ids=STRANGE.keys())
def test_strange_values_of_the_settings_are_mistakes_with_their_place(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config.parse(text, "koordlite.yaml")
    assert all(problem.object.startswith("koordlite.yaml:1") for problem in refused.value.problems)


@pytest.mark.parametrize("value", ["!!bool x", "!!int ''", "!!timestamp x", "9" * 5000, "!!binary '%%%'", "{[a]: b}"])
def test_a_manifest_with_strange_values_is_refused_and_the_others_count(tmp_path: Path, value: str) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text(f"kind: Pod\nmetadata: {{name: a, generation: {value}}}\nspec: {{}}\n")
    try:
        manifest_files.read(path)
    except InputError as error:
        assert all(str(path) in problem.object for problem in error.problems)


def test_json_that_is_too_deep_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pod.json"
    for text in ("[" * 100_000, '{"a":' * 100_000, '{"kind": "Pod", "a": ' + "9" * 5000 + "}"):
        path.write_text(text)
        with pytest.raises(InputError, match="not JSON"):
            manifest_files.read(path)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda n: "- " * n + "a", id="marks"),
        pytest.param(lambda n: "[" * n + "]" * n, id="brackets"),
        pytest.param(lambda n: "".join(f"{' ' * k}a:\n" for k in range(n - 1)) + " " * n + "a: 1\n", id="columns"),
    ],
)
def test_the_depth_that_is_refused_is_one_that_no_object_has(make: Callable[[int], str]) -> None:
    for depth in (1, 20, yaml_bounds.DEPTH):
        assert yaml_bounds.checked(make(depth)) == make(depth)
        yaml.compose(make(depth), Loader=yaml_bounds.LOADER)
    with pytest.raises(yaml.MarkedYAMLError, match="nested deeper"):
        yaml_bounds.checked(make(yaml_bounds.DEPTH + 2))


def test_what_many_manifests_hold_is_not_refused() -> None:
    annotations = "".join(f'    a{n}: \'{{"x": [[{{}}]], "y": "*&"}}\'\n' for n in range(500))
    text = f"kind: Pod\nmetadata:\n  name: a\n  annotations:\n{annotations}spec: &s {{}}\nstatus: *s\n"
    assert yaml_bounds.checked(text) == text
