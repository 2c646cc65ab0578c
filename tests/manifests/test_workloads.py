"""What pods of ours may do on a node, and whether the parts of the manifests fit each other."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
from emulated import Emulated

from descheduler import cli as descheduler_cli
from koordlite import cli, config
from koordlite.cli import machine, undo
from koordlite.model.errors import ConfigError

ROOT = pathlib.Path(__file__).parents[2]
MANIFESTS = ROOT / "manifests"
PARSERS = {"koordlite": cli.parser, "descheduler": descheduler_cli.parser}


def pod_of(item: dict[str, Any]) -> dict[str, Any]:
    """The pod's spec of a workload."""
    spec = item["spec"]
    found: dict[str, Any] = (spec["jobTemplate"]["spec"] if "jobTemplate" in spec else spec)["template"]["spec"]
    return found


def workloads(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [item for item in objects if item["kind"] in ("DaemonSet", "Deployment", "CronJob")]


def containers(item: dict[str, Any]) -> list[dict[str, Any]]:
    pod = pod_of(item)
    return [*pod.get("initContainers", ()), *pod["containers"]]


TARGETS = ("overlays/observe", "overlays/enforce", "overlays/descheduler-cron", "overlays/descheduler-evict", "restore")


@pytest.mark.parametrize("folder", TARGETS)
def test_every_container_is_closed_up(render, folder):
    for item in workloads(render(folder)):
        assert pod_of(item)["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in containers(item):
            held = container["securityContext"]
            assert held["capabilities"] == {"drop": ["ALL"]}
            assert (held["readOnlyRootFilesystem"], held["allowPrivilegeEscalation"]) == (True, False)
            assert held.get("privileged", False) is False
            assert "memory" in container["resources"]["limits"]
            assert "cpu" not in container["resources"]["limits"]
            assert {"cpu", "memory"} <= container["resources"]["requests"].keys()


@pytest.mark.parametrize("folder", TARGETS)
def test_every_shown_command_is_one_the_program_takes(render, folder):
    for item in workloads(render(folder)):
        for container in containers(item):
            program, *words = container["command"]
            if program != "sleep":
                PARSERS[program]().parse_args(words)


@pytest.mark.parametrize("folder", TARGETS)
def test_everything_carries_the_name_of_its_product(render, folder):
    for item in render(folder):
        labels = item["metadata"]["labels"]
        assert "app.kubernetes.io/name" in labels or item["kind"] == "Namespace", item["metadata"]["name"]


def test_an_observing_agent_can_write_nothing_on_its_node(render, find):
    pod = pod_of(find(render("overlays/observe"), "DaemonSet", "koordlite"))
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    for mount in pod["containers"][0]["volumeMounts"]:
        assert mount.get("readOnly") or "hostPath" not in volumes[mount["name"]], mount


def test_an_enforcing_agent_writes_cgroups_resctrl_its_journal_and_its_record_only(render, find):
    pod = pod_of(find(render("overlays/enforce"), "DaemonSet", "koordlite"))
    paths = {volume["name"]: volume.get("hostPath", {}).get("path") for volume in pod["volumes"]}
    mounts = pod["containers"][0]["volumeMounts"]
    writable = {paths[mount["name"]] for mount in mounts if not mount.get("readOnly")} - {None}
    assert writable == {"/sys/fs", "/sys/fs/cgroup", "/run/koordlite", "/var/lib/koordlite"}


@pytest.mark.parametrize("folder", ["overlays/observe", "overlays/enforce", "restore"])
def test_folders_of_the_host_are_mounted_where_the_agent_looks(render, folder):
    pod = pod_of(workloads(render(folder))[0])
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume}
    mounts = [mount for each in containers_of(pod) for mount in each.get("volumeMounts", ())]
    # The certificate lies in a folder that is hidden, so it is shown elsewhere: koordlite.yaml says where.
    elsewhere = {"/var/lib/kubelet/pki/kubelet.crt": "/etc/kubelet/kubelet.crt"}
    assert {(paths[m["name"]], m["mountPath"]) for m in mounts if m["name"] in paths} == {
        (path, elsewhere.get(path, path)) for path in paths.values()
    }


def containers_of(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [*pod.get("initContainers", ()), *pod["containers"]]


def test_the_journal_is_where_restore_looks_for_it(render, find):
    state = config.load(MANIFESTS / "restore" / "koordlite.yaml").agent.state_dir
    assert state == config.load(MANIFESTS / "components/enforce/koordlite.yaml").agent.state_dir
    for objects, name in ((render("overlays/enforce"), "koordlite"), (render("restore"), "koordlite-restore")):
        pod = pod_of(find(objects, "DaemonSet", name))
        assert {"path": state, "type": "DirectoryOrCreate"} in [v.get("hostPath") for v in pod["volumes"]]


def test_restore_works_with_the_rights_of_the_agents(render, find):
    agent = pod_of(find(render("overlays/enforce"), "DaemonSet", "koordlite"))
    restore = pod_of(find(render("restore"), "DaemonSet", "koordlite-restore"))
    assert restore["serviceAccountName"] == agent["serviceAccountName"]
    assert restore["hostPID"] is agent["hostPID"] is True


def test_stopping_agents_restore_only_with_the_component(render, find):
    plain = pod_of(find(render("overlays/enforce"), "DaemonSet", "koordlite"))
    assert "--on-stop" not in plain["containers"][0]["command"]
    asked = pod_of(find(render("overlays/enforce", "restore-on-stop"), "DaemonSet", "koordlite"))
    assert asked["containers"][0]["command"][-2:] == ["--on-stop", "restore"]
    assert asked["terminationGracePeriodSeconds"] >= 30


@pytest.mark.parametrize(
    ("component", "privileged", "added"),
    [
        ("mount-resctrl", True, None),
        ("system-config", True, None),
        ("process-capabilities", False, ["SYS_RESOURCE", "DAC_OVERRIDE"]),
        ("core-scheduling", False, ["SYS_RESOURCE", "DAC_OVERRIDE", "SYS_PTRACE"]),
    ],
)
def test_what_a_component_adds_to_the_container(render, find, component, privileged, added):
    pod = pod_of(find(render("overlays/enforce", component), "DaemonSet", "koordlite"))
    held = pod["containers"][0]["securityContext"]
    assert held.get("privileged", False) is privileged
    assert held["capabilities"].get("add") == added


def test_the_runtimes_socket_is_mounted_only_with_its_component(render, find):
    plain = pod_of(find(render("overlays/enforce"), "DaemonSet", "koordlite"))
    assert "/var/run/nri" not in [mount["mountPath"] for mount in plain["containers"][0]["volumeMounts"]]
    asked = pod_of(find(render("overlays/enforce", "nri", "dra-cpus"), "DaemonSet", "koordlite"))
    (claims,) = [m for m in asked["containers"][0]["volumeMounts"] if m["mountPath"] == "/var/run/cdi"]
    assert claims["readOnly"]
    assert config.default().cluster.cdi_folder == claims["mountPath"]
    (mount,) = [m for m in asked["containers"][0]["volumeMounts"] if m["mountPath"] == "/var/run/nri"]
    assert mount["readOnly"] is True
    folder = str(pathlib.PurePosixPath(config.default().agent.nri_socket).parent)
    assert {"path": folder, "type": "DirectoryOrCreate"} in [v.get("hostPath") for v in asked["volumes"]]
    assert asked["containers"][0]["securityContext"] == plain["containers"][0]["securityContext"]


@pytest.mark.parametrize("component", ["mount-resctrl", "system-config", "process-capabilities", "core-scheduling"])
def test_what_took_a_right_to_write_has_it_to_put_back(render, find, component):
    agent = pod_of(find(render("overlays/enforce", component), "DaemonSet", "koordlite"))["containers"][0]
    restore = pod_of(find(render("restore", component), "DaemonSet", "koordlite-restore"))
    for key in ("privileged", "allowPrivilegeEscalation", "capabilities"):
        assert restore["initContainers"][0]["securityContext"].get(key) == agent["securityContext"].get(key)
    spreads = [
        {mount["mountPath"]: mount.get("mountPropagation") for mount in each["volumeMounts"]}["/sys/fs"]
        for each in (restore["initContainers"][0], agent)
    ]
    assert spreads[0] == spreads[1]
    assert restore["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize("folder", ["overlays/observe", "overlays/enforce", "restore"])
def test_what_the_host_unmounts_does_not_stay_mounted_in_ours(render, folder):
    """Journal and record have nothing mounted below them; cgroups, /sys/fs and kubelet's folder have."""
    pod = pod_of(workloads(render(folder))[0])
    for mount in [mount for each in containers_of(pod) for mount in each.get("volumeMounts", ())]:
        if mount["name"] != "hidden" and mount["mountPath"].startswith(("/sys", "/var/lib/kubelet")):
            assert mount["mountPropagation"] == "HostToContainer", mount


def test_only_the_agent_is_root(render):
    for item in workloads(render("overlays/enforce")):
        pod = pod_of(item)
        user = pod["containers"][0]["securityContext"].get("runAsUser", pod["securityContext"].get("runAsUser"))
        assert (user == 0) is (item["kind"] == "DaemonSet")


@pytest.mark.parametrize("folder", ["overlays/observe", "overlays/enforce"])
def test_services_budgets_and_network_policies_select_a_pod(render, folder):
    objects = render(folder)
    labels = [item["spec"]["template"]["metadata"]["labels"] for item in workloads(objects)]
    for item in objects:
        spec = item.get("spec", {})
        selector = {"Service": spec.get("selector"), "NetworkPolicy": spec.get("podSelector", {}).get("matchLabels")}
        selector["PodDisruptionBudget"] = (spec.get("selector") or {}).get("matchLabels")
        wanted = selector.get(item["kind"])
        if wanted:
            assert any(wanted.items() <= each.items() for each in labels), item["metadata"]["name"]


@pytest.mark.parametrize("folder", ["overlays/observe", "overlays/enforce"])
def test_ports_are_the_ones_that_are_listened_on(render, find, folder):
    objects = render(folder)
    agent, descheduler = find(objects, "DaemonSet", "koordlite"), find(objects, "Deployment", "descheduler")
    where = "agent" if folder.endswith("observe") else "components/enforce"
    settings = config.load(MANIFESTS / where / "koordlite.yaml").http
    assert settings.address == "0.0.0.0"
    words = descheduler["spec"]["template"]["spec"]["containers"][0]["command"]
    listening = {
        "koordlite": settings.port,
        "descheduler": int(next(w for w in words if "--listen" in w).split(":")[-1]),
    }
    for item in (agent, descheduler):
        name = item["metadata"]["name"]
        container = pod_of(item)["containers"][0]
        assert container["ports"] == [{"name": "http", "containerPort": listening[name]}]
        assert {container[probe]["httpGet"]["port"] for probe in container if probe.endswith("Probe")} == {"http"}
        service = find(objects, "Service", name)["spec"]["ports"][0]
        assert (service["port"], service["targetPort"]) == (listening[name], "http")
        policy = find(objects, "NetworkPolicy", name)["spec"]["ingress"][0]["ports"]
        assert [each["port"] for each in policy] == [listening[name]]


def test_the_budget_of_a_plan_is_that_of_the_policy_mounted(render, find):
    objects = render("overlays/observe")
    pod = pod_of(find(objects, "Deployment", "descheduler"))
    name = pod["volumes"][0]["configMap"]["name"]
    assert "maxNoOfPodsToEvictTotal" in find(objects, "ConfigMap", name)["data"]["policy.yaml"]


def test_restore_in_a_pod_looks_for_the_cluster_by_its_service_account(monkeypatch, tmp_path):
    monkeypatch.setenv("NODE_NAME", "n1")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    args = cli.parser().parse_args(["restore", "--config", str(MANIFESTS / "restore" / "koordlite.yaml")])
    settings, host = machine.settings(args), Emulated("small", tmp_path).host()
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert undo._cluster(args, settings, host) is None
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "192.0.2.1")
    with pytest.raises(ConfigError, match="service account of this pod"):
        undo._cluster(args, settings, host)


@pytest.mark.parametrize("target", [each for each in TARGETS if each.startswith("overlays/")])
def test_an_overlay_that_would_end_evictions_says_so(render, find, target):
    """Several overlays hold one Deployment: applied last, the one without the order to evict ends evictions."""
    objects = render(target)
    planning = [
        item
        for item in objects
        if (item["kind"], item["metadata"]["name"]) == ("Deployment", "descheduler")
        and "--dry-run=false" not in pod_of(item)["containers"][0]["command"]
    ]
    text = (ROOT / "manifests" / target / "kustomization.yaml").read_text()
    head = text.partition("apiVersion:")[0]
    if planning:
        assert "overlays/descheduler-evict" in head
        assert f"kubectl diff -k manifests/{target}" in head
    with_both = render("overlays/enforce", "descheduler-evict")
    assert "--dry-run=false" in pod_of(find(with_both, "Deployment", "descheduler"))["containers"][0]["command"]
