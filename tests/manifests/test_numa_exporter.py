"""The component numa-exporter: what scrapes openFuyao's exporter finds ours."""

from __future__ import annotations

import pathlib
import re

import cyaml

from koordlite import cli, config

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "numa.md"


def test_the_document_s_service_monitor_and_scrape_configuration_find_the_service(render, find):
    blocks = [cyaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)]
    monitor, scrapes, *_ = blocks
    service = find(render("overlays/observe", "numa-exporter"), "Service", "numa-exporter")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert service["metadata"]["namespace"] in monitor["spec"]["namespaceSelector"]["matchNames"]
    (port,) = service["spec"]["ports"]
    assert monitor["spec"]["endpoints"] == [{"port": port["name"], "interval": "30s"}]
    assert (port["name"], port["port"]) == ("https", 9201)
    (target,) = scrapes["scrape_configs"][0]["static_configs"][0]["targets"]
    assert target == f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc:{port['port']}"


def test_the_daemon_set_serves_that_port_and_writes_nothing(render, find):
    objects = render("overlays/observe", "numa-exporter")
    pod = find(objects, "DaemonSet", "numa-exporter")["spec"]["template"]
    service = find(objects, "Service", "numa-exporter")
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    (container,) = pod["spec"]["containers"]
    assert container["ports"] == [{"name": "https", "containerPort": 9201}]
    assert cli.parser().parse_args(container["command"][1:]).command == "numa-exporter"
    assert all(mount["readOnly"] for mount in container["volumeMounts"])
    probes = {name: container[name]["httpGet"]["path"] for name in container if name.endswith("Probe")}
    assert probes == {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
    (held,) = [o for o in objects if o["kind"] == "ConfigMap" and o["metadata"]["namespace"] == "volcano-system"]
    assert config.parse(held["data"]["koordlite.yaml"], "component").numa_exporter.listen == ":9201"


def test_it_may_only_read(render, find):
    role = find(render("overlays/observe", "numa-exporter"), "ClusterRole", "koordlite-numa-exporter")
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"list", "watch"}
