"""Names of the protocols have one place, and words of kubelet's options one reader."""

from __future__ import annotations

import pathlib
import re

import pytest

import descheduler
import koordlite
from descheduler.snapshot import node_state
from koordlite.model.nrt import CPUManagerPolicy
from koordlite.model.reading.go_words import STRICT_RESERVATION, is_on
from koordlite.numa.kubelet.cpu_manager import CPUOptions

_KEY = re.compile(r'"(?:[a-z-]+\.)*(?:koordinator\.sh|crane\.io|volcano\.sh)/(?!v\d)[a-zA-Z./-]*"')


def test_every_key_of_the_protocols_is_in_one_module() -> None:
    found = [
        f"{path}: {match[0]}"
        for package in (koordlite, descheduler)
        for path in pathlib.Path(package.__file__ or "").parent.rglob("*.py")
        if path.parts[-2:] != ("model", "keys.py")
        for match in _KEY.finditer(path.read_text())
        if match[0] != '"koordinator.sh/"'
    ]
    assert found == []


@pytest.mark.parametrize(
    ("word", "on"), [(word, True) for word in ("1", "t", "T", "true", "TRUE", "True")] + [("TrUe", False), ("", False)]
)
def test_an_option_is_on_for_everybody_or_for_nobody(word: str, on: bool) -> None:
    options = {STRICT_RESERVATION: word}
    assert is_on(options, STRICT_RESERVATION) is on
    reported = node_state.Report(cpu_manager=CPUManagerPolicy(policy="static", options=options))
    assert node_state.reserved_cpus(reported, None, None).strict is on
    if on:
        assert CPUOptions.parse(options).strict_reservation
    else:
        with pytest.raises(ValueError, match="bad value"):
            CPUOptions.parse(options)
