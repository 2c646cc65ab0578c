"""What a compromised agent or descheduler finds in its container, and whom it may reach, by the manifests."""

from __future__ import annotations

import functools
import pathlib
import shutil
import subprocess
from typing import Any

import cyaml
import pytest

from koordlite import config

MANIFESTS = pathlib.Path(__file__).parents[2] / "manifests"
KUBELET = "/var/lib/kubelet"
HIDDEN = {"pki", "pods", "plugins", "plugins_registry"}
Object = dict[str, Any]


@functools.cache
def objects(folder: str) -> tuple[Object, ...]:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed: nothing here can be rendered")
    done = subprocess.run([kubectl, "kustomize", folder], capture_output=True, text=True, check=True, timeout=60)
    return tuple(cyaml.safe_load_all(done.stdout))


def agent(folder: pathlib.Path) -> Object:
    (found,) = [each for each in objects(str(folder)) if each["kind"] == "DaemonSet"]
    pod: Object = found["spec"]["template"]["spec"]
    return pod


def with_component(name: str, folder: pathlib.Path) -> Object:
    shutil.copytree(MANIFESTS, folder / "manifests")
    made = folder / "manifests/overlays/made"
    made.mkdir()
    document = {"kind": "Kustomization", "resources": ["../observe"], "components": [f"../../components/{name}"]}
    (made / "kustomization.yaml").write_text(cyaml.safe_dump(document))
    return agent(made)


def hidden(pod: Object) -> set[str]:
    """Folders of kubelet that an empty one lies over."""
    empty = {each["name"] for each in pod["volumes"] if "emptyDir" in each}
    mounts = pod["containers"][0]["volumeMounts"]
    paths = {each["mountPath"] for each in mounts if each["name"] in empty and each.get("readOnly")}
    return {path.removeprefix(f"{KUBELET}/") for path in paths if path.startswith(f"{KUBELET}/")}


@pytest.mark.parametrize("overlay", ["observe", "enforce"])
def test_the_agent_sees_no_key_of_kubelet_and_no_secret_of_a_pod(overlay: str) -> None:
    pod = agent(MANIFESTS / "overlays" / overlay)
    assert hidden(pod) == HIDDEN
    from_host = {each["hostPath"]["path"] for each in pod["volumes"] if "hostPath" in each}
    below = {path for path in from_host if path.startswith((f"{KUBELET}/", "/etc"))}
    assert below == {f"{KUBELET}/pki/kubelet.crt"}, "a certificate is no secret"


def test_the_certificate_is_where_the_configuration_says() -> None:
    mounts = agent(MANIFESTS / "overlays/observe")["containers"][0]["volumeMounts"]
    (mount,) = [each for each in mounts if each["name"] == "kubelet-crt"]
    for path in ("agent/koordlite.yaml", "components/enforce/koordlite.yaml"):
        assert config.load(MANIFESTS / path).cluster.kubelet_ca_file == mount["mountPath"]


def test_kubelets_without_a_certificate_of_their_own_need_none(tmp_path: pathlib.Path) -> None:
    pod = with_component("kubelet-tls-bootstrap", tmp_path)
    assert "kubelet-crt" not in {each["name"] for each in (*pod["volumes"], *pod["containers"][0]["volumeMounts"])}
    assert hidden(pod) == HIDDEN


def test_only_a_component_shows_the_volumes_of_pods(tmp_path: pathlib.Path) -> None:
    assert hidden(with_component("pod-volumes", tmp_path)) == HIDDEN - {"pods"}


@pytest.mark.parametrize("overlay", ["observe", "enforce", "descheduler-evict", "descheduler-cron"])
def test_every_way_out_has_a_destination_and_none_is_a_metadata_service(overlay: str) -> None:
    policies = [each for each in objects(str(MANIFESTS / "overlays" / overlay)) if each["kind"] == "NetworkPolicy"]
    assert policies
    for policy in policies:
        assert {"Ingress", "Egress"} == set(policy["spec"]["policyTypes"])
        for rule in policy["spec"]["egress"]:
            assert rule.get("to"), policy["metadata"]["name"]
            assert rule.get("ports")
            blocks = [each["ipBlock"] for each in rule["to"] if "ipBlock" in each]
            wide = [block for block in blocks if block["cidr"] in ("0.0.0.0/0", "::/0")]
            assert all(set(block["except"]) & {"169.254.0.0/16", "fd00:ec2::254/128"} for block in wide)


def test_an_image_given_by_digest_is_pulled_by_it(tmp_path: pathlib.Path) -> None:
    digest = f"sha256:{'0' * 64}"
    shutil.copytree(MANIFESTS, tmp_path / "manifests")
    path = tmp_path / "manifests/overlays/observe/kustomization.yaml"
    path.write_text(f"{path.read_text()}images: [{{name: koordlite, newName: r/koordlite, digest: '{digest}'}}]\n")
    pods = [
        each["spec"]["template"]["spec"] for each in objects(str(path.parent)) if "template" in each.get("spec", {})
    ]
    assert len(pods) == 2
    images = {each["image"] for pod in pods for each in pod["containers"]}
    assert images == {f"r/koordlite@{digest}"}
