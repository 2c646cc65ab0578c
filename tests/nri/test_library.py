"""The README of the library does what it shows."""

from __future__ import annotations

import pathlib
import threading

import nri_runtime
from nri_runtime import LONG_SECONDS

import koordlite.nri
from koordlite.nri import Container, PodSandbox

README = pathlib.Path(koordlite.nri.__file__).with_name("README.md")


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
