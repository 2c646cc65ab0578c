"""The scheduler's side as it is installed: the stock scheduler, the extender, and no right that it does not use."""

from __future__ import annotations

import pathlib
import time
from typing import Any

import cyaml
import msgspec
import pytest
from apibench import CRD, NODE, until
from apiserver import ApiServer
from apiserver.users import User

from koordlite import cli
from koordlite.cli import services
from koordlite.kube.client import access, reviews
from koordlite.model.errors import InputError
from koordlite.model.wire import objects
from koordlite.scheduler import render as rendering
from koordlite.scheduler.cluster import Cluster
from koordlite.scheduler.extender import Extender
from koordlite.scheduler.judgement.nodes import JudgeSettings
from koordlite.scheduler.promises import ApiBinder
from koordlite.scheduler.watches import Watches
from tests.manifests.test_rbac import SYSTEM, rights, rules

COMPONENTS = pathlib.Path(__file__).parents[2] / "manifests/components"
BESIDE, ALONE = "scheduler-extender", "scheduler-service"
ACCOUNTS = {BESIDE: "koordlite-scheduler", ALONE: "koordlite-scheduler-extender"}


def containers(find: Any, objects_: list[Any], name: str) -> dict[str, Any]:
    spec = find(objects_, "Deployment", name)["spec"]["template"]["spec"]
    return {each["name"]: each for each in spec["containers"]}


@pytest.mark.parametrize("component", [BESIDE, ALONE])
def test_its_pods_are_closed_up_and_name_no_registry(render, find, component):
    found = find(render("namespace", component), "Deployment", ACCOUNTS[component])
    assert found["spec"]["template"]["spec"]["securityContext"]["runAsNonRoot"] is True
    for each in found["spec"]["template"]["spec"]["containers"]:
        held = each["securityContext"]
        assert held["capabilities"] == {"drop": ["ALL"]}
        assert (held["readOnlyRootFilesystem"], held["allowPrivilegeEscalation"]) == (True, False)
        assert "memory" in each["resources"]["limits"]
        assert "/" not in each["image"], "the overlay of the cluster says where images come from"
        if each["command"][0] == "koordlite":
            cli.parser().parse_args(each["command"][1:])


def test_beside_the_scheduler_only_the_scheduler_can_ask(render, find):
    held = containers(find, render("namespace", BESIDE), "koordlite-scheduler")
    assert set(held) == {"scheduler", "extender"}
    assert "--listen=127.0.0.1:9318" in held["extender"]["command"]
    assert held["scheduler"]["command"][0] == "kube-scheduler"


def test_the_configurations_are_what_render_prints():
    written = (COMPONENTS / BESIDE / "configuration.yaml").read_text()
    assert written == rendering.text("configuration", rendering.Options())
    files = {name: f"/etc/kubernetes/koordlite/{file}" for name, file in FILES.items()}
    url = "https://koordlite-scheduler-extender.koordlite-system.svc"
    stanza = rendering.text("stanza", rendering.Options(url_prefix=url, **files))
    assert (COMPONENTS / ALONE / "extenders.yaml").read_text() == stanza


@pytest.mark.parametrize("component", [BESIDE, ALONE])
def test_load_aware_scheduling_comes_with_its_file_its_option_and_its_right(render, find, component, tmp_path):
    held = render("namespace", component, "scheduler-load-aware")
    container = containers(find, held, ACCOUNTS[component])["extender"]
    args = cli.parser().parse_args(container["command"][1:])
    spec = find(held, "Deployment", ACCOUNTS[component])["spec"]["template"]["spec"]
    (mount,) = [each for each in container["volumeMounts"] if args.load_aware.startswith(each["mountPath"])]
    (volume,) = [each for each in spec["volumes"] if each["name"] == mount["name"]]
    file = find(held, "ConfigMap", volume["configMap"]["name"])["data"][pathlib.PurePath(args.load_aware).name]
    (tmp_path / "load.yaml").write_text(file)
    assert services.load_aware(str(tmp_path / "load.yaml")).usage_thresholds == {"cpu": 65, "memory": 95}
    (role,), binding = find(held, "ClusterRole", LOAD)["rules"], find(held, "ClusterRoleBinding", LOAD)
    assert set(rights(role)) == {("slo.koordinator.sh", "nodemetrics", verb) for verb in ("list", "watch")}
    assert (ACCOUNTS[component], SYSTEM) in {(each["name"], each["namespace"]) for each in binding["subjects"]}


@pytest.mark.parametrize("component", [BESIDE, ALONE])
def test_following_resizes_comes_with_its_option_and_the_right_to_say_what_cannot_grow(render, find, component):
    held = render("namespace", component, "scheduler-follow-resizes")
    command = containers(find, held, ACCOUNTS[component])["extender"]["command"]
    assert cli.parser().parse_args(command[1:]).follow_resizes
    (role,), binding = find(held, "ClusterRole", RESIZES)["rules"], find(held, "ClusterRoleBinding", RESIZES)
    assert set(rights(role)) == {("events.k8s.io", "events", verb) for verb in ("create", "patch")}
    assert (ACCOUNTS[component], SYSTEM) in {(each["name"], each["namespace"]) for each in binding["subjects"]}


LOAD, RESIZES = "koordlite-scheduler-load-aware", "koordlite-scheduler-follow-resizes"
FILES = {"ca_file": "ca.crt", "client_cert_file": "tls.crt", "client_key_file": "tls.key"}


def test_an_extender_that_is_away_does_not_stop_the_cluster_unless_it_is_asked_for():
    assert cyaml.safe_load(rendering.text("stanza", rendering.Options()))["extenders"][0]["ignorable"] is True
    asked = cyaml.safe_load(rendering.text("stanza", rendering.Options(required=True)))["extenders"][0]
    assert asked["ignorable"] is False
    own = cyaml.safe_load(rendering.text("configuration", rendering.Options()))["extenders"][0]
    assert own["ignorable"] is False, "pods that chose this scheduler wait, and none is bound without its promise"
    assert asked["preemptVerb"] == "preempt", "without it the scheduler evicts for pods that the filter refuses"


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"weight": 0}, "--weight"),
        ({"http_timeout": "5"}, "--http-timeout"),
        ({"http_timeout": "1001ms"}, "--http-timeout"),
        ({"url_prefix": "https://extender", "ca_file": "ca.crt"}, "--client-cert-file"),
        ({"url_prefix": "127.0.0.1"}, "--url-prefix"),
        ({"managed_resource": ("cpu",)}, "--managed-resource"),
        ({"managed_resource": ("kubernetes.io/batch-cpu",)}, "--managed-resource"),
    ],
)
def test_what_the_scheduler_would_not_start_with_is_refused(options, field):
    with pytest.raises(InputError, match=field):
        rendering.text("stanza", rendering.Options(**options))


CRANE = cyaml.safe_load((CRD.parent / "crane" / "noderesourcetopologies.yaml").read_text())
KOORDINATOR = [
    found
    for path in sorted((CRD.parent / "koordinator").glob("*.yaml"))
    for found in cyaml.safe_load_all(path.read_text())
    if found["kind"] == "CustomResourceDefinition"
]


@pytest.mark.parametrize("component", [BESIDE, ALONE])
def test_the_extender_may_do_what_it_does_and_no_more(render, tmp_path, component):
    account = ACCOUNTS[component]
    found = [each for each in render("namespace", component) if "rbac" in each["apiVersion"]]
    name = f"system:serviceaccount:{SYSTEM}:{account}"
    user = User(name, ("system:serviceaccounts", f"system:serviceaccounts:{SYSTEM}"))
    ours = [each for each in found if each["roleRef" if "Binding" in each["kind"] else "metadata"]["name"] in OURS]
    with ApiServer(tokens={account: user, "reader": User("reader")}, streams=False) as server:
        server.objects.load(cyaml.safe_load(CRD.read_text()), CRANE, *KOORDINATOR, *ours, NODE)
        server.objects.load({**POD, "metadata": {"name": "p", "namespace": "default", "uid": "u"}})
        (tmp_path / "kubeconfig").write_text(server.kubeconfig(account))
        ask_everything(access.connect(str(tmp_path / "kubeconfig"), None, user_agent="test"))
        mine = [each for each in list(server.requests) if each.user == name and each.resource]
    assert [f"{each.verb} {each.resource}" for each in mine if each.status == 403] == []
    asked = {(each.group, each.resource, each.verb) for each in mine}
    allowed = {right for rule in rules(ours, account) for right in rights(rule)}
    leases = {right for right in allowed if right[1] == "leases"}
    assert allowed - leases == asked, "no more, no less"
    assert bool(leases) is (component == BESIDE), "the lease is the scheduler's"


OURS = (
    *("koordlite-scheduler-extender-beside", "koordlite-scheduler-service", "koordlite-scheduler-lease"),
    *("koordlite-scheduler-beside-policies", "koordlite-scheduler-service-policies"),
)
POD = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "c", "image": "x"}]}}


def ask_everything(api: access.Api) -> None:
    """A whole life of an extender, the rare requests too."""
    cluster = Cluster(JudgeSettings(), monotonic=time.monotonic)
    watches = Watches(api, cluster, monotonic=time.monotonic, with_reservations=True, with_crane=True)
    binder = ApiBinder(api)
    extender = Extender(cluster, wall=time.time, binder=binder, age=watches.age)
    watches.start()
    try:
        until(lambda: watches.age() is not None)
        until(lambda: cluster.pod_of("default/p") is not None)
        pod = cluster.pod_of("default/p")
        assert pod is not None
        assert extender.bind("default", "p", pod.uid, "n1") == ""
        assert "not found" in extender.bind("default", "gone", "u", "n1")
        binder.promise(binder.pod("default", "p"), {"scheduling.koordinator.sh/resource-status": "{}"})
        until(lambda: all(state.error == "" for state in watches.states()))
        until(lambda: (found := cluster.pod_of("default/p")) is not None and found.node == "n1")
    finally:
        watches.stop()
    reviews.Reviewer(api).verdict("reader", "get", "/metrics")
    assert msgspec.convert(POD, objects.PodObject) is not None
