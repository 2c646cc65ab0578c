"""Plugins of other packages, installed as packages are: a module, and metadata with an entry point."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from descheduler import plugins
from koordlite.model.errors import ConfigError

GOOD = '''"""Pods must have a good name."""
import dataclasses
from descheduler.framework import Finding

NAME = "GoodNames"
POINT = "balance"


@dataclasses.dataclass(frozen=True)
class Config:
    """No arguments."""


def judge(view, config, handle):
    yield Finding(pod="uid", reason="BadName")
'''


@pytest.fixture
def site(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pathlib.Path]:
    """A folder of packages that this process looks into."""
    monkeypatch.syspath_prepend(str(tmp_path))
    plugins.discover.cache_clear()
    yield tmp_path
    plugins.discover.cache_clear()


def install(site: pathlib.Path, module: str, text: str) -> None:
    (site / f"{module}.py").write_text(text, encoding="utf-8")
    info = site / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[{plugins.GROUP}]\nrule = {module}\n", encoding="utf-8")


def test_an_installed_plugin_is_found_beside_ours(site: pathlib.Path) -> None:
    install(site, "good_names_a", GOOD)
    found = plugins.discover()
    assert {"GoodNames", "ReservedCPUs"} <= set(found)
    plugin = found["GoodNames"]
    assert (plugin.point, plugin.order, plugin.doc) == ("balance", "own", "Pods must have a good name.")


@pytest.mark.parametrize(
    ("module", "text", "words"),
    [
        pytest.param("bad_a", GOOD.replace('NAME = "GoodNames"', ""), "it has no NAME", id="no name"),
        pytest.param("bad_b", GOOD.replace('"balance"', '"later"'), "none of deschedule, balance", id="no such point"),
        pytest.param("bad_c", GOOD.replace('"GoodNames"', '"ReservedCPUs"'), "is taken", id="a name of ours"),
        pytest.param("bad_d", GOOD.replace('"GoodNames"', '"DefaultEvictor"'), "is taken", id="a name of the evictor"),
        pytest.param("bad_e", "import nothing_of_this_name", "cannot be imported", id="what it needs is missing"),
        pytest.param("bad_f", GOOD + "\nclass Config: pass\n", "no dataclass", id="arguments that cannot be read"),
        pytest.param("bad_g", GOOD + 'READS = ("status",)', "some of statuses, time, usage", id="no such facet"),
        pytest.param("bad_h", GOOD + 'READS = ("time")', "no tuple of some of", id="one facet without its comma"),
    ],
)
def test_a_plugin_that_cannot_be_used_is_named_with_its_package(
    site: pathlib.Path, module: str, text: str, words: str
) -> None:
    install(site, module, text)
    with pytest.raises(ConfigError, match=words) as caught:
        plugins.discover()
    assert module in str(caught.value)
