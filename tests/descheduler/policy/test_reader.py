"""DeschedulerPolicy files, good and bad."""

from __future__ import annotations

import dataclasses
import pathlib

import pytest

from descheduler import plugins
from descheduler.arguments.evictor import Args
from descheduler.policy import reader
from koordlite.model import label_selectors
from koordlite.model.errors import ConfigError
from koordlite.model.reading import documented

UPSTREAM = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
nodeSelector: "role=worker"
maxNoOfPodsToEvictPerNode: 10
maxNoOfPodsToEvictPerNamespace: 20
maxNoOfPodsToEvictTotal: 50
evictionFailureEventNotification: true
gracePeriodSeconds: 60
profiles:
- name: placement
  pluginConfig:
  - name: DefaultEvictor
    args:
      nodeFit: true
      minReplicas: 2
      podProtections: {extraEnabled: [PodsWithPVC]}
  - name: ReservedCPUs
  plugins:
    deschedule: {enabled: [ReservedCPUs]}
    filter: {enabled: [DefaultEvictor]}
    preevictionfilter: {enabled: [DefaultEvictor]}
"""
LEAST = "profiles: [{plugins: {deschedule: {enabled: [ReservedCPUs]}}}]"


def test_a_policy_in_upstreams_shape() -> None:
    setup = reader.setup(reader.parse(UPSTREAM, "policy.yaml"))
    limits = setup.limits
    assert (limits.total, limits.per_node, limits.per_namespace, limits.per_owner) == (50, 10, 20, None)
    assert (setup.node_selector, setup.grace_period_seconds) == (label_selectors.parse("role=worker"), 60)
    profile = setup.profiles[0]
    assert [plugin.name for plugin, _ in profile.plugins] == ["ReservedCPUs"]
    assert (profile.args.min_replicas, "PodsWithPVC" in profile.args.protections) == (2, True)


def test_a_plugin_without_an_entry_has_its_defaults_and_nothing_is_limited() -> None:
    setup = reader.setup(reader.parse(LEAST, "policy.yaml"))
    plugin, arguments = setup.profiles[0].plugins[0]
    assert arguments == plugin.config()
    assert (setup.profiles[0].args, setup.limits.total) == (Args(), None)


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        pytest.param("maxNoOfPodsToEvictPerNodes: 3", "1:1", "did you mean maxNoOfPodsToEvictPerNode", id="key"),
        pytest.param("apiVersion: descheduler/v1alpha1", "1:13", "v1alpha2", id="an old version"),
        pytest.param("nodeSelector: a b", "1:15", "label selector", id="selector"),
        pytest.param("maxNoOfPodsToEvictTotal: -1", "1:26", "at least 0", id="a negative limit"),
        pytest.param("maxNoOfPodsToEvictTotal: many", "1:26", "a whole number", id="a word for a number"),
        pytest.param(
            "profiles: [{plugins: {deschedule: {enabled: [ReservedCPU]}}}]",
            "1:46",
            "did you mean ReservedCPUs",
            id="plugin",
        ),
        pytest.param("profiles: [{plugins: {sort: {enabled: [X]}}}]", "1:39", "no plugin works", id="sort"),
        pytest.param("profiles: [{pluginConfig: [{name: Nobody}]}]", "1:35", "DefaultEvictor", id="entry of nobody"),
        pytest.param(
            "profiles: [{pluginConfig: [{name: ReservedCPUs, args: {minPodAge: old}}]}]", "1:67", "duration", id="args"
        ),
        pytest.param(
            "profiles: [{pluginConfig: [{name: NUMAAlignment, args: {minpodage: 1m}}]}]",
            "1:57",
            "did you mean minPodAge",
            id="an argument nobody knows",
        ),
        pytest.param(
            "profiles: [{pluginConfig: [{name: ReservedCPUs}, {name: ReservedCPUs}]}]",
            "1:12",
            "more than one",
            id="twice",
        ),
        pytest.param(
            "profiles: [{pluginConfig: [{name: DefaultEvictor, args: {podProtections: {extraEnabled: [PodsWithPVC], "
            'config: {PodsWithPVC: {protectedStorageClasses: [{name: ""}]}}}}}]}]',
            "1:74",
            "needs a name",
            id="a storage class without a name",
        ),
        pytest.param("profiles: {", "policy.yaml:2:1", "not YAML", id="no YAML"),
    ],
)
def test_mistakes_are_named_with_their_place(text: str, place: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        reader.parse(text, "policy.yaml")
    said = [str(problem) for problem in caught.value.problems]
    assert any(place in line and words in line for line in said), said


def test_all_mistakes_are_named_at_once() -> None:
    text = "nodeSelector: a b\nmaxNoOfPodsToEvictTotal: -1\nprofiles: [{name: [], plugin: {}}]\n"
    with pytest.raises(ConfigError) as caught:
        reader.parse(text, "policy.yaml")
    assert len(caught.value.problems) == 4


def test_storage_classes_are_looked_at_only_where_claims_protect() -> None:
    classes = 'config: {PodsWithPVC: {protectedStorageClasses: [{name: ""}]}}'
    args = f"podProtections: {{extraEnabled: [PodsWithoutPDB], {classes}}}"
    reader.parse(f"profiles: [{{pluginConfig: [{{name: DefaultEvictor, args: {{{args}}}}}]}}]", "policy.yaml")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        pytest.param("https://prometheus.monitoring:9090", "", id="a name and a port"),
        pytest.param("http://[::1]:9090/prefix", "", id="IPv6 and a path"),
        pytest.param("http://me%40home:word@prometheus", "", id="a user with an escape"),
        pytest.param("prometheus:9090", "starts with http", id="no scheme"),
        pytest.param("http://", "no readable host", id="no host"),
        pytest.param("http://prometheus:-80", "not a URL", id="a negative port"),
        pytest.param("http://prometheus:99999", "not a URL", id="a port beyond all ports"),
        pytest.param("http://[::1", "not a URL", id="half a bracket"),
        pytest.param("http://10.0.0.%31", "no readable host", id="an escape in the host"),
        pytest.param("http://prometheus/a b", "a space", id="a space"),
        pytest.param("http://prometheus/%zz", "a %", id="half an escape"),
    ],
)
def test_where_prometheus_answers(url: str, why: str) -> None:
    text = f'metricsProviders: [{{source: Prometheus, prometheus: {{url: "{url}"}}}}]'
    if not why:
        reader.parse(text, "policy.yaml")
        return
    with pytest.raises(ConfigError, match=why):
        reader.parse(text, "policy.yaml")


def test_a_list_of_nothing_but_comments_is_not_given() -> None:
    """As in upstream's own example of podProtections."""
    text = """
profiles:
- name: p
  pluginConfig:
  - name: DefaultEvictor
    args:
      podProtections:
        defaultDisabled:
          # - PodsWithLocalStorage
        extraEnabled:
  plugins:
    deschedule:
      enabled:
        # - PodLifeTime
- name: q
  pluginConfig:
"""
    plain = "profiles: [{name: p, pluginConfig: [{name: DefaultEvictor, args: {podProtections: {}}}]}, {name: q}]"
    assert reader.parse(text, "policy.yaml") == reader.parse(plain, "policy.yaml")


def test_a_file_that_cannot_be_read_is_a_problem(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        reader.load(str(tmp_path / "absent.yaml"))


def test_the_shipped_file_is_the_default_policy() -> None:
    shipped = pathlib.Path(__file__).parents[3] / "configs" / "descheduler.yaml"
    text = shipped.read_text(encoding="utf-8")
    assert text == reader.default_policy()
    assert reader.parse(text, "configs/descheduler.yaml") == reader.default()


@pytest.mark.parametrize("shape", [Args, reader.Policy, *(p.config for p in plugins.discover().values())])
def test_every_option_says_what_it_is(shape: type) -> None:
    docs = documented.field_docs(shape)
    assert {field.name for field in dataclasses.fields(shape)} == set(docs)


def test_plugins_are_found_and_say_what_they_are_for() -> None:
    found = plugins.discover()
    assert {"NUMAAlignment", "ReservedCPUs"} <= set(found)
    assert all(plugin.doc for plugin in found.values())
