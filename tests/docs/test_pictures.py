"""Pictures in docs/images show what the product shows. Stale ones: `make pictures`."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pictured
import pytest

from descheduler import cli

ROOT = pathlib.Path(__file__).parents[2]
DO = "stale: run `make pictures` and commit docs/images"


def test_the_picture_of_the_plan_shows_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", "--snapshot", str(ROOT / "configs" / "tour"), "-o", "html"]) == 0
    assert pictured.plan(capsys.readouterr().out) == json.loads(pictured.SHOWN.read_text())["plan.png"], DO


def test_the_picture_of_the_parts_is_what_its_source_draws(tmp_path: pathlib.Path) -> None:
    subprocess.run([sys.executable, ROOT / "scripts" / "architecture", tmp_path / "made.svg"], check=True, timeout=30)
    assert (ROOT / "docs/images/architecture.svg").read_text() == (tmp_path / "made.svg").read_text(), DO


def test_pictures_that_pages_show_are_there_and_each_is_shown() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    pictures = [path.name for path in (ROOT / "docs" / "images").iterdir() if path.suffix in (".svg", ".png")]
    assert pictures and [name for name in pictures if f"images/{name})" not in text] == []
