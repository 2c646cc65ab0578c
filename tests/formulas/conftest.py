"""Machines to compute on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from koordlite.model.topology import CPU

Machine = Callable[..., list[CPU]]


@pytest.fixture
def machine() -> Machine:
    """Make the CPUs of a machine: hyperthreads of a core are `i` and `i + cores`, as most servers number them."""

    def make(*, sockets: int = 1, nodes_per_socket: int = 1, cores_per_node: int = 4, threads: int = 2) -> list[CPU]:
        cores = sockets * nodes_per_socket * cores_per_node
        return [
            CPU(
                id=thread * cores + core,
                core=core,
                socket=core // (nodes_per_socket * cores_per_node),
                node=core // cores_per_node,
            )
            for thread in range(threads)
            for core in range(cores)
        ]

    return make
