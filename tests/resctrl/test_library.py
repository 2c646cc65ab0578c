"""The README of the library does what it shows."""

from __future__ import annotations

import doctest
import pathlib

import pytest

import koordlite.resctrl
from koordlite.lab import Sandbox

README = pathlib.Path(koordlite.resctrl.__file__).with_name("README.md")


def test_the_readme_does_what_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Sandbox("intel-2s-ht")
    monkeypatch.setattr(koordlite.resctrl, "LocalFiles", lambda: node.files)
    code = README.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    found = doctest.DocTestRunner().run(doctest.DocTestParser().get_doctest(code, {}, "README", str(README), 0))
    assert (found.failed, found.attempted) == (0, 12)
