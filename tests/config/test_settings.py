"""koordlite.yaml: its defaults, its documentation, and the file in the repository."""

from __future__ import annotations

import dataclasses
import pathlib

import pytest

from koordlite import config, strategies
from koordlite.model.errors import ConfigError
from koordlite.model.reading import documented, strict
from koordlite.model.settings import StrategySettings

REPOSITORY = pathlib.Path(__file__).parents[2]
SECTIONS: list[type[object]] = [config.Agent, config.Http, *(found.config for found in strategies.discover())]


@pytest.mark.parametrize("section", SECTIONS, ids=lambda s: f"{s.__module__}.{s.__name__}")
def test_every_field_is_explained(section: type[object]) -> None:
    texts = documented.field_docs(section)
    named = {field.name for field, _ in strict.fields(section).values()}
    assert named == set(texts)
    assert all(text.endswith((".", "?")) for text in texts.values())


def test_the_printed_defaults_are_the_defaults() -> None:
    assert config.parse(config.print_default(), "default") == config.default()


def test_the_file_in_the_repository_is_the_printed_one() -> None:
    written = (REPOSITORY / "configs" / "koordlite.yaml").read_text(encoding="utf-8")
    assert written == config.print_default(), "write it anew: koordlite default-config > configs/koordlite.yaml"


def test_every_option_stands_in_the_printed_file_with_its_explanation() -> None:
    lines = config.print_default().splitlines()
    for section in SECTIONS:
        for key, (field, _) in strict.fields(section).items():
            assert any(line.strip().startswith(f"{key}: ") for line in lines), key
            for line in documented.field_docs(section)[field.name].splitlines():
                assert any(printed.strip() == f"# {line}".strip() for printed in lines), line


def test_an_empty_file_only_observes() -> None:
    settings = config.parse("", "empty")
    assert settings == config.default()
    assert {name for name, section in settings.strategies.items() if section.mode != "observe"} == {
        "coreSched",
        "cpuContention",
        "craneCPUManager",
        "irqAffinity",
        "numaAffinity",
    }
    assert settings.strategies["craneCPUManager"].mode == settings.strategies["coreSched"].mode == "off"
    assert set(settings.strategies) == {found.name for found in strategies.discover()}


def test_the_former_name_of_a_section_is_refused_with_the_present_one() -> None:
    with pytest.raises(ConfigError) as caught:
        config.parse("strategies:\n  nodeReservation:\n    mode: enforce\n", "koordlite.yaml")
    (problem,) = caught.value.problems
    assert (problem.object, problem.field) == ("koordlite.yaml:2:3", "$.strategies")
    assert problem.do == "it has been renamed: write reservationReport"


def test_one_strategy_can_be_enforced_by_file() -> None:
    settings = config.parse("strategies:\n  cpuSuppress:\n    mode: enforce\n    growHoldSeconds: 100\n", "file")
    assert settings.strategies["cpuSuppress"].mode == "enforce"
    assert getattr(settings.strategies["cpuSuppress"], "grow_hold_seconds") == 100  # noqa: B009
    assert settings.strategies["resctrl"].mode == "observe"


def test_modes_can_be_overridden_for_all_or_for_some() -> None:
    every = config.with_modes(config.default(), "off")
    assert {section.mode for section in every.strategies.values()} == {"off"}
    one = config.with_modes(config.default(), "enforce", frozenset({"resctrl"}))
    assert {name for name, section in one.strategies.items() if section.mode == "enforce"} == {"resctrl"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "strategies:\n  cpuSupress: {}\n",
            "f:2:3: $.strategies = 'cpuSupress': unknown key; did you mean cpuSup",
        ),
        ("strategies:\n  resctrl: {mode: on}\n", "f:2:19: $.strategies.resctrl.mode = 'on': not one of"),
        (
            "agent: {intervalSeconds: 0}\n",
            "f:1:26: $.agent.intervalSeconds = '0': out of range; write a number",
        ),
        ("agent: {onStop: restor}\n", "did you mean restore?"),
        ("http: {port: 70000}\n", "0 to 65535"),
    ],
)
def test_mistake_in_the_file(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config.parse(text, "f")
    assert words in str(caught.value)


def test_a_file_that_is_not_there_names_itself(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.yaml.*No such file.*name a readable YAML file"):
        config.load(tmp_path / "missing.yaml")


def test_a_file_that_is_not_text_names_itself(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "binary.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"binary\.yaml"):
        config.load(path)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Awkward(StrategySettings):
    """Values that YAML would read as something else."""

    off: str = "off"
    """Not false."""
    nothing: str = "null"
    """Not null."""
    yes: str = "Yes"
    """Not true."""
    empty: str = ""
    """Empty."""
    digits: str = "12"
    """Not a number."""
    quoted: str = 'a "b" \\ c: d # e'
    """Quotes, backslashes, colons."""
    lines: str = "a\nb"
    """Two lines."""
    maybe: int | None = None
    """Absent."""
    several: tuple[str, ...] = ("on", "a, b")
    """A list."""
    table: dict[str, int] = dataclasses.field(default_factory=lambda: {"x": 1})
    """A table."""


def test_any_default_survives_being_printed() -> None:
    @dataclasses.dataclass(frozen=True)
    class File:
        awkward: Awkward = Awkward(off="changed")

    lines = documented.section("awkward", Awkward())
    assert strict.load("\n".join(lines), File, "printed").awkward == Awkward()


def test_the_environment_names_the_file_where_no_option_does(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_option, by_environment = tmp_path / "a.yaml", tmp_path / "b.yaml"
    by_option.write_text("agent: {node: a}")
    by_environment.write_text("agent: {node: b}")
    assert config.named(None) == config.default()
    monkeypatch.setenv("KOORDLITE_CONFIG", str(by_environment))
    assert config.named(None).agent.node == "b"
    assert config.named(str(by_option)).agent.node == "a"


def test_what_is_left_to_koordinators_manager_observes():
    text = """
publish: {nodeResources: manager}
strategies:
  beAllocatable: {mode: enforce}
  cpuNormalization: {mode: "off"}
  cpuSuppress: {mode: enforce}
"""
    chosen = config.parse(text, "x")
    assert config.yielded_to_manager(chosen) == ("beAllocatable",)
    modes = {name: section.mode for name, section in config.one_writer(chosen).strategies.items()}
    assert (modes["beAllocatable"], modes["cpuNormalization"], modes["cpuSuppress"]) == ("observe", "off", "enforce")
    assert config.published(chosen) == ("kubernetes.io/batch-cpu", "kubernetes.io/batch-memory")
    assert config.published(config.one_writer(chosen)) == ()
