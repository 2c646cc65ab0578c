"""Pages served as the product serves them, and a real browser to look at them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from chromium import BINARY, Browser, browser

from koordlite.http.server import Ask, Server


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """One Chromium for all of them."""
    if BINARY is None:
        pytest.skip("Chromium is not installed (Debian: apt-get install chromium)")
    with browser() as opened:
        yield opened


@pytest.fixture
def serve() -> Iterator[Callable[[Ask], str]]:
    """Serve answers on loopback; gives the address."""
    servers: list[Server] = []

    def start(ask: Ask) -> str:
        server = Server("127.0.0.1", 0, ask)
        servers.append(server)
        server.start()
        return server.url

    yield start
    for server in servers:
        server.close()
