"""A folder that plays a machine's root."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from planted import Rooted


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Rooted]:
    """An empty machine to plant files in."""
    rooted = Rooted(tmp_path)
    yield rooted
    rooted.real.close()
