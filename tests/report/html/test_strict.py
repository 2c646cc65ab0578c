"""Inline styles become classes, the policy names the sheet by its hash, and the rest of the page stays as it was."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.report.html import page
from koordlite.report.html.page import el, strict


def test_equal_styles_share_a_class_and_an_element_keeps_its_own() -> None:
    one, two = el("p", "a", style="color:red"), el("p", "b", style="color:red", class_="note")
    made = strict(page.page("t", one, two))
    assert '<p class="i0">a</p><p class="note i0">b</p>' in made.text
    assert ".i0.i0.i0{color:red}" in made.text
    assert "style=" not in made.text


def test_the_policy_allows_the_sheet_of_this_page_and_nothing_else() -> None:
    made = strict(page.page("t", el("p", "a", style="color:red")))
    sheet = re.search(r"<style>(.*?)</style>", made.text, re.DOTALL)
    assert sheet
    digest = base64.b64encode(hashlib.sha256(sheet[1].encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in made.policy
    assert made.policy.startswith("default-src 'none';")
    assert "unsafe" not in made.policy + made.text
    assert made.headers["Content-Security-Policy"] == made.policy


def test_the_policy_allows_the_scripts_that_the_page_was_made_with_and_no_others() -> None:
    made = strict(page.page("t", page.Markup("<script>alert(1)</script>"), script="one()", refresh_seconds=5))
    assert made.text.count("<script>") == 3
    allowed = " ".join(f"'sha256-{page.digest(text)}'" for text in ("one()", page.LIVE_SCRIPT))
    assert f"; script-src {allowed}; connect-src 'self'" in made.policy
    assert "script-src" not in strict(page.page("t")).policy


@given(st.text(max_size=40), st.text(max_size=20))
def test_text_that_looks_like_a_style_is_left_alone(said: str, titled: str) -> None:
    text = f'<p style="x">{said}'
    made = strict(page.page("t", el("p", text, title=f'" style="y" {titled}')))
    assert str(page.escape(text)) in made.text
    assert f'title="{page.escape(f"{chr(34)} style={chr(34)}y{chr(34)} {titled}")}"' in made.text


def test_quotes_in_a_style_come_back(read_html: Callable[[str], Any]) -> None:
    made = strict(page.page("t", el("p", "a", style='font-family:"A B"')))
    assert '.i0.i0.i0{font-family:"A B"}' in made.text
    read_html(made.text)


@pytest.mark.parametrize("body", ["", "plain"])
def test_a_page_without_styles_only_gets_a_policy(body: str) -> None:
    made = strict(page.page("t", el("p", body)))
    assert f"<p>{body}</p>" in made.text
    assert "http-equiv" not in made.text, "the policy is in the header"
