"""The Helm chart installs what the overlays install."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any

import cyaml
import helmlike
import jsonschema
import pytest
import realhelm

from koordlite.config import parse
from tests.manifests.conftest import OVERLAYS, kubectl, rendered

ROOT = pathlib.Path(__file__).parents[2]
NEEDS_HELM = pytest.mark.skipif(realhelm.MISSING, reason=realhelm.WHY)

# One worker makes what they share: each would have to make it for itself.
pytestmark = pytest.mark.xdist_group("chart")


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
    templates = sorted((chart / "templates").glob("*.yaml"))
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
    config |= {"agent": {"reaction": "off"}, "objectives": {"staleSeconds": 60}}
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


STRATEGIES = {"cpuSuppress": {"mode": "observe"}, "resctrl": {"mode": "enforce"}}
EVERYWHERE = {
    name: {"replicas": 3, "resources": {"limits": {"memory": "2Gi"}}, "nodeSelector": {"pool": name}}
    for name in ("scheduler", "schedulerService", "reservationController", "numaApi")
}
DEPLOYMENTS = {
    "scheduler": ("koordlite-scheduler", "extender"),
    "schedulerService": ("koordlite-scheduler-extender", "extender"),
    "reservationController": ("koordlite-reservation-controller", "controller"),
    "numaApi": ("koordlite-numa-api", "numa-api"),
}


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_every_workload_takes_replicas_resources_and_its_place(chart: pathlib.Path, name: str) -> None:
    components = ["scheduler-extender", "scheduler-service", "reservation-controller", "numa-api"]
    found = by_name(templated(chart, components=components, **{name: EVERYWHERE[name]}))
    deployment, main = DEPLOYMENTS[name]
    spec = found.pop(("Deployment", "koordlite-system", deployment))["spec"]
    assert (spec["replicas"], spec["template"]["spec"]["nodeSelector"]) == (3, {"pool": name})
    (container,) = [each for each in spec["template"]["spec"]["containers"] if each["name"] == main]
    assert container["resources"] == {"limits": {"memory": "2Gi"}}
    plain = by_name(templated(chart, components=components))
    assert found == {key: value for key, value in plain.items() if key in found}, "nothing else changes"


def test_strategies_and_numa_are_merged_into_the_overlays_configuration(chart: pathlib.Path) -> None:
    numa = {"exporter": {"listen": ":9201"}, "metrics": True}
    found = by_name(templated(chart, overlay="enforce", strategies=STRATEGIES, numa=numa))
    (held,) = [each["data"]["koordlite.yaml"] for each in found.values() if "koordlite.yaml" in each.get("data", {})]
    settings = parse(held, "chart")
    assert {name: settings.strategies[name].mode for name in STRATEGIES} == {
        "cpuSuppress": "observe",
        "resctrl": "enforce",
    }
    assert settings.strategies["resctrl"].mount == "never", "the overlay's own"
    assert settings.numa_exporter.listen == ":9201" and settings.http.token_audience == "koordlite"
    (service,) = [value for key, value in found.items() if key == ("Service", "koordlite-system", "koordlite-numa")]
    agent = found["DaemonSet", "koordlite-system", "koordlite"]["spec"]["template"]
    ports = {port["name"]: port["containerPort"] for port in agent["spec"]["containers"][0]["ports"]}
    assert ports[service["spec"]["ports"][0]["targetPort"]] == 9201
    assert agent["metadata"]["annotations"].keys() == {"checksum/config"}


def test_nri_mounts_the_runtimes_socket_and_sets_the_agent(chart: pathlib.Path) -> None:
    daemon_set = ("DaemonSet", "koordlite-system", "koordlite")
    found = by_name(templated(chart, overlay="enforce", nri={"nri": "auto"}))
    (held,) = [each["data"]["koordlite.yaml"] for each in found.values() if "koordlite.yaml" in each.get("data", {})]
    assert parse(held, "chart").agent.nri == "auto"
    by_component = by_name(rendered("overlays/enforce", "nri"))[daemon_set]["spec"]["template"]["spec"]
    by_value = found[daemon_set]["spec"]["template"]["spec"]
    assert by_value["volumes"] == by_component["volumes"]
    assert by_value["containers"][0]["volumeMounts"] == by_component["containers"][0]["volumeMounts"]


def test_objectives_set_the_agent_and_open_the_way_to_prometheus(chart: pathlib.Path) -> None:
    policy = ("NetworkPolicy", "koordlite-system", "koordlite")
    objectives = {"prometheusUrl": "https://prometheus.monitoring:9090"}
    found = by_name(templated(chart, overlay="enforce", objectives=objectives))
    (held,) = [each["data"]["koordlite.yaml"] for each in found.values() if "koordlite.yaml" in each.get("data", {})]
    assert parse(held, "chart").objectives.prometheus_url == objectives["prometheusUrl"]
    assert found[policy] == by_name(rendered("overlays/enforce", "objectives"))[policy]
    elsewhere = by_name(templated(chart, objectives=objectives, monitoring={"namespace": "observability"}))[policy]
    (peer,) = elsewhere["spec"]["egress"][-1]["to"]
    assert peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"] == "observability"


def test_monitoring_is_that_of_kustomize_with_ones_own_names(chart: pathlib.Path) -> None:
    plain = by_name(rendered("monitoring"))
    found = by_name(templated(chart, monitoring={"enabled": True}))
    assert {key: found[key] for key in plain} == plain
    own = {"enabled": True, "namespace": "observability", "serviceAccount": "p", "runbooks": "https://docs.invalid"}
    changed = by_name(templated(chart, monitoring=own))
    (subject,) = changed["ClusterRoleBinding", "", "koordlite-metrics-reader"]["subjects"]
    assert (subject["name"], subject["namespace"]) == ("p", "observability")
    assert "koordlite.example" not in json.dumps(list(changed.values()))
    policies = [each for each in changed.values() if each["kind"] == "NetworkPolicy"]
    assert "observability" in json.dumps(policies) and '"monitoring"' not in json.dumps(policies)


def test_the_numa_api_asks_the_prometheus_that_is_named(chart: pathlib.Path) -> None:
    url = "http://prometheus-k8s.monitoring.svc:9090"
    found = by_name(templated(chart, components=["numa-api"], numaApi={"prometheusUrl": url}))
    assert found == by_name(rendered("overlays/observe", "numa-api", "numa-api-prometheus"))


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
        {"numaApi": {"prometheusURL": "http://a"}},
        {"strategies": {"cpuSuppress": "enforce"}},
        {"nri": {"enabled": True}},
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
    made = by_name(realhelm.template(chart, {"overlay": overlay, "createNamespace": True}))
    assert made == by_name(rendered(f"overlays/{overlay}"))


@NEEDS_HELM
def test_helm_refuses_an_overlay_that_there_is_not(chart: pathlib.Path) -> None:
    with pytest.raises(realhelm.Refused, match="overlay"):
        realhelm.template(chart, {"overlay": "enforced"})


@NEEDS_HELM
def test_helm_lint_has_nothing_to_say(chart: pathlib.Path) -> None:
    assert realhelm.lint(chart) == []


@NEEDS_HELM
def test_helm_gives_what_the_tests_without_it_are_held_to(chart: pathlib.Path) -> None:
    values = {"createNamespace": True, "components": list(ADDED), "strategies": STRATEGIES, **EVERYWHERE}
    values |= {"numa": {"exporter": {"listen": ":9201"}, "metrics": True}, "monitoring": {"enabled": True}}
    values |= {"nri": {"nri": "auto"}, "objectives": {"prometheusUrl": "https://prometheus.monitoring:9090"}}
    made, ours = by_name(realhelm.template(chart, values)), by_name(templated(chart, **values))
    for each in (*made.values(), *ours.values()):
        # Helm's JSON has other white space, so its digest is another one.
        each.get("spec", {}).get("template", {}).get("metadata", {}).pop("annotations", None)
    assert made == ours
