"""The Helm chart installs what the overlays install."""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
import sys
from typing import Any

import cyaml
import helmlike
import jsonschema
import pytest

from koordlite.config import parse
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


def merged(chart: pathlib.Path, **values: Any) -> dict[str, Any]:
    """The chart's values with some of one's own, as `--set` has them."""
    made: dict[str, Any] = cyaml.safe_load((chart / "values.yaml").read_text(encoding="utf-8"))
    for key, value in values.items():
        made[key] = {**made[key], **value} if isinstance(value, dict) else value
    return made


def templated(chart: pathlib.Path, **values: Any) -> list[Any]:
    """Every object of the chart with these values."""
    held = merged(chart, **{"createNamespace": True, **values})
    jsonschema.validate(held, json.loads((chart / "values.schema.json").read_text(encoding="utf-8")))
    templates = [path for path in sorted((chart / "templates").glob("*.yaml")) if path.name != "overlay.yaml"]
    return [item for path in templates for item in helmlike.render(path.read_text(encoding="utf-8"), held)]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_each_overlay_is_a_template_with_the_same_objects(chart: pathlib.Path, overlay: str) -> None:
    assert by_name(templated(chart, overlay=overlay)) == by_name(rendered(f"overlays/{overlay}"))


ADDED = ("numa-api", "numa-exporter", "reservation-controller", "scheduler-extender", "tenant-guard", "evictions")


def test_components_are_those_of_kustomize(chart: pathlib.Path) -> None:
    found = by_name(templated(chart, components=list(ADDED)))
    assert found == by_name(rendered("overlays/observe", *ADDED))
    twice = templated(chart, overlay="enforce", components=["tenant-guard"])
    assert len(twice) == len(by_name(twice)), "the overlay names it already"


def test_values_change_what_they_name_and_nothing_else(chart: pathlib.Path) -> None:
    resources, tolerations = {"limits": {"memory": "1Gi"}}, [{"key": "batch", "operator": "Exists"}]
    config = {"strategies": {"cpuSuppress": {"mode": "enforce"}}, "numaExporter": {"listen": ":9201"}}
    agent = {"resources": resources, "tolerations": tolerations, "nodeSelector": {"pool": "batch"}}
    agent |= {"updateStrategy": {"type": "OnDelete"}, "affinity": {"nodeAffinity": {}}}
    secrets = [{"name": "my-registry"}]
    image = {"repository": "registry.invalid/k", "tag": "9"}
    values = {"image": image, "imagePullSecrets": secrets, "config": config, "agent": agent}
    found = by_name(templated(chart, **values, descheduler={"replicas": 3}))
    spec = found["DaemonSet", "koordlite-system", "koordlite"]["spec"]
    pod = spec["template"]["spec"]
    assert (pod["tolerations"], pod["nodeSelector"], pod["imagePullSecrets"]) == (
        tolerations,
        agent["nodeSelector"],
        secrets,
    )
    assert (pod["containers"][0]["resources"], pod["containers"][0]["image"]) == (resources, "registry.invalid/k:9")
    assert (spec["updateStrategy"], pod["affinity"]) == (agent["updateStrategy"], agent["affinity"])
    assert found["Deployment", "koordlite-system", "descheduler"]["spec"]["replicas"] == 3
    (held,) = [each for each in found.values() if "koordlite.yaml" in each.get("data", {})]
    assert cyaml.safe_load(held["data"]["koordlite.yaml"]) == config
    assert parse(held["data"]["koordlite.yaml"], "chart").numa_exporter.listen == ":9201"
    assert spec["template"]["metadata"]["annotations"].keys() == {"checksum/config"}
    plain = by_name(rendered("overlays/observe"))
    others = {key for key, each in found.items() if each["kind"] not in ("DaemonSet", "Deployment", "ConfigMap")}
    assert all(found[key] == plain[key] for key in others)


def test_values_are_what_the_policies_trust(chart: pathlib.Path) -> None:
    components = ["tenant-guard", "reservation-controller"]
    trust = {"schedulers": ["system:serviceaccount:a:b"], "namespaces": ["trading", "kube-system"]}
    image = "registry.invalid/pause@sha256:0"
    held = {"image": image, "priorityClassName": "mine", "namespaces": ["*"], "withheldNamespaces": ["bank"]}
    places = {**held, "hostPorts": True}
    made = templated(chart, components=components, tenantGuard=trust, placeholders=places)
    variables = {
        (each["metadata"]["name"].removeprefix("koordlite-"), variable["name"]): variable["expression"]
        for each in made
        if each["kind"] == "ValidatingAdmissionPolicy"
        for variable in each["spec"].get("variables", ())
    }
    assert json.loads(variables["tenant-assignments", "trusted"]) == trust["schedulers"]
    assert json.loads(variables["tenant-classes", "trusted"]) == trust["namespaces"]
    assert {name: json.loads(variables["reservation-controller", name]) for name in places} == places
    told = by_name(made)["ConfigMap", "koordlite-system", "koordlite-placeholders"]["data"]
    assert told == {"image": image, "priorityClassName": "mine"}, "the controller makes what the policy admits"


def test_the_policies_trust_the_accounts_of_the_release(chart: pathlib.Path) -> None:
    template = (chart / "templates" / "component-tenant-guard.yaml").read_text(encoding="utf-8")
    objects = helmlike.render(template, merged(chart, components=["tenant-guard"]), "elsewhere")
    assert "system:serviceaccount:elsewhere:koordlite-scheduler" in json.dumps(objects)
    assert "koordlite-system" not in json.dumps(objects)


@pytest.mark.parametrize(
    "wrong",
    [
        {"overlay": "enforced"},
        {"components": ["numa"]},
        {"agent": {"tolerations": {}}},
        {"agents": {}},
        {"tenantGuard": {"users": ["a"]}},
        {"placeholders": {"namespaces": [""]}},
        {"descheduler": {"replicas": 0}},
    ],
    ids=str,
)
def test_the_schema_refuses_what_would_be_ignored(chart: pathlib.Path, wrong: dict[str, Any]) -> None:
    schema = json.loads((chart / "values.schema.json").read_text(encoding="utf-8"))
    values = {**merged(chart), **wrong}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(values, schema)


def test_the_notes_say_how_to_go_on(chart: pathlib.Path) -> None:
    notes = (chart / "templates" / "NOTES.txt").read_text(encoding="utf-8")
    assert "rollout status daemonset/koordlite" in notes
    assert "put the nodes back" in notes


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
