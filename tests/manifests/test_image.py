"""The image's recipe: pinned, closed over what is needed at run time, and honest where no engine is at work."""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess
import sys

import cyaml
import pytest

from koordlite import __version__

ROOT = pathlib.Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def runtime() -> str:
    """The locked requirements that the image installs."""
    command = [sys.executable, "scripts/runtime-requirements", "requirements.txt", "pyproject.toml"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=60).stdout


def names(text: str) -> set[str]:
    return set(re.findall(r"^([a-z0-9-]+)==", text, re.MULTILINE))


def test_the_image_has_what_runs_and_nothing_that_only_tests_need(runtime):
    found = names(runtime)
    assert {"msgspec", "pyyaml", "prometheus-client", "rich", "kubernetes", "h2", "urllib3", "certifi"} <= found
    assert not {"pytest", "grpcio", "hypothesis", "ruff", "mypy", "hatchling"} & found


def test_every_package_of_the_image_is_pinned_with_hashes(runtime):
    requirements = re.findall(r"^\S.*(?:\n .*)*", runtime, re.MULTILINE)
    assert len(requirements) == len(names(runtime))
    assert all("--hash=sha256:" in each for each in requirements)


def test_packages_come_from_whatever_registry_the_machine_uses():
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if not re.match(r"[a-z0-9-]+==|    --hash=sha256:", line)] == []


@pytest.mark.long
def test_the_wheel_works_by_itself(tmp_path):
    """Away from the repository, with the packages of this environment: all three commands, and the demonstration."""
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path)]
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, str(ROOT)], check=True, capture_output=True, timeout=90
    )
    (wheel,) = tmp_path.glob("koordlite-*.whl")
    shutil.unpack_archive(wheel, tmp_path / "site", "zip")
    (entries,) = (tmp_path / "site").glob("*.dist-info/entry_points.txt")
    commands = re.findall(r"^([\w-]+) = ([\w.]+):(\w+)$", entries.read_text(encoding="utf-8"), re.MULTILINE)
    assert [name for name, *_ in commands] == ["descheduler", "koordlite", "kubectl-koordlite"]
    start = "import sys; sys.path.insert(0, {site!r}); from {module} import {function}; sys.exit({function}())"
    for module, function, *words in [
        *((module, function, "--version") for _, module, function in commands),
        (
            "koordlite.cli",
            "main",
            "run",
            "--sandbox",
            "small",
            "--once",
            "--no-http",
            "--state-dir",
            str(tmp_path / "state"),
        ),
    ]:
        code = start.format(site=str(tmp_path / "site"), module=module, function=function)
        command = [sys.executable, "-c", code, *words]
        done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr


def test_the_base_is_pinned_to_one_release_and_used_by_both_stages():
    version = re.search(r"^ARG PYTHON=(.*)$", DOCKERFILE, re.MULTILINE)
    assert version and re.fullmatch(r"3\.\d+\.\d+-slim-[a-z]+", version[1])
    assert re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE) == ["python:${PYTHON}"] * 2


def test_the_image_runs_as_nobody_unless_told_otherwise():
    assert re.search(r"^USER 65532:65532$", DOCKERFILE, re.MULTILINE)


def test_its_labels_name_the_version_of_the_code():
    assert f"ARG VERSION={__version__}" in DOCKERFILE
    labels = set(re.findall(r"org\.opencontainers\.image\.(\w+)", DOCKERFILE))
    assert {"title", "description", "licenses", "version", "revision"} <= labels


def test_the_manifests_name_the_version_of_the_code():
    for path in (ROOT / "manifests").glob("**/kustomization.yaml"):
        images = (cyaml.safe_load(path.read_text()) or {}).get("images", [])
        assert {image["newTag"] for image in images if image["name"] == "koordlite"} <= {__version__}, path


def test_all_that_is_copied_is_let_into_the_build():
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE)
    assert {word for words in copied for word in words.split()} == let_in
    assert all((ROOT / name).exists() for name in let_in)


def test_without_an_engine_the_target_says_what_it_would_need(tmp_path):
    for tool in ("sed", "git", "dirname", "cat", "bash"):
        found = shutil.which(tool)
        if not found:
            pytest.skip(f"{tool} is not on PATH")
        (tmp_path / tool).symlink_to(found)
    command = ["bash", "scripts/image"]
    done = subprocess.run(
        command, cwd=ROOT, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert "docker, podman or buildah" in done.stderr
    assert f"--tag koordlite:{__version__}" in done.stderr


def test_the_bytecode_of_the_image_keeps_what_is_printed_and_asserted(tmp_path):
    root = tmp_path / "koordlite" / "lib"
    text = '''"""Of the module."""
from __future__ import annotations
class Config:
    """Of the class."""
    field: int = 0
    def method(self):
        """Of the method."""
def check(value: int) -> None:
    """Of the function."""
    assert value
def broken():
    return ([] +
            None)
'''
    for package in ("koordlite", "library"):
        (root / package).mkdir(parents=True)
        (root / package / "__init__.py").touch()
        (root / package / "part.py").write_text(text)
    subprocess.run([sys.executable, "scripts/compile-tree", str(root)], cwd=ROOT, check=True, timeout=60)
    show = f"""import sys; sys.path.insert(0, {str(root)!r}); from {{}} import part
print([each.__doc__ for each in (part, part.Config, part.Config.method, part.check)])
print(part.Config.__annotations__, len(part.check.__annotations__))
try: part.check(0)
except AssertionError: print("asserted")
part.broken()"""
    docs = {"koordlite": ["Of the module.", "Of the class.", None, None], "library": [None] * 4}
    for package, types in (("koordlite", 0), ("library", 2)):
        # The source has changed since, and is not looked at.
        (root / package / "part.py").write_text(text.replace("Of the", "Changed"))
        command = [sys.executable, "-c", show.format(package)]
        run = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
        assert run.stdout.splitlines() == [str(docs[package]), f"{{'field': 'int'}} {types}", "asserted"]
        assert "line 12, in broken" in run.stderr
