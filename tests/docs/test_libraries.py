"""The libraries by themselves: what they import, what they offer, and the tables of their READMEs."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import types

import pytest

import koordlite.nri
import koordlite.resctrl

EACH = pytest.mark.parametrize("library", [koordlite.nri, koordlite.resctrl], ids=lambda each: each.__name__)
_IMPORTED = """
import sys
before = set(sys.modules)
import {}
print(*sorted(set(sys.modules) - before))
"""


@EACH
def test_it_loads_nothing_but_itself_and_the_standard_library(library: types.ModuleType) -> None:
    code = _IMPORTED.format(library.__name__)
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert library.__name__ in loaded
    foreign = {name for name in loaded if name.split(".")[0] not in sys.stdlib_module_names}
    assert {name for name in foreign if not f"{name}.".startswith(f"{library.__name__}.")} == {"koordlite"}


@EACH
def test_every_module_is_in_its_readme(library: types.ModuleType) -> None:
    folder = pathlib.Path(library.__path__[0])
    table = (folder / "README.md").read_text(encoding="utf-8").split("## What is where")[1].split("\n\n")[1]
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert {name for name in modules if f"`{name}`" not in table} == set()


@EACH
def test_what_is_public_is_there_and_documented(library: types.ModuleType) -> None:
    public = [(name, getattr(library, name)) for name in library.__all__]
    assert [name for name, found in public if isinstance(found, type | types.FunctionType) and not found.__doc__] == []
