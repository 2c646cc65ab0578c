"""The library by itself: what it imports, what it offers, and that its README holds."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import threading

import nri_runtime
from nri_runtime import LONG_SECONDS

import koordlite.nri
from koordlite.nri import Container, PodSandbox

README = pathlib.Path(koordlite.nri.__file__).with_name("README.md")
_IMPORTED = """
import sys
before = set(sys.modules)
import koordlite.nri
print(*sorted(set(sys.modules) - before))
"""


def test_the_readme_does_what_it_shows(tmp_path: pathlib.Path) -> None:
    code = README.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    made: list[koordlite.nri.Plugin] = []

    def plugin(*arguments: koordlite.nri.Handler, name: str, index: str) -> koordlite.nri.Plugin:
        made.append(koordlite.nri.Plugin(*arguments, name=name, index=index, path=runtime.path))
        return made[0]

    with nri_runtime.running(tmp_path) as runtime:
        names = {"Plugin": plugin}
        code = code.replace(
            "import *", "import NOTHING, Answer, ContainerAdjustment, Handler, LinuxContainerAdjustment"
        )
        code = code.replace("LinuxContainerAdjustment\n", "LinuxContainerAdjustment, LinuxCPU, LinuxResources\n", 1)
        thread = threading.Thread(target=exec, args=(code, names))
        thread.start()
        runtime.welcome()
        main = Container(id="c", name="main")
        adjusted = runtime.create(PodSandbox(name="a", namespace="batch"), main)
        assert adjusted and adjusted.resources and adjusted.resources.cpu and adjusted.resources.cpu.shares == 2
        assert runtime.create(PodSandbox(name="b", namespace="web"), main) is None
        assert runtime.update(PodSandbox(name="a"), main, koordlite.nri.LinuxResources()) is None
        made[0].stop()
        thread.join(LONG_SECONDS)


def test_the_library_loads_nothing_but_itself_and_the_standard_library() -> None:
    run = subprocess.run([sys.executable, "-c", _IMPORTED], capture_output=True, text=True, check=True)
    loaded = run.stdout.split()
    ours = {name for name in loaded if name.split(".")[0] == "koordlite"}
    others = {name.split(".")[0] for name in loaded} - sys.stdlib_module_names - {"koordlite"}
    assert {name for name in ours if not name.startswith("koordlite.nri")} == {"koordlite"}
    assert others == set()


def test_every_module_is_in_the_readme() -> None:
    table = README.read_text(encoding="utf-8").split("## What is where")[1].split("\n\n")[1]
    modules = {path.stem for path in README.parent.glob("*.py")} - {"__init__"}
    assert {name for name in modules if f"`{name}`" not in table} == set()


def test_what_is_public_is_there_and_documented() -> None:
    for name in koordlite.nri.__all__:
        found = getattr(koordlite.nri, name)
        if isinstance(found, type):
            assert found.__doc__, name
