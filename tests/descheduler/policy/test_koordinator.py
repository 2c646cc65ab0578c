"""DeschedulerConfiguration files, and spellings of both kinds of file that are understood."""

from __future__ import annotations

import pytest

from descheduler.arguments.evictor import Args
from descheduler.arguments.migration import MigrationControllerArgs, ObjectLimiter
from descheduler.policy import reader
from descheduler.policy.koordinator import Configuration
from koordlite.model.errors import ConfigError, Problem

HEAD = "apiVersion: descheduler/v1alpha2\nkind: DeschedulerConfiguration\n"
FULL = """
deschedulingInterval: 10s
dryRun: true
nodeSelector: {matchLabels: {pool: x}}
maxNoOfPodsToEvictTotal: 5
clientConnection: {qps: 3.5}
profiles:
- name: koord-descheduler
  nodeSelector: {matchExpressions: [{key: zone, operator: Exists}]}
  plugins:
    deschedule: {enabled: [{name: ReservedCPUs}]}
  pluginConfig:
  - name: MigrationController
    args:
      apiVersion: descheduler/v1alpha2
      kind: MigrationControllerArgs
      evictLocalStoragePods: true
      ignorePvcPods: true
      priorityThreshold: {value: 800}
      namespaces: {exclude: [kube-system]}
      skipEvictionGates: [NodeFit, BarePods]
      nodeFit: true
"""


def parse(text: str) -> Configuration:
    found = reader.parse(HEAD + text, "c.yaml")
    assert isinstance(found, Configuration)
    return found


def test_a_whole_file_is_understood() -> None:
    setup = reader.setup(parse(FULL))
    (profile,) = setup.profiles
    assert [plugin.name for plugin, _ in profile.plugins] == ["ReservedCPUs"]
    assert (setup.limits.total, setup.limits.total_first) == (5, False)
    assert setup.node_selector is not None
    assert setup.node_selector.match_labels == {"pool": "x"}
    assert profile.node_selector is not None
    assert profile.migration is not None


def test_the_rules_of_the_migration_controller_guard_pods() -> None:
    args = reader.setup(parse(FULL)).profiles[0].args
    assert args.protections == {"SystemCriticalPods", "DaemonSetPods", "FailedBarePods", "PodsWithPVC"}
    assert (args.priority_threshold.value, args.node_fit, args.evict_all_bare_pods) == (800, False, True)
    assert args.namespaces is not None
    assert [args.namespaces.chosen(name) for name in ("kube-system", "default")] == [False, True]


def test_an_empty_file_has_koordinators_defaults() -> None:
    found = parse("")
    (profile,) = reader.setup(found).profiles
    assert (profile.name, profile.migration is not None) == ("koord-descheduler", True)
    assert (found.leader_election.leader_elect, found.descheduling_interval) == (True, "0")


def test_empty_schedulers_and_limiters_are_the_usual_ones() -> None:
    text = "profiles: [{pluginConfig: [{name: MigrationController, args: {schedulerNames: [], objectLimiters: {}}}]}]"
    (profile,) = reader.setup(parse(text)).profiles
    assert profile.migration == MigrationControllerArgs()
    assert profile.migration.scheduler_names == ("koord-scheduler",)
    assert profile.migration.object_limiters == {"workload": ObjectLimiter(duration="5m")}


@pytest.mark.parametrize(
    ("plugins", "direct", "filters"),
    [
        pytest.param("", False, 1, id="MigrationController by default"),
        pytest.param("evict: {disabled: [{name: '*'}], enabled: [{name: DefaultEvictor}]}", True, 1, id="all dropped"),
        pytest.param(
            "evict: {disabled: [MigrationController], enabled: [DefaultEvictor]}", True, 1, id="dropped by its name"
        ),
        pytest.param("filter: {enabled: [{name: DefaultEvictor}]}", False, 2, id="one more filter"),
    ],
)
def test_defaults_are_merged_as_koordinator_merges_them(plugins: str, direct: bool, filters: int) -> None:
    (profile,) = reader.setup(parse(f"profiles: [{{name: p, plugins: {{{plugins}}}}}]")).profiles
    assert (profile.migration is None, 1 + len(profile.more_args)) == (direct, filters)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("healthzBindAddress: 1.2.3.4:5:6", "not an address", id="two ports"),
        pytest.param("metricsBindAddress: host:99999", "not an address", id="a port that cannot be"),
        pytest.param("profiles: [{name: a}, {name: a}]", "one name", id="one name twice"),
        pytest.param("profiles: [{name: a}, {}]", "needs a name", id="two profiles, one without a name"),
        pytest.param("profiles: []", "no profile", id="no profile"),
        pytest.param("leaderElection: {leaseDuration: 5s}", "leaseDuration", id="a lease shorter than its renewal"),
        pytest.param("profiles: [{name: a, plugins: {evict: {disabled: ['*']}}}]", "exactly one", id="no evictor"),
        pytest.param(
            "profiles: [{name: a, plugins: {evict: {enabled: [DefaultEvictor]}}}]", "exactly one", id="two evictors"
        ),
        pytest.param("nodeSelector: role=x", "a mapping is needed", id="upstream's selector"),
        pytest.param("dryrun: true", "did you mean dryRun", id="a key in another case"),
        pytest.param(
            "profiles: [{name: a, pluginConfig: [{name: MigrationController, args: {evictQPS: 0}}]}]",
            "above 0",
            id="a rate of nothing",
        ),
        pytest.param(
            "profiles: [{name: a, pluginConfig: [{name: MigrationController, args: {evictQPS: null}}]}]",
            "evictQPS = 'null': not a number above 0",
            id="no rate",
        ),
        pytest.param(
            "profiles: [{name: a, pluginConfig: [{name: MigrationController, args: {maxMigratingPerNode: null}}]}]",
            "maxMigratingPerNode = 'null': not a whole number",
            id="no limit that a null lifts",
        ),
    ],
)
def test_mistakes_are_named(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse(text)


@pytest.mark.parametrize("address", ["::", "[::]:80", "localhost", "10.0.0.1", "0.0.0.0:10251"])
def test_addresses_of_all_forms_are_understood(address: str) -> None:
    assert parse(f"healthzBindAddress: '{address}'").healthz_bind_address == address


@pytest.mark.parametrize(
    ("text", "old", "right"),
    [
        pytest.param(
            "profiles: [{plugins: {preEvictionFilter: {enabled: [DefaultEvictor]}}}]",
            "preEvictionFilter",
            "preevictionfilter",
            id="a point of the framework",
        ),
        pytest.param(
            "profiles: [{pluginConfig: [{name: PodLifeTime, args: {maxPodLifetimeSeconds: 5}}]}]",
            "maxPodLifetimeSeconds",
            "maxPodLifeTimeSeconds",
            id="one plugin's LifeTime",
        ),
        pytest.param(
            "profiles: [{pluginConfig: [{name: RemoveFailedPods, args: {minPodLifeTimeSeconds: 5}}]}]",
            "minPodLifeTimeSeconds",
            "minPodLifetimeSeconds",
            id="another plugin's Lifetime",
        ),
    ],
)
def test_known_traps_are_understood_and_told(text: str, old: str, right: str) -> None:
    told: list[Problem] = []
    reader.parse(text, "p.yaml", told)
    said = [str(problem) for problem in told]
    assert any(old in line and f"taken as {right}" in line and "p.yaml:1:" in line for line in said), said


def test_both_spellings_at_once_are_a_mistake() -> None:
    with pytest.raises(ConfigError, match="stands twice"):
        reader.parse("profiles: [{plugins: {preEvictionFilter: {}, preevictionfilter: {}}}]", "p.yaml")


def test_upstreams_files_may_list_plugins_as_koordinator_does() -> None:
    text = "profiles: [{plugins: {deschedule: {enabled: [{name: ReservedCPUs}]}}}]"
    (profile,) = reader.setup(reader.parse(text, "p.yaml")).profiles
    assert [plugin.name for plugin, _ in profile.plugins] == ["ReservedCPUs"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("profiles: []", "nothing is judged", id="nothing enabled"),
        pytest.param(
            "profiles: [{pluginConfig: [{name: ReservedCPUs, args: {minSightings: 2}}]}]",
            "is not enabled",
            id="arguments that nobody reads",
        ),
        pytest.param(
            "profiles: [{pluginConfig: [{name: DefaultEvictor, args: {minReplicas: 1}}]}]",
            "protects nothing",
            id="a threshold without effect",
        ),
    ],
)
def test_what_is_hardly_meant_is_told(text: str, words: str) -> None:
    told: list[Problem] = []
    reader.parse(text, "p.yaml", told)
    assert any(words in str(problem) for problem in told)


def test_a_plugin_that_needs_arguments_is_refused_without() -> None:
    with pytest.raises(ConfigError, match="add an entry for PodLifeTime"):
        reader.parse("profiles: [{plugins: {deschedule: {enabled: [PodLifeTime]}}}]", "p.yaml")


def test_both_filters_have_to_let_a_pod_through() -> None:
    text = """
profiles:
- name: p
  plugins: {filter: {enabled: [DefaultEvictor]}}
  pluginConfig:
  - {name: DefaultEvictor, args: {minReplicas: 3}}
"""
    (profile,) = reader.setup(parse(text)).profiles
    assert (profile.args.min_replicas, [args.min_replicas for args in profile.more_args]) == (0, [3])
    assert isinstance(profile.args, Args)
