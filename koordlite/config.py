"""koordlite.yaml → settings. Read strictly: all mistakes at once, each with file:line:column."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from koordlite import strategies
from koordlite.kube.settings import ClusterSettings, ObjectiveSettings, PublishSettings
from koordlite.model.defaults import PORT, STATE_DIR
from koordlite.model.errors import ConfigError, Problem
from koordlite.model.reading import documented, strict
from koordlite.model.settings import MetricsSettings, Mode, StrategySettings, bounded
from koordlite.model.status import NRISetting, ReactionSetting


def _two_digits(text: str) -> None:
    """ValueError for what no runtime takes as the index of a plugin."""
    if len(text) != 2 or not (text.isascii() and text.isdigit()):
        raise ValueError("two digits are needed, 50 for example")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """Section `agent`: the loop and the places it uses."""

    node: str = ""
    """Name of this machine's Node object. Empty: the environment variable NODE_NAME; with a folder of manifests, its
    only Node."""
    interval_seconds: float = bounded(1.0, ge=0.05, le=60)
    """Time between two pictures. Koordinator's is 1 s as well."""
    state_dir: str = STATE_DIR
    """Folder of the undo journal. On tmpfs it dies with the boot, and so do the cgroups it describes."""
    on_stop: Literal["keep", "restore"] = "keep"
    """Behavior at a stop by signal. keep: limits stay in force, the next start goes on with them. restore: every file
    gets back what was found in it."""
    log_format: Literal["text", "json"] = "text"
    """Form of the log on stderr. text: lines for people. json: one object a line, with ts, level, logger and msg. The
    option --log-format goes before it."""
    stale_seconds: float = bounded(60.0, ge=1)
    """Age from which pods, node or configuration count as out of date: stated in status, decisions go on with them."""
    kubepods: str = ""
    """Group below the cgroup root that holds kubelet's groups (kubelet's --cgroup-root). Empty: found by itself."""
    tasks_seconds: float = bounded(5.0, ge=0.1)
    """Time between two looks at the threads of all containers for resctrl; new threads inherit their parent's class."""
    reaction: ReactionSetting = "automatic"
    """Let best effort give way also between two ticks, when latency-sensitive work suddenly needs the CPU: off,
    automatic (by the best way the machine has; not on an emulated one), or required: degraded where there is none."""
    reaction_hertz: float = bounded(50.0, ge=1, le=200)
    """Maximum number of looks a second at the CPU time of node and pods. Fewer where they would cost over
    reactionCpuPercent."""
    reaction_cpu_percent: float = bounded(0.3, ge=0.05, le=2)
    """Percent of one core that these looks may cost. With 1.0 and reactionHertz 100, best effort gives way in about
    half the time."""
    reaction_band_percent: float = bounded(5.0, ge=1, le=50)
    """Percent of the node by which the use of all others must exceed what the last decision assumed."""
    nri: NRISetting = "off"
    """Let the runtime ask the agent before it creates a container (NRI of containerd 1.7 or newer, and CRI-O), so that
    its first process starts with the values: off, auto (while there is a runtime that asks), or required: degraded
    while there is none. What a strategy that observes would set is only counted."""
    nri_socket: str = "/var/run/nri/nri.sock"
    """Socket on which the runtime listens for plugins."""
    nri_index: str = dataclasses.field(default="50", metadata={"check": _two_digits})
    """Place among the runtime's plugins, two digits: those with lower ones are asked before."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Http:
    """Section `http`: /metrics, /healthz, /readyz, /state, /explain, /loglevel."""

    enable: bool = True
    """Serve at all."""
    address: str = "127.0.0.1"
    """Address to listen on. On loopback everyone on this machine may read. On any other address all but /healthz and
    /readyz wants a bearer token that the API server knows and that may get the path as a non-resource URL, or the
    token in http-token in agent.stateDir. Changes (PUT /loglevel) always want one."""
    port: int = bounded(PORT, ge=0, le=65535)
    """TCP port; 0 takes any free one and prints it."""
    require_token: bool = False
    """Require a token on loopback, too, for all but /healthz and /readyz: for nodes where people without
    root may log in."""
    token_audience: str = ""
    """Audience that tokens must be bound to, so that they open nothing else: koordlite, for example. Empty: the API
    server's own, as tokens have it that are not bound."""
    tls_cert_file: str = ""
    """Certificate in PEM format, with its chain; read again when it is replaced. Empty: plain HTTP."""
    tls_key_file: str = ""
    """Key of that certificate. Empty: it is in the same file."""
    metrics_per_cpu: bool = False
    """A metric for each CPU of the pools, as Koordinator's gate PerCPUMetric: many series on large machines."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NumaExporter:
    """Section `numaExporter`: metrics of NUMA nodes on a port of their own, for Prometheus."""

    listen: str = ""
    """Address and port, like :9201, which is what other NUMA exporters use. Empty: off. It is plain HTTP and everyone
    may read it: names of pods and where they run."""
    other_names: bool = False
    """The same numbers also under the names of numainfo_exporter, of Canonical's exporter and of a proposal for
    node_exporter."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FlightRecord:
    """Section `record`: what the agent saw and decided, for `koordlite replay` and `koordlite explain --record`."""

    mode: Literal["off", "automatic", "required"] = "automatic"
    """off: nothing is kept. automatic: it is kept where the folder can be written, on real machines. required: the
    agent does not start without."""
    folder: str = "/var/lib/koordlite/record"
    """Folder of the record. It outlives restarts and boots."""
    max_mib: int = bounded(256, ge=4, le=65536)
    """Maximum size; then the oldest goes. 256 MiB hold about a day of 110 busy pods."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything koordlite.yaml can say."""

    agent: Agent = Agent()
    http: Http = Http()
    cluster: ClusterSettings = msgspec.field(default_factory=ClusterSettings)
    publish: PublishSettings = msgspec.field(default_factory=PublishSettings)
    record: FlightRecord = FlightRecord()
    numa_exporter: NumaExporter = NumaExporter()
    metrics: MetricsSettings = msgspec.field(default_factory=MetricsSettings)
    objectives: ObjectiveSettings = msgspec.field(default_factory=ObjectiveSettings)
    strategies: Mapping[str, StrategySettings] = msgspec.field(default_factory=dict)
    """Section by strategy name; every strategy has one."""


_SECTIONS = {name: getattr(Settings(), name) for name in Settings.__struct_fields__ if name != "strategies"}
"""The other sections with their defaults, by the name of their field."""


def named(path: str | None) -> Settings:
    """The settings in the file at `path`, else in the one that KOORDLITE_CONFIG names, else the defaults.

    The agent's pod sets it for every command that is run there. ConfigError as `load`.
    """
    file = path or os.environ.get("KOORDLITE_CONFIG", "")
    return load(pathlib.Path(file)) if file else default()


def default() -> Settings:
    """The settings of an empty file: everything observes, nothing is written."""
    return Settings(strategies={s.name: s.config() for s in strategies.discover()})


def load(path: pathlib.Path) -> Settings:
    """Settings of the file at `path`; ConfigError lists every mistake in it."""
    try:
        text = path.read_text(encoding="utf-8")
    except IsADirectoryError as error:
        do = "name the koordlite.yaml in it; a folder of manifests is named with --cluster"
        raise ConfigError(Problem(str(path), "file", "", "this is a folder, not a file", do)) from error
    except OSError as error:
        why = error.strerror or str(error)
        raise ConfigError(Problem(str(path), "file", "", why, "name a readable YAML file")) from error
    except UnicodeDecodeError as error:
        raise ConfigError(Problem(str(path), "file", "", str(error), "name a YAML file in UTF-8")) from error
    return parse(text, str(path))


def parse(text: str, source: str) -> Settings:
    """Settings that `text` writes; sections and fields that are left out keep their defaults."""
    return settings_of(strict.load(text, shape(), source))


def settings_of(read: Any) -> Settings:
    """Settings of what was read by `shape`."""
    sections = {s.name: getattr(read.strategies, s.module) for s in strategies.discover()}
    return Settings(**{name: getattr(read, name) for name in _SECTIONS}, strategies=sections)


def with_modes(settings: Settings, mode: Mode, names: frozenset[str] | None = None) -> Settings:
    """The same settings with `mode` for the named strategies, or for all but those that are off unless they are
    named."""
    sections = {}
    for name, section in settings.strategies.items():
        is_meant = section.mode != "off" or type(section)().mode != "off" if names is None else name in names
        sections[name] = dataclasses.replace(section, mode=mode) if is_meant else section
    return msgspec.structs.replace(settings, strategies=sections)


def off(settings: Settings) -> frozenset[str]:
    """Strategies that are off."""
    return frozenset(name for name, section in settings.strategies.items() if section.mode == "off")


def yielded_to_manager(settings: Settings) -> tuple[str, ...]:
    """Strategies that would enforce, and only observe because Koordinator's manager writes their fields."""
    if settings.publish.node_resources == "agent":
        return ()
    publishers = (rule.name for rule in strategies.discover() if rule.publishes)
    return tuple(name for name in publishers if settings.strategies[name].mode == "enforce")


def one_writer(settings: Settings) -> Settings:
    """The same settings with one writer for every field: what is left to the manager is only observed."""
    return with_modes(settings, "observe", frozenset(yielded_to_manager(settings)))


def published(settings: Settings) -> tuple[str, ...]:
    """Fields of the Node that these settings write, and that Koordinator's manager writes where it runs."""
    enforced = (rule for rule in strategies.discover() if settings.strategies[rule.name].mode == "enforce")
    return tuple(name for rule in enforced for name in rule.publishes)


def shape() -> type[Any]:
    """Contents of koordlite.yaml, for readers of files that have it as a section: `strategies` gets one field for each
    strategy there is."""
    fields = [
        (s.module, s.config, dataclasses.field(default=s.config(), metadata={"name": s.name, "formerly": s.formerly}))
        for s in strategies.discover()
    ]
    each = dataclasses.make_dataclass("Strategies", fields, frozen=True)
    sections = [(name, type(value), dataclasses.field(default=value)) for name, value in _SECTIONS.items()]
    return dataclasses.make_dataclass("File", [*sections, ("strategies", each, each())], frozen=True)


def print_default() -> str:
    """koordlite.yaml with every option at its default, commented with its own docstring."""
    lines = ["# koordlite.yaml: every option with its default. Generated by `koordlite default-config`."]
    for name, value in _SECTIONS.items():
        lines += ["", *documented.section(strict.camel(name), value)]
    lines += ["", "# One section a strategy. `mode` is off, observe or enforce.", "strategies:"]
    for rule in strategies.discover():
        lines += ["", *documented.section(rule.name, rule.config(), indent="  ", about=rule.doc.splitlines()[0])]
    return "\n".join(lines) + "\n"
