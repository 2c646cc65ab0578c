"""The library by itself: what it imports, what it offers, and that its README holds."""

from __future__ import annotations

import doctest
import pathlib
import subprocess
import sys

import pytest

import koordlite.resctrl
from koordlite.lab import Sandbox

README = pathlib.Path(koordlite.resctrl.__file__).with_name("README.md")
_IMPORTED = """
import sys
before = set(sys.modules)
import koordlite.resctrl
print(*sorted(set(sys.modules) - before))
"""


def test_the_readme_does_what_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Sandbox("intel-2s-ht")
    monkeypatch.setattr(koordlite.resctrl, "LocalFiles", lambda: node.files)
    code = README.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    found = doctest.DocTestRunner().run(doctest.DocTestParser().get_doctest(code, {}, "README", str(README), 0))
    assert (found.failed, found.attempted) == (0, 12)


def test_the_library_loads_nothing_but_itself_and_the_standard_library() -> None:
    run = subprocess.run([sys.executable, "-c", _IMPORTED], capture_output=True, text=True, check=True)
    loaded = run.stdout.split()
    ours = {name for name in loaded if name.split(".")[0] == "koordlite"}
    others = {name.split(".")[0] for name in loaded} - sys.stdlib_module_names - {"koordlite"}
    assert {name for name in ours if not name.startswith("koordlite.resctrl")} == {"koordlite"}
    assert others == set()


def test_every_module_is_in_the_readme() -> None:
    table = README.read_text(encoding="utf-8").split("## What is where")[1].split("\n\n")[1]
    folder = README.parent
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert {name for name in modules if f"`{name}`" not in table} == set()


def test_what_is_public_is_there_and_documented() -> None:
    for name in koordlite.resctrl.__all__:
        found = getattr(koordlite.resctrl, name)
        if callable(found):
            assert found.__doc__, name
