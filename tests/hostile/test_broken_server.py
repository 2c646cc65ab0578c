"""A server that is broken, or no API server: endless, compressed and oversized answers end in an error."""

from __future__ import annotations

import gzip
import itertools
import json
import resource
from pathlib import Path
from typing import Any

import pytest
from tinyapi import Reply, Request, kubeconfig, serving

from koordlite.kube.client import access
from koordlite.kube.client.access import Api
from koordlite.kube.client.answers import ApiError, ApiUnreachable
from koordlite.kube.watch import sources
from koordlite.kube.watch.reflector import Reflector
from koordlite.kube.watch.store import is_older

MIB = 2**20


def client(folder: Path, url: str) -> Api:
    """What an agent asks with."""
    return access.connect(str(kubeconfig(folder / "k", url)), None, user_agent="test", answer_bytes=4 * MIB)


def node(version: str = "1", name: str = "node-a") -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": version}}


def listed(*items: Any, token: str = "") -> dict[str, Any]:
    return {"metadata": {"resourceVersion": "1", "continue": token}, "items": list(items)}


def peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def test_an_answer_without_end_is_cut_off(tmp_path: Path) -> None:
    endless = itertools.repeat(b" " * MIB)
    with serving(lambda request: Reply(lines=endless)) as server, pytest.raises(ApiUnreachable, match="more than"):
        client(tmp_path, server.url).request("GET", "/x")


@pytest.mark.parametrize("use", ["request", "stream"])
def test_what_nobody_asked_to_be_compressed_is_not_unpacked(tmp_path: Path, use: str) -> None:
    bomb = gzip.compress(b" " * 64 * MIB, 9)
    before = peak_mib()

    def answer(request: Request) -> Reply:
        assert request.headers["accept-encoding"] == "identity"
        return Reply(body=bomb, headers={"Content-Encoding": "gzip"})

    with serving(answer) as server:
        api = client(tmp_path, server.url)
        with pytest.raises(ApiUnreachable, match=r"compressed \(gzip\)"):
            if use == "request":
                api.request("GET", "/x")
            else:
                with api.stream("/x") as lines:
                    list(lines)
    assert peak_mib() - before < 30


def test_a_list_that_never_ends_is_given_up(tmp_path: Path) -> None:
    numbers = itertools.count()
    kinds = {
        "the same token": lambda: listed(node(), token="again"),
        "parts without objects": lambda: listed(token=f"t{next(numbers)}"),
        "a token of megabytes": lambda: listed(node(), token="x" * MIB),
        "objects for ever": lambda: listed(
            *({"metadata": {"name": "x" * 100_000}} for _ in range(20)), token=f"t{next(numbers)}"
        ),
    }
    for name, make in kinds.items():
        with serving(lambda request, make=make: Reply(body=make())) as server:
            api = client(tmp_path, server.url)
            with pytest.raises(ApiUnreachable, match="does not end"):
                api.collect("/api/v1/nodes")
            assert len(server.requests) < 40, name


@pytest.mark.parametrize("version", ["9" * 5000, "x" * 5000])
def test_a_resource_version_of_thousands_of_characters_is_none(version: str) -> None:
    reflector = Reflector(sources.node("node-a"), uniform=lambda low, high: low)
    with pytest.raises(ApiError, match="5000 characters"):
        reflector.on_list(version, [], 0.0)
    reflector.on_list("7", [json.dumps(node("7")).encode()], 0.0)  # type: ignore[list-item]
    reflector.on_watch(1.0)
    line = json.dumps({"type": "MODIFIED", "object": node(version)}).encode()
    with pytest.raises(ApiError, match="5000 characters"):
        reflector.on_line(line, 2.0)
    assert reflector.view(3.0).listed


def test_versions_are_compared_as_the_numbers_they_are() -> None:
    assert is_older("9", "10")
    assert not is_older("10", "9")
    assert not is_older("10", "10")
    assert is_older("0010", "11")
    assert is_older("9" * 5000, "1" + "0" * 5000)
    assert not is_older("a", "10")
    assert not is_older("٣", "10"), "no number of ours"


def test_an_object_with_bytes_that_are_no_text_costs_itself(tmp_path: Path) -> None:
    reflector = Reflector(sources.node("node-a"), uniform=lambda low, high: low)
    reflector.on_list("7", [b'{"metadata":{"name":"bad\xed"}}', json.dumps(node()).encode()], 0.0)  # type: ignore[list-item]
    view = reflector.view(1.0)
    assert list(view.objects) == ["node-a"]
    assert len(view.problems) == 1
