"""A real headless Chromium over its debugging pipe: opens a page, measures it, tells what the browser complained of."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pytest
import slices

Object = dict[str, Any]
BINARY = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_SIZES = ((390, True), (1280, False), (390, False), (1280, True))
VIEWS = [*_SIZES[:2], *(slices.long(*size) for size in _SIZES[2:])]
"""Width of a window, and whether it is dark."""


def looks(paths: Sequence[str]) -> list[Any]:
    """Path, width and darkness: each path in one view, one after the other light and dark, and in all in a long run."""
    return [
        pytest.param(path, *size, marks=[] if size == _SIZES[number % 2] else pytest.mark.long)
        for number, path in enumerate(paths)
        for size in _SIZES
    ]


_AXE = """
async alike => {
  const seen = {}, texts = [...document.body.querySelectorAll('*')].filter(each => {
    const own = [...each.childNodes].some(child => child.nodeType === Node.TEXT_NODE && child.data.trim())
    if (!own && !each.matches('input, select, textarea')) return false
    const style = getComputedStyle(each)
    let kind = [style.color, style.backgroundColor, style.fontSize, style.fontWeight].join()
    for (let at = each; at; at = at.parentElement) kind += ` ${at.tagName}.${at.className}`
    return (seen[kind] = (seen[kind] || 0) + 1) <= alike
  })
  // Without `resultTypes` axe also describes each place where a rule holds: most of its time on a long page.
  const options = {resultTypes: ['violations']}, contrast = 'color-contrast'
  const found = [
    await axe.run({...options, rules: {[contrast]: {enabled: false}}}),
    await axe.run(texts, {...options, runOnly: [contrast]}),
  ].flatMap(result => result.violations)
  return found.map(v => `${v.id}: ${v.nodes[0].failureSummary}${v.nodes[0].html}`)
}
"""
"""Contrast takes axe most of its time. It is looked at for `alike` texts of each kind: of the same colours and font, in
elements of the same names and classes."""
_FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe")


class Browser:
    """One tab."""

    def __init__(self, reader: BinaryIO, writer: int) -> None:
        self._reader, self._writer = reader, writer
        self._ids = itertools.count(1)
        self._rest = b""
        self._events: list[Object] = []
        self._session = ""
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._ask(f"{domain}.enable")
        self._ask("Page.setLifecycleEventsEnabled", enabled=True)

    def open(self, url: str, *, width: int, height: int = 900, dark: bool = False) -> None:
        """Load `url` in a window of this size."""
        self._events.clear()
        self._ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", features=[scheme])
        navigation = self._ask("Page.navigate", url=url)
        assert "errorText" not in navigation, f"{url}: {navigation['errorText']}"
        loader = navigation["loaderId"]
        # Events of the page before may still arrive: only the load of this one counts.
        while not any(_is_load(event, loader) for event in self._events):
            self._events.append(self._next())

    def value(self, expression: str) -> Any:
        """What a JavaScript expression gives in the page."""
        answer = self._ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, f"{expression}: {answer['exceptionDetails']}"
        return answer["result"].get("value")

    def press_in(self, selector: str, text: str) -> None:
        """Type `text` into the field, key by key, as a person does."""
        self.value(f"document.querySelector({json.dumps(selector)}).focus()")
        for key in text:
            self._ask("Input.dispatchKeyEvent", type="keyDown", text=key)
            self._ask("Input.dispatchKeyEvent", type="keyUp")

    def click(self, selector: str) -> None:
        """Press the mouse on the middle of the first such element, scrolled to."""
        found = f"document.querySelector({json.dumps(selector)})"
        self.value(f"{found}.scrollIntoView({{block: 'center'}})")
        box = self.value(f"(b => [b.x + b.width / 2, b.y + b.height / 2])({found}.getBoundingClientRect())")
        for kind in ("mousePressed", "mouseReleased"):
            self._ask("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    @contextlib.contextmanager
    def another_tab(self) -> Iterator[None]:
        """Inside, another tab is seen and this one is hidden."""
        other = self._ask("Target.createTarget", url="about:blank")["targetId"]
        try:
            yield
        finally:
            self._ask("Target.closeTarget", targetId=other)
            self._ask("Page.bringToFront")

    @contextlib.contextmanager
    def without_scripts(self) -> Iterator[None]:
        """Inside, pages that are opened run no scripts."""
        self._ask("Emulation.setScriptExecutionDisabled", value=True)
        try:
            yield
        finally:
            self._ask("Emulation.setScriptExecutionDisabled", value=False)

    def inaccessible(self) -> list[str]:
        """What axe-core finds wrong with the page for people who see little, or use no mouse: rule, and first place.

        Of texts that look alike a slice is looked at for contrast: tests of long pages have the marker `sliced`.
        """
        found = importlib.util.find_spec("axe_core_python")
        assert found and found.origin, "axe-core-python is not installed"
        self._ask("Runtime.evaluate", expression=(Path(found.origin).parent / "axe.min.js").read_text())
        ask = f"({_AXE})({slices.amount(10_000, 2)})"
        answer = self._ask("Runtime.evaluate", expression=ask, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        violations: list[str] = answer["result"]["value"]
        return violations

    @property
    def complaints(self) -> list[str]:
        """What the browser wrote to the console: violations of the policy among it."""
        self.value("0")  # Whatever came before the answer is read.
        entries = [event["params"]["entry"] for event in self._events if event["method"] == "Log.entryAdded"]
        return [entry["text"] for entry in entries if "favicon" not in entry.get("url", "")]

    def _ask(self, method: str, **params: Any) -> Object:
        number = next(self._ids)
        message: Object = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._writer, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: Object = answer["result"]
                return result
            self._events.append(answer)

    def _next(self) -> Object:
        while b"\0" not in self._rest:
            more = self._reader.read1(1 << 16)  # type: ignore[attr-defined]
            assert more, "the browser is gone"
            self._rest += more
        text, _, self._rest = self._rest.partition(b"\0")
        found: Object = json.loads(text)
        return {"method": "", **found}


def _is_load(event: Object, loader: str) -> bool:
    """Whether this event says that the document of `loader` is there with all it refers to."""
    params = event.get("params", {})
    return event["method"] == "Page.lifecycleEvent" and params["name"] == "load" and params["loaderId"] == loader


def has_axe() -> bool:
    """Whether `Browser.inaccessible` can be asked."""
    return importlib.util.find_spec("axe_core_python") is not None


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """A browser of its own, which ends with the block."""
    assert BINARY, "there is no Chromium here"
    to_read, to_answer = os.pipe()
    from_us, ours = os.pipe()
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as folder:
        # The browser reads commands from descriptor 3 and answers on 4.
        words = [BINARY, *_FLAGS, f"--user-data-dir={folder}", "about:blank"]
        shell = f'exec "$@" 3<&{from_us} 4>&{to_answer}'
        process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *words],
            pass_fds=(from_us, to_answer),
            stderr=subprocess.DEVNULL,
            env={**os.environ, "TMPDIR": folder},
        )
        os.close(from_us)
        os.close(to_answer)
        with os.fdopen(to_read, "rb") as reader:
            try:
                yield Browser(reader, ours)
            finally:
                os.close(ours)
                process.terminate()
                process.wait(timeout=10)
