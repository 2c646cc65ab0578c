"""Sentences of the documents that say what the product does: each is compared with the product."""

from __future__ import annotations

import json
import pathlib
import re

import pytest

from koordlite import config, strategies
from koordlite.model.slo import config as slo

ROOT = pathlib.Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *DOCS.glob("*.md")])
STRATEGIES = {rule.name for rule in strategies.discover()}


def text(name: str) -> str:
    """A page on one line, so that a sentence may be broken anywhere."""
    return " ".join((ROOT / name).read_text(encoding="utf-8").split())


def test_the_undo_journal_is_where_pages_say_it_is() -> None:
    folder = config.default().agent.state_dir
    assert folder.startswith("/run/"), "on tmpfs: pages say so"
    assert f"`agent.stateDir` (`{folder}`)" in text("docs/restore.md")
    for page in ("README.md", "docs/index.md", "docs/design.md", "docs/restore.md"):
        assert "tmpfs" in text(page), page
    assert [page.name for page in PAGES if re.search(r"journal on disk\b", text(str(page.relative_to(ROOT))))] == []


def test_the_flight_record_is_where_pages_say_it_is() -> None:
    record = config.default().record
    assert f"`record.folder` (`{record.folder}`)" in text("docs/record.md")
    assert f"at most {record.max_mib} MiB" in text("docs/install.md")


def test_a_fresh_install_observes_and_pages_say_so() -> None:
    held = config.default().strategies
    assert {section.mode for section in held.values()} <= {"observe", "off"}
    off = {name for name, section in held.items() if section.mode == "off"}
    (named,) = re.findall(r"Off until they are named: (.+?)\.", text("CHANGELOG.md"))
    assert set(re.findall(r"`(\w+)`", named)) == off, "CHANGELOG.md lists them"


def test_the_order_of_enforcing_names_strategies_that_there_are() -> None:
    section = text("docs/operate.md").partition("## The order of enforcing")[2].partition("## ")[0]
    named = re.findall(r"`([a-z]\w*[A-Z]\w*|blkio|resctrl)`", section)
    assert set(named) - STRATEGIES - {"cpuSuppressPolicy"} == set()
    assert len(set(named) & STRATEGIES) > 12


@pytest.mark.parametrize("page", ["docs/troubleshooting.md", "docs/alerts.md", "docs/last-night.md", "docs/rollout.md"])
def test_camel_case_words_in_backticks_are_words_of_the_product(page: str) -> None:
    """Strategies, options, keys of the ConfigMap, reasons: troubleshooting once named a strategy that was another's."""
    said = (DOCS / "decisions.md").read_text() + (ROOT / "configs" / "koordlite.yaml").read_text()
    said += (ROOT / "manifests/settings/slo-controller-config.yaml").read_text()
    said += (ROOT / "configs" / "descheduler.yaml").read_text() + (ROOT / "docs" / "reservations.md").read_text()
    words = set(re.findall(r"`([a-z]+[A-Z]\w+|[A-Z][a-z]+[A-Z]\w+)`", (ROOT / page).read_text()))
    assert {word for word in words if word not in STRATEGIES and not re.search(rf"\b{word}\b", said)} == set()


def test_pods_of_the_compatibility_page_are_counted_and_not_promised() -> None:
    page = text("docs/compatibility.md")
    assert "lists the differences we know of" in page
    assert not re.search(r"lists every difference|every reserved CPU counts", page)


def test_the_comparison_with_the_go_descheduler_is_of_one_run() -> None:
    for page in PAGES:
        assert not re.search(r"thirty times|thirtieth", page.read_text(encoding="utf-8")), page.name
    (table,) = re.findall(
        r"\| Go \|[^\n]+\n\| this one \|[^\n]+", (DOCS / "performance.md").read_text(encoding="utf-8")
    )
    assert table.count("|") == 10


def test_settings_of_the_rollout_page_are_read_as_it_says() -> None:
    (block,) = re.findall(r"resource-threshold-config: \|\n((?:    .+\n)+)", (DOCS / "rollout.md").read_text())
    document = json.loads(block)
    percent = {
        pool: slo.effective(
            {"resource-threshold-config": block}, labels={"pool": pool}, annotations={}
        ).threshold.cpu_suppress_threshold_percent
        for pool in ("batch", "payment", "web")
    }
    groups = [each["cpuSuppressThresholdPercent"] for each in document["nodeStrategies"]]
    assert [*percent.values()] == [*groups, document["clusterStrategy"]["cpuSuppressThresholdPercent"]]
