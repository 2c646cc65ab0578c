"""Configuration in the manifests is what our own commands understand, and says every key there is."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
import typing

import cyaml
import pytest
from emulated import Emulated

from descheduler import cli as descheduler_cli
from koordlite import cli, config
from koordlite.model.reading import declared
from koordlite.model.slo import qos, settings

ROOT = pathlib.Path(__file__).parents[2]
MANIFESTS = ROOT / "manifests"
EXAMPLE = MANIFESTS / "settings" / "slo-controller-config.yaml"
_HOSTS = {"name", "priority", "qos", "cgroupPath", "base", "parentDir", "relativePath"}
_MODULES = (settings.__name__, qos.__name__)
_SECTIONS = {
    "colocation-config": settings.Colocation,
    "resource-threshold-config": settings.Threshold,
    "resource-qos-config": qos.ResourceQOS,
    "cpu-burst-config": settings.CPUBurst,
    "system-config": settings.System,
    "cpu-normalization-config": settings.CPUNormalization,
    "resource-amplification-config": settings.ResourceAmplification,
    "numa-policy-config": settings.NUMAPolicy,
}


@pytest.mark.parametrize(
    "path", sorted(MANIFESTS.glob("**/koordlite.yaml")), ids=lambda path: str(path.relative_to(MANIFESTS))
)
def test_the_agents_configuration_loads(path, capsys):
    assert cli.main(["check-config", str(path)]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("path", sorted(MANIFESTS.glob("**/policy.yaml")), ids=str)
def test_the_policy_loads_without_a_note(path, capsys):
    assert descheduler_cli.main(["check-config", str(path)]) == 0
    assert capsys.readouterr().err == ""


def test_observing_agents_observe_and_enforcing_ones_enforce_one_rule():
    def enforced(folder: str) -> list[str]:
        held = config.load(MANIFESTS / folder / "koordlite.yaml")
        return [name for name, section in held.strategies.items() if section.mode == "enforce"]

    assert enforced("agent") == []
    assert enforced("components/enforce") == ["cpuSuppress"]


def test_the_example_of_cluster_settings_loads_without_a_problem(tmp_path, capsys):
    node = Emulated("small", tmp_path)
    node.node(reservation='{"reservedCPUs":"0"}')
    (node.folder / "config.yaml").write_text(EXAMPLE.read_text())
    assert cli.main(["check-config", "--cluster", str(node.folder)]) == 0
    assert capsys.readouterr().out.strip() == "no problems"


def test_the_example_has_every_key():
    keys = set(cyaml.safe_load(EXAMPLE.read_text())["data"])
    assert keys == {*_SECTIONS, "host-application-config"}


@pytest.mark.parametrize("key", _SECTIONS)
def test_the_comment_above_a_key_names_each_of_its_fields(key):
    comment = _comments()[key]
    missing = [name for name in _fields(_SECTIONS[key]) if not re.search(rf"\b{re.escape(name)}\b", comment)]
    assert missing == []


def test_the_comment_above_host_applications_names_each_field():
    comment = _comments()["host-application-config"]
    assert [name for name in _HOSTS if name not in comment] == []


def test_the_example_sets_nothing_that_is_dangerous():
    documents = {key: json.loads(text) for key, text in cyaml.safe_load(EXAMPLE.read_text())["data"].items()}
    assert documents["system-config"]["clusterStrategy"] == {}
    assert not any("vict" in name for name in documents["resource-threshold-config"]["clusterStrategy"])
    assert '"enable": true' not in json.dumps(documents["resource-qos-config"])


def _comments() -> dict[str, str]:
    """The comment lines above each key of the ConfigMap's data, and the document itself."""
    found, held = {}, []
    for line in EXAMPLE.read_text().partition("\ndata:\n")[2].splitlines():
        held.append(line)
        if key := re.match(r"  ([a-z-]+): \|", line):
            found[key[1]] = "\n".join(held)
            held = []
    return found


def _fields(shape: type) -> set[str]:
    """Names in the document, at any depth; classes that are alike are named by their class."""
    names = set(declared.settings(shape))
    for hint in typing.get_type_hints(shape).values():
        for part in (hint, *typing.get_args(hint)):
            if dataclasses.is_dataclass(part) and isinstance(part, type) and part.__module__ in _MODULES:
                names |= _fields(part)
    return names
