"""Helpers of the cluster's tests: a folder of manifests and a clock that moves by hand."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from apibench import Bench, opened
from handclock import HandClock
from tinyapi import Reply, Request, TinyApi, client, serving

from koordlite.kube.client import access
from koordlite.kube.folder.manifests import ManifestCluster

NODE = "kind: Node\nmetadata: {name: n1}\nstatus: {capacity: {cpu: 8}, allocatable: {cpu: 8}}\n"


@dataclasses.dataclass
class Desk:
    """A folder with the cluster that reads it."""

    folder: Path
    clock: HandClock

    def write(self, name: str, text: str) -> None:
        """Put a file there."""
        (self.folder / name).write_text(text)

    def cluster(self, **more: object) -> ManifestCluster:
        """A cluster over the folder."""
        return ManifestCluster(self.folder, clock=self.clock, **more)  # type: ignore[arg-type]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A folder with one Node manifest."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    made = Desk(folder, HandClock(10.0))
    made.write("node.yaml", NODE)
    return made


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[Callable[[Request], Reply]], tuple[TinyApi, access.Api]]]:
    """Start a server that answers as a function says; gives the server and access to it."""
    with contextlib.ExitStack() as stack:

        def start(answer: Callable[[Request], Reply]) -> tuple[TinyApi, access.Api]:
            server = stack.enter_context(serving(answer))
            return server, client(tmp_path / "kubeconfig", server.url)

        yield start


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A server with one node, two pods here and one elsewhere, and the CRD of NodeResourceTopology."""
    with opened(tmp_path) as made:
        yield made
