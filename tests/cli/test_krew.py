"""The krew archive of the kubectl plugin: it runs with a bare Python, and its manifest is one that krew takes."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import cyaml
import pytest

from koordlite import __version__

ROOT = Path(__file__).resolve().parents[2]
ARCHIVE = f"kubectl-koordlite-v{__version__}.tar.gz"
KUBECTL = """#!/bin/sh
case "$*" in
*"get pods"*) echo '{"items": [{"metadata": {"name": "agent-a"}, "spec": {"nodeName": "n1"}}]}' ;;
*) echo '{"status": "observing", "nodeCpu": 1500}' ;;
esac
"""


def made(folder: Path, *words: str) -> Path:
    subprocess.run([sys.executable, str(ROOT / "scripts/krew"), str(folder), *words], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("krew"), "https://downloads.example/koordlite/")


@pytest.fixture(scope="module")
def manifest(built: Path) -> Any:
    return cyaml.safe_load((built / "koordlite.yaml").read_text())


def test_the_same_sources_give_the_same_bytes_whose_digest_the_manifest_has(
    built: Path, manifest: Any, tmp_path: Path
) -> None:
    data = (built / ARCHIVE).read_bytes()
    assert (made(tmp_path) / ARCHIVE).read_bytes() == data
    (platform,) = manifest["spec"]["platforms"]
    assert platform["sha256"] == hashlib.sha256(data).hexdigest()
    assert platform["uri"] == f"https://downloads.example/koordlite/{ARCHIVE}"


def test_the_unpacked_plugin_runs_where_nothing_is_installed(built: Path, manifest: Any, tmp_path: Path) -> None:
    with tarfile.open(built / ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["LICENSE", "LICENSE.PyYAML", "kubectl-koordlite"]
    plugin = tmp_path / manifest["spec"]["platforms"][0]["bin"]
    clean = tmp_path / "bin"
    clean.mkdir()
    # Neither the environment of the tests nor packages of the interpreter that it was made with.
    (clean / "python3").write_text(f'#!/bin/sh\nexec {sys._base_executable} -I -S "$@"\n')  # type: ignore[attr-defined]
    (clean / "kubectl").write_text(KUBECTL)
    for each in clean.iterdir():
        each.chmod(0o755)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        path = {"PATH": f"{clean}:/usr/bin:/bin"}
        return subprocess.run(
            [str(plugin), *words], check=False, env=path, cwd=tmp_path, capture_output=True, text=True
        )

    helped = run("--help")
    assert (helped.returncode, helped.stderr) == (0, "") and "one line a node" in helped.stdout
    assert run("--version").stdout == f"kubectl-koordlite {__version__}\n"
    fleet = run("fleet", "-o", "yaml")
    assert (fleet.returncode, fleet.stderr) == (0, "")
    (node,) = cyaml.safe_load(fleet.stdout)["nodes"]
    assert (node["node"], node["status"], node["nodeCpu"]) == ("n1", "observing", 1500)
    assert run("fleet").stdout.splitlines()[1].split()[:3] == ["n1", "observing", "1.5"]
    refused = run("pause", "2h", "--because", "x")
    assert refused.returncode == 2 and "no node with an agent is chosen" in refused.stderr


def test_an_older_python_is_named_before_anything_of_it_is_read(built: Path, tmp_path: Path) -> None:
    with tarfile.open(built / ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    old = "import runpy, sys; sys.version_info = (3, 9, 2); sys.version = '3.9.2 (old)'; runpy.run_path(sys.argv[1])"
    words = [sys.executable, "-I", "-c", old, str(tmp_path / "kubectl-koordlite")]
    ended = subprocess.run(words, check=False, capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr == "kubectl koordlite: python3 is 3.9.2; put Python 3.11 or newer on the PATH\n"


def problems(manifest: Any, file: str) -> list[str]:
    """What krew's own validation of a manifest would refuse."""
    spec, name = manifest.get("spec", {}), manifest.get("metadata", {}).get("name", "")
    rules = {
        "apiVersion": manifest.get("apiVersion") == "krew.googlecontainertools.github.com/v1alpha2",
        "kind": manifest.get("kind") == "Plugin",
        "name": bool(re.fullmatch(r"[\w-]+", name)) and f"{name}.yaml" == file,
        "shortDescription": bool(re.fullmatch(r"[^\r\n]+", spec.get("shortDescription", ""))),
        "version": bool(re.fullmatch(r"v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?", spec.get("version", ""))),
        "platforms": bool(spec.get("platforms")),
    }
    for platform in spec.get("platforms", ()):
        selector = platform.get("selector") or {}
        labels, expressions = selector.get("matchLabels"), selector.get("matchExpressions")
        keys = [*(labels or ()), *(each["key"] for each in expressions or ())]
        rules |= {
            "uri": bool(platform.get("uri")),
            "sha256": bool(re.fullmatch(r"[a-f0-9]{64}", platform.get("sha256", ""))),
            "bin": bool(platform.get("bin")),
            "files": "files" not in platform or bool(platform["files"]),
            "selector": bool(keys) and set(keys) <= {"os", "arch"},
        }
    return [rule for rule, holds in rules.items() if not holds]


def test_the_manifest_keeps_krews_rules_and_a_broken_one_is_noticed(manifest: Any) -> None:
    assert problems(manifest, "koordlite.yaml") == []
    assert len(manifest["spec"]["shortDescription"]) <= 60, "longer ones are cut in `kubectl krew search`"
    template = cyaml.safe_load((ROOT / "krew/koordlite.yaml").read_text())
    assert problems(template, "koordlite.yaml") == ["version", "sha256"], "both are filled in"
    assert problems(manifest, "other.yaml") == ["name"]
