"""How Prometheus asks: both sides name the same token, and with components/metrics-tls the same certificate."""

from __future__ import annotations

import pathlib

import cyaml
import pytest

from descheduler import cli as descheduler_cli
from koordlite import cli, config
from koordlite.cli import machine

MANIFESTS = pathlib.Path(__file__).parents[2] / "manifests"
WORKLOADS = [("DaemonSet", "koordlite"), ("Deployment", "descheduler")]
BASES = ["overlays/observe", "overlays/enforce"]
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


def pod(objects, find, kind, name):
    return find(objects, kind, name)["spec"]["template"]["spec"]


def audiences(objects, find):
    """What tokens must be bound to, by program."""
    maps = [item for item in objects if item["kind"] == "ConfigMap" and "koordlite.yaml" in item["data"]]
    (held,) = [cyaml.safe_load(item["data"]["koordlite.yaml"]) for item in maps]
    _, *words = pod(objects, find, "Deployment", "descheduler")["containers"][0]["command"]
    return held["http"]["tokenAudience"], descheduler_cli.parser().parse_args(words).token_audience


@pytest.mark.parametrize("base", BASES)
def test_the_token_of_prometheus_is_bound_to_what_both_programs_accept(render, find, base):
    prometheus = cyaml.safe_load((MANIFESTS / "monitoring/prometheus.yaml").read_text())["spec"]
    (volume,), (mount,) = prometheus["volumes"], prometheus["volumeMounts"]
    (token,) = [source["serviceAccountToken"] for source in volume["projected"]["sources"]]
    assert volume["name"] == mount["name"]
    assert set(audiences(render(base), find)) == {token["audience"]}
    monitors = [item for item in render("monitoring") if item["kind"] == "ServiceMonitor"]
    assert {name for _, name in WORKLOADS} <= {item["metadata"]["name"] for item in monitors}
    endpoints = [endpoint for item in monitors for endpoint in item["spec"]["endpoints"] if endpoint["port"] == "http"]
    files = {endpoint["bearerTokenFile"] for endpoint in endpoints}
    assert files == {f"{mount['mountPath']}/{token['path']}"}


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize(("kind", "name"), WORKLOADS)
def test_with_tls_programs_probes_and_prometheus_agree(render, find, base, kind, name):
    objects = render(base, "metrics-tls")
    found = pod(objects, find, kind, name)
    container = found["containers"][0]
    assert {container[probe]["httpGet"]["scheme"] for probe in PROBES} == {"HTTPS"}
    (volume,) = [each for each in found["volumes"] if "secret" in each]
    (mount,) = [each for each in container["volumeMounts"] if each["name"] == volume["name"]]
    assert mount["readOnly"]
    assert volume["secret"]["secretName"] == f"{name}-tls"
    _, *words = container["command"]
    assert certificate_files(name, words) == (f"{mount['mountPath']}/tls.crt", f"{mount['mountPath']}/tls.key")
    (endpoint,) = find(render("monitoring", "metrics-tls"), "ServiceMonitor", name)["spec"]["endpoints"]
    namespace = find(objects, "Service", name)["metadata"]["namespace"]
    assert endpoint["scheme"] == "https"
    assert endpoint["tlsConfig"] == {
        "ca": {"secret": {"name": f"{name}-tls", "key": "ca.crt"}},
        "serverName": f"{name}.{namespace}.svc",
    }


def certificate_files(name: str, words: list[str]) -> tuple[str, str]:
    """Certificate and key that a command serves with, by its own reading of its options."""
    if name == "descheduler":
        args = descheduler_cli.parser().parse_args(words)
        return args.tls_cert_file, args.tls_private_key_file
    words[words.index("--config") + 1] = str(MANIFESTS / "agent/koordlite.yaml")
    http = machine.settings(cli.parser().parse_args(words)).http
    return http.tls_cert_file, http.tls_key_file


@pytest.mark.parametrize("base", BASES)
def test_without_the_component_both_sides_speak_plain_http(render, find, base):
    objects = render(base)
    for kind, name in WORKLOADS:
        found = pod(objects, find, kind, name)
        assert not [each for each in found["volumes"] if "secret" in each]
        assert not {"scheme"} & {key for probe in PROBES for key in found["containers"][0][probe]["httpGet"]}
        (endpoint,) = find(render("monitoring"), "ServiceMonitor", name)["spec"]["endpoints"]
        assert not {"scheme", "tlsConfig"} & endpoint.keys()


def test_options_leave_the_certificate_of_the_file_in_place(tmp_path):
    (tmp_path / "koordlite.yaml").write_text("http: {tlsCertFile: /a.crt, tlsKeyFile: /a.key}\n")
    assert config.load(tmp_path / "koordlite.yaml").http.tls_cert_file == "/a.crt"
    assert certificate_files_of(tmp_path) == ("/a.crt", "/a.key")
    assert certificate_files_of(tmp_path, "--tls-cert-file", "/b.crt") == ("/b.crt", "/a.key")


def certificate_files_of(folder: pathlib.Path, *options: str) -> tuple[str, str]:
    args = cli.parser().parse_args(["run", "--config", str(folder / "koordlite.yaml"), *options])
    http = machine.settings(args).http
    return http.tls_cert_file, http.tls_key_file


PARTS = (
    *("scheduler-extender", "scheduler-service", "reservation-controller"),
    *("numa-exporter", "numa-metrics", "numa-api"),
)


def test_every_monitor_finds_a_service_and_its_port(render):
    """By labels, namespace and name of the port, as the operator does; and the Service finds pods with that port."""
    objects = [*render("overlays/observe", *PARTS)]
    services = [item for item in objects if item["kind"] == "Service"]
    pods = [item["spec"]["template"] for item in objects if item["kind"] in ("DaemonSet", "Deployment")]
    for monitor in (item for item in render("monitoring") if item["kind"] == "ServiceMonitor"):
        spec, name = monitor["spec"], monitor["metadata"]["name"]
        spaces = spec.get("namespaceSelector", {}).get("matchNames", [monitor["metadata"]["namespace"]])
        (endpoint,) = spec["endpoints"]
        ports = [
            (service["spec"]["selector"], port)
            for service in services
            for port in service["spec"]["ports"]
            if service["metadata"]["namespace"] in spaces
            and spec["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
            and port["name"] == endpoint["port"]
        ]
        assert len(ports) == 1, name
        ((selector, port),) = ports
        held = [each["spec"] for each in pods if selector.items() <= each["metadata"]["labels"].items()]
        named = {p["name"] for spec in held for c in spec["containers"] for p in c.get("ports", ())}
        assert port["targetPort"] in named, name


def test_the_numa_page_asks_prometheus_where_the_component_says_so(render, find):
    spec = pod(render("namespace", "numa-api", "numa-api-prometheus"), find, "Deployment", "koordlite-numa-api")
    (container,) = spec["containers"]
    assert (
        cli.parser().parse_args(container["command"][1:]).prometheus_url == "http://prometheus-k8s.monitoring.svc:9090"
    )


def test_the_monitors_label_of_a_node_gives_way_to_the_agents_own() -> None:
    """Otherwise Prometheus would keep the agent's as `exported_node`."""
    monitors = cyaml.safe_load_all((MANIFESTS / "monitoring/service-monitors.yaml").read_text())
    relabeled = [
        endpoint
        for monitor in monitors
        for endpoint in monitor["spec"]["endpoints"]
        if any(rule["targetLabel"] == "node" for rule in endpoint.get("relabelings", ()))
    ]
    assert relabeled
    assert all(endpoint["honorLabels"] for endpoint in relabeled)
